"""Functions and names that people write by habit of another SQL, and what to write instead.

Not here: signs and words that are no syntax of Spark (syntax/refused_tokens.py), and what Spark's analyzer says
(spark/refusals.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from varve.model.errors import nearest, some
from varve.sql.names.scope_variables import variable_of
from varve.sql.names.visible import levels, owner_of, sources_of
from varve.sql.syntax.body import span_of
from varve.sql.syntax.errors import Span
from varve.sql.syntax.lexer import tokens_of
from varve.sql.syntax.other_dialects import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from varve.sql.syntax.errors import Problem
    from varve.sql.syntax.sql_file import SqlDataset


def habits(sql: SqlDataset, query: exp.Query, columns: Mapping[str, Collection[str]]) -> Iterator[Problem]:
    """Functions and names of other dialects, and columns without a comma between them; `columns` by dataset."""
    for name, span in calls(sql, query):
        if name in FUNCTIONS:
            yield sql.problem(span, f"Spark has no function {name}; write {FUNCTIONS[name]}.")
        elif name == "IDENTIFIER":
            yield sql.problem(span, "which datasets are read must stand in the text; write db.table.")
    places = [span for name, span in calls(sql, query) if name == "UNNEST"]
    for node, span in zip(query.find_all(exp.Unnest), places, strict=False):
        columns_read = [each for each in node.find_all(exp.Column) if variable_of(each, sql.variables) is None]
        if columns_read and not node.find_ancestor(exp.Lateral):
            told = "what follows the columns of a table stands behind LATERAL"
            yield sql.problem(span, f"{told}; write LATERAL UNNEST(values) AS e(value).")
    for table in query.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier) and "." in table.name and not table.db:
            yield sql.problem(
                sql.span_at(table), f"in one pair of backticks this is one name; write {table.name} without them."
            )
    yield from _lacking_commas(sql, query, columns)
    yield from _unknown_tables(sql, query, columns)


def calls(sql: SqlDataset, query: exp.Query) -> Iterator[tuple[str, Span]]:
    """The functions that a query calls, in capitals, and where their names stand."""
    where = next(span for each, span in zip(sql.queries, sql.query_spans, strict=True) if each is query)
    blank = re.sub(r"[^\n]", " ", sql.source.text[: where.start])
    tokens = tokens_of(blank + sql.source.text[where.start : where.end])
    for before, token, after in zip([None, *tokens], tokens, tokens[1:], strict=False):
        is_name = token.token_type not in {TokenType.STRING, TokenType.IDENTIFIER}
        is_field = before is not None and before.token_type is TokenType.DOT
        if after.token_type is TokenType.L_PAREN and is_name and not is_field:
            yield token.text.upper(), Span(token.start, token.end + 1)


def _lacking_commas(sql: SqlDataset, query: exp.Query, columns: Mapping[str, Collection[str]]) -> Iterator[Problem]:
    """`SELECT id price`: the column id under the name of the column price, though nobody wrote AS."""
    for select in query.find_all(exp.Select):
        names: set[str] = set()
        for source in sources_of(select):
            if isinstance(source, exp.Table) and source.db:
                names |= {each.lower() for each in columns.get(f"{source.db}.{source.name}".lower(), ())}
        for projection in select.expressions:
            if not isinstance(projection, exp.Alias) or not isinstance(projection.this, exp.Column):
                continue
            alias, span = projection.args["alias"], span_of(projection)
            first = span_of(projection.this)
            if alias.name.lower() not in names or span is None or first is None or first.end >= span.end:
                continue
            between = sql.source.text[first.end : alias.meta.get("start", first.end)]
            if between and not between.strip():
                column = sql.source.text[first.start : first.end]
                yield sql.problem(
                    Span(alias.meta["start"], alias.meta["end"] + 1),
                    f"{alias.name} is a column too, and this reads {column} under its name; write {column}, "
                    f"{alias.name} for both, or {column} AS {alias.name}.",
                )


def _unknown_tables(sql: SqlDataset, query: exp.Query, columns: Mapping[str, Collection[str]]) -> Iterator[Problem]:
    """`slaes.id`, where nothing is called slaes: no table, and no struct."""
    for column in query.find_all(exp.Column):
        name = column.table.lower()
        if not name or column.args.get("db") or column.find_ancestor(exp.Hint, exp.Lambda, exp.Pivot):
            continue
        sources = [source.alias_or_name for level in levels(column) for source in level]
        if not sources or "" in sources or name in {each.lower() for each in sources}:
            continue
        if owner_of(column, name, columns.get)[0] is None:
            yield sql.problem(
                span_of(column.args["table"]) or sql.span_at(column),
                f"nothing here is called {column.table}; there is {some(sources)}.{nearest(column.table, sources)}",
            )


def called(sql: SqlDataset, node: exp.Expr, name: str) -> Span:
    """Where a call without arguments stands: the parser keeps no place for it."""
    if found := span_of(node):
        return found
    within = sql.span_of("AS") if sql.query is not None else Span(0, len(sql.source.text))
    word = re.compile(rf"\b{name}\b", re.IGNORECASE).search(sql.source.text, within.start)
    return Span(word.start(), word.end()) if word else within
