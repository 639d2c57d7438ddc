"""Avro files as chunks.

Not here: converting the values of their records (objects.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from varve.sources.formats.chunk import Chunk, ChunkBuilder, chunk_of_objects, next_rows
from varve.sources.formats.file_reading import BadFile, FileReading, first_line, refuse_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


def avro_chunks(file: Any, reading: FileReading, key: Mapping[str, Any]) -> Iterator[Chunk]:
    """The rows of an unpacked Avro file of the partition `key`. Raises BadFile."""
    import fastavro

    reader, place = _read(lambda: fastavro.reader(file)), 0
    schema = reader.writer_schema
    refuse_columns([field["name"] for field in schema["fields"]] if isinstance(schema, dict) else [], reading)
    while rows := cast("list[dict[str, Any]]", _read(lambda: next_rows(reader, _size))):
        yield chunk_of_objects(rows, ChunkBuilder(range(place + 1, place + 1 + len(rows)), {}), reading, key)
        place += len(rows)


def _size(row: Any) -> int:
    return sum(len(value) for value in row.values() if isinstance(value, str | bytes)) if isinstance(row, dict) else 0


def _read(what: Callable[[], Any]) -> Any:
    """What the library returns. Raises BadFile for whatever it raises: each codec of a block has errors of its own."""
    try:
        return what()
    except OSError:
        raise
    except Exception as error:
        raise BadFile(f"it is no whole avro file: {first_line(error)}.") from error
