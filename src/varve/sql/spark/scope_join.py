"""Rewrites a query as a join with the table of many scopes: the author's text with insertions at its clauses.

A LATERAL subquery works for some queries, but not for all: Spark resolves the name of an outer table only one level up,
and not on the side of an outer join, in an aggregate or in GROUP BY. Here the scopes are a table of the outermost
SELECT itself: a variable is a column like any other, the subqueries are one level below, and each derived table is
LATERAL by itself. Rows of one scope stay together because its partition columns are part of every GROUP BY, PARTITION
BY and DISTINCT.

These are inserted: the scopes' keys before the columns of the result, the scopes first in FROM (commas become CROSS
JOIN, which has the precedence of JOIN), keys in GROUP BY and PARTITION BY, LATERAL before derived tables that name a
variable. CTEs that name a variable are written out where they are referred to. ORDER BY of the whole query is removed:
rows have no order in a table.

For a condition such as BETWEEN, Spark would compare each row with each scope. Where it is known which values of an
input's partition columns each scope reads (partitions/read_values.py), the scopes' table has a row for each of them,
and is joined with that input by equality. The author's condition stays: the equality only leaves out what it, or
another condition of the query, refuses.

Not here: which queries cannot be rewritten so (shared_query.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp

from varve.sql.names.scope_variables import variable_of
from varve.sql.names.visible import cte_of
from varve.sql.names.written_query import Edit, QueryPiece, UnplacedName
from varve.sql.spark.clause_layout import UnknownLayout, layout
from varve.sql.spark.shared_query import is_plain, no_join, selects_of
from varve.sql.syntax.errors import Span

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from varve.sql.names.written_query import WrittenQuery
    from varve.sql.spark.clause_layout import CteText, SelectText

# The name of the pseudo dataset that stands for the table of the scopes.
SCOPES = "varve.scopes"
# By dataset, the partition columns of which it is known what each scope reads.
ReadColumns: TypeAlias = "Mapping[str, Collection[str]]"


def scopes_reading(dataset: str) -> str:
    """Return the name of the pseudo dataset that has a row for each scope and each of the values that it reads."""
    return f"{SCOPES}_reading.{dataset}"


@dataclass(frozen=True)
class ScopeNames:
    """The names of the table of the scopes and of its columns, which occur nowhere in the query."""

    table: str
    keys: tuple[str, ...]

    @classmethod
    def beside(cls, text: str, partition_columns: Sequence[str]) -> ScopeNames:
        """Return names that do not occur in a text."""
        table = "__varve"
        while table in text.lower():
            table += "_"
        return cls(table, tuple(f"{table}_p_{partition_column}" for partition_column in partition_columns))

    def variable(self, name: str) -> str:
        """Return the column of a variable, as SQL."""
        return f"{self.table}.`{self.column(name)}`"

    def column(self, name: str) -> str:
        """Return the name of the column of a variable."""
        return f"{self.table}_v_{name}"

    def read(self, name: str) -> str:
        """Return the name of the column with the values of an input's partition column that the scope reads."""
        return f"{self.table}_r_{name}"

    @property
    def key_columns(self) -> list[str]:
        """The partition columns of the scopes, as SQL."""
        return [f"{self.table}.`{key}`" for key in self.keys]


def join_form(query: WrittenQuery, names: ScopeNames, read: ReadColumns) -> list[QueryPiece] | None:
    """Return the query for all scopes, with their keys before its own columns; None where it cannot be written so."""
    if no_join(query.tree, query.variables):
        return None
    try:
        return _Join(query, names, read).pieces()
    except (UnknownLayout, IndexError, UnplacedName):
        return None


