"""Reads one landing file of any format as chunks of Arrow columns, with all refused values.

Not here: what each format does with its files (csv_files.py, json_lines.py, avro.py, parquet.py), parsing values
(texts.py, objects.py), and reading many files (tasks.py).
"""

from __future__ import annotations

import lzma
import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from varve.sources.formats.avro import avro_chunks
from varve.sources.formats.csv_files import csv_chunks, header_of, records_of
from varve.sources.formats.file_reading import BadFile, FileReading, FileSource, first_line
from varve.sources.formats.json_lines import json_chunks
from varve.sources.formats.lines import refuse_unended, unpacked
from varve.sources.formats.parquet import parquet_chunks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from varve.sources.formats.chunk import Chunk

_BLOCK = 1 << 20
# What the libraries raise for a file that is damaged, or that holds what they do not read.
_DAMAGED = (pa.ArrowException, ValueError, OverflowError, EOFError, zlib.error, lzma.LZMAError)


def chunks(
    file: Any, source: FileSource, reading: FileReading, key: Mapping[str, Any] | None = None
) -> Iterator[Chunk]:
    """The rows of an open binary file of the partition `key`. Raises BadFile for an error of the file as a whole."""
    read = {"csv": csv_chunks, "jsonl": json_chunks, "parquet": parquet_chunks, "avro": avro_chunks}[source.format]
    try:
        yield from read(unpacked(file, source.compression), reading, key or {})
    except _DAMAGED as error:
        raise BadFile(f"it cannot be read as {source.format}: {first_line(error)}.") from error
    except OSError as error:
        if source.compression or source.unit != "line":
            raise BadFile(f"it is no whole {source.compression or source.format} file: {first_line(error)}.") from error
        raise


def look(file: Any, source: FileSource, reading: FileReading) -> None:
    """Check the columns and the end of an open file without reading its rows. Raises BadFile."""
    stream = unpacked(file, source.compression)
    try:
        if source.format == "csv" and reading.header != "none":
            header_of(iter(records_of(stream, reading)), reading)
        elif source.format in {"parquet", "avro"}:
            next(chunks(stream, FileSource(source.uri, source.format), reading), None)
        if source.compression:
            last = b""
            file.seek(0)
            # The first stream must stay alive: when it is garbage-collected it closes the file.
            second_stream = unpacked(file, source.compression)
            while read := second_stream.read(_BLOCK):
                last = read
            refuse_unended(last, reading)
    except (OSError, *_DAMAGED) as error:
        raise BadFile(f"it is no whole {source.compression or source.format} file: {first_line(error)}.") from error
