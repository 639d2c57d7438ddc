"""Which conditions the rows of each scan of a query must satisfy to matter: FROM + WHERE + JOIN (seed 001).

Soundness is by construction. A condition on what a relation gives out says which of its rows matter to whoever reads
it: replacing the rows that fail it by any others changes nothing. Each rule below turns such conditions into conditions
on what the relation reads. What no rule allows is not concluded, and what cannot be evaluated is taken for true
(predicates.py), so that too much may be read, never too little.

Not here: which partitions satisfy the conditions of a scan (partitions/scan_reads.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.names.scope_variables import SCOPE
from varve.sql.pushdown.equalities import closed
from varve.sql.pushdown.grouping import is_aggregate, within
from varve.sql.pushdown.outer_joins import null_rejected
from varve.sql.pushdown.predicates import OUT, columns_of, conjuncts, replaced, weakened
from varve.sql.pushdown.relation_tree import Builder, nested_queries
from varve.sql.pushdown.relations import (
    Base,
    Branches,
    JoinedRelation,
    Pivoted,
    Relation,
    Renamed,
    Scan,
    Sealed,
    Selection,
)
from varve.sql.syntax.type_names import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


@dataclass(frozen=True)
class Dependencies:
    """The scans of a query with their conditions, weakened to what can be evaluated before a run."""

    scans: tuple[Scan, ...]

    @cached_property
    def unrestricted(self) -> tuple[Scan, ...]:
        """The scans that no condition on partition columns restricts."""
        return tuple(
            scan
            for scan in self.scans
            if scan.columns
            and not any(column.table == scan.alias for each in scan.conditions for column in columns_of(each))
        )

    @property
    def datasets(self) -> tuple[str, ...]:
        """The names of the datasets that are read, each once."""
        return tuple(dict.fromkeys(scan.dataset for scan in self.scans))


def dependencies(query: exp.Expr, partitions: Mapping[str, Mapping[str, str]]) -> Dependencies:
    """The scans of a qualified and annotated query, whose scope variables are columns of `@scope`.

    Args:
        query: the tree.
        partitions: for each dataset that may be read, its partition columns and their Spark types; none for a dataset
            without partitions.
    """
    builder = Builder(partitions)
    _Push(builder).root(query)
    known = {(scan.alias, name) for scan in builder.scans for name in scan.columns}
    for scan in builder.scans:
        found = [
            weakened(condition, lambda column: column.table == SCOPE or (column.table, column.name) in known)
            for condition in scan.conditions
        ]
        texts: dict[str, exp.Expr] = {}
        for condition in found:
            # One without a column of the scan says the same of all partitions: that of a scope may be FALSE.
            tables = {column.table for column in columns_of(condition)} if condition is not None else set()
            if condition is not None and (scan.alias in tables or tables <= {SCOPE}):
                texts.setdefault(condition.sql("spark"), condition)
        scan.conditions[:] = texts.values()
    return Dependencies(tuple(builder.scans))


@dataclass
class _Push:
    """Conditions on their way down; those on a relation's own columns are over table `@out`."""

    builder: Builder

    def root(self, query: exp.Expr) -> None:
        self.into(self.builder.query(query, {}, {}), [])

    def into(self, relation: Relation, conditions: Sequence[exp.Expr]) -> None:
        """Conditions on what a relation gives out."""
        match relation:
            case Base():
                relation.scan.conditions += [_moved(each, {}, relation.scan.alias) for each in conditions]
            case Branches():
                self._branches(relation, conditions)
            case Sealed():
                self.into(relation.inner, [])
            case Pivoted():
                self.into(relation.inner, [each for each in conditions if _outs(each) <= relation.kept])
            case Renamed():
                names = dict(zip(relation.names, relation.inner.names, strict=True))
                self.into(relation.inner, [_moved(each, names, OUT) for each in conditions])
            case Selection():
                self._selection(relation, conditions)
            case _:
                pass

    def _branches(self, relation: Branches, conditions: Sequence[exp.Expr]) -> None:
        """A row of a union, an intersection or a difference comes from, and goes by, equal rows of its branches."""
        known = {name for name, kind in zip(relation.names, relation.types, strict=False) if kind != UNKNOWN}
        kept = [] if relation.cut else [each for each in conditions if _outs(each) <= known]
        self.into(relation.left, kept)
        names = dict(zip(relation.names, relation.right.names, strict=False))
        self.into(relation.right, [_moved(each, names, OUT) for each in kept])

    def _selection(self, found: Selection, conditions: Sequence[exp.Expr]) -> None:
        node = found.node
        projections = found.projections
        joined: list[exp.Expr] = []
        for condition in conditions:
            outs = _outs(condition)
            if all(name in projections and self._passes(found, projections[name]) for name in outs):
                joined.append(replaced(condition, lambda column: _projected(column, projections)))
        joined += conjuncts(node.args.get("where"))
        if found.keys:
            joined += [
                each
                for each in conjuncts(node.args.get("having"))
                if not is_aggregate(each)
                and not nested_queries(each)
                and within(each, found.keys)
                and not _is_ambiguous(each, projections)
            ]
        sources = list(found.sources.values())
        self._join(found, sources, joined, frozenset())
        certain = {alias: each.relation for alias, each in found.sources.items() if alias not in found.nullable}
        seen = {**{name: each for name, each in found.outer.items() if name not in found.sources}, **certain}
        for holder in _holders(node):
            for query in nested_queries(holder):
                self.into(self.builder.query(query, found.ctes, seen), [])

    def _passes(self, found: Selection, projection: exp.Expr) -> bool:
        """Whether a condition on what a projection gives out is one on the rows that it is made of."""
        if found.limited or projection.find(exp.Window, exp.Query) or is_aggregate(projection):
            return False
        if found.keys is not None and not within(projection, found.keys):
            return False
        return found.windows is None or within(projection, found.windows)

    def _join(
        self, found: Selection, sources: list[JoinedRelation], conditions: list[exp.Expr], lost: frozenset[str]
    ) -> None:
        """Conditions on the rows of the sources joined, from the last join to the first.

        `lost` are the sources of which a later outer join may have no row.
        """
        if not sources:
            return
        last, before = sources[-1], sources[:-1]
        left = frozenset(each.alias for each in before)
        # A row that an outer join made up fails these conditions: as if that join were an inner one.
        found.nullable -= null_rejected(conditions, found.nullable - lost)
        if not before:
            self._give(found, last, conditions)
            return
        on = list(last.on)
        if last.kind in {"SEMI", "ANTI"}:
            # Its columns are not seen outside; a row of the left is kept or lost by what it matches.
            self._give(found, last, closed([*on, *_over(conditions, left)]))
            kept = closed([*conditions, *on]) if last.kind == "SEMI" else conditions
            self._join(found, before, kept, lost)
            return
        side = last.side
        if side in {"LEFT", "FULL"} and null_rejected(conditions, {last.alias}):
            side = {"LEFT": "", "FULL": "RIGHT"}[side]
        if side in {"RIGHT", "FULL"} and null_rejected(conditions, left):
            side = {"RIGHT": "", "FULL": "LEFT"}[side]
        if side == "":
            everything = closed([*conditions, *on])
            found.nullable -= null_rejected(everything, found.nullable - lost)
            self._give(found, last, everything)
            self._join(found, before, everything, lost)
        elif side == "LEFT":
            kept = _over(conditions, left)
            self._give(found, last, closed([*on, *kept]))
            self._join(found, before, kept, lost)
        elif side == "RIGHT":
            kept = _over(conditions, {last.alias})
            self._give(found, last, kept)
            self._join(found, before, closed([*on, *kept]), lost | left)
        else:
            self._give(found, last, [])
            self._join(found, before, [], lost | left)

    def _give(self, found: Selection, source: JoinedRelation, conditions: Iterable[exp.Expr]) -> None:
        """Conditions on the rows of one source; of the other sources only what their scans say is known."""

        def seen(column: exp.Column) -> exp.Expr:
            if column.table == source.alias:
                return _typed(exp.column(column.name, OUT), column)
            known = column.table == SCOPE or column.table.startswith("@")
            return column.copy() if known else found.traced(column)

        kept = [] if source.sealed else [replaced(each, seen) for each in conditions if not nested_queries(each)]
        self.into(source.relation, kept)


