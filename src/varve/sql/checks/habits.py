"""Finds functions and names that people write out of habit from another SQL dialect, and says what to write instead.

Not here: signs and words that are no Spark syntax (syntax/refused_tokens.py), and the errors of Spark's analyzer
(spark/refusals.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from varve.model.errors import nearest, some
from varve.sql.names.own_functions import named_functions
from varve.sql.names.scope_variables import variable_of
from varve.sql.names.visible import owner_of, sources_of, visible_sources
from varve.sql.syntax.body import span_of
from varve.sql.syntax.errors import Span
from varve.sql.syntax.lexer import tokens_within
from varve.sql.syntax.other_dialects import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from varve.sql.syntax.errors import Problem
    from varve.sql.syntax.sql_file import SqlDataset


def dialect_problems(sql: SqlDataset, query: exp.Query, columns: Mapping[str, Collection[str]]) -> Iterator[Problem]:
    """Yield a problem for each function or name of another dialect, and for missing commas; `columns` by dataset."""
    calls = list(function_calls(sql, query))
    own = {function.name.upper() for function in named_functions(sql.source)}
    for name, span in calls:
        if name in FUNCTIONS and name not in own:
            yield sql.problem(span, f"Spark has no function {name}; write {FUNCTIONS[name]}.")
        elif name == "IDENTIFIER":
            yield sql.problem(span, "which datasets are read must stand in the text; write db.table.")
    places = [span for name, span in calls if name == "UNNEST"]
    for node, span in zip(query.find_all(exp.Unnest), places, strict=False):
        columns_read = [column for column in node.find_all(exp.Column) if variable_of(column, sql.variables) is None]
        if columns_read and not node.find_ancestor(exp.Lateral):
            explanation = "what follows the columns of a table stands behind LATERAL"
            yield sql.problem(span, f"{explanation}; write LATERAL UNNEST(values) AS e(value).")
    for table in query.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier) and "." in table.name and not table.db:
            yield sql.problem(
                sql.span_at(table), f"in one pair of backticks this is one name; write {table.name} without them."
            )
    yield from _lacking_commas(sql, query, columns)
    yield from _unknown_tables(sql, query, columns)


def function_calls(sql: SqlDataset, query: exp.Query) -> Iterator[tuple[str, Span]]:
    """Yield each function that a query calls, in capitals, and the place of its name."""
    where = next(span for own_query, span in zip(sql.queries, sql.query_spans, strict=True) if own_query is query)
    tokens = tokens_within(sql.source.text, where.start, where.end)
    for before, token, after in zip([None, *tokens], tokens, tokens[1:], strict=False):
        is_name = token.token_type not in {TokenType.STRING, TokenType.IDENTIFIER}
        is_field = before is not None and before.token_type is TokenType.DOT
        if after.token_type is TokenType.L_PAREN and is_name and not is_field:
            yield token.text.upper(), Span(token.start, token.end + 1)


def _lacking_commas(sql: SqlDataset, query: exp.Query, columns: Mapping[str, Collection[str]]) -> Iterator[Problem]:
    """Yield `SELECT id price`: the column id renamed to price, another column, although nobody wrote AS."""
    for select in query.find_all(exp.Select):
        names: set[str] = set()
        for source in sources_of(select):
            if isinstance(source, exp.Table) and source.db:
                names |= {column.lower() for column in columns.get(f"{source.db}.{source.name}".lower(), ())}
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
    """Yield `slaes.id` where no visible table or struct is called slaes."""
    for column in query.find_all(exp.Column):
        name = column.table.lower()
        if not name or column.args.get("db") or column.find_ancestor(exp.Hint, exp.Lambda, exp.Pivot):
            continue
        sources = [source.alias_or_name for level in visible_sources(column) for source in level]
        if not sources or "" in sources or name in {source.lower() for source in sources}:
            continue
        if owner_of(column, name, columns.get)[0] is None:
            yield sql.problem(
                span_of(column.args["table"]) or sql.span_at(column),
                f"nothing here is called {column.table}; there is {some(sources)}.{nearest(column.table, sources)}",
            )


def call_span(sql: SqlDataset, node: exp.Expr, name: str) -> Span:
    """The place of a call without arguments, which the parser does not record."""
    if span := span_of(node):
        return span
    within = sql.span_of("AS") if sql.query is not None else Span(0, len(sql.source.text))
    word = re.compile(rf"\b{name}\b", re.IGNORECASE).search(sql.source.text, within.start)
    return Span(word.start(), word.end()) if word else within
