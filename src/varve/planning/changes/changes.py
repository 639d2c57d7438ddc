"""What differs between two versions of a project's datasets, and who reads each column that has changed.

Pure functions over snapshots: the older one may be a git revision, a folder, or what was published last.

Not here: the places in queries that a change breaks (varve/sql/checks/breaking.py), and how a version is read
(varve/dagster/snapshots.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from varve.planning.changes.snapshot import ColumnName, DatasetSnapshot, Snapshot


class ChangeKind(StrEnum):
    """What became of a dataset."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


class ColumnChangeKind(StrEnum):
    """What became of a column. Whoever uses one that is dropped, renamed or retyped is broken by that."""

    ADDED = "added"
    DROPPED = "dropped"
    RENAMED = "renamed"
    RETYPED = "retyped"
    WIDENED = "widened"


_BREAKING = frozenset({ColumnChangeKind.DROPPED, ColumnChangeKind.RENAMED, ColumnChangeKind.RETYPED})


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """What became of one column.

    Attributes:
        before: its type in the older version; None where it is new.
        after: its type in the newer version; None where it is gone.
        renamed_to: of a column that is gone the new one that is declared to be the same, or the only new one of the
            same type, which is likely to be.
        is_declared: whether the declaration says so (RENAMED FROM).
    """

    column: str
    kind: ColumnChangeKind
    before: str | None
    after: str | None
    renamed_to: str | None = None
    is_declared: bool = False

    @property
    def breaks(self) -> bool:
        """Whether it breaks who uses the column."""
        return self.kind in _BREAKING

    def message(self, dataset: str) -> str:
        """What became of it, as a sentence."""
        if self.kind is ColumnChangeKind.ADDED:
            return f"{dataset}.{self.column} is new: {self.after}."
        if self.is_declared:
            return f"{dataset}.{self.column} is called {self.renamed_to} now."
        if self.after is None:
            hint = f"; it may be called {self.renamed_to} now" if self.renamed_to else ""
            return f"{dataset} no longer has {self.column}{hint}."
        return f"{dataset}.{self.column} is {self.after} now, and was {self.before}."


@dataclass(frozen=True, slots=True)
class ColumnReader:
    """A dataset that uses a column that has changed, itself or through others.

    Attributes:
        column: the column that has changed; "" where the whole dataset is gone.
        through: the datasets between, from the one that has changed to this one; empty for a direct reader.
        owners: who is responsible for the reader.
    """

    dataset: str
    column: str
    through: tuple[str, ...]
    owners: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DatasetChange:
    """What became of one dataset.

    Attributes:
        columns: its columns that differ, in order.
        owners: who is responsible for it: of a dataset that is gone, who was.
        readers: who uses, in the older version, what is dropped, renamed or retyped, near readers first.
    """

    dataset: str
    kind: ChangeKind
    columns: tuple[ColumnChange, ...]
    owners: tuple[str, ...]
    readers: tuple[ColumnReader, ...]


def dataset_changes(old: Snapshot, new: Snapshot, holds: Callable[[str, str], bool]) -> list[DatasetChange]:
    """What the newer version adds, changes and removes, by name; a dataset whose columns are the same is not listed.

    `holds(before, after)` says whether what was written for one type stays valid for another.
    """
    changes = []
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        columns = column_changes(
            before.columns if before else {}, after.columns if after else {}, holds, after.renames if after else {}
        )
        if before is not None and after is not None and not columns:
            continue
        declared = after or before
        assert declared is not None
        kind = ChangeKind.ADDED if before is None else ChangeKind.REMOVED if after is None else ChangeKind.CHANGED
        readers = () if before is None else tuple(_readers_of_changes(old, new, name, columns, gone=after is None))
        changes.append(DatasetChange(name, kind, tuple(columns), declared.owners, readers))
    return changes


def column_changes(
    before: Mapping[str, str],
    after: Mapping[str, str],
    holds: Callable[[str, str], bool],
    declared: Mapping[str, str] = MappingProxyType({}),
) -> list[ColumnChange]:
    """What became of each column that differs, first of the older ones.

    `declared` has, by the former name of a column, the one that it is declared to have now.
    """
    changes = []
    # A new column of which is declared what it was is no other one.
    undeclared = {name: kind for name, kind in after.items() if name in before or name not in declared.values()}
    declared = {old: new for old, new in declared.items() if old in before and new in after and new not in before}
    for column, old_type in before.items():
        new_type = after.get(column)
        if new_type is None and column in declared:
            changes.append(
                ColumnChange(column, ColumnChangeKind.RENAMED, old_type, None, declared[column], is_declared=True)
            )
        elif new_type is None:
            renamed_to = renamed(column, before, undeclared, holds)
            kind = ColumnChangeKind.RENAMED if renamed_to else ColumnChangeKind.DROPPED
            changes.append(ColumnChange(column, kind, old_type, None, renamed_to))
        elif not holds(old_type, new_type):
            changes.append(ColumnChange(column, ColumnChangeKind.RETYPED, old_type, new_type))
        elif not holds(new_type, old_type):
            changes.append(ColumnChange(column, ColumnChangeKind.WIDENED, old_type, new_type))
    added = [
        ColumnChange(name, ColumnChangeKind.ADDED, None, kind)
        for name, kind in after.items()
        if name not in before and name not in declared.values()
    ]
    return [*changes, *added]


def renamed(
    column: str, before: Mapping[str, str], after: Mapping[str, str], holds: Callable[[str, str], bool]
) -> str | None:
    """The only new column of the same type as a column that is gone; None where there is none or several."""
    added = [
        name
        for name, kind in after.items()
        if name not in before and holds(before[column], kind) and holds(kind, before[column])
    ]
    return added[0] if len(added) == 1 else None


def column_readers(versions: Snapshot, column: ColumnName) -> Iterator[tuple[DatasetSnapshot, tuple[str, ...]]]:
    """Yield each dataset that uses a column, itself or through others, with those between; the nearest first.

    A dataset that uses the column of another only in a condition is reached, and what reads it is not: its own columns
    are not computed from that one.
    """
    reached: set[str] = {column[0]}
    front: list[tuple[ColumnName, tuple[str, ...]]] = [(column, ())]
    seen = {column}
    while front:
        next_front = []
        for (upstream, name), through in front:
            for _, reader in sorted(versions.items()):
                if not reader.reads_column(upstream, name):
                    continue
                if reader.name not in reached:
                    reached.add(reader.name)
                    yield reader, through
                for made in sorted(reader.made_from(upstream, name)):
                    if (reader.name, made) not in seen:
                        seen.add((reader.name, made))
                        next_front.append(((reader.name, made), (*through, reader.name)))
        front = next_front


def _readers_of_changes(
    old: Snapshot, new: Snapshot, name: str, columns: Iterable[ColumnChange], *, gone: bool
) -> Iterator[ColumnReader]:
    """Yield who uses what is dropped, renamed or retyped; of a dataset that is gone each reader once."""
    seen: set[str] = set()
    for column in columns:
        if not column.breaks:
            continue
        for reader, through in column_readers(old, (name, column.column)):
            if gone and reader.name in seen:
                continue
            seen.add(reader.name)
            owners = new[reader.name].owners if reader.name in new else reader.owners
            yield ColumnReader(reader.name, "" if gone else column.column, through, owners)
