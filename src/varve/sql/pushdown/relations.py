"""A qualified query as a tree of relations, and where the columns that they give out come from.

The origin of a column is an expression of partition columns of scans: every row of the relation has its value for some
rows of those scans that satisfy their conditions. A column whose values may come from elsewhere too (the far side of an
outer join, an aggregate, a window) has none.

Not here: which conditions reach a scan (scans.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp

from varve.sql.names.scope_variables import SCOPE
from varve.sql.pushdown.grouping import within
from varve.sql.pushdown.predicates import OPAQUE, columns_of, opaque, replaced
from varve.sql.syntax.type_names import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Mapping

# For each column that is given out its origin; a union has one such table for each of its branches.
Leaf: TypeAlias = "Mapping[str, exp.Expr]"
# What a query sees of the queries around it: their sources by alias.
Outer: TypeAlias = "Mapping[str, Relation]"

_GENERATORS = (exp.Explode, exp.Posexplode, exp.Inline, exp.UDTF, exp.Stack)
# Beyond it the branches of unions that are joined with each other have no origins.
_MOST_LEAVES = 8


@dataclass
class Scan:
    """One mention of a dataset in a query.

    Attributes:
        place: its number in the query; its columns are those of table `@<place>`.
        table: the mention; a CTE that is mentioned twice has two scans of one table.
        conditions: what a row must satisfy to matter, over its partition columns, scope variables and other scans.
    """

    place: int
    dataset: str
    table: exp.Table
    columns: Mapping[str, str]
    conditions: list[exp.Expr] = field(default_factory=list)

    @property
    def alias(self) -> str:
        """The table of its columns in conditions."""
        return f"@{self.place}"


@dataclass
class Relation:
    """Something that gives out rows of which nothing is known."""

    names: tuple[str, ...] = ()
    types: tuple[str, ...] = ()

    @property
    def leaves(self) -> list[Leaf]:
        """The origins of the columns; none has one here."""
        return [{}]

    def type_of(self, name: str) -> str:
        """The Spark type of a column; `unknown` where it is not certain."""
        return dict(zip(self.names, self.types, strict=True)).get(name, UNKNOWN) if self.types else UNKNOWN


@dataclass
class Base(Relation):
    """A scan."""

    scan: Scan = field(kw_only=True)

    @property
    def leaves(self) -> list[Leaf]:
        """Partition columns come from themselves."""
        return [{name: exp.column(name, self.scan.alias) for name in self.scan.columns}]

    def type_of(self, name: str) -> str:
        """See Relation."""
        return self.scan.columns.get(name, UNKNOWN)


@dataclass
class Branches(Relation):
    """A set operation: both branches, column by column."""

    left: Relation = field(kw_only=True)
    right: Relation = field(kw_only=True)
    cut: bool = False

    @property
    def leaves(self) -> list[Leaf]:
        """Those of both branches, under the names of the first."""
        if len(self.left.names) != len(self.right.names):
            return [{}]
        names = dict(zip(self.right.names, self.names, strict=True))
        right = [{names[name]: origin for name, origin in leaf.items() if name in names} for leaf in self.right.leaves]
        found = [*self.left.leaves, *right]
        alike = {name for name, kind in zip(self.names, self.types, strict=True) if kind != UNKNOWN}
        return [{name: origin for name, origin in leaf.items() if name in alike} for leaf in found]


@dataclass
class JoinedRelation:
    """A relation as one SELECT joins it to those before it."""

    alias: str
    relation: Relation
    side: str = ""
    kind: str = ""
    on: tuple[exp.Expr, ...] = ()
    # Whether conditions on its columns say nothing about its rows: a pivoted or a sampled source.
    sealed: bool = False


@dataclass
class Selection(Relation):
    """A SELECT.

    Attributes:
        outer: the sources of the queries around it.
        nullable: the sources whose columns may be NULL because an outer join found no row.
        keys: what it groups by (None: it does not group; empty: into one row, or by several sets).
        windows: what all of its windows are partitioned by (None: it has none).
    """

    node: exp.Select = field(kw_only=True)
    sources: dict[str, JoinedRelation] = field(default_factory=dict)
    outer: Outer = field(default_factory=dict)
    ctes: Mapping[str, Cte | None] = field(default_factory=dict)
    nullable: frozenset[str] = frozenset()
    keys: frozenset[str] | None = None
    windows: frozenset[str] | None = None

    @property
    def projections(self) -> dict[str, exp.Expr]:
        """What it gives out, by name."""
        return dict(zip(self.names, [each.unalias() for each in self.node.selects], strict=True))

    @property
    def limited(self) -> bool:
        """Whether which rows come out depends on all rows that go in."""
        distinct = self.node.args.get("distinct")
        return bool(
            self.node.args.get("limit")
            or self.node.args.get("offset")
            or self.node.args.get("fetch")
            or (distinct is not None and distinct.args.get("on"))
        )

    @property
    def leaves(self) -> list[Leaf]:
        """The origins of its projections, by those of its sources."""
        tables = [source.relation.leaves for source in self.sources.values()]
        count = 1
        for each in tables:
            count *= len(each)
        if count > _MOST_LEAVES:
            return [{}]
        found: list[Leaf] = []
        for chosen in product(*tables):
            by_alias = dict(zip(self.sources, chosen, strict=True))
            leaf = {}
            for name, projection in self.projections.items():
                origin = self._origin(projection, by_alias)
                if origin is not None:
                    leaf[name] = origin
            found.append(leaf)
        return found

    def _origin(self, projection: exp.Expr, leaves: Mapping[str, Leaf]) -> exp.Expr | None:
        if projection.find(exp.Query, exp.AggFunc, exp.Window, *_GENERATORS):
            return None
        if self.keys is not None and not within(projection, self.keys):
            return None
        traced = replaced(projection, lambda column: self._traced(column, leaves))
        return None if any(column.table == OPAQUE for column in columns_of(traced)) else traced

    def _traced(self, column: exp.Column, leaves: Mapping[str, Leaf]) -> exp.Expr:
        if column.table == SCOPE:
            return column.copy()
        if column.table in self.nullable or column.table not in leaves:
            return opaque()
        found = leaves[column.table].get(column.name)
        return exp.paren(found.copy()) if found is not None else opaque()

    def traced(self, column: exp.Column) -> exp.Expr:
        """A column of one of its sources, or of a query around it, by its origin; opaque where it has none or several.

        Columns of sources that an outer join may leave without a row are opaque.
        """
        source = self.sources.get(column.table)
        if source is None:
            relation = self.outer.get(column.table)
        else:
            relation = None if column.table in self.nullable else source.relation
        leaves = relation.leaves if relation is not None else []
        if len(leaves) != 1 or column.name not in leaves[0]:
            return opaque()
        return exp.paren(leaves[0][column.name].copy())


@dataclass(frozen=True)
class Cte:
    """A WITH clause's query, and what it sees itself; a relation is made of it for each mention."""

    query: exp.Expr
    names: tuple[str, ...]
    seen: Mapping[str, Cte | None]
    recursive: bool


