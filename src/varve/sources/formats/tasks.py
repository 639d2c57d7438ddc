"""Reads many landing files as rows with their partition columns, in Spark's Python workers or in this process.

Not here: one file (formats.py), and which files there are (landing/listing.py).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from varve.sources.formats.checks import TEXT_CHARACTERS, RowProblem, shown
from varve.sources.formats.file_reading import BadFile, FileReading, FileSource
from varve.sources.formats.formats import chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from varve.sources.formats.chunk import Chunk

# Surrounds the URI of a landing file in the error message of a task.
MARK = "VARVE_BAD_ROW"
_VALUE_CHARACTERS = 200


@dataclass(frozen=True)
class FilePiece:
    """A landing file and its partition.

    Attributes:
        values: the values of the partition columns.
        size: the size of the file in bytes, compressed as it is.
    """

    source: FileSource
    values: tuple[Any, ...]
    size: int


class BadRows(Exception):
    """Rows of a file were refused."""

    def __init__(self, source: FileSource, problems: Sequence[RowProblem]) -> None:
        super().__init__(source, problems)
        self.source = source
        self.problems = problems


def chunks_of(piece: FilePiece, reading: FileReading, names: Sequence[str]) -> Iterator[Chunk]:
    """The chunks of a file with their problems; `names` are the partition columns. Raises BadFile."""
    files, path = _opened(piece.source.uri)
    with files.open(path, "rb") as file:
        yield from chunks(file, piece.source, reading, dict(zip(names, piece.values, strict=True)))


def _opened(uri: str) -> tuple[Any, str]:
    """The file system of a file and the path in it, as `services.files.open_files`, which a worker may not have."""
    import fsspec

    scheme, separator, _ = uri.partition("://")
    if "::" in uri and "::" not in (scheme if separator else ""):
        kind = fsspec.get_filesystem_class(scheme if separator else "file")
        return kind(**kind._get_kwargs_from_urls(uri)), kind._strip_protocol(uri)
    files, path = fsspec.core.url_to_fs(uri)
    return files, path


def file_batches(
    piece: FilePiece, reading: FileReading, schema: pa.Schema, rejected: list[RowProblem] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a file with their partition columns.

    With a list `rejected` the refused rows are left out, and their problems are appended to it. Without one BadRows is
    raised at the first chunk with problems. Raises BadFile too.
    """
    count = len(reading.columns)
    key = list(zip(piece.values, schema.types[count:], strict=True))
    for chunk in chunks_of(piece, reading, schema.names[count:]):
        if chunk.problems and rejected is None:
            raise BadRows(piece.source, chunk.problems)
        keys = [pa.repeat(pa.scalar(value, kind), chunk.rows) for value, kind in key]
        batch = pa.RecordBatch.from_arrays([*chunk.columns, *keys], schema=schema)
        if chunk.problems and rejected is not None:
            rejected += chunk.problems
            bad = {problem.row for problem in chunk.problems}
            batch = batch.take(pa.array([row for row in range(chunk.rows) if row not in bad], pa.int64()))
        yield batch


def rows_of(piece: FilePiece, problems: Iterable[RowProblem]) -> Iterator[dict[str, Any]]:
    """The problems of a file as rows of the dataset of rejected rows, without their partition columns.

    A row of several lines becomes one row for each line: where a quote is not closed, the lost rows are not known.
    """
    for place, group in itertools.groupby(problems, key=lambda problem: problem.place):
        first, *others = group
        yield {
            "file": piece.source.uri,
            "line": place,
            "column_name": first.column or None,
            "value": None if first.value is None else shown(first.value, _VALUE_CHARACTERS),
            "reason": shown(first.words, TEXT_CHARACTERS),
            "more": shown("; ".join(other.what for other in others), TEXT_CHARACTERS) if others else None,
            "text": first.raw,
        }
        for line in range(place + 1, place + first.lines):
            yield {
                "file": piece.source.uri, "line": line, "column_name": None, "value": None,
                "reason": f"it belongs to the row that begins on line {place}", "more": None, "text": None,
            }  # fmt: skip


def rejected_rows(piece: FilePiece, reading: FileReading, names: Sequence[str], limit: int) -> list[dict[str, Any]]:
    """The rejected rows of a file with their partition columns, at most `limit`. Raises BadFile."""
    problems = (problem for chunk in chunks_of(piece, reading, names) for problem in chunk.problems)
    key = dict(zip(names, piece.values, strict=True))
    return [{**row, **key} for row in itertools.islice(rows_of(piece, problems), limit)]


def rejected_in_task(
    dealt: Sequence[Sequence[FilePiece]], reading: FileReading, schema: pa.Schema, names: Sequence[str], limit: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` over the numbers of the shares: the rejected rows, at most `limit` of each file."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for piece in dealt[number]:
                    try:
                        rows = rejected_rows(piece, reading, names, limit)
                    except BadFile:
                        raise RuntimeError(f"{MARK}{piece.source.uri.encode().hex()}{MARK}") from None
                    yield pa.RecordBatch.from_pylist(rows, schema)

    return run


def in_task(
    dealt: Sequence[Sequence[FilePiece]], reading: FileReading, schema: pa.Schema, *, without_rejected: bool = False
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` over the numbers of the shares: the rows of the files of its share."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for piece in dealt[number]:
                    try:
                        yield from file_batches(piece, reading, schema, [] if without_rejected else None)
                    except (BadRows, BadFile):
                        # Which rows they are is found out where it can be told whole. In hex, as errors of Spark
                        # quote and escape each other's texts.
                        raise RuntimeError(f"{MARK}{piece.source.uri.encode().hex()}{MARK}") from None

    return run
