"""Parses the queries and expressions of a file as sqlglot's trees, whose places are those of the file.

Not here: what they mean (partitions/scopes.py, names, types and pushdown).
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from varve.model.errors import nearest
from varve.model.schema import Kind
from varve.sql.syntax.errors import Problem, SourceFile, Span, SqlError
from varve.sql.syntax.lexer import ContinuedComment, blanked, lacks_comma, parsed_tokens, template_in, tokens_of
from varve.sql.syntax.refused_tokens import misspelt_keyword, refused_syntax
from varve.sql.syntax.tokens import unclosed_problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlglot.tokenizer_core import Token


def parse_query(source: SourceFile, span: Span) -> exp.Query:
    """Parse the SELECT (WITH, UNION, ...) within a span. Raises SqlError for anything else."""
    query = _parse(source, span)
    # Brackets with a clause behind them, or a WITH before them, stay: what these name is of the query too.
    while isinstance(query, exp.Subquery) and not any(value for name, value in query.args.items() if name != "this"):
        query = query.this
    inner = query.unnest() if isinstance(query, exp.Subquery) else query
    if not isinstance(query, exp.Query) or not isinstance(inner, exp.Query):
        kind = type(inner).__name__.upper()
        message = f"a dataset's query is a SELECT, and this is {kind}; write AS SELECT ..., which gives the rows."
        raise SqlError(Problem(source, _first_word(source, span), message))
    return query


def parse_expression(source: SourceFile, span: Span) -> exp.Expr:
    """Parse the expression within a span. Raises SqlError at the place of the problem."""
    expression = _parse(source, span, expression=True)
    if isinstance(expression, exp.Query | exp.Command | exp.DDL | exp.DML):
        raise SqlError(Problem(source, _first_word(source, span), "expected an expression, found a statement."))
    return expression


def parsed(text: str) -> exp.Expr:
    """Parse an expression that Varve generated. Raises sqlglot's errors."""
    expression: exp.Expr | None
    (expression,) = parsed_tokens(tokens_of(text), text, expression=True)
    assert expression is not None
    return expression


def parse_type(source: SourceFile, span: Span) -> str:
    """Parse a Spark type and return it in canonical upper case: `decimal(10,2)` -> `DECIMAL(10, 2)`."""
    text = source.text[span.start : span.end]
    if (canonical := _canonical_type(text)) is None:
        raise SqlError(Problem(source, span, _no_type(text)))
    return canonical


# The columns of a project have few types.
@lru_cache(maxsize=256)
def _canonical_type(text: str) -> str | None:
    try:
        data_type = exp.DataType.build(text, dialect="spark")
    except (ParseError, ValueError):
        return None
    return None if data_type.this is exp.DataType.Type.USERDEFINED else data_type.sql("spark")


def _no_type(text: str) -> str:
    instead = nearest(text, [*map(str, Kind), "INTEGER", "DECIMAL", "ARRAY", "MAP", "STRUCT"])
    return f"{text} is no type of Spark.{instead or ' Write for example STRING, BIGINT, DOUBLE, DATE or TIMESTAMP.'}"


def span_of(node: exp.Expr) -> Span | None:
    """The span of an expression in its file, as far as the parser recorded it; None where it recorded nothing."""
    places = [(node.meta["start"], node.meta["end"]) for node in node.walk() if "start" in node.meta]
    return Span(min(start for start, _ in places), max(end for _, end in places) + 1) if places else None


def tables_of(query: exp.Expr) -> Iterator[exp.Table]:
    """Yield the tables that a query reads, wherever it names them, without its own CTEs."""
    for table in query.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier) or table.find_ancestor(exp.Hint):
            continue
        if table.db or not _is_cte(table):
            yield table


def reads_of(queries: Iterable[exp.Expr]) -> tuple[str, ...]:
    """Return the datasets that the queries of a file read, without duplicates, in the order in which they name them."""
    names = [f"{table.db}.{table.name}".lower() for query in queries for table in tables_of(query)]
    return tuple(dict.fromkeys(names))


