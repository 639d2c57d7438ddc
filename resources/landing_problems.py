"""What is wrong with a landing file, by line and column: its header and end, and the rows that Spark did not take.

Not here: the rows themselves, which Spark parses (landing.py).
"""

from __future__ import annotations

import csv
import datetime as dt
import io
from typing import TYPE_CHECKING

from pipeline_defs.model.schema import Column, ColumnType
from resources.files import open_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pipeline_defs.model.dataset import Dataset

# How a file spells that a value is missing.
MISSING = "NA"


def problem_of_file(dataset: Dataset, head: bytes, last: bytes, size: int) -> str | None:
    """What a file's first bytes, its last one and its size in bytes say against it; None where nothing does."""
    if size == 0:
        return "the file is empty, without even a header line."
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "the file is UTF-16; UTF-8 is expected."
    expected = list(dataset.schema.names)
    try:
        found = next(csv.reader([head.split(b"\n", 1)[0].decode("utf-8-sig").rstrip("\r")]), [])
    except UnicodeDecodeError:
        return "line 1: the header is not UTF-8."
    if found != expected:
        missing = [name for name in expected if name not in found]
        extra = [name for name in found if name not in expected]
        told = [f"missing {', '.join(missing)}"] if missing else []
        told += [f"not declared {', '.join(extra)}"] if extra else []
        return f"line 1: the columns are not the declared ones: {'; '.join(told) or 'another order'}."
    if last != b"\n":
        return "the file ends in the middle of a line: it is truncated."
    return None


def problems_of_rows(uri: str, columns: Sequence[Column]) -> Iterator[str]:
    """Every problem of the rows, in order; parsed here only after Spark has found that there is one."""
    files, path = open_files(uri)
    with files.open(path, "rb") as file:
        reader = csv.reader(io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline=""))
        next(reader)
        for fields in reader:
            if not "".join(fields).strip() and len(fields) < 2:
                continue  # Spark passes over blank lines too.
            yield from (f"line {reader.line_num}: {problem}" for problem in _problems_of_row(fields, columns))


def _problems_of_row(fields: Sequence[str], columns: Sequence[Column]) -> Iterator[str]:
    if len(fields) != len(columns):
        yield f"{len(fields)} fields, {len(columns)} expected"
        return
    for text, column in zip(fields, columns, strict=True):
        if "\ufffd" in text:
            yield f"column {column.name}: {text!r} is not UTF-8"
        elif text not in {"", MISSING} and not _parses(text, column.type):
            yield f"column {column.name}: {text!r} is not of type {column.type}"


def _parses(text: str, kind: ColumnType) -> bool:
    parsers: dict[ColumnType, Callable[[str], object]] = {
        ColumnType.INT: lambda number: _whole(number, 32),
        ColumnType.BIGINT: lambda number: _whole(number, 64),
        ColumnType.DOUBLE: lambda number: float(number.replace("_", "?")),
        ColumnType.DATE: dt.date.fromisoformat,
        ColumnType.TIMESTAMP: dt.datetime.fromisoformat,
    }
    if kind is ColumnType.BOOLEAN:
        return text.lower() in {"true", "false", "t", "f", "yes", "no", "y", "n", "1", "0"}
    try:
        parsers.get(kind, str)(text)
    except ValueError:
        return False
    return True


def _whole(text: str, bits: int) -> int:
    # Python takes 1_000 and numbers of any size for whole ones; Spark does not.
    number = int(text.replace("_", "?"))
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(text)
    return number
