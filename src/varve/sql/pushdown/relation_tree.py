"""Builds the tree of relations of a qualified query.

Not here: the columns of each kind of relation (relations.py), and which conditions reach a scan (scans.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.names.generators import has_uncounted_columns
from varve.sql.pushdown.grouping import group_keys, has_several_sets, window_keys
from varve.sql.pushdown.predicates import conjuncts
from varve.sql.pushdown.relations import (
    ConstantRows,
    Cte,
    JoinedRelation,
    Outer,
    Pivoted,
    Relation,
    Scan,
    ScanRelation,
    SelectRelation,
    SetOperationRelation,
    renamed,
    sealed,
    types_of,
)
from varve.sql.syntax.type_names import UNKNOWN, simple_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class RelationTreeBuilder:
    """Builds the tree of relations of a qualified and annotated query.

    Attributes:
        scans: all scans, in the order of their places.
        partitions: by dataset, its partition columns and their Spark types.
    """

    def __init__(self, partitions: Mapping[str, Mapping[str, str]]) -> None:
        self.partitions = partitions
        self.scans: list[Scan] = []

    def query(self, node: exp.Expr, ctes: Mapping[str, Cte | None], outer: Outer) -> Relation:
        """Return the relation of a query, given the CTEs and the outer sources that it can see."""
        node, cut, clauses = _unwrapped(node)
        seen = dict(ctes)
        with_ = node.args.get("with_") or node.args.get("with")
        for cte in with_.expressions if isinstance(with_, exp.With) else ():
            recursive = bool(cte.parent.args.get("recursive")) and any(
                table.name == cte.alias and not table.db for table in cte.this.find_all(exp.Table)
            )
            seen[cte.alias] = Cte(cte.this, _alias_columns(cte), dict(seen), recursive)
        if isinstance(node, exp.SetOperation):
            relation = self._branches(node, seen, outer, cut=cut)
            clauses += _clauses_behind(node)
        elif isinstance(node, exp.Select):
            selection = self._selection(node, seen, outer)
            relation = sealed(selection) if cut else selection
        else:
            # VALUES and similar constructs.
            relation = self._unopened(node, seen, tuple(node.named_selects) if isinstance(node, exp.Query) else ())
        relation.beside += tuple(
            self.query(query, seen, outer) for clause in clauses for query in nested_queries(clause)
        )
        return relation

    def _branches(self, node: exp.SetOperation, ctes: Mapping[str, Cte | None], outer: Outer, *, cut: bool) -> Relation:
        left, right = self.query(node.left, ctes, outer), self.query(node.right, ctes, outer)
        uncounted = has_uncounted_columns(node.left) or has_uncounted_columns(node.right)
        if node.args.get("by_name") or uncounted or len(left.names) != len(right.names):
            return SetOperationRelation(left.names, (), left=left, right=right, cut=True)
        # Where the types differ, Spark casts: a condition on the result does not carry over to the branch.
        types = tuple(
            left_type if left_type == right_type and left_type != UNKNOWN else UNKNOWN
            for left_type, right_type in zip(types_of(left), types_of(right), strict=True)
        )
        limited = bool(cut or node.args.get("limit") or node.args.get("offset"))
        return SetOperationRelation(left.names, types, left=left, right=right, cut=limited)

    def _selection(self, node: exp.Select, ctes: Mapping[str, Cte | None], outer: Outer) -> SelectRelation:
        names = _unique([projection.alias_or_name for projection in node.selects])
        types = tuple(simple_name(projection.type) for projection in node.selects)
        selection = SelectRelation(names, types, node=node, outer=outer, ctes=ctes)
        from_ = node.args.get("from_") or node.args.get("from")
        if from_ is not None:
            self._add(selection, from_.this, exp.Join(this=from_.this), ctes)
        for join in node.args.get("joins") or ():
            self._add(selection, join.this, join, ctes)
        for lateral in node.args.get("laterals") or ():
            selection.sources[lateral.alias_or_name] = JoinedRelation(lateral.alias_or_name, Relation())
        selection.nullable = _nullable(list(selection.sources.values()))
        selection.keys, selection.several_sets = group_keys(node), has_several_sets(node)
        selection.windows = window_keys(node)
        return selection

    def _add(self, to: SelectRelation, node: exp.Expr, join: exp.Join, ctes: Mapping[str, Cte | None]) -> None:
        alias = node.alias_or_name
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        if join.method:
            kind = join.method.upper()
        lost = _nullable(list(to.sources.values()))
        certain = {source.alias: source.relation for source in to.sources.values() if source.alias not in lost}
        sees = {
            **{name: relation_around for name, relation_around in to.outer.items() if name not in to.sources},
            **certain,
        }
        pivot = _pivot_of(node)
        if pivot is not None:
            relation = self._pivoted(node, pivot, ctes, to.outer)
            # The columns of a pivoted source are qualified with the alias behind the PIVOT.
            alias = pivot.alias or alias
        else:
            relation = self._source(node, ctes, sees if isinstance(node, exp.Lateral) else to.outer)
        # A sample is taken before WHERE applies, and renamed columns are not those of the table.
        sampled = node.args.get("sample") or to.node.args.get("sample")
        is_renamed = isinstance(node, exp.Table) and _alias_columns(node)
        is_sealed = bool(
            (node.args.get("pivots") and pivot is None) or sampled or is_renamed or isinstance(node, exp.Lateral)
        )
        known_kinds = {"", "INNER", "CROSS", "OUTER", "SEMI", "ANTI"}
        on = tuple(conjuncts(join.args.get("on")))
        if (
            kind not in known_kinds
            or join.args.get("using")
            or alias in to.sources
            or side not in {"", "LEFT", "RIGHT", "FULL"}
        ):
            # Nothing is concluded from other kinds of join: such a join may keep any row of either side.
            side, kind, on = "FULL", "OUTER", ()
        to.sources[alias if alias not in to.sources else f"{alias}@{len(to.sources)}"] = JoinedRelation(
            alias, sealed(relation) if is_sealed else relation, side, kind, on, is_sealed
        )

    def _pivoted(self, node: exp.Expr, pivot: exp.Pivot, ctes: Mapping[str, Cte | None], outer: Outer) -> Relation:
        """The relation of a PIVOT or UNPIVOT; `kept` are the columns that it does not name and so leaves unchanged."""
        relation = self._source(node, ctes, outer)
        named = {identifier.name for identifier in pivot.find_all(exp.Identifier)}
        names = relation.scan.columns if isinstance(relation, ScanRelation) else relation.names
        return Pivoted((), (), inner=relation, kept=frozenset(names) - named)

    def _source(self, node: exp.Expr, ctes: Mapping[str, Cte | None], outer: Outer) -> Relation:
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) and not node.args.get("joins"):
            return self._table(node, ctes)
        if isinstance(node, exp.Subquery | exp.Lateral) and not node.args.get("joins"):
            # Brackets in brackets may limit the rows themselves: ((SELECT ...) LIMIT 5).
            inner = node.this
            if isinstance(inner, exp.Query) and not isinstance(inner, exp.Table):
                relation = self.query(inner, ctes, outer)
                return renamed(relation, _alias_columns(node))
        if isinstance(node, exp.Values) and not any(map(nested_queries, node.expressions)):
            return renamed(ConstantRows.of(node), _alias_columns(node))
        return self._unopened(node, ctes)

    def _table(self, node: exp.Table, ctes: Mapping[str, Cte | None]) -> Relation:
        return self._cte(node.name, ctes) if not node.db and node.name in ctes else self._scan(node)

    def _cte(self, name: str, ctes: Mapping[str, Cte | None]) -> Relation:
        cte = ctes[name]
        if cte is None:
            return Relation()
        seen = dict(cte.seen)
        if cte.recursive:
            # Each iteration reads the result of the previous one, of which nothing is known.
            seen[name] = None
            return sealed(self.query(cte.query, seen, {}))
        return renamed(self.query(cte.query, seen, {}), cte.names)

    def _scan(self, node: exp.Table) -> Relation:
        dataset = f"{node.db}.{node.name}" if node.db else node.name
        if dataset not in self.partitions:
            return Relation()
        scan = Scan(len(self.scans), dataset, node, self.partitions[dataset])
        self.scans.append(scan)
        return ScanRelation(scan=scan)

    def _unopened(self, node: exp.Expr, ctes: Mapping[str, Cte | None], names: tuple[str, ...] = ()) -> Relation:
        """The relation of an expression of unknown form; every table that it names is scanned in full.

        A CTE is a query by itself: what its own conditions say of its tables holds here too.
        """
        return Relation(names, beside=tuple(self._table(table, ctes) for table in node.find_all(exp.Table)))


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, of which those that were there before have their place behind them.

    A branch of a union is read by places, so that two of its columns may have one name: `UNION ALL SELECT 'a', 'a'`.
    """
    return tuple(f"{name}@{place}" if name in names[:place] else name for place, name in enumerate(names))


