"""Checks of values that have the right type: NOT NULL, and that partition columns agree with the name of the file.

Not here: parsing values (texts.py, objects.py), and reading the formats (formats.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from varve.sources.formats.records import QUOTED, unmarked
from varve.sources.formats.texts import NOT_TEXT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

TEXT_CHARACTERS = 1_000
# Each control character as the sign that stands for it; those beyond ASCII have none.
_SIGNS = {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


@dataclass(frozen=True)
class RowProblem:
    """A refused value or, without a column, a refused row.

    Attributes:
        place: its line in a text file, else the number of its row; from 1.
        row: the number of the row in its chunk, from 0.
        column: the name of the column; "" where the whole row was refused.
        words: the reason, as a phrase for people.
        raw: the row as it is written in the file, cut where it is long.
        value: the value as it is written in the file; None where the whole row was refused, or the field is empty.
        lines: how many lines of a text file the row takes, as far as its end can be found.
        group: the number of the row group in a Parquet file, from 1; 0 in other formats.
    """

    place: int
    row: int
    column: str
    words: str
    raw: str = ""
    value: str | None = None
    lines: int = 1
    group: int = 0

    def message(self, unit: str) -> str:
        """The place and the problem, as a phrase for a message."""
        group = f" (row group {self.group})" if self.group else ""
        return f"{unit} {self.place}{group}: {self.what}"

    @property
    def what(self) -> str:
        """The column and the reason, as a phrase for a message."""
        return phrase(f"{f'column {self.column}: ' if self.column else ''}{self.words}")


def absent_rows(values: pa.Array, refused: Collection[int]) -> list[int]:
    """The rows of a NOT NULL column that have no value, without the rows that were refused already."""
    if values.null_count == len(refused):
        return []
    return [row for row in pc.indices_nonzero(values.is_null()).to_pylist() if row not in refused]


def contradicting_rows(values: pa.Array, key: Any, refused: Collection[int]) -> Iterator[tuple[int, Any]]:
    """The rows whose partition column differs from the key of the file, with their value (None: no value)."""
    expected = pa.scalar(key, values.type)
    if pc.all(pc.equal(values, expected), skip_nulls=False).as_py():
        return
    for row, value in enumerate(values.to_pylist()):
        if row not in refused and value != key:
            yield row, value


def row_text(fields: Sequence[str], separator: str, quote: str) -> str:
    """A CSV row as it could be written in a file."""
    special = (separator, quote, "\n", "\r") if quote else ()
    return shown(
        separator.join(
            f"{quote}{unmarked(field).replace(quote, quote * 2)}{quote}"
            if field[:1] == QUOTED or any(character in field for character in special)
            else field
            for field in fields
        ),
        TEXT_CHARACTERS,
    )


def value_text(value: Any) -> str | None:
    """A value of a file as text for people; None where there is no value."""
    if value is None:
        return None
    if isinstance(value, str):
        return unmarked(value)
    if isinstance(value, bytes):
        return value.hex()
    return json.dumps(value, default=str, ensure_ascii=False) if isinstance(value, dict | list | bool) else str(value)


def phrase(text: str) -> str:
    """The beginning of a message on one line that any store, log and terminal takes: it may quote names of a file."""
    return shown(text, TEXT_CHARACTERS).translate(_SIGNS)


def shown(text: str, characters: int) -> str:
    """The beginning of a text, without characters that a store does not accept in a text."""
    cut = text[: characters + 1].replace(NOT_TEXT, "\ufffd").replace("\0", "\u2400")
    cut = cut if len(cut) <= characters else f"{cut[: characters - 1]}\u2026"
    return cut.encode("utf-8", "replace").decode()