def _is_cte(table: exp.Table) -> bool:
    """Whether the table is a CTE of a WITH around it; a CTE sees only those before it."""
    node: Any = table
    while node is not None:
        with_ = node.args.get("with_") or node.args.get("with")
        if isinstance(with_, exp.With):
            for cte in with_.expressions:
                inside = any(ancestor is cte for ancestor in _ancestors(table))
                if inside and not with_.recursive:
                    break
                if cte.alias.lower() == table.name.lower():
                    return True
        node = node.parent
    return False


def _ancestors(node: Any) -> Iterator[Any]:
    while node is not None:
        yield node
        node = node.parent


def _parse(source: SourceFile, span: Span, *, expression: bool = False) -> exp.Expr:
    # The text before the span becomes blanks, so that lines and columns are those of the file.
    text = blanked(source.text, span.start, span.end)
    expressions: list[exp.Expr | None]
    tokens: Sequence[Token] = ()
    try:
        tokens = tokens_of(text)
        if (template := template_in(text, tokens)) is not None:
            raise SqlError(
                Problem(
                    source,
                    Span(*template),
                    "this is a template, and a file is SQL as it stands; write a variable of the scope as :name, and a "
                    "dataset as db.table.",
                )
            )
        if (refused := refused_syntax(text, tokens)) is not None:
            raise SqlError(Problem(source, *refused))
        expressions = parsed_tokens(tokens, text, expression=expression)
    except ContinuedComment as error:
        raise SqlError(Problem(source, Span(error.start, error.start + 2), str(error))) from None
    except ParseError as error:
        problem = _problem(source, span, error)
        if (misspelt := misspelt_keyword(tokens, problem.span.start)) is not None:
            problem = Problem(source, *misspelt)
        elif lacks_comma(tokens, problem.span.start):
            problem = replace(problem, message=f"{problem.message} Is a comma missing before it?")
        raise SqlError(problem) from None
    except TokenError:
        raise SqlError(unclosed_problem(source, text)) from None
    statements = [expression for expression in expressions if expression is not None]
    if len(statements) != 1:
        raise SqlError(
            Problem(
                source, _first_word(source, span),
                f"expected one statement, found {len(statements)}; a file is one dataset, with one query.",
            )
        )  # fmt: skip
    return statements[0]


def _problem(source: SourceFile, span: Span, error: ParseError) -> Problem:
    details = error.errors[0]
    highlight = details.get("highlight") or ""
    line, column = details.get("line") or 1, details.get("col") or 1
    # sqlglot reports the column of the token's end.
    end = source.offset(line, column + 1)
    start = max(span.start, end - max(1, len(highlight)))
    what = str(details.get("description") or "this is no SQL").removesuffix(".")
    what = re.sub(r"Required keyword: '(\w+)' missing for <class 'sqlglot\.[\w.]*\.(\w+)'>", _missing, what)
    shown = f"'{highlight}'" if highlight else "this"
    if arguments := re.match(r"The number of provided arguments \((\d+)\) .* supported arguments \((\d+)\)", what):
        what = f"a function is given {arguments[1]} arguments here, and takes at most {arguments[2]}"
    if highlight == ")" and "Unexpected" in what:
        what = "this ) closes no parenthesis; take it out, or open one before it"
    elif "Unexpected token" in what:
        what = f"{shown} was not expected here"
    elif what == "Expecting )":
        what = f"expected a ) before {shown}: a parenthesis that is opened before it is not closed"
    elif what.startswith("Expecting "):
        what = f"expected {what.removeprefix('Expecting ')}, found {shown}"
    return Problem(source, Span(start, max(end, start + 1)), f"{what}.")


def _missing(match: re.Match[str]) -> str:
    return f"something is missing after {_spelt(match[2])}"


def _spelt(kind: str) -> str:
    """Return a construct as people write it: `OrderBy` -> `ORDER BY`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind).upper()


def _first_word(source: SourceFile, span: Span) -> Span:
    word = re.match(r"\s*(\S*)", source.text[span.start : span.end])
    start = span.start + (word.start(1) if word else 0)
    return Span(start, start + max(1, len(word[1]) if word else 1))