def _is_ambiguous(condition: exp.Expr, projections: Mapping[str, exp.Expr]) -> bool:
    """Whether HAVING names what is both a column and another expression of the result, which Spark takes first."""
    return any(projections.get(column.name, column) != column for column in columns_of(condition))


def _over(conditions: Iterable[exp.Expr], aliases: Collection[str]) -> list[exp.Expr]:
    """The conditions on these sources alone; columns of scans and of scopes are fixed."""
    return [
        each
        for each in conditions
        if all(column.table in aliases or column.table.startswith("@") for column in columns_of(each))
    ]


def _outs(condition: exp.Expr) -> set[str]:
    return {column.name for column in columns_of(condition) if column.table == OUT}


def _projected(column: exp.Column, projections: Mapping[str, exp.Expr]) -> exp.Expr:
    if column.table != OUT:
        return column.copy()
    found = projections[column.name]
    return found.copy() if isinstance(found, exp.Column) else exp.paren(found.copy())


def _moved(condition: exp.Expr, names: Mapping[str, str], table: str) -> exp.Expr:
    """The condition on the columns of another relation, under the names that they have there."""

    def named(column: exp.Column) -> exp.Expr:
        if column.table != OUT:
            return column.copy()
        return _typed(exp.column(names.get(column.name, column.name), table), column)

    return replaced(condition, named)


def _typed(made: exp.Column, of: exp.Column) -> exp.Column:
    made.type = of.type
    return made


def _holders(node: exp.Select) -> Iterable[exp.Expr]:
    """All parts of a SELECT that are no sources."""
    for name, value in node.args.items():
        if name in {"from", "from_", "with", "with_", "joins"}:
            continue
        values = value if isinstance(value, list) else [value]
        yield from (each for each in values if isinstance(each, exp.Expr))
    for join in node.args.get("joins") or ():
        if isinstance(join.args.get("on"), exp.Expr):
            yield join.args["on"]
