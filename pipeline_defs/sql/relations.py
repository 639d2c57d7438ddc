"""A qualified query as a tree of relations, and where the columns that they give out come from.

The origin of a column is an expression of partition columns of scans: every row of the relation has its value for some
rows of those scans that satisfy their conditions. A column whose values may come from elsewhere too (the far side of an
outer join, an aggregate, a window) has none.

Not here: which conditions reach a scan (dependencies.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp

from pipeline_defs.sql.grouping import group_keys, window_keys, within
from pipeline_defs.sql.predicates import OPAQUE, SCOPE, columns_of, conjuncts, opaque, replaced
from pipeline_defs.sql.types import UNKNOWN, simple_name

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
class Source:
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
    sources: dict[str, Source] = field(default_factory=dict)
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


class Builder:
    """Makes the tree of a qualified and annotated query.

    Attributes:
        scans: all scans, in the order of their places.
        nested: the queries inside expressions (EXISTS, IN, scalar ones), which are read beside the tree.
    """

    def __init__(self, partitions: Mapping[str, Mapping[str, str]]) -> None:
        self.partitions = partitions
        self.scans: list[Scan] = []

    def query(self, node: exp.Expr, ctes: Mapping[str, Cte | None], outer: Outer) -> Relation:
        """The relation of a query."""
        node, cut = _unwrapped(node)
        seen = dict(ctes)
        with_ = node.args.get("with_") or node.args.get("with")
        for cte in with_.expressions if isinstance(with_, exp.With) else ():
            recursive = bool(cte.parent.args.get("recursive")) and any(
                table.name == cte.alias and not table.db for table in cte.this.find_all(exp.Table)
            )
            seen[cte.alias] = Cte(cte.this, _alias_columns(cte), dict(seen), recursive)
        if isinstance(node, exp.SetOperation):
            return self._branches(node, seen, outer, cut=cut)
        if isinstance(node, exp.Select):
            found = self._selection(node, seen, outer)
            return _sealed(found) if cut else found
        # VALUES and their like read nothing; anything else reads what it mentions, whole.
        self._whole(node, seen)
        return Relation(tuple(node.named_selects) if isinstance(node, exp.Query) else ())

    def _branches(self, node: exp.SetOperation, ctes: Mapping[str, Cte | None], outer: Outer, *, cut: bool) -> Relation:
        left, right = self.query(node.left, ctes, outer), self.query(node.right, ctes, outer)
        if node.args.get("by_name") or len(left.names) != len(right.names):
            return Branches(left.names, (), left=left, right=right, cut=True)
        # Where the types differ, Spark casts: a condition on the result is none on the branch.
        types = tuple(
            one if one == other and one != UNKNOWN else UNKNOWN
            for one, other in zip(_types(left), _types(right), strict=True)
        )
        limited = bool(cut or node.args.get("limit") or node.args.get("offset"))
        return Branches(left.names, types, left=left, right=right, cut=limited)

    def _selection(self, node: exp.Select, ctes: Mapping[str, Cte | None], outer: Outer) -> Selection:
        names = tuple(each.alias_or_name for each in node.selects)
        types = tuple(simple_name(each.type) for each in node.selects)
        found = Selection(names, types, node=node, outer=outer, ctes=ctes)
        from_ = node.args.get("from_") or node.args.get("from")
        if from_ is not None:
            self._add(found, from_.this, exp.Join(this=from_.this), ctes)
        for join in node.args.get("joins") or ():
            self._add(found, join.this, join, ctes)
        for lateral in node.args.get("laterals") or ():
            found.sources[lateral.alias_or_name] = Source(lateral.alias_or_name, Relation())
        found.nullable = _nullable(list(found.sources.values()))
        found.keys = group_keys(node)
        found.windows = window_keys(node)
        return found

    def _add(self, to: Selection, node: exp.Expr, join: exp.Join, ctes: Mapping[str, Cte | None]) -> None:
        alias = node.alias_or_name
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        if join.method:
            kind = join.method.upper()
        lost = _nullable(list(to.sources.values()))
        certain = {each.alias: each.relation for each in to.sources.values() if each.alias not in lost}
        sees = {**{name: each for name, each in to.outer.items() if name not in to.sources}, **certain}
        relation = self._source(node, ctes, sees if isinstance(node, exp.Lateral) else to.outer)
        # A sample is of what lies there, whatever WHERE says; renamed columns are others than they seem.
        sampled = node.args.get("sample") or to.node.args.get("sample")
        renamed = isinstance(node, exp.Table) and _alias_columns(node)
        sealed = bool(node.args.get("pivots") or sampled or renamed or isinstance(node, exp.Lateral))
        known = {"", "INNER", "CROSS", "OUTER", "SEMI", "ANTI"}
        on = tuple(conjuncts(join.args.get("on")))
        if (
            kind not in known
            or join.args.get("using")
            or alias in to.sources
            or side not in {"", "LEFT", "RIGHT", "FULL"}
        ):
            # Nothing is concluded from a join of another kind: it may keep any row of either side.
            side, kind, on = "FULL", "OUTER", ()
        to.sources[alias if alias not in to.sources else f"{alias}@{len(to.sources)}"] = Source(
            alias, _sealed(relation) if sealed else relation, side, kind, on, sealed
        )

    def _source(self, node: exp.Expr, ctes: Mapping[str, Cte | None], outer: Outer) -> Relation:
        if isinstance(node, exp.Table) and not node.args.get("joins"):
            if not node.db and node.name in ctes:
                return self._cte(node.name, ctes, outer)
            return self._scan(node)
        if isinstance(node, exp.Subquery | exp.Lateral) and not node.args.get("joins"):
            inner = node.this
            if isinstance(inner, exp.Subquery):
                inner = inner.unnest()
            if isinstance(inner, exp.Query) and not isinstance(inner, exp.Table):
                found = self.query(inner, ctes, outer)
                return _renamed(found, _alias_columns(node))
        self._whole(node, ctes)
        return Relation()

    def _cte(self, name: str, ctes: Mapping[str, Cte | None], outer: Outer) -> Relation:
        cte = ctes[name]
        if cte is None:
            return Relation()
        seen = dict(cte.seen)
        if cte.recursive:
            # Each round reads what the one before found, of which nothing is known.
            seen[name] = None
            return _sealed(self.query(cte.query, seen, {}))
        del outer
        return _renamed(self.query(cte.query, seen, {}), cte.names)

    def _scan(self, node: exp.Table) -> Relation:
        dataset = f"{node.db}.{node.name}" if node.db else node.name
        if dataset not in self.partitions:
            return Relation()
        scan = Scan(len(self.scans), dataset, node, self.partitions[dataset])
        self.scans.append(scan)
        return Base(scan=scan)

    def _whole(self, node: exp.Expr, ctes: Mapping[str, Cte | None]) -> None:
        """Scan everything that an expression of no known form mentions."""
        for table in node.find_all(exp.Table):
            if not table.db and table.name in ctes:
                self._cte(table.name, ctes, {})
            else:
                self._scan(table)


def nested_queries(node: exp.Expr) -> list[exp.Expr]:
    """The outermost queries inside an expression."""
    if isinstance(node, exp.Query):
        return [node]
    return [found for child in node.iter_expressions() for found in nested_queries(child)]


def _unwrapped(node: exp.Expr) -> tuple[exp.Expr, bool]:
    """The query inside parentheses, and whether they cut it: `(SELECT ...) LIMIT 3`."""
    cut = False
    while isinstance(node, exp.Subquery | exp.Paren):
        cut = cut or any(node.args.get(word) for word in ("limit", "offset", "sample", "pivots"))
        node = node.this
    return node, cut


@dataclass
class Sealed(Relation):
    """A relation whose rows all depend on each other, so that no condition on its columns says which of them matter."""

    inner: Relation = field(kw_only=True)


def _sealed(relation: Relation) -> Relation:
    return Sealed(relation.names, (), inner=relation)


@dataclass
class Renamed(Relation):
    """A relation under other names of its columns: `AS t(a, b)`."""

    inner: Relation = field(kw_only=True)

    @property
    def leaves(self) -> list[Leaf]:
        """See Relation."""
        names = dict(zip(self.inner.names, self.names, strict=True))
        return [{names[name]: origin for name, origin in leaf.items() if name in names} for leaf in self.inner.leaves]


def _renamed(relation: Relation, names: tuple[str, ...]) -> Relation:
    if not names or names == relation.names:
        return relation
    if len(names) != len(relation.names):
        return _sealed(relation)
    return Renamed(names, _types(relation), inner=relation)


def _types(relation: Relation) -> tuple[str, ...]:
    return relation.types or (UNKNOWN,) * len(relation.names)


def _alias_columns(node: exp.Expr) -> tuple[str, ...]:
    alias = node.args.get("alias")
    return tuple(each.name for each in alias.args.get("columns") or ()) if isinstance(alias, exp.TableAlias) else ()


def _nullable(sources: list[Source]) -> frozenset[str]:
    found: set[str] = set()
    for place, source in enumerate(sources):
        before = {each.alias for each in sources[:place]}
        if source.kind in {"SEMI", "ANTI"}:
            continue
        if source.side in {"LEFT", "FULL"}:
            found.add(source.alias)
        if source.side in {"RIGHT", "FULL"}:
            found |= before
    return frozenset(found)
