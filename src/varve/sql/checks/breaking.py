"""Finds what a change of some files breaks in others, by the columns that they name: direct breaks only.

A dataset breaks where its text names a dataset that is gone, or a column that is gone or has another type. A reader of
a broken dataset is not broken by that: it is checked as if the broken dataset had kept its columns. Added columns,
columns that nobody names, and types that only become wider break nothing.

Types are compared in one spelling, whoever wrote them: a file, Python, Spark or the inference.

Not here: how two versions of a project are read (varve/dagster/snapshots.py), and who else reads what has changed
(varve/planning/changes).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from varve.planning.changes.changes import ColumnChange, ColumnChangeKind, renamed
from varve.sql.syntax.type_names import UNKNOWN, canonical, parse_type
from varve.sql.types.inference import qualified
from varve.sql.types.numeric import FLOATS, common_type, decimal_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Columns = dict[str, str]
# So many digits of a whole number are exact in a DOUBLE.
_EXACT_DIGITS = 15


@dataclass(frozen=True)
class Declared:
    """A dataset of the new version.

    Attributes:
        queries: the queries through which it reads other datasets.
        columns: its columns where they are known; None: the columns of its query.
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
    """Return what the new version breaks; see `compared`."""
    return compared(old, new)[0]


def compared(
    old: Mapping[str, Mapping[str, str]], new: Mapping[str, Declared]
) -> tuple[list[Break], dict[str, Columns]]:
    """Return what the new version breaks, and the columns that each of its datasets has.

    A dataset that is broken counts as if it had kept the columns of the old version.

    Args:
        old: the columns of each dataset of the old version, including partition columns.
        new: the datasets of the new version; each may read only datasets of the old or the new one.
    """
    change = _Change(old, new)
    found_breaks = [found_break for name in _ordered(new) for found_break in change.look_at(new[name])]
    distinct = {
        (found_break.dataset, found_break.message, id(found_break.node)): found_break for found_break in found_breaks
    }
    return list(distinct.values()), change.effective


def holds(before: str, now: str) -> bool:
    """Whether a query that was written for one type stays valid for another: the same one, or a wider one.

    A wider one has all values of the other, so that DOUBLE is not wider than BIGINT.
    """
    if UNKNOWN in before or UNKNOWN in now:
        return True
    old_type, new_type = _comparable(before), _comparable(now)
    if old_type == new_type:
        return True
    numbers = all(decimal_of(type_name) is not None or type_name in FLOATS for type_name in (old_type, new_type))
    if (digits := decimal_of(old_type)) is not None and new_type in FLOATS:
        return new_type == "double" and digits[0] <= _EXACT_DIGITS and not digits[1]
    return numbers and common_type([old_type, new_type]) == new_type


def _comparable(kind: str) -> str:
    """Return the one spelling of a type in small letters, as Spark finds the fields of a struct in any letters."""
    text = kind.lower()
    try:
        return canonical(text)
    except ValueError:
        # No type of a column, but of an expression: an interval, or something with one in it.
        try:
            return parse_type(text).sql("spark").lower().replace("timestamp_ltz", "timestamp")
        except ValueError:
            return " ".join(text.split())


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
            if column in now and (use.is_left_out or holds(before[column], now[column])):
                continue
            likely = None if column in now else renamed(column, before, now, holds)
            kind = ColumnChangeKind.RETYPED if column in now else ColumnChangeKind.DROPPED
            change = ColumnChange(column, kind, before[column], now.get(column), likely)
            yield Break(dataset.name, upstream, column, change.message(upstream), use.node)

    def _columns(self, dataset: Declared, seen: Mapping[str, Columns]) -> Columns:
        if dataset.columns is not None:
            return {**dataset.columns, **dataset.partitions}
        if not dataset.queries:
            return {**self.old.get(dataset.name, {}), **dataset.partitions}
        schemas = {name: self.effective.get(name, columns) for name, columns in seen.items()}
        inferred = qualified(dataset.queries[0], schemas, dataset.variables)
        columns = {output.name: output.type for output in inferred.outputs}
        if dataset.name in self.old and (inferred.findings or "*" in columns):
            # It has errors of its own, or only Spark can tell its columns: its readers are not to blame for that.
            return dict(self.old[dataset.name])
        return {**columns, **dataset.partitions}


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
