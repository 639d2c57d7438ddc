"""The problems of calls of the project's own functions: of what they are, of their names and of their arguments.

Not here: how they are found (code/functions.py). Spark says what it thinks of the types of the arguments.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot.dialects.spark import Spark

from varve.sql.checks.habits import call_span, function_calls
from varve.sql.checks.spark_names import SPARK_NAMES
from varve.sql.names.own_functions import calls_in, named_functions
from varve.sql.syntax.errors import Span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlglot import exp

    from varve.model.function import SqlFunction
    from varve.sql.syntax.errors import Problem
    from varve.sql.syntax.sql_file import SqlDataset

_PARSER = Spark.parser_class
_OF_THE_PARSER = {*_PARSER.FUNCTIONS, *_PARSER.FUNCTION_PARSERS, *_PARSER.NO_PAREN_FUNCTION_PARSERS}


def is_builtin(name: str) -> bool:
    """Whether SQL has a function of this name already."""
    return name.upper() in _OF_THE_PARSER or name.lower() in SPARK_NAMES


def function_problems(sql: SqlDataset) -> Iterator[Problem]:
    """Yield a problem for each call of a function of the project that cannot be called so."""
    by_name: dict[str, list[SqlFunction]] = {}
    for function in named_functions(sql.source):
        by_name.setdefault(function.name.lower(), []).append(function)
    if not by_name:
        return
    builtins = {name: functions for name, functions in by_name.items() if is_builtin(name)}
    for name, span in _written_calls(sql) if builtins else ():
        if name.lower() in builtins:
            function = builtins[name.lower()][0]
            yield sql.problem(
                span,
                f"{function.name} is a function of SQL, and {function.place} declares one of this name; give that "
                "one another name.",
            )
    for tree in (*sql.queries, *(expectation.expression for expectation in sql.expectations)):
        for call in calls_in(tree):
            functions = by_name.get(call.name.lower())
            if functions and call.name.lower() not in builtins:
                yield from _call_problems(sql, call, functions)


def _call_problems(sql: SqlDataset, call: exp.Anonymous, functions: list[SqlFunction]) -> Iterator[Problem]:
    function, count = functions[0], len(call.expressions)
    where = call.meta
    span = Span(where["start"], where["end"] + 1) if "start" in where else call_span(sql, call, call.name)
    if len(functions) > 1:
        places = " and ".join(declared.place for declared in functions)
        yield sql.problem(span, f"{call.name} is declared by {places}; give all but one of them another name.")
    elif function.fault:
        yield sql.problem(span, f"{call.name} cannot be used, {function.place}: {function.fault}.")
    elif count < function.least or (function.most is not None and count > function.most):
        yield sql.problem(
            span, f"{call.name} takes {function.arguments}, not {count}; it is declared in {function.place}."
        )


def _written_calls(sql: SqlDataset) -> Iterator[tuple[str, Span]]:
    """Yield each name in front of a parenthesis, in the queries and in EXPECT."""
    for query in sql.queries:
        yield from function_calls(sql, query)
    for expectation in sql.expectations:
        for match in re.finditer(r"(\w+)\s*\(", expectation.text):
            yield match[1], Span(expectation.at + match.start(1), expectation.at + match.end(1))
