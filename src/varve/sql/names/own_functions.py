"""Which functions of the project a query calls.

Not here: how they are found (code/functions.py), and what is wrong with a call (checks/functions.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from varve.model.function import SqlFunction
    from varve.sql.syntax.errors import SourceFile
    from varve.sql.syntax.sql_file import SqlDataset


def called_functions(sql: SqlDataset) -> tuple[SqlFunction, ...]:
    """Return the functions of the project that a file calls, in its queries or in EXPECT, sorted by name."""
    trees = [*sql.queries, *(expectation.expression for expectation in sql.expectations)]
    return _called(sql.source, trees)


def queried_functions(sql: SqlDataset) -> tuple[SqlFunction, ...]:
    """Return those that determine its rows: EXPECT calls others than its queries without changing a row."""
    return _called(sql.source, sql.queries)


def named_functions(source: SourceFile) -> tuple[SqlFunction, ...]:
    """Return those whose name stands anywhere in a file: at least what it calls, known before it is parsed."""
    if not source.functions:
        return ()
    words = set(re.findall(r"\w+", source.text.lower()))
    return tuple(function for function in source.functions if function.name.lower() in words)


def calls_in(tree: exp.Expr) -> Iterator[exp.Anonymous]:
    """Yield the calls of functions that are not SQL's own; `a.f(x)` is none of them."""
    for call in tree.find_all(exp.Anonymous):
        if not isinstance(call.parent, exp.Dot):
            yield call


def _called(source: SourceFile, trees: Iterable[exp.Expr]) -> tuple[SqlFunction, ...]:
    if not source.functions:
        return ()
    names = {call.name.lower() for tree in trees for call in calls_in(tree)}
    called = {function.name.lower(): function for function in source.functions if function.name.lower() in names}
    return tuple(called[name] for name in sorted(called))
