"""How the declaration of a dataset may change while batches of the one before are still read.

A column that is added reads as NULL in older batches, and a wider type holds every older value. All else would change
what older batches say, or hide it.

Not here: what the warehouse allows beyond this, and a breaking rebuild (varve/stores/warehouse).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.model.schema import Column, ColumnType, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# What Spark's parquet reader widens as it reads (SPARK-40876).
_WIDER: dict[Kind, frozenset[Kind]] = {
    Kind.TINYINT: frozenset({Kind.SMALLINT, Kind.INT, Kind.BIGINT, Kind.DOUBLE}),
    Kind.SMALLINT: frozenset({Kind.INT, Kind.BIGINT, Kind.DOUBLE}),
    Kind.INT: frozenset({Kind.BIGINT, Kind.DOUBLE}),
    Kind.FLOAT: frozenset({Kind.DOUBLE}),
}


@dataclass(frozen=True, slots=True)
class Evolution:
    """From one declaration to the next.

    Attributes:
        added: new columns.
        widened: columns of a wider type.
        problems: every other difference, in words.
    """

    added: tuple[Column, ...]
    widened: tuple[Column, ...]
    problems: tuple[str, ...]


def evolution(before: Sequence[Column], after: Sequence[Column]) -> Evolution:
    """What became of the columns."""
    old = {column.name: column for column in before}
    added = tuple(column for column in after if column.name not in old)
    changed = tuple(column for column in after if column.name in old and column.type != old[column.name].type)
    widened = tuple(column for column in changed if widens(old[column.name].type, column.type))
    return Evolution(added, widened, tuple(_problems(old, after, added, [c for c in changed if c not in widened])))


def partition_problems(before: Sequence[Column], after: Sequence[Column]) -> list[str]:
    """What is wrong with a change of the partition columns: any is."""
    old, new = (
        ", ".join(f"{column.name} {column.type}" for column in columns) or "none" for columns in (before, after)
    )
    return [f"It was partitioned by {old}, and now by {new}."] if old != new else []


def widens(narrow: ColumnType, wide: ColumnType) -> bool:
    """Whether every value of the one type is a value of the other, and readers of files see it so."""
    if narrow.kind is Kind.DECIMAL and wide.kind is Kind.DECIMAL:
        (digits, scale), (more_digits, more_scale) = narrow.digits, wide.digits
        return more_scale >= scale and more_digits - more_scale >= digits - scale
    return wide.kind in _WIDER.get(narrow.kind, frozenset())


def _problems(
    old: dict[str, Column], after: Sequence[Column], added: Iterable[Column], retyped: Iterable[Column]
) -> Iterable[str]:
    names = {column.name for column in after}
    if dropped := [f"{column.name} {column.type}" for column in old.values() if column.name not in names]:
        yield f"Dropped or renamed: {', '.join(dropped)}."
    if strict := [column.name for column in added if not column.nullable]:
        yield f"Added, but may not be NULL, which it is in every older batch: {', '.join(strict)}."
    for column in retyped:
        yield f"{column.name} was {old[column.name].type} and is {column.type} now, which does not hold all its values."
