"""Slices of the keys of a table, and the values with which two sides of a comparison describe each of them.

Every row belongs to one slice by the number of its key, and by that of the whole row where the table has no key
(row_numbers.py). Both sides find the same slice for the same key, whatever the collation of their texts is.

Not here: how the sides compute it (source_sums.py, lake_sums.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.cdc.verify.canonical_text import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from varve.cdc.captured_table import SourceColumn
    from varve.model.schema import Column

Texts = tuple[str | None, ...]
# About so many rows of each side are read to tell the rows of slices that differ apart.
_ROWS_READ = 200_000


@dataclass(frozen=True, slots=True)
class Sum:
    """Rows of a slice and the sum of what their numbers give, which does not depend on their order."""

    rows: int
    numbers: int


@dataclass(frozen=True)
class Comparison:
    """The columns that are compared, and how many slices there are.

    Attributes:
        columns: each column of the dataset with that of the source.
        key: the columns of the key, by their names in the dataset; none: rows are counted.
        slices: the number of slices.
    """

    columns: tuple[tuple[Column, SourceColumn], ...]
    key: tuple[str, ...]
    slices: int

    @property
    def key_columns(self) -> tuple[tuple[Column, SourceColumn], ...]:
        """The columns of the key; without a key all columns."""
        by_name = {column.name: (column, source) for column, source in self.columns}
        return tuple(by_name[name] for name in self.key) if self.key else self.columns


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A row that differs.

    Attributes:
        key: the values of its key; without a key those of the whole row.
        where: `source` or `lake` where only one side has it, `both` where they have different values.
        values: for each column that differs, its value at the source and in the lake.
        times: in how many rows more this side has it, where it has no key.
    """

    key: Mapping[str, str | None]
    where: str
    values: Mapping[str, tuple[str | None, str | None]]
    times: int = 1


def slices_for(rows: int) -> int:
    """So many slices that one of them is quickly read: about a thousand rows, up to 65,536 slices."""
    return 16 if rows < 16_000 else 256 if rows < 256_000 else 4_096 if rows < 16_000_000 else 65_536


def differing(source: Mapping[int, Sum], lake: Mapping[int, Sum]) -> list[int]:
    """The slices in which the sides differ."""
    return sorted(place for place in source.keys() | lake.keys() if source.get(place) != lake.get(place))


def to_read(slices: Iterable[int], source: Mapping[int, Sum], lake: Mapping[int, Sum]) -> list[int]:
    """The first of these slices, as many as are read in reasonable time; one at least."""
    chosen: list[int] = []
    rows = 0
    for place in slices:
        rows += max(sums[place].rows if place in sums else 0 for sums in (source, lake))
        if chosen and rows > _ROWS_READ:
            break
        chosen.append(place)
    return chosen


def row_differences(comparison: Comparison, source: Iterable[Texts], lake: Iterable[Texts]) -> list[RowDifference]:
    """The rows that differ among these, which are whole slices: the texts of the columns of each row."""
    in_source, in_lake = Counter(source), Counter(lake)
    more_in_source, more_in_lake = in_source - in_lake, in_lake - in_source
    names = [column.name for column, _ in comparison.columns]
    key_places = [names.index(column.name) for column, _ in comparison.key_columns]
    by_key: dict[Texts, tuple[Counter[Texts], Counter[Texts]]] = defaultdict(lambda: (Counter(), Counter()))
    for side, rows in enumerate((more_in_source, more_in_lake)):
        for row, times in rows.items():
            by_key[tuple(row[place] for place in key_places)][side][row] += times
    columns = [column for column, _ in comparison.columns]
    differences = []
    for key, (ours, theirs) in sorted(by_key.items(), key=lambda item: tuple(text or "" for text in item[0])):
        key_values = {
            columns[place].name: shown(columns[place], text) for place, text in zip(key_places, key, strict=True)
        }
        if ours.total() == theirs.total() == 1:
            (at_source,), (in_the_lake,) = ours, theirs
            values = {
                column.name: (shown(column, first), shown(column, second))
                for column, first, second in zip(columns, at_source, in_the_lake, strict=True)
                if first != second
            }
            differences.append(RowDifference(key_values, "both", values))
            continue
        for where, rows in (("source", ours), ("lake", theirs)):
            for row, times in rows.items():
                texts = {column.name: shown(column, text) for column, text in zip(columns, row, strict=True)}
                values = {
                    name: (text, None) if where == "source" else (None, text)
                    for name, text in texts.items()
                    if name not in key_values
                }
                differences.append(RowDifference(key_values, where, values, times))
    return differences
