"""Queries and expressions of a file as sqlglot's trees, with the file's own places in them.

Not here: what they mean (partitions/scopes.py, and the modules on schema and dependencies).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp
from sqlglot.dialects import Dialect
from sqlglot.errors import ParseError, TokenError

from varve.model.errors import nearest
from varve.model.schema import Kind
from varve.sql.syntax.errors import Problem, SourceFile, Span, SqlError
from varve.sql.syntax.lexer import Continued, lacks_comma, template_in, tokens_of
from varve.sql.syntax.refused_tokens import misspelt_keyword, refused_syntax
from varve.sql.syntax.tokens import unclosed_problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sqlglot.tokenizer_core import Token


def parse_query(source: SourceFile, span: Span) -> exp.Query:
    """The SELECT (WITH, UNION, ...) between two places. Raises SqlError for anything else."""
    found = _parse(source, span)
    if isinstance(found, exp.Subquery) and not found.alias:
        found = found.unnest()
    if not isinstance(found, exp.Query):
        kind = type(found).__name__.upper()
        told = f"a dataset's query is a SELECT, and this is {kind}; write AS SELECT ..., which gives the rows."
        raise SqlError(Problem(source, _first_word(source, span), told))
    return found


def parse_expression(source: SourceFile, span: Span) -> exp.Expr:
    """One expression. Raises SqlError with the place."""
    found = _parse(source, span)
    if isinstance(found, exp.Query | exp.Command | exp.DDL | exp.DML):
        raise SqlError(Problem(source, _first_word(source, span), "expected an expression, found a statement."))
    return found


def parsed(text: str) -> exp.Expr:
    """An expression that was written by this code, as a tree. Raises sqlglot's errors."""
    found: exp.Expr | None
    (found,) = Dialect.get_or_raise("spark").parser().parse(tokens_of(text), text)
    assert found is not None
    return found


def parse_type(source: SourceFile, span: Span) -> str:
    """A Spark type, in its canonical upper case: `decimal(10,2)` -> `DECIMAL(10, 2)`."""
    text = source.text[span.start : span.end]
    try:
        found = exp.DataType.build(text, dialect="spark")
    except (ParseError, ValueError):
        raise SqlError(Problem(source, span, _no_type(text))) from None
    if found.this is exp.DataType.Type.USERDEFINED:
        raise SqlError(Problem(source, span, _no_type(text)))
    return found.sql("spark")


def _no_type(text: str) -> str:
    instead = nearest(text, [*map(str, Kind), "INTEGER", "DECIMAL", "ARRAY", "MAP", "STRUCT"])
    return f"{text} is no type of Spark.{instead or ' Write for example STRING, BIGINT, DOUBLE, DATE or TIMESTAMP.'}"


def span_of(node: exp.Expr) -> Span | None:
    """The characters that an expression of a file takes, as far as the parser kept them."""
    places = [(each.meta["start"], each.meta["end"]) for each in node.walk() if "start" in each.meta]
    return Span(min(start for start, _ in places), max(end for _, end in places) + 1) if places else None


def tables_of(query: exp.Expr) -> Iterator[exp.Table]:
    """The tables that a query reads, wherever it names them; names of its own CTEs are none."""
    for table in query.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier) or table.find_ancestor(exp.Hint):
            continue
        if table.db or not _is_cte(table):
            yield table


def reads_of(queries: Iterable[exp.Expr]) -> tuple[str, ...]:
    """The datasets that the queries of a file read, each once, in the order in which it names them."""
    found = [f"{table.db}.{table.name}".lower() for query in queries for table in tables_of(query)]
    return tuple(dict.fromkeys(found))


def _is_cte(table: exp.Table) -> bool:
    """Whether the name is a CTE that the table sees: of a WITH around it; a CTE sees those before it."""
    node: Any = table
    while node is not None:
        with_ = node.args.get("with_") or node.args.get("with")
        if isinstance(with_, exp.With):
            for cte in with_.expressions:
                inside = any(each is cte for each in _ancestors(table))
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


def _parse(source: SourceFile, span: Span) -> exp.Expr:
    # What stands before becomes blanks, so that lines and columns are the file's.
    before = re.sub(r"[^\n]", " ", source.text[: span.start])
    text = before + source.text[span.start : span.end]
    found: list[exp.Expr | None]
    tokens: list[Token] = []
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
        found = Dialect.get_or_raise("spark").parser().parse(tokens, text)
    except Continued as error:
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
    statements = [each for each in found if each is not None]
    if len(statements) != 1:
        raise SqlError(
            Problem(
                source, _first_word(source, span),
                f"expected one statement, found {len(statements)}; a file is one dataset, with one query.",
            )
        )  # fmt: skip
    return statements[0]


def _problem(source: SourceFile, span: Span, error: ParseError) -> Problem:
    found = error.errors[0]
    highlight = found.get("highlight") or ""
    line, column = found.get("line") or 1, found.get("col") or 1
    # sqlglot gives the column of the token's end.
    end = source.offset(line, column + 1)
    start = max(span.start, end - max(1, len(highlight)))
    what = str(found.get("description") or "this is no SQL").removesuffix(".")
    what = re.sub(r"Required keyword: '(\w+)' missing for <class 'sqlglot\.[\w.]*\.(\w+)'>", _missing, what)
    here = f"'{highlight}'" if highlight else "this"
    if arguments := re.match(r"The number of provided arguments \((\d+)\) .* supported arguments \((\d+)\)", what):
        what = f"a function is given {arguments[1]} arguments here, and takes at most {arguments[2]}"
    if highlight == ")" and "Unexpected" in what:
        what = "this ) closes no parenthesis; take it out, or open one before it"
    elif "Unexpected token" in what:
        what = f"{here} was not expected here"
    elif what == "Expecting )":
        what = f"expected a ) before {here}: a parenthesis that is opened before it is not closed"
    elif what.startswith("Expecting "):
        what = f"expected {what.removeprefix('Expecting ')}, found {here}"
    return Problem(source, Span(start, max(end, start + 1)), f"{what}.")


def _missing(found: re.Match[str]) -> str:
    return f"something is missing after {_spelt(found[2])}"


def _spelt(kind: str) -> str:
    """A construct as people write it: `OrderBy` -> `ORDER BY`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind).upper()


def _first_word(source: SourceFile, span: Span) -> Span:
    word = re.match(r"\s*(\S*)", source.text[span.start : span.end])
    start = span.start + (word.start(1) if word else 0)
    return Span(start, start + max(1, len(word[1]) if word else 1))