@dataclass
class Sealed(Relation):
    """A relation whose rows all depend on each other, so that no condition on its columns says which of them matter."""

    inner: Relation = field(kw_only=True)


def sealed(relation: Relation) -> Relation:
    """A relation, sealed."""
    return Sealed(relation.names, (), inner=relation)


@dataclass
class Pivoted(Relation):
    """A relation whose rows PIVOT or UNPIVOT makes others of, each of rows that are alike in the columns `kept`."""

    inner: Relation = field(kw_only=True)
    kept: frozenset[str] = frozenset()


@dataclass
class Renamed(Relation):
    """A relation under other names of its columns: `AS t(a, b)`."""

    inner: Relation = field(kw_only=True)

    @property
    def leaves(self) -> list[Leaf]:
        """See Relation."""
        names = dict(zip(self.inner.names, self.names, strict=True))
        return [{names[name]: origin for name, origin in leaf.items() if name in names} for leaf in self.inner.leaves]


def renamed(relation: Relation, names: tuple[str, ...]) -> Relation:
    """A relation under other names of its columns; sealed, where those are not as many."""
    if not names or names == relation.names:
        return relation
    if len(names) != len(relation.names):
        return sealed(relation)
    return Renamed(names, types_of(relation), inner=relation)


def types_of(relation: Relation) -> tuple[str, ...]:
    """The types of its columns, as far as they are known."""
    return relation.types or (UNKNOWN,) * len(relation.names)