def nested_queries(node: exp.Expr) -> list[exp.Expr]:
    """Return the outermost queries inside an expression."""
    if isinstance(node, exp.Query):
        return [node]
    return [query for child in node.iter_expressions() for query in nested_queries(child)]


def _pivot_of(node: exp.Expr) -> exp.Pivot | None:
    """The one PIVOT or UNPIVOT of a source that has no joins, sample or laterals; otherwise None."""
    pivots: list[exp.Pivot] = node.args.get("pivots") or []
    if len(pivots) != 1 or any(node.args.get(word) for word in ("joins", "sample", "laterals")):
        return None
    alias = pivots[0].args.get("alias")
    renamed_columns = isinstance(alias, exp.TableAlias) and alias.args.get("columns")
    return pivots[0] if isinstance(node, exp.Table | exp.Subquery) and not renamed_columns else None


def _unwrapped(node: exp.Expr) -> tuple[exp.Expr, bool, list[exp.Expr]]:
    """Return the query inside parentheses, whether they limit its rows, and the clauses behind them.

    `(SELECT ...) ORDER BY n LIMIT 3` limits them, and has two clauses.
    """
    cut, clauses = False, list[exp.Expr]()
    while isinstance(node, exp.Subquery | exp.Paren):
        cut = cut or any(node.args.get(word) for word in ("limit", "offset", "sample", "pivots"))
        clauses += _clauses_behind(node)
        node = node.this
    return node, cut, clauses


def _clauses_behind(node: exp.Expr) -> list[exp.Expr]:
    """The clauses of a query as a whole, behind its brackets or behind the last branch of a union."""
    return [clause for word in ("order", "limit", "offset") if (clause := node.args.get(word)) is not None]


def _alias_columns(node: exp.Expr) -> tuple[str, ...]:
    alias = node.args.get("alias")
    return tuple(column.name for column in alias.args.get("columns") or ()) if isinstance(alias, exp.TableAlias) else ()


def _nullable(sources: list[JoinedRelation]) -> frozenset[str]:
    nullable: set[str] = set()
    for place, source in enumerate(sources):
        before = {source.alias for source in sources[:place]}
        if source.kind in {"SEMI", "ANTI"}:
            continue
        if source.side in {"LEFT", "FULL"}:
            nullable.add(source.alias)
        if source.side in {"RIGHT", "FULL"}:
            nullable |= before
    return frozenset(nullable)
