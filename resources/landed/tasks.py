"""Many landing files as rows with their partition columns: in Spark's Python workers, or in this process.

Not here: one file (formats.py), and which files there are (listing.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from resources.landed.formats import BadFile, Problem, Reading, Source, chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# Marks what an error of a task says about a landing file.
MARK = "VARVE_BAD_ROW"


@dataclass(frozen=True)
class Piece:
    """A file of a partition.

    Attributes:
        values: the partition's key, as its columns hold it.
        size: in bytes, as it lies there.
    """

    source: Source
    values: tuple[Any, ...]
    size: int


class BadRows(Exception):
    """Rows of a file were refused."""

    def __init__(self, source: Source, problems: Sequence[Problem]) -> None:
        super().__init__(source, problems)
        self.source = source
        self.problems = problems


def file_batches(piece: Piece, reading: Reading, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a file. Raises BadRows at the first chunk with a refused value, and BadFile."""
    import fsspec

    files, path = fsspec.core.url_to_fs(piece.source.uri)
    key = list(zip(piece.values, schema.types[len(reading.columns) :], strict=True))
    with files.open(path, "rb") as file:
        for chunk in chunks(file, piece.source, reading):
            if chunk.problems:
                raise BadRows(piece.source, chunk.problems)
            keys = [pa.repeat(pa.scalar(value, kind), chunk.rows) for value, kind in key]
            yield pa.RecordBatch.from_arrays([*chunk.columns, *keys], schema=schema)


def in_task(
    dealt: Sequence[Sequence[Piece]], reading: Reading, schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` over the numbers of the shares: the rows of the files of its share."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for piece in dealt[number]:
                    try:
                        yield from file_batches(piece, reading, schema)
                    except (BadRows, BadFile):
                        # Which rows they are is found out where it can be told whole. In hex, as errors of Spark
                        # quote and escape each other's texts.
                        raise RuntimeError(f"{MARK}{piece.source.uri.encode().hex()}{MARK}") from None

    return run