class _Join:
    def __init__(self, query: WrittenQuery, names: ScopeNames, read: ReadColumns) -> None:
        self.query = query
        self.names = names
        self.read = read
        self.text = layout(query.text, query.tokens)
        self.edits = [*query.inputs(), *query.bound(names.variable)]
        with_ = query.tree.args.get("with_")
        self.ctes: list[exp.CTE] = list(with_.expressions) if isinstance(with_, exp.With) else []
        if len(self.ctes) != len(self.text.ctes):
            raise UnknownLayout
        # By the id of its node: each CTE that names a variable, itself or through another one, and its text.
        self.inlined: dict[int, tuple[CteText, list[QueryPiece]]] = {}

    def pieces(self) -> list[QueryPiece]:
        shared_ctes: list[CteText] = []
        for cte, text in zip(self.ctes, self.text.ctes, strict=True):
            self._references(cte)
            if self._follows(cte):
                self.inlined[id(cte)] = text, self.query.pieces(self.edits, text.body)
            else:
                shared_ctes.append(text)
        selects = selects_of(self.query.tree)
        if selects is None or len(selects) != len(self.text.selects):
            raise UnknownLayout
        for select in selects:
            for argument in select.args.values():
                for part in argument if isinstance(argument, list) else [argument]:
                    if isinstance(part, exp.Expr) and not isinstance(part, exp.With):
                        self._references(part)
        cut = [order for text in self.text.selects if (order := text.order) is not None]
        inside = [edit for edit in self.edits if not any(_within(edit.span, span) for span in cut)]
        for select, clauses in zip(selects, self.text.selects, strict=True):
            inside += self._clauses(select, clauses)
        body = self.query.pieces(inside, self.text.span)
        if not shared_ctes:
            return body
        definitions: list[QueryPiece] = []
        for text in shared_ctes:
            definitions += [QueryPiece(", " if definitions else "WITH "), *self.query.pieces(self.edits, text.span)]
        return [*definitions, QueryPiece("\n"), *body]

    def _clauses(self, select: exp.Select, text: SelectText) -> list[Edit]:
        keys = self.names.key_columns
        listed = ", ".join(keys)
        edits = [Edit.of(text.result, text.result, f" {listed},")]
        edits += self._stars(select, text)
        edits += self._tables(select, text)
        group = select.args.get("group")
        if (group is None) != (text.group is None):
            raise UnknownLayout
        if text.group is not None:
            variables = sorted({name for node in select.walk() if (name := variable_of(node, self.query.variables))})
            grouped = ", ".join([*keys, *map(self.names.variable, variables)])
            edits.append(Edit.of(text.group, text.group, f" {grouped},"))
        if text.order is not None:
            edits.append(Edit.of(text.order.start, text.order.end, ""))
        windows = [node for node in select.walk(prune=lambda part: part is not select and isinstance(part, exp.Query))
                   if isinstance(node, exp.Window)]  # fmt: skip
        if len(windows) != len(text.windows):
            raise UnknownLayout
        for place, is_partitioned in text.windows:
            if text.order is None or not text.order.start <= place < text.order.end:
                words = f" {listed}," if is_partitioned else f"PARTITION BY {listed} "
                edits.append(Edit.of(place, place, words))
        return edits

    def _stars(self, select: exp.Select, text: SelectText) -> list[Edit]:
        """Return edits after which `*` means the same columns as without the scopes."""
        if len(select.expressions) != len(text.items):
            raise UnknownLayout
        edits = []
        for projection, span in zip(select.expressions, text.items, strict=True):
            if not isinstance(projection, exp.Star):
                continue
            joins = select.args.get("joins") or []
            if any(projection.args.values()) or any(join.args.get("using") for join in joins):
                raise UnknownLayout
            if self.query.text[span.start : span.end] != "*":
                raise UnknownLayout
            seen = [join.this for join in joins if (join.kind or "").upper() not in {"SEMI", "ANTI"}]
            sources = [select.args["from_"].this, *seen, *(select.args.get("laterals") or [])]
            if not all(source.alias_or_name for source in sources):
                raise UnknownLayout
            stars = ", ".join(f"`{source.alias_or_name.replace('`', '``')}`.*" for source in sources)
            edits.append(Edit.of(span.start, span.end, stars))
        return edits

    def _tables(self, select: exp.Select, text: SelectText) -> list[Edit]:
        """Return edits that add the scopes as the first source, and LATERAL before sources that name a variable."""
        scopes = (QueryPiece("", dataset=SCOPES), QueryPiece(f" AS {self.names.table}"))
        from_ = select.args.get("from_")
        if (from_ is None) != (not text.sources):
            raise UnknownLayout
        if from_ is None:
            return [Edit(Span(text.end, text.end), (QueryPiece(" FROM "), *scopes))]
        joins: list[exp.Join] = select.args.get("joins") or []
        sources = [from_.this, *(join.this for join in joins)]
        if len(sources) != len(text.sources) or not all(map(is_plain, sources)):
            raise UnknownLayout
        edits = self._beside_what_they_read(select, sources, text.sources)
        if not edits:
            edits = [Edit(Span(text.sources[0], text.sources[0]), (*scopes, QueryPiece(" CROSS JOIN ")))]
        for source, start, comma in zip(sources, text.sources, text.commas, strict=True):
            if comma is not None:
                edits.append(Edit.of(comma.start, comma.end, " CROSS JOIN "))
            if self._follows(source) and not isinstance(source, exp.Lateral):
                if isinstance(source, exp.Subquery) and self.query.text[start] != "(":
                    raise UnknownLayout
                if not isinstance(source, exp.Subquery) and not self._is_inlined(source):
                    raise UnknownLayout
                edits.append(Edit.of(start, start, "LATERAL "))
        return edits

    def _beside_what_they_read(
        self, select: exp.Select, sources: Sequence[exp.Expr], starts: Sequence[int]
    ) -> list[Edit]:
        """Return edits that join the scopes by equality with the first source of which is known what they read.

        Only inner joins stand before it, so that leaving out rows of it is all that the equality does. None of them
        names a variable, because the scopes cannot be seen there. Empty where there is no such source.
        """
        joins: list[exp.Join] = select.args.get("joins") or []
        for place, (source, start) in enumerate(zip(sources, starts, strict=True)):
            if place and not _is_inner(joins[place - 1]):
                break
            if isinstance(source, exp.Table) and (columns := self._read_columns(source)):
                return self._joined(source, start, columns)
            if self._follows(source if not place else joins[place - 1]):
                break
        return []

    def _joined(self, source: exp.Table, start: int, columns: Collection[str]) -> list[Edit]:
        """Return edits that join the scopes with a source by equality with what they read of it."""
        alias = source.args.get("alias")
        end = (source.this if alias is None else alias.this).meta["end"] + 1
        name = source.alias_or_name.replace("`", "``")
        scopes = QueryPiece("", dataset=scopes_reading(_dataset(source)))
        equal = [f"`{name}`.`{column}` = {self.names.table}.`{self.names.read(column)}`" for column in columns]
        return [
            Edit(Span(start, start), (QueryPiece("("), scopes, QueryPiece(f" AS {self.names.table} JOIN "))),
            Edit.of(end, end, f" ON {' AND '.join(equal)})"),
        ]

    def _read_columns(self, source: exp.Table) -> Collection[str]:
        """The partition columns of a table of which it is known what the scopes read; empty where there are none."""
        alias = source.args.get("alias")
        is_renamed = alias is not None and alias.args.get("columns")
        return () if is_renamed or not source.db else self.read.get(_dataset(source), ())

    def _references(self, tree: exp.Expr) -> None:
        """Add edits that write out each CTE that depends on a scope where it is referred to."""
        for table in tree.find_all(exp.Table):
            if not self._is_inlined(table):
                continue
            cte = cte_of(table)
            assert cte is not None
            text, body = self.inlined[id(cte)]
            if any(table.args.get(name) for name in ("joins", "pivots", "sample", "laterals")):
                raise UnknownLayout
            alias = table.args.get("alias")
            start, end = table.this.meta["start"], table.this.meta["end"] + 1
            if any(edit.span == Span(start, end) for edit in self.edits):
                continue
            if alias is None:
                behind = (QueryPiece(f" AS `{table.name.replace('`', '``')}`{text.columns}"),)
                self.edits.append(Edit(Span(start, end), (QueryPiece("("), *body, QueryPiece(")"), *behind)))
                continue
            self.edits.append(Edit(Span(start, end), (QueryPiece("("), *body, QueryPiece(")"))))
            if text.columns:
                if alias.args.get("columns"):
                    raise UnknownLayout
                place = alias.this.meta["end"] + 1
                self.edits.append(Edit.of(place, place, text.columns))

    def _is_inlined(self, node: exp.Expr) -> bool:
        if not isinstance(node, exp.Table) or node.db or not isinstance(node.this, exp.Identifier):
            return False
        cte = cte_of(node)
        return cte is not None and id(cte) in self.inlined

    def _follows(self, node: exp.Expr) -> bool:
        """Whether a node names a variable of the scope, or a CTE that does."""
        return any(variable_of(node, self.query.variables) or self._is_inlined(node) for node in node.walk())


def _dataset(table: exp.Table) -> str:
    return f"{table.db}.{table.name}".lower()


def _is_inner(join: exp.Join) -> bool:
    """Whether a join gives pairs of rows of both sides under its ON, and nothing else."""
    plain = not join.side and not join.method and (join.kind or "").upper() in {"", "INNER", "CROSS"}
    return plain and not join.args.get("using")


def _within(span: Span, outer: Span) -> bool:
    return outer.start <= span.start and span.end <= outer.end
