"""A qualified query as a tree of relations, and the origins of the columns of each relation.

The origin of a column is an expression of partition columns of scans: every row of the relation has the value of that
expression for some rows of those scans that satisfy their conditions. A column whose values may come from elsewhere too
(the nullable side of an outer join, an aggregate, a window) has no origin.

Not here: which conditions reach a scan (scans.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from operator import is_
from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp

from varve.sql.names.scope_variables import SCOPE
from varve.sql.names.trees import copied, replaced, rows_of_values
from varve.sql.pushdown.grouping import is_determined_by
from varve.sql.pushdown.predicates import OPAQUE, columns_of, opaque
from varve.sql.syntax.type_names import UNKNOWN, simple_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The origin of each output column, where it has one; a union has one such mapping for each of its branches.
Leaf: TypeAlias = "Mapping[str, exp.Expr]"
# What a query can see of the queries around it: their sources by alias.
Outer: TypeAlias = "Mapping[str, Relation]"

_GENERATORS = (exp.Explode, exp.Posexplode, exp.Inline, exp.UDTF, exp.Stack)
# Where joined unions have more combinations of branches than this, their columns have no origins.
_MOST_LEAVES = 8


@dataclass
class Scan:
    """One mention of a dataset in a query.

    Attributes:
        place: its number in the query; its columns belong to the table `@<place>` in conditions.
        table: the node in the query; a CTE that is referred to twice has two scans of one table.
        conditions: what a row must satisfy to matter, over its partition columns, scope variables and other scans.
        texts: the conditions as texts in Spark's SQL, once all of them are known.
    """

    place: int
    dataset: str
    table: exp.Table
    columns: Mapping[str, str]
    conditions: list[exp.Expr] = field(default_factory=list)
    texts: tuple[str, ...] = ()

    @property
    def alias(self) -> str:
        """The name of the table of its columns in conditions."""
        return f"@{self.place}"


@dataclass
class Relation:
    """A relation of whose rows nothing is known.

    Attributes:
        beside: what is read for it too, of which its columns say nothing: a query in the ORDER BY of a union, a CTE in
            brackets of joins.
    """

    names: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    beside: tuple[Relation, ...] = field(default=(), kw_only=True)

    @property
    def leaves(self) -> list[Leaf]:
        """The origins of the columns; here no column has one."""
        return [{}]

    def type_of(self, name: str) -> str:
        """The Spark type of a column; `unknown` where it is not certain."""
        return dict(zip(self.names, self.types, strict=True)).get(name, UNKNOWN) if self.types else UNKNOWN


@dataclass
class ScanRelation(Relation):
    """A scan of a dataset."""

    scan: Scan = field(kw_only=True)

    @cached_property
    def leaves(self) -> list[Leaf]:
        """Every partition column is its own origin."""
        return [{name: exp.column(name, self.scan.alias) for name in self.scan.columns}]

    def type_of(self, name: str) -> str:
        """See Relation."""
        return self.scan.columns.get(name, UNKNOWN)


@dataclass
class ConstantRows(Relation):
    """An inline table: `VALUES ('EU', 1), ('US', 2)`.

    Attributes:
        rows: the expressions of each row, by column.
    """

    rows: tuple[tuple[exp.Expr, ...], ...] = field(kw_only=True)

    @classmethod
    def of(cls, node: exp.Values) -> ConstantRows:
        """The rows of a VALUES, whose columns are called col1, col2 ... where it does not name them."""
        rows = rows_of_values(node)
        width = len(rows[0])
        if any(len(row) != width for row in rows):
            return cls(rows=())
        types = tuple(_one_type([row[place] for row in rows]) for place in range(width))
        return cls(tuple(f"col{place}" for place in range(1, width + 1)), types, rows=rows)

    @property
    def leaves(self) -> list[Leaf]:
        """The constants of each row. Where types differ, Spark casts, and a constant is not what it was written as."""
        known = [
            (place, name)
            for place, (name, kind) in enumerate(zip(self.names, self.types, strict=True))
            if kind != UNKNOWN
        ]
        return [{name: row[place] for place, name in known} for row in self.rows] or [{}]


def _one_type(values: Sequence[exp.Expr]) -> str:
    """The Spark type of all these values; `unknown` where they have none or several."""
    kinds = {simple_name(value.type) for value in values if not isinstance(value, exp.Null)}
    return kinds.pop() if len(kinds) == 1 else UNKNOWN


@dataclass
class SetOperationRelation(Relation):
    """A set operation: both branches, column by column."""

    left: Relation = field(kw_only=True)
    right: Relation = field(kw_only=True)
    cut: bool = False

    @property
    def leaves(self) -> list[Leaf]:
        """The origins of both branches, under the column names of the first."""
        if len(self.left.names) != len(self.right.names):
            return [{}]
        names = dict(zip(self.right.names, self.names, strict=True))
        right = [{names[name]: origin for name, origin in leaf.items() if name in names} for leaf in self.right.leaves]
        leaves = [*self.left.leaves, *right]
        alike = {name for name, kind in zip(self.names, types_of(self), strict=True) if kind != UNKNOWN}
        return [{name: origin for name, origin in leaf.items() if name in alike} for leaf in leaves]


@dataclass
class JoinedRelation:
    """A relation as a SELECT joins it to the relations before it."""

    alias: str
    relation: Relation
    side: str = ""
    kind: str = ""
    on: tuple[exp.Expr, ...] = ()
    # Whether conditions on its columns say nothing about the rows that it reads: a pivoted or a sampled source.
    sealed: bool = False


@dataclass
class SelectRelation(Relation):
    """A SELECT.

    Attributes:
        outer: the sources of the queries around this one.
        nullable: the sources whose columns may be NULL because an outer join found no row.
        keys: the expressions it groups by (None: it does not group; empty: one group, or several grouping sets).
        several_sets: whether it has several grouping sets, so that any value may be NULL in some rows.
        windows: the expressions that all of its windows are partitioned by (None: it has no windows).
    """

    node: exp.Select = field(kw_only=True)
    sources: dict[str, JoinedRelation] = field(default_factory=dict)
    outer: Outer = field(default_factory=dict)
    ctes: Mapping[str, Cte | None] = field(default_factory=dict)
    nullable: frozenset[str] = frozenset()
    keys: frozenset[str] | None = None
    several_sets: bool = False
    windows: frozenset[str] | None = None
    # What its leaves were derived from when they were asked for last, and they: `nullable` shrinks meanwhile.
    _derived: tuple[frozenset[str], list[list[Leaf]], list[Leaf]] | None = field(default=None, repr=False)

    @cached_property
    def projections(self) -> dict[str, exp.Expr]:
        """The expressions of its result, by name."""
        return dict(zip(self.names, [projection.unalias() for projection in self.node.selects], strict=True))

    @property
    def limited(self) -> bool:
        """Whether the choice of result rows depends on all input rows (LIMIT, OFFSET, DISTINCT ON)."""
        distinct = self.node.args.get("distinct")
        return bool(
            self.node.args.get("limit")
            or self.node.args.get("offset")
            or self.node.args.get("fetch")
            or (distinct is not None and distinct.args.get("on"))
        )

    @property
    def leaves(self) -> list[Leaf]:
        """The origins of its projections, derived from those of its sources."""
        leaf_tables = [source.relation.leaves for source in self.sources.values()]
        if self._derived is not None:
            nullable, before, leaves = self._derived
            if nullable == self.nullable and len(before) == len(leaf_tables) and all(map(is_, before, leaf_tables)):
                return leaves
        leaves = self._leaves(leaf_tables)
        self._derived = self.nullable, leaf_tables, leaves
        return leaves

    def _leaves(self, leaf_tables: list[list[Leaf]]) -> list[Leaf]:
        count = 1
        for leaves_of_source in leaf_tables:
            count *= len(leaves_of_source)
        if count > _MOST_LEAVES:
            return [{}]
        all_leaves: list[Leaf] = []
        for chosen in product(*leaf_tables):
            by_alias = dict(zip(self.sources, chosen, strict=True))
            leaf = {}
            for name, projection in self.projections.items():
                origin = self._origin(projection, by_alias)
                if origin is not None:
                    leaf[name] = origin
            all_leaves.append(leaf)
        return all_leaves

    def _origin(self, projection: exp.Expr, leaves: Mapping[str, Leaf]) -> exp.Expr | None:
        if self.several_sets or projection.find(exp.Query, exp.AggFunc, exp.Window, *_GENERATORS):
            return None
        if self.keys is not None and not is_determined_by(projection, self.keys):
            return None
        traced = replaced(projection, lambda column: self._traced(column, leaves))
        return None if any(column.table == OPAQUE for column in columns_of(traced)) else traced

    def _traced(self, column: exp.Column, leaves: Mapping[str, Leaf]) -> exp.Expr:
        if column.table == SCOPE:
            return copied(column)
        if column.table in self.nullable or column.table not in leaves:
            return opaque()
        origin = leaves[column.table].get(column.name)
        return exp.Paren(this=copied(origin)) if origin is not None else opaque()

    def traced(self, column: exp.Column) -> exp.Expr:
        """Return the origin of a column of one of its sources, or of a query around it.

        Opaque where the column has no origin or several.

        Columns of sources for which an outer join may have no row are opaque.
        """
        source = self.sources.get(column.table)
        if source is None:
            relation = self.outer.get(column.table)
        else:
            relation = None if column.table in self.nullable else source.relation
        leaves = relation.leaves if relation is not None else []
        if len(leaves) != 1 or column.name not in leaves[0]:
            return opaque()
        return exp.Paren(this=copied(leaves[0][column.name]))


@dataclass(frozen=True)
class Cte:
    """The query of a WITH clause, and the CTEs that it can see; a relation is built for each reference to it."""

    query: exp.Expr
    names: tuple[str, ...]
    seen: Mapping[str, Cte | None]
    recursive: bool


@dataclass
class Sealed(Relation):
    """A relation whose rows all depend on each other, so that no condition on its columns tells which inputs matter."""

    inner: Relation = field(kw_only=True)


def sealed(relation: Relation) -> Relation:
    """Return the relation as a sealed one."""
    return Sealed(relation.names, (), inner=relation)


@dataclass
class Pivoted(Relation):
    """A relation that PIVOT or UNPIVOT transforms.

    Each output row comes from input rows that have equal values in the columns `kept`.
    """

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
    """Return the relation with other column names; sealed where their number differs."""
    if not names or names == relation.names:
        return relation
    if len(names) != len(relation.names):
        return sealed(relation)
    return Renamed(names, types_of(relation), inner=relation)


def types_of(relation: Relation) -> tuple[str, ...]:
    """The types of the relation's columns, as far as they are known."""
    return relation.types or (UNKNOWN,) * len(relation.names)
