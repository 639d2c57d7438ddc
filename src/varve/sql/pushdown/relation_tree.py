"""The tree of relations of a qualified query.

Not here: what each kind of relation gives out (relations.py), and which conditions reach a scan (scans.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.pushdown.grouping import group_keys, window_keys
from varve.sql.pushdown.predicates import conjuncts
from varve.sql.pushdown.relations import (
    Base,
    Branches,
    Cte,
    JoinedRelation,
    Outer,
    Pivoted,
    Relation,
    Scan,
    Selection,
    renamed,
    sealed,
    types_of,
)
from varve.sql.syntax.type_names import UNKNOWN, simple_name

if TYPE_CHECKING:
    from collections.abc import Mapping


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
            return sealed(found) if cut else found
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
            for one, other in zip(types_of(left), types_of(right), strict=True)
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
            found.sources[lateral.alias_or_name] = JoinedRelation(lateral.alias_or_name, Relation())
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
        pivot = _pivot_of(node)
        if pivot is not None:
            relation = self._pivoted(node, pivot, ctes, to.outer)
            # Columns of what is pivoted are named by the alias behind it.
            alias = pivot.alias or alias
        else:
            relation = self._source(node, ctes, sees if isinstance(node, exp.Lateral) else to.outer)
        # A sample is of what lies there, whatever WHERE says; renamed columns are others than they seem.
        sampled = node.args.get("sample") or to.node.args.get("sample")
        is_renamed = isinstance(node, exp.Table) and _alias_columns(node)
        is_sealed = bool(
            (node.args.get("pivots") and pivot is None) or sampled or is_renamed or isinstance(node, exp.Lateral)
        )
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
        to.sources[alias if alias not in to.sources else f"{alias}@{len(to.sources)}"] = JoinedRelation(
            alias, sealed(relation) if is_sealed else relation, side, kind, on, is_sealed
        )

    def _pivoted(self, node: exp.Expr, pivot: exp.Pivot, ctes: Mapping[str, Cte | None], outer: Outer) -> Relation:
        """What PIVOT or UNPIVOT is of, and the columns that it leaves as they are: those that it does not name."""
        relation = self._source(node, ctes, outer)
        named = {each.name for each in pivot.find_all(exp.Identifier)}
        names = relation.scan.columns if isinstance(relation, Base) else relation.names
        return Pivoted((), (), inner=relation, kept=frozenset(names) - named)

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
                return renamed(found, _alias_columns(node))
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
            return sealed(self.query(cte.query, seen, {}))
        del outer
        return renamed(self.query(cte.query, seen, {}), cte.names)

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


def _pivot_of(node: exp.Expr) -> exp.Pivot | None:
    """The one PIVOT or UNPIVOT of a source on which nothing else hangs."""
    pivots: list[exp.Pivot] = node.args.get("pivots") or []
    if len(pivots) != 1 or any(node.args.get(each) for each in ("joins", "sample", "laterals")):
        return None
    alias = pivots[0].args.get("alias")
    renamed_columns = isinstance(alias, exp.TableAlias) and alias.args.get("columns")
    return pivots[0] if isinstance(node, exp.Table | exp.Subquery) and not renamed_columns else None


def _unwrapped(node: exp.Expr) -> tuple[exp.Expr, bool]:
    """The query inside parentheses, and whether they cut it: `(SELECT ...) LIMIT 3`."""
    cut = False
    while isinstance(node, exp.Subquery | exp.Paren):
        cut = cut or any(node.args.get(word) for word in ("limit", "offset", "sample", "pivots"))
        node = node.this
    return node, cut


def _alias_columns(node: exp.Expr) -> tuple[str, ...]:
    alias = node.args.get("alias")
    return tuple(each.name for each in alias.args.get("columns") or ()) if isinstance(alias, exp.TableAlias) else ()


def _nullable(sources: list[JoinedRelation]) -> frozenset[str]:
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
