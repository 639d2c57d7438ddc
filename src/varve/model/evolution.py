"""How the declaration of a dataset may change while batches of the declaration before are still read.

A column that is added reads as NULL in older batches, and a wider type holds every older value. Any other change would
alter or hide the data of older batches.

Not here: what the warehouse allows beyond this, and a breaking rebuild (varve/stores/warehouse/).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.model.schema import Column, ColumnType, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# The types to which Spark's parquet reader widens while it reads (SPARK-40876).
_WIDER: dict[Kind, frozenset[Kind]] = {
    Kind.TINYINT: frozenset({Kind.SMALLINT, Kind.INT, Kind.BIGINT, Kind.DOUBLE}),
    Kind.SMALLINT: frozenset({Kind.INT, Kind.BIGINT, Kind.DOUBLE}),
    Kind.INT: frozenset({Kind.BIGINT, Kind.DOUBLE}),
    Kind.FLOAT: frozenset({Kind.DOUBLE}),
}


@dataclass(frozen=True, slots=True)
class Evolution:
    """The difference between the columns of two declarations.

    Attributes:
        added: new columns.
        widened: columns that now have a wider type.
        problems: every other difference, as sentences for a message.
    """

    added: tuple[Column, ...]
    widened: tuple[Column, ...]
    problems: tuple[str, ...]


def evolution(before: Sequence[Column], after: Sequence[Column]) -> Evolution:
    """The difference between the columns of an older and a newer declaration."""
    old = {column.name: column for column in before}
    added = tuple(column for column in after if column.name not in old)
    changed = tuple(column for column in after if column.name in old and column.type != old[column.name].type)
    widened = tuple(column for column in changed if widens(old[column.name].type, column.type))
    return Evolution(added, widened, tuple(_problems(old, after, added, [c for c in changed if c not in widened])))


def partition_problems(before: Sequence[Column], after: Sequence[Column]) -> list[str]:
    """One sentence where the partition columns changed, as no such change is allowed; else an empty list."""
    old, new = (
        ", ".join(f"{column.name} {column.type}" for column in columns) or "none" for columns in (before, after)
    )
    return [f"It was partitioned by {old}, and now by {new}."] if old != new else []


def widens(narrow: ColumnType, wide: ColumnType) -> bool:
    """Whether the second type holds every value of the first, and Spark reads files of the first type as the second."""
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
