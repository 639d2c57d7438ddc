"""What a change of some files breaks in others: by the columns that they name, direct breaks only (seed 001).

A dataset breaks where its text names a column that is no longer there or has another type, or a dataset that is gone.
What reads a broken dataset is not broken by that: it is looked at as if the broken one had kept its columns. Added
columns, columns that nobody names, and types that only become wider are no breaks.

Not here: how two versions of a project are read (the CLI).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.syntax.type_names import UNKNOWN
from varve.sql.types.inference import qualified
from varve.sql.types.numeric import common_type, decimal_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Columns = dict[str, str]


@dataclass(frozen=True)
class Declared:
    """One dataset of the new version.

    Attributes:
        queries: what it reads others by.
        columns: its columns where the file declares them; None: they are those of its query.
        partitions: its partition columns.
        variables: the types of its scope's variables.
    """

    name: str
    queries: tuple[exp.Expr, ...]
    columns: Mapping[str, str] | None
    partitions: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Break:
    """A place in the file of `dataset` that a change of `upstream` breaks."""

    dataset: str
    upstream: str
    column: str
    message: str
    node: exp.Expr


def breaks(old: Mapping[str, Mapping[str, str]], new: Mapping[str, Declared]) -> list[Break]:
    """What the new version breaks.

    Args:
        old: the columns of each dataset of the old version, partition columns among them.
        new: the datasets of the new version; each may read only others of the old or the new one.
    """
    change = _Change(old, new)
    found = [each for name in _ordered(new) for each in change.look_at(new[name])]
    return list({(each.dataset, each.message, id(each.node)): each for each in found}.values())


@dataclass
class _Change:
    """The way from one version to the other; `effective` are the columns by which readers are judged."""

    old: Mapping[str, Mapping[str, str]]
    new: Mapping[str, Declared]
    effective: dict[str, Columns] = field(default_factory=dict)

    def look_at(self, dataset: Declared) -> list[Break]:
        """What is broken in a dataset, all that it reads having been looked at."""
        names = {*self.old, *self.effective}
        # Both versions of each column can be named; the old type counts, by which the uses were written.
        seen = {each: {**self.effective.get(each, {}), **self.old.get(each, {})} for each in names}
        found = [each for query in dataset.queries for each in self._broken(dataset, query, seen)]
        kept = found and dataset.name in self.old
        self.effective[dataset.name] = dict(self.old[dataset.name]) if kept else self._columns(dataset, seen)
        return found

    def _broken(self, dataset: Declared, query: exp.Expr, seen: Mapping[str, Columns]) -> Iterator[Break]:
        for table in query.find_all(exp.Table):
            name = f"{table.db}.{table.name}".lower()
            if name in self.old and name not in self.new:
                yield Break(
                    dataset.name, name, "", f"{name} is no longer there; take it out, or keep the dataset.", table
                )
        for use in qualified(query, seen, dataset.variables).uses:
            upstream, column = use.column
            before, now = self.old.get(upstream, {}), self.effective.get(upstream)
            if now is None or column not in before:
                continue
            if column not in now:
                likely = _renamed(column, before, now)
                hint = f"; it may be called {likely} now" if likely else ""
                yield Break(dataset.name, upstream, column, f"{upstream} no longer has {column}{hint}.", use.node)
            elif not _holds(before[column], now[column]):
                message = f"{upstream}.{column} is {now[column]} now, and was {before[column]}."
                yield Break(dataset.name, upstream, column, message, use.node)

    def _columns(self, dataset: Declared, seen: Mapping[str, Columns]) -> Columns:
        if dataset.columns is not None:
            return {**dataset.columns, **dataset.partitions}
        schemas = {name: self.effective.get(name, columns) for name, columns in seen.items()}
        found = qualified(dataset.queries[0], schemas, dataset.variables)
        return {**{each.name: each.type for each in found.outputs}, **dataset.partitions}


def _holds(before: str, now: str) -> bool:
    """Whether what was written for one type holds for another: it is the same, or holds all of its values."""
    if before == now or UNKNOWN in (before, now):
        return True
    numbers = all(decimal_of(each) is not None or each in ("float", "double") for each in (before, now))
    return numbers and common_type([before, now]) == now


def _renamed(column: str, before: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """The one added column of the same type, where there is one."""
    added = [name for name, kind in now.items() if name not in before and kind == before[column]]
    return added[0] if len(added) == 1 else None


def _ordered(new: Mapping[str, Declared]) -> list[str]:
    """The datasets after all that they read; those of a cycle in any order."""
    found: dict[str, None] = {}
    begun: set[str] = set()

    def visit(name: str) -> None:
        if name in begun or name not in new:
            return
        begun.add(name)
        for query in new[name].queries:
            for table in query.find_all(exp.Table):
                visit(f"{table.db}.{table.name}".lower())
        found[name] = None

    for name in new:
        visit(name)
    return list(found)
