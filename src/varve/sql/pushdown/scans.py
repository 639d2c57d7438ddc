"""Which conditions the rows of each scan of a query must satisfy to matter: pushdown of WHERE, HAVING and JOIN.

The rules are sound by construction (docs/decisions/0008-dependencies.md). A condition on the output of a relation says
which of its rows matter to its reader: replacing the rows that fail it by any others changes nothing. Each rule below
turns such conditions into conditions on the inputs of the relation. What no rule allows is not concluded, and what
cannot be evaluated counts as TRUE (predicates.py), so that too much may be read, never too little.

Not here: which partitions satisfy the conditions of a scan (partitions/scan_reads.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.names.scope_variables import SCOPE
from varve.sql.names.trees import copied, replaced, text_of
from varve.sql.pushdown.constants import constant_conditions
from varve.sql.pushdown.equalities import with_implied_conditions
from varve.sql.pushdown.grouping import is_aggregate, is_determined_by
from varve.sql.pushdown.outer_joins import null_rejected
from varve.sql.pushdown.predicates import OUT, columns_of, conjuncts, weakened
from varve.sql.pushdown.relation_tree import RelationTreeBuilder, nested_queries
from varve.sql.pushdown.relations import (
    JoinedRelation,
    Pivoted,
    Relation,
    Renamed,
    Scan,
    ScanRelation,
    Sealed,
    SelectRelation,
    SetOperationRelation,
)
from varve.sql.syntax.type_names import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


@dataclass(frozen=True)
class Dependencies:
    """The scans of a query with their conditions, which are weakened to what can be evaluated before a run."""

    scans: tuple[Scan, ...]

    @cached_property
    def unrestricted(self) -> tuple[Scan, ...]:
        """The scans that no condition on partition columns restricts."""
        return tuple(
            scan
            for scan in self.scans
            if scan.columns
            and not any(column.table == scan.alias for condition in scan.conditions for column in columns_of(condition))
        )

    @property
    def datasets(self) -> tuple[str, ...]:
        """The names of the datasets that are read, without duplicates."""
        return tuple(dict.fromkeys(scan.dataset for scan in self.scans))


def dependencies(query: exp.Expr, partitions: Mapping[str, Mapping[str, str]]) -> Dependencies:
    """Return the scans of a qualified and annotated query whose scope variables are columns of `@scope`.

    Args:
        query: the qualified tree.
        partitions: for each dataset that may be read, its partition columns and their Spark types; an empty mapping for
            a dataset without partitions.
    """
    builder = RelationTreeBuilder(partitions)
    _Pushdown(builder).root(query)
    partition_columns = {(scan.alias, name) for scan in builder.scans for name in scan.columns}
    for scan in builder.scans:
        weakened_conditions = [
            weakened(
                condition, lambda column: column.table == SCOPE or (column.table, column.name) in partition_columns
            )
            for condition in scan.conditions
        ]
        texts: dict[str, exp.Expr] = {}
        for condition in weakened_conditions:
            # A condition without a column of the scan holds for all partitions alike; one on the scope alone may still
            # be FALSE.
            tables = {column.table for column in columns_of(condition)} if condition is not None else set()
            if condition is not None and (scan.alias in tables or tables <= {SCOPE}):
                texts.setdefault(text_of(condition), condition)
        scan.conditions[:] = texts.values()
        scan.texts = tuple(texts)
    return Dependencies(tuple(builder.scans))


@dataclass
class _Pushdown:
    """Pushes conditions down the tree; conditions on a relation's own output columns use the table `@out`."""

    builder: RelationTreeBuilder

    def root(self, query: exp.Expr) -> None:
        self.into(self.builder.query(query, {}, {}), [])

    def into(self, relation: Relation, conditions: Sequence[exp.Expr]) -> None:
        """Push conditions on the output columns of a relation into it."""
        for other in relation.beside:
            self.into(other, [])
        match relation:
            case ScanRelation():
                relation.scan.conditions += [_moved(condition, {}, relation.scan.alias) for condition in conditions]
            case SetOperationRelation():
                self._branches(relation, conditions)
            case Sealed():
                self.into(relation.inner, [])
            case Pivoted():
                self.into(relation.inner, [condition for condition in conditions if _outs(condition) <= relation.kept])
            case Renamed():
                names = dict(zip(relation.names, relation.inner.names, strict=True))
                self.into(relation.inner, [_moved(condition, names, OUT) for condition in conditions])
            case SelectRelation():
                self._selection(relation, conditions)
            case _:
                pass

    def _branches(self, relation: SetOperationRelation, conditions: Sequence[exp.Expr]) -> None:
        """A row of a union, an intersection or a difference depends only on equal rows of its branches."""
        typed_names = {name for name, kind in zip(relation.names, relation.types, strict=False) if kind != UNKNOWN}
        pushed = [] if relation.cut else [condition for condition in conditions if _outs(condition) <= typed_names]
        self.into(relation.left, pushed)
        names = dict(zip(relation.names, relation.right.names, strict=False))
        self.into(relation.right, [_moved(condition, names, OUT) for condition in pushed])

    def _selection(self, selection: SelectRelation, conditions: Sequence[exp.Expr]) -> None:
        node = selection.node
        projections = selection.projections
        joined: list[exp.Expr] = []
        for condition in conditions:
            outs = _outs(condition)
            if all(name in projections and self._passes(selection, projections[name]) for name in outs):
                joined.append(replaced(condition, lambda column: _projected(column, projections)))
        joined += conjuncts(node.args.get("where"))
        if selection.keys:
            joined += [
                conjunct
                for conjunct in conjuncts(node.args.get("having"))
                if not is_aggregate(conjunct)
                and not nested_queries(conjunct)
                and is_determined_by(conjunct, selection.keys)
                and not _is_ambiguous(conjunct, projections)
            ]
        sources = list(selection.sources.values())
        self._join(selection, sources, joined, frozenset())
        certain = {
            alias: source.relation for alias, source in selection.sources.items() if alias not in selection.nullable
        }
        visible_relations = {
            **{name: source_around for name, source_around in selection.outer.items() if name not in selection.sources},
            **certain,
        }
        for holder in _holders(node):
            for query in nested_queries(holder):
                self.into(self.builder.query(query, selection.ctes, visible_relations), [])

    def _passes(self, selection: SelectRelation, projection: exp.Expr) -> bool:
        """Whether a condition on a projection's value is also a condition on the input rows."""
        if (
            selection.limited
            or selection.several_sets
            or projection.find(exp.Window, exp.Query)
            or is_aggregate(projection)
        ):
            return False
        if selection.keys is not None and not is_determined_by(projection, selection.keys):
            return False
        return selection.windows is None or is_determined_by(projection, selection.windows)

    def _join(
        self, selection: SelectRelation, sources: list[JoinedRelation], conditions: list[exp.Expr], lost: frozenset[str]
    ) -> None:
        """Push conditions on the joined rows into the sources, from the last join to the first.

        `lost` are the aliases of the sources for which a later outer join may have no row.
        """
        if not sources:
            return
        last, before = sources[-1], sources[:-1]
        left = frozenset(source.alias for source in before)
        # Rows that an outer join adds fail these conditions: the join is treated as an inner one.
        selection.nullable -= null_rejected(conditions, selection.nullable - lost)
        if not before:
            self._give(selection, last, conditions)
            return
        on = list(last.on)
        if last.kind in {"SEMI", "ANTI"}:
            # Its columns are not visible outside; a row of the left side is kept or dropped by what it matches.
            self._give(selection, last, with_implied_conditions([*on, *_over(conditions, left)]))
            left_conditions = with_implied_conditions([*conditions, *on]) if last.kind == "SEMI" else conditions
            self._join(selection, before, left_conditions, lost)
            return
        side = last.side
        if side in {"LEFT", "FULL"} and null_rejected(conditions, {last.alias}):
            side = {"LEFT": "", "FULL": "RIGHT"}[side]
        if side in {"RIGHT", "FULL"} and null_rejected(conditions, left):
            side = {"RIGHT": "", "FULL": "LEFT"}[side]
        if side == "":
            everything = with_implied_conditions([*conditions, *on])
            selection.nullable -= null_rejected(everything, selection.nullable - lost)
            self._give(selection, last, everything)
            self._join(selection, before, everything, lost)
        elif side == "LEFT":
            left_conditions = _over(conditions, left)
            self._give(selection, last, with_implied_conditions([*on, *left_conditions]))
            self._join(selection, before, left_conditions, lost)
        elif side == "RIGHT":
            left_conditions = _over(conditions, {last.alias})
            self._give(selection, last, left_conditions)
            self._join(selection, before, with_implied_conditions([*on, *left_conditions]), lost | left)
        else:
            self._give(selection, last, [])
            self._join(selection, before, [], lost | left)

    def _give(self, selection: SelectRelation, source: JoinedRelation, conditions: Iterable[exp.Expr]) -> None:
        """Push conditions into one source; columns of the other sources are replaced by their origins."""

        def seen(column: exp.Column) -> exp.Expr:
            if column.table == source.alias:
                return _typed(exp.column(column.name, OUT), column)
            is_fixed = column.table == SCOPE or column.table.startswith("@")
            return copied(column) if is_fixed else selection.traced(column)

        plain = [] if source.sealed else [condition for condition in conditions if not nested_queries(condition)]
        by_constants = constant_conditions(selection, source, plain)
        self.into(source.relation, [replaced(condition, seen) for condition in (*plain, *by_constants)])


