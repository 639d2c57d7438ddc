"""Avro files as chunks.

Not here: converting the values of their records (objects.py).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, cast

from varve.sources.formats.chunk import CHUNK_ROWS, Chunk, ChunkBuilder, chunk_of_objects
from varve.sources.formats.file_reading import BadFile, FileReading, first_line, refuse_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def avro_chunks(file: Any, reading: FileReading, key: Mapping[str, Any]) -> Iterator[Chunk]:
    """The rows of an unpacked Avro file of the partition `key`. Raises BadFile."""
    import fastavro

    try:
        reader = fastavro.reader(file)
        schema, place = reader.writer_schema, 0
        refuse_columns([field["name"] for field in schema["fields"]] if isinstance(schema, dict) else [], reading)
        while rows := cast("list[dict[str, Any]]", list(itertools.islice(reader, CHUNK_ROWS))):
            yield chunk_of_objects(rows, ChunkBuilder(range(place + 1, place + 1 + len(rows)), {}), reading, key)
            place += len(rows)
    except BadFile:
        raise
    except (ValueError, KeyError, IndexError, TypeError, EOFError, fastavro.schema.SchemaParseException) as error:
        raise BadFile(f"it is no whole avro file: {first_line(error)}.") from error
