"""What is asked of values that are of their type: that they are there, and that the file is of the partition it names.

Not here: what a value of a type is (texts.py, objects.py), and where the values come from (formats.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from varve.sources.formats.records import QUOTED_EMPTY
from varve.sources.formats.texts import NOT_TEXT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

TEXT_CHARACTERS = 1_000


@dataclass(frozen=True)
class RowProblem:
    """A value, or with no column a row, that was refused.

    Attributes:
        place: its line in a text, else the number of its row; from 1.
        row: which row of its chunk it is, from 0.
        raw: the row as it stands in the file, cut where it is long.
        value: the value as it stands in the file; None where the whole row was refused, or nothing stands there.
        lines: how many lines of a text the row takes, as far as it can be told where it ends.
        group: of Parquet the number of the row group, from 1; 0: there is none.
    """

    place: int
    row: int
    column: str
    words: str
    raw: str = ""
    value: str | None = None
    lines: int = 1
    group: int = 0

    def told(self, unit: str) -> str:
        """The problem in words."""
        group = f" (row group {self.group})" if self.group else ""
        return f"{unit} {self.place}{group}: {self.what}"

    @property
    def what(self) -> str:
        """The column and the reason."""
        return f"{f'column {self.column}: ' if self.column else ''}{self.words}"


def absent_rows(values: pa.Array, refused: Collection[int]) -> list[int]:
    """The rows of a NOT NULL column in which nothing stands, but for those that were refused."""
    if values.null_count == len(refused):
        return []
    return [row for row in pc.indices_nonzero(values.is_null()).to_pylist() if row not in refused]


def contradicting_rows(values: pa.Array, key: Any, refused: Collection[int]) -> Iterator[tuple[int, Any]]:
    """The rows whose partition column is another than that of the file, with what stands there (None: nothing)."""
    expected = pa.scalar(key, values.type)
    if pc.all(pc.equal(values, expected), skip_nulls=False).as_py():
        return
    for row, value in enumerate(values.to_pylist()):
        if row not in refused and value != key:
            yield row, value


def row_text(fields: Sequence[str], separator: str, quote: str) -> str:
    """A CSV row as it may stand in a file."""
    special = (separator, quote, "\n", "\r") if quote else ()
    return shown(
        separator.join(
            quote * 2
            if field == QUOTED_EMPTY
            else f"{quote}{field.replace(quote, quote * 2)}{quote}"
            if any(each in field for each in special)
            else field
            for field in fields
        ),
        TEXT_CHARACTERS,
    )


def value_text(value: Any) -> str | None:
    """A value of a file for people; None for nothing."""
    if value is None:
        return None
    if isinstance(value, str):
        return "" if value == QUOTED_EMPTY else value
    if isinstance(value, bytes):
        return value.hex()
    return json.dumps(value, default=str, ensure_ascii=False) if isinstance(value, dict | list | bool) else str(value)


def shown(text: str, characters: int) -> str:
    """The beginning of a text that may hold anything, without what no store takes in a text."""
    cut = text[: characters + 1].replace(NOT_TEXT, "\ufffd").replace("\0", "\u2400")
    cut = cut if len(cut) <= characters else f"{cut[: characters - 1]}\u2026"
    return cut.encode("utf-8", "replace").decode()