def _is_ambiguous(condition: exp.Expr, projections: Mapping[str, exp.Expr]) -> bool:
    """Whether HAVING names what is both a column and another expression of the result, which Spark resolves first."""
    return any(projections.get(column.name, column) != column for column in columns_of(condition))


def _over(conditions: Iterable[exp.Expr], aliases: Collection[str]) -> list[exp.Expr]:
    """The conditions that concern only these sources; columns of scans and of scopes are allowed in them."""
    return [
        condition
        for condition in conditions
        if all(column.table in aliases or column.table.startswith("@") for column in columns_of(condition))
    ]


def _outs(condition: exp.Expr) -> set[str]:
    return {column.name for column in columns_of(condition) if column.table == OUT}


def _projected(column: exp.Column, projections: Mapping[str, exp.Expr]) -> exp.Expr:
    if column.table != OUT:
        return copied(column)
    projection = projections[column.name]
    return copied(projection) if isinstance(projection, exp.Column) else exp.Paren(this=copied(projection))


def _moved(condition: exp.Expr, names: Mapping[str, str], table: str) -> exp.Expr:
    """Return the condition on the columns of another relation, under the names that they have there."""

    def named(column: exp.Column) -> exp.Expr:
        if column.table != OUT:
            return copied(column)
        return _typed(exp.column(names.get(column.name, column.name), table), column)

    return replaced(condition, named)


def _typed(made: exp.Column, of: exp.Column) -> exp.Column:
    made.type = of.type
    return made


def _holders(node: exp.Select) -> Iterable[exp.Expr]:
    """Yield all expressions of a SELECT outside its sources, including the ON of its joins."""
    for name, value in node.args.items():
        if name in {"from", "from_", "with", "with_", "joins"}:
            continue
        values = value if isinstance(value, list) else [value]
        yield from (value for value in values if isinstance(value, exp.Expr))
    for join in node.args.get("joins") or ():
        if isinstance(join.args.get("on"), exp.Expr):
            yield join.args["on"]
