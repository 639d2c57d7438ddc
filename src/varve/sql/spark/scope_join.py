"""A query of many scopes as a join with them: the author's text with insertions at its clauses.

A LATERAL subquery does for some queries, but not for all: Spark resolves the name of an outer table one level up only,
and takes none on the side of an outer join, in an aggregate or in GROUP BY. Here the scopes are a table of the
outermost SELECT itself: what it names of them is a column like any other, its subqueries are one level below, and each
derived table is LATERAL by itself. Rows of one scope stay together because its partition columns are part of every
GROUP BY, PARTITION BY and DISTINCT.

What is inserted: the scopes' keys before the columns of the result, the scopes first in FROM (commas become CROSS
JOIN, which binds as a JOIN does), keys in GROUP BY and PARTITION BY, LATERAL before derived tables that name a
variable. CTEs that name one stand in the places where they are named. ORDER BY of the whole goes: rows have no order in
a table.

Not here: which queries have no such form (shared_query.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.names.scope_variables import variable_of
from varve.sql.names.visible import cte_of
from varve.sql.names.written_query import Edit, QueryPiece, Unplaced
from varve.sql.spark.clause_layout import Strange, layout
from varve.sql.spark.shared_query import is_plain, no_join, selects_of
from varve.sql.syntax.errors import Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.sql.names.written_query import WrittenQuery
    from varve.sql.spark.clause_layout import CteText, SelectText

# The dataset that stands for the table of the scopes.
SCOPES = "varve.scopes"


@dataclass(frozen=True)
class ScopeNames:
    """What the table of the scopes and its columns are called: names that nothing in the query has."""

    table: str
    keys: tuple[str, ...]

    @classmethod
    def beside(cls, text: str, partition_columns: Sequence[str]) -> ScopeNames:
        """Names that a text does not hold."""
        table = "__varve"
        while table in text.lower():
            table += "_"
        return cls(table, tuple(f"{table}_p_{each}" for each in partition_columns))

    def variable(self, name: str) -> str:
        """The column of a variable, as SQL."""
        return f"{self.table}.`{self.column(name)}`"

    def column(self, name: str) -> str:
        """The name of the column of a variable."""
        return f"{self.table}_v_{name}"

    @property
    def key_columns(self) -> list[str]:
        """The keys, as SQL."""
        return [f"{self.table}.`{each}`" for each in self.keys]


def joined(query: WrittenQuery, names: ScopeNames) -> list[QueryPiece] | None:
    """The query for all scopes, with their keys before its own columns; None where there is no such form."""
    if no_join(query.tree, query.variables):
        return None
    try:
        return _Join(query, names).pieces()
    except (Strange, IndexError, Unplaced):
        return None


class _Join:
    def __init__(self, query: WrittenQuery, names: ScopeNames) -> None:
        self.query = query
        self.names = names
        self.text = layout(query.text, query.tokens)
        self.edits = [*query.inputs(), *query.bound(names.variable)]
        with_ = query.tree.args.get("with_")
        self.ctes: list[exp.CTE] = list(with_.expressions) if isinstance(with_, exp.With) else []
        if len(self.ctes) != len(self.text.ctes):
            raise Strange
        # By id: a CTE that names a variable, itself or through another one, and its text.
        self.inlined: dict[int, tuple[CteText, list[QueryPiece]]] = {}

    def pieces(self) -> list[QueryPiece]:
        kept: list[CteText] = []
        for cte, text in zip(self.ctes, self.text.ctes, strict=True):
            self._references(cte)
            if self._follows(cte):
                self.inlined[id(cte)] = text, self.query.pieces(self.edits, text.body)
            else:
                kept.append(text)
        selects = selects_of(self.query.tree)
        if selects is None or len(selects) != len(self.text.selects):
            raise Strange
        for select in selects:
            for each in select.args.values():
                for part in each if isinstance(each, list) else [each]:
                    if isinstance(part, exp.Expr) and not isinstance(part, exp.With):
                        self._references(part)
        cut = [found for text in self.text.selects if (found := text.order) is not None]
        inside = [each for each in self.edits if not any(_within(each.span, span) for span in cut)]
        for select, clauses in zip(selects, self.text.selects, strict=True):
            inside += self._clauses(select, clauses)
        body = self.query.pieces(inside, self.text.span)
        if not kept:
            return body
        definitions: list[QueryPiece] = []
        for text in kept:
            definitions += [QueryPiece(", " if definitions else "WITH "), *self.query.pieces(self.edits, text.span)]
        return [*definitions, QueryPiece("\n"), *body]

    def _clauses(self, select: exp.Select, text: SelectText) -> list[Edit]:
        keys = self.names.key_columns
        listed = ", ".join(keys)
        found = [Edit.of(text.result, text.result, f" {listed},")]
        found += self._stars(select, text)
        found += self._tables(select, text)
        group = select.args.get("group")
        if (group is None) != (text.group is None):
            raise Strange
        if text.group is not None:
            variables = sorted({name for node in select.walk() if (name := variable_of(node, self.query.variables))})
            grouped = ", ".join([*keys, *map(self.names.variable, variables)])
            found.append(Edit.of(text.group, text.group, f" {grouped},"))
        if text.order is not None:
            found.append(Edit.of(text.order.start, text.order.end, ""))
        windows = [each for each in select.walk(prune=lambda each: each is not select and isinstance(each, exp.Query))
                   if isinstance(each, exp.Window)]  # fmt: skip
        if len(windows) != len(text.windows):
            raise Strange
        for place, is_partitioned in text.windows:
            if text.order is None or not text.order.start <= place < text.order.end:
                words = f" {listed}," if is_partitioned else f"PARTITION BY {listed} "
                found.append(Edit.of(place, place, words))
        return found

    def _stars(self, select: exp.Select, text: SelectText) -> list[Edit]:
        """`*` means what it meant before the scopes were there."""
        if len(select.expressions) != len(text.items):
            raise Strange
        found = []
        for each, span in zip(select.expressions, text.items, strict=True):
            if not isinstance(each, exp.Star):
                continue
            joins = select.args.get("joins") or []
            if any(each.args.values()) or any(join.args.get("using") for join in joins):
                raise Strange
            if self.query.text[span.start : span.end] != "*":
                raise Strange
            seen = [join.this for join in joins if (join.kind or "").upper() not in {"SEMI", "ANTI"}]
            sources = [select.args["from_"].this, *seen, *(select.args.get("laterals") or [])]
            if not all(source.alias_or_name for source in sources):
                raise Strange
            stars = ", ".join(f"`{source.alias_or_name.replace('`', '``')}`.*" for source in sources)
            found.append(Edit.of(span.start, span.end, stars))
        return found

    def _tables(self, select: exp.Select, text: SelectText) -> list[Edit]:
        """The scopes first, and LATERAL before what names them."""
        scopes = (QueryPiece("", dataset=SCOPES), QueryPiece(f" AS {self.names.table}"))
        from_ = select.args.get("from_")
        if (from_ is None) != (not text.sources):
            raise Strange
        if from_ is None:
            return [Edit(Span(text.end, text.end), (QueryPiece(" FROM "), *scopes))]
        joins: list[exp.Join] = select.args.get("joins") or []
        sources = [from_.this, *(join.this for join in joins)]
        if len(sources) != len(text.sources) or not all(map(is_plain, sources)):
            raise Strange
        found = [Edit(Span(text.sources[0], text.sources[0]), (*scopes, QueryPiece(" CROSS JOIN ")))]
        for source, start, comma in zip(sources, text.sources, text.commas, strict=True):
            if comma is not None:
                found.append(Edit.of(comma.start, comma.end, " CROSS JOIN "))
            if self._follows(source) and not isinstance(source, exp.Lateral):
                if isinstance(source, exp.Subquery) and self.query.text[start] != "(":
                    raise Strange
                if not isinstance(source, exp.Subquery) and not self._is_inlined(source):
                    raise Strange
                found.append(Edit.of(start, start, "LATERAL "))
        return found

    def _references(self, tree: exp.Expr) -> None:
        """The CTEs that follow a scope, put in the places where they are named."""
        for table in tree.find_all(exp.Table):
            if not self._is_inlined(table):
                continue
            cte = cte_of(table)
            assert cte is not None
            text, body = self.inlined[id(cte)]
            if any(table.args.get(name) for name in ("joins", "pivots", "sample", "laterals")):
                raise Strange
            alias = table.args.get("alias")
            start, end = table.this.meta["start"], table.this.meta["end"] + 1
            if any(each.span == Span(start, end) for each in self.edits):
                continue
            if alias is None:
                behind = (QueryPiece(f" AS `{table.name.replace('`', '``')}`{text.columns}"),)
                self.edits.append(Edit(Span(start, end), (QueryPiece("("), *body, QueryPiece(")"), *behind)))
                continue
            self.edits.append(Edit(Span(start, end), (QueryPiece("("), *body, QueryPiece(")"))))
            if text.columns:
                if alias.args.get("columns"):
                    raise Strange
                place = alias.this.meta["end"] + 1
                self.edits.append(Edit.of(place, place, text.columns))

    def _is_inlined(self, node: exp.Expr) -> bool:
        if not isinstance(node, exp.Table) or node.db or not isinstance(node.this, exp.Identifier):
            return False
        cte = cte_of(node)
        return cte is not None and id(cte) in self.inlined

    def _follows(self, node: exp.Expr) -> bool:
        """Whether it names a variable of the scope, or a CTE that does."""
        return any(variable_of(each, self.query.variables) or self._is_inlined(each) for each in node.walk())


def _within(span: Span, outer: Span) -> bool:
    return outer.start <= span.start and span.end <= outer.end
