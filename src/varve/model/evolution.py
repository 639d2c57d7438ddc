"""How the declaration of a dataset may change while batches of the declaration before are still read.

A column that is added reads as NULL in older batches, and a wider type holds every older value. A column that is taken
away stays in the batches that have it, and nobody is shown it: declared again it is there again, so that its type is
remembered. A column that goes while another comes may have been renamed, which would hide its values without a word.
Any other change would alter the data of older batches.

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
        removed: columns that are not declared any more.
        problems: every other difference, as sentences for a message.
    """

    added: tuple[Column, ...]
    widened: tuple[Column, ...]
    removed: tuple[Column, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeclaredColumns:
    """The columns of a declaration.

    Attributes:
        former: columns that earlier declarations had and this one has not; batches may have them.
        windows: how its time dimension is cut, with the zone; "" where it has none, or where that is not known.
        listed: which time each key of a calendar holds; "" where it has none, or where that is not known.
    """

    data: tuple[Column, ...] = ()
    partitions: tuple[Column, ...] = ()
    former: tuple[Column, ...] = ()
    windows: str = ""
    listed: str = ""


@dataclass(frozen=True, slots=True)
class Consequence:
    """What follows from a changed declaration, before a run with it has published anything.

    Attributes:
        message: what follows, and what to do, in whole sentences.
        new_generation: whether it needs one: production leaves the dataset alone until that is built.
    """

    message: str
    new_generation: bool = False


def evolution(before: Sequence[Column], after: Sequence[Column], former: Sequence[Column] = ()) -> Evolution:
    """The difference between the columns of an older and a newer declaration.

    `former` are columns of still older declarations, which batches may have.
    """
    old, names = {column.name: column for column in before}, {column.name for column in after}
    added = tuple(column for column in after if column.name not in old)
    removed = tuple(column for column in before if column.name not in names)
    known = {column.name: column for column in former} | old
    changed = tuple(column for column in after if column.name in known and column.type != known[column.name].type)
    widened = tuple(column for column in changed if widens(known[column.name].type, column.type))
    return Evolution(
        added, tuple(column for column in widened if column.name in old), removed,
        tuple(_problems(known, added, removed, [column for column in changed if column not in widened])),
    )  # fmt: skip


def renames(removed: Iterable[Column], added: Sequence[Column]) -> dict[str, Column]:
    """By the name of a removed column the added one that is declared to be the same: renamed from it, or back to it."""
    by_former = {was: column for column in added for was in column.was}
    back = {column.name: column for column in added}
    renamed = {}
    for column in removed:
        come = by_former.get(column.name) or next((back[name] for name in reversed(column.was) if name in back), None)
        if come is not None:
            renamed[column.name] = come
    return renamed


def former_problems(before: DeclaredColumns, after: Sequence[Column]) -> tuple[str, ...]:
    """One sentence for each column that earlier declarations had with a type that does not hold its values now."""
    former = {column.name: column for column in before.former}
    return evolution((), [column for column in after if column.name in former], before.former).problems


def table_problems(before: DeclaredColumns, after: Sequence[Column]) -> tuple[str, ...]:
    """One sentence for each column as which rows of older tables of the warehouse are not read, while no view changes.

    There an array, a map or a struct is JSON, and a TINYINT a SMALLINT, whatever was declared: what does not fit the
    declaration would be NULL without a word.
    """
    older = {column.name: column for column in before.data}
    problems = []
    for column in after:
        former = next((older[name] for name in (column.name, *reversed(column.was)) if name in older), None)
        if former is not None and _kept_alike(former.type, column.type) and not _fits(former.type, column.type):
            problems.append(
                f"{column.name} was {former.type} and is {column.type} now, as which older rows are not read."
            )
    return (*former_problems(before, after), *problems)


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


def _kept_alike(before: ColumnType, after: ColumnType) -> bool:
    """Whether the warehouse has one type for both."""
    return (before.nested and after.nested) or {before.kind, after.kind} == {Kind.TINYINT, Kind.SMALLINT}


def _fits(before: ColumnType, after: ColumnType) -> bool:
    """Whether JSON of the first type is read as the second with every value: a struct may have more fields."""
    if before == after or widens(before, after):
        return True
    if not before.nested or before.kind is not after.kind:
        return False
    if before.kind is Kind.STRUCT:
        parts = dict(after.parts)
        return all(name in parts and _fits(kind, parts[name]) for name, kind in before.parts)
    return all(_fits(old, new) for (_, old), (_, new) in zip(before.parts, after.parts, strict=True))


_MOMENTS = frozenset({Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ})
_NUMBERS = frozenset({Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL})


def casts(before: ColumnType, after: ColumnType) -> bool:
    """Whether Spark casts values of the first type to the second and back, and can tell whether they stayed the same.

    It casts structs field by field in their order, whatever the fields are called, and compares no maps.
    """
    kinds = {before.kind, after.kind}
    if Kind.MAP in kinds:
        return False
    if before.nested or after.nested:
        names, names_now = ([name for name, _ in kind.parts] for kind in (before, after))
        if len(kinds) > 1 or names != names_now:
            return False
        return all(casts(old, new) for (_, old), (_, new) in zip(before.parts, after.parts, strict=True))
    if Kind.STRING in kinds or len(kinds) == 1 or kinds <= _MOMENTS or kinds <= _NUMBERS | {Kind.BOOLEAN}:
        return True
    return Kind.TIMESTAMP in kinds and kinds - {Kind.TIMESTAMP} <= _NUMBERS


def _problems(
    known: dict[str, Column], added: Sequence[Column], removed: Sequence[Column], retyped: Iterable[Column]
) -> Iterable[str]:
    renamed = renames(removed, [column for column in added if column.name not in known])
    if renamed:
        types = {column.name: column.type for column in removed}
        pairs = ", ".join(f"{gone} {types[gone]} -> {come.name} {come.type}" for gone, come in renamed.items())
        yield f"Renamed: {pairs}."
    called = {column.name for column in renamed.values()}
    new = [f"{column.name} {column.type}" for column in added if column.name not in known and column.name not in called]
    gone = [f"{column.name} {column.type}" for column in removed if column.name not in renamed]
    if gone and new:
        yield f"Renamed, or one dropped and another added: {', '.join(gone)} -> {', '.join(new)}."
    if strict := [column.name for column in added if not column.nullable and column.name not in called]:
        yield f"Added, but may not be NULL, which it is in every older batch: {', '.join(strict)}."
    for column in retyped:
        was = known[column.name].type
        yield f"{column.name} was {was} and is {column.type} now, as which older rows are not read."
