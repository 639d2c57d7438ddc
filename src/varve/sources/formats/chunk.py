"""Consecutive rows of a landing file as Arrow columns, and the problems of the values that were refused.

Not here: what the formats have to do with their files to get at the values (csv_files.py, json_lines.py, avro.py,
parquet.py).
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from varve.sources.formats import objects
from varve.sources.formats.checks import (
    TEXT_CHARACTERS,
    RowProblem,
    absent_rows,
    contradicting_rows,
    shown,
    value_text,
)
from varve.sources.formats.records import unmarked
from varve.sources.formats.texts import NOT_TEXT, reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from varve.sources.formats.file_reading import DeclaredColumn, FileReading

# How many rows of a file are in memory at once, and about how many characters of them.
CHUNK_ROWS, CHUNK_CHARACTERS = 32_768, 32 * 2**20
# So many rows are taken at once, at most, and one of so many is measured.
_PIECE, _MEASURED = 128, 8
Row = TypeVar("Row")
# How much of a refused value a message shows.
SHOWN_CHARACTERS = 80


def next_rows(rows: Iterator[Row], size: Callable[[Row], int]) -> list[Row]:
    """The next rows of a file, as many as are in memory at once, one at least; `size` is in characters."""
    taken: list[Row] = []
    characters, more = 0, 1
    while more > 0 and (piece := list(itertools.islice(rows, more))):
        taken += piece
        # To measure each of them cost a sixth of the time that a CSV takes.
        measured = piece[::_MEASURED]
        characters += sum(map(size, measured)) * len(piece) // len(measured)
        # As many as probably fit, as far as those before tell.
        fit = (CHUNK_CHARACTERS - characters) * len(taken) // max(characters, 1)
        more = min(fit, CHUNK_ROWS - len(taken), _PIECE)
    return taken


@dataclass
class Chunk:
    """Consecutive rows: the declared columns, and the problems of refused values, which are NULL in the columns."""

    columns: list[pa.Array]
    rows: int
    problems: list[RowProblem] = field(default_factory=list)


@dataclass
class ChunkBuilder:
    """Collects the columns of a chunk and the problems in them.

    Attributes:
        places: the line or the number of each row.
        lost: the rows that were refused as a whole, by their number in the chunk.
    """

    places: Sequence[int]
    lost: dict[int, RowProblem]
    columns: list[pa.Array] = field(default_factory=list)
    problems: list[RowProblem] = field(default_factory=list)

    def add(
        self,
        array: pa.Array,
        values: Sequence[Any],
        refused: Mapping[int, str],
        column: DeclaredColumn,
        key: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a column, with the reason for each refused row; with `key` it is a partition column, and only checked."""
        words = {row: reason for row, reason in refused.items() if row not in self.lost}
        passed_over = {*refused, *self.lost}
        if key is not None:
            for row, value in contradicting_rows(array, key[column.name], passed_over):
                contradiction = (
                    "nothing stands there" if value is None else f"{value_text(value)!r} contradicts the file's name"
                )
                words[row] = f"{contradiction}; it is a file of {column.name} = {value_text(key[column.name])!r}"
        elif not column.nullable:
            words |= dict.fromkeys(absent_rows(array, passed_over), "nothing stands there, and it is NOT NULL")
        if key is None:
            self.columns.append(array)
        self.problems += [
            RowProblem(self.places[row], row, column.name, reason, value=value_text(values[row]))
            for row, reason in words.items()
        ]

    def chunk(self, raw: Callable[[int], str], group: Callable[[int], int] | None = None) -> Chunk:
        """The chunk; `raw` returns the text of a row, `group` the row group of a place."""
        problems = [
            replace(refused, raw=raw(refused.row), group=group(refused.place) if group else 0)
            for refused in self.problems
        ]
        refused = sorted([*self.lost.values(), *problems], key=lambda problem: problem.row)
        return Chunk(self.columns, len(self.places), refused)


def chunk_of_objects(
    rows: Sequence[dict[str, Any]],
    builder: ChunkBuilder,
    reading: FileReading,
    key: Mapping[str, Any],
    raws: Sequence[str] | None = None,
) -> Chunk:
    """The chunk of rows that are objects, by the names of their fields.

    `builder` has no column yet; `raws` are the texts of the rows, where the file has some.
    """
    keys = [column for column in reading.keys if column.name in key and any(column.name in row for row in rows)]
    for column in (*reading.columns, *keys):
        values = [row.get(column.name) for row in rows]
        is_key = column in keys
        if is_key:
            # An object without the partition column does not contradict the partition of the file.
            values = [row.get(column.name, key[column.name]) for row in rows]
        array, refused = objects.column(values, column.kind, reading.spelling)
        words = {
            row: refusal(values[row], column, reading, reason_of(error) or _is_text(values[row], column))
            for row, error in refused.items()
        }
        builder.add(array, values, words, column, key if is_key else None)

    def raw(row: int) -> str:
        if raws is not None:
            return shown(raws[row].rstrip("\r\n"), TEXT_CHARACTERS)
        return shown(json.dumps(rows[row], default=str, ensure_ascii=False), TEXT_CHARACTERS)

    return builder.chunk(raw)


def _is_text(value: Any, column: DeclaredColumn) -> str:
    """What to say of a number in quotes, as "5.94" in JSON, which looks like what is declared."""
    import pyarrow as pa

    kind = column.kind
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return "it is a text there, and no number" if isinstance(value, str) and is_number else ""


def refusal(value: Any, column: DeclaredColumn, reading: FileReading, reason: str) -> str:
    """Why a value was refused, as a phrase that shows the value."""
    shown = unmarked(value) if isinstance(value, str) else value
    if isinstance(shown, str):
        shown = shown[:SHOWN_CHARACTERS].replace(NOT_TEXT, "\ufffd")
    text = repr(shown) if isinstance(shown, str) else str(shown)[:SHOWN_CHARACTERS]
    if isinstance(value, str) and NOT_TEXT in value:
        return f"{text} is not {reading.encoding.upper()}"
    return f"{text} is not of type {column.label}{f': {reason}' if reason else ''}"
