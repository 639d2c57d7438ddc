"""Finds what a change of some files breaks in others, by the columns that they name: direct breaks only.

A dataset breaks where its text names a dataset that is gone, or a column that is gone or has another type. A reader of
a broken dataset is not broken by that: it is checked as if the broken dataset had kept its columns. Added columns,
columns that nobody names, and types that only become wider break nothing.

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
    """A dataset of the new version.

    Attributes:
        queries: the queries through which it reads other datasets.
        columns: its columns where the file declares them; None: the columns of its query.
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
    """Return what the new version breaks.

    Args:
        old: the columns of each dataset of the old version, including partition columns.
        new: the datasets of the new version; each may read only datasets of the old or the new one.
    """
    change = _Change(old, new)
    found_breaks = [found_break for name in _ordered(new) for found_break in change.look_at(new[name])]
    return list(
        {
            (found_break.dataset, found_break.message, id(found_break.node)): found_break
            for found_break in found_breaks
        }.values()
    )


@dataclass
class _Change:
    """Compares two versions; `effective` holds the columns against which the readers of each dataset are checked."""

    old: Mapping[str, Mapping[str, str]]
    new: Mapping[str, Declared]
    effective: dict[str, Columns] = field(default_factory=dict)

    def look_at(self, dataset: Declared) -> list[Break]:
        """Return what is broken in a dataset; all datasets that it reads must have been checked before."""
        names = {*self.old, *self.effective}
        # Names of both versions are visible; the old type counts, because the uses were written for it.
        seen = {name: {**self.effective.get(name, {}), **self.old.get(name, {})} for name in names}
        found_breaks = [found_break for query in dataset.queries for found_break in self._broken(dataset, query, seen)]
        keeps_old_columns = found_breaks and dataset.name in self.old
        self.effective[dataset.name] = (
            dict(self.old[dataset.name]) if keeps_old_columns else self._columns(dataset, seen)
        )
        return found_breaks

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
        inferred = qualified(dataset.queries[0], schemas, dataset.variables)
        return {**{output.name: output.type for output in inferred.outputs}, **dataset.partitions}


def _holds(before: str, now: str) -> bool:
    """Whether a query that was written for one type stays valid for another: the same one, or a wider one."""
    if before == now or UNKNOWN in (before, now):
        return True
    numbers = all(decimal_of(type_name) is not None or type_name in ("float", "double") for type_name in (before, now))
    return numbers and common_type([before, now]) == now


def _renamed(column: str, before: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """Return the only added column of the same type; None where there is none or several."""
    added = [name for name, kind in now.items() if name not in before and kind == before[column]]
    return added[0] if len(added) == 1 else None


def _ordered(new: Mapping[str, Declared]) -> list[str]:
    """Return the datasets, each after all that it reads; those of a cycle in any order."""
    ordered: dict[str, None] = {}
    begun: set[str] = set()

    def visit(name: str) -> None:
        if name in begun or name not in new:
            return
        begun.add(name)
        for query in new[name].queries:
            for table in query.find_all(exp.Table):
                visit(f"{table.db}.{table.name}".lower())
        ordered[name] = None

    for name in new:
        visit(name)
    return list(ordered)
