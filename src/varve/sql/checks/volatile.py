"""The values that a query must not be computed from: the clock's, and random ones.

Not here: which calls Spark is not asked for before a run (pushdown/asked_calls.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.checks.habits import call_span
from varve.sql.names.scope_variables import variable_of
from varve.sql.syntax.errors import Span
from varve.sql.syntax.sql_file import Allowed, SqlDataset
from varve.sql.syntax.type_names import simple_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.sql.syntax.errors import Problem

CLOCKS = {
    "CURRENT_DATE", "CURDATE", "CURRENT_TIMESTAMP", "CURRENT_TIME", "NOW", "LOCALTIMESTAMP", "CURRENT_TIMEZONE",
    "UNIX_TIMESTAMP",
}  # fmt: skip
RANDOM = {
    "RAND", "RANDN", "RANDOM", "UUID", "SHUFFLE", "RANDSTR", "UNIFORM", "MONOTONICALLY_INCREASING_ID",
    "SPARK_PARTITION_ID", "INPUT_FILE_NAME", "CURRENT_USER", "USER", "CURRENT_DATABASE", "CURRENT_CATALOG",
}  # fmt: skip
_REMEDY = "take a variable of the scope (the end of its window is t_end), or write ALLOW CLOCK."
# What Spark takes a text for that becomes one of these types, with a time zone behind it or none.
_NAMED_DAY = re.compile(r"\s*(now|today|yesterday|tomorrow)(?![a-z])", re.IGNORECASE)
_MOMENTS = {"date", "timestamp", "timestamp_ntz"}


def volatile_problems(sql: SqlDataset, query: exp.Query) -> Iterator[Problem]:
    """Yield a problem for each value in a query that does not depend on its inputs alone."""
    for node in query.walk():
        name = ""
        if isinstance(node, exp.Anonymous):
            name = node.name.upper()
        elif isinstance(node, exp.Func):
            name = node.sql_name().upper()
        elif isinstance(node, exp.Column) and not node.table and node.name.upper() in CLOCKS:
            name = node.name.upper() if variable_of(node, sql.variables) is None else ""
        takes = isinstance(node, exp.Func) and any(
            argument is not None for argument in node.args.values() if argument != []
        )
        if name == "UNIX_TIMESTAMP" and takes:
            continue
        if name in CLOCKS and Allowed.CLOCK not in sql.allows:
            yield sql.problem(
                call_span(sql, node, name),
                f"{name} depends on when it runs, so that a rerun gives other rows; {_REMEDY}",
            )
        elif name in RANDOM and Allowed.RANDOM not in sql.allows:
            yield sql.problem(
                call_span(sql, node, name),
                f"{name} gives other values in every run; take it out, or write ALLOW RANDOM.",
            )
        elif (day := _named_day(node)) is not None and Allowed.CLOCK not in sql.allows:
            yield sql.problem(
                _span_of_text(sql, day),
                f"'{day.name}' depends on when it runs, so that a rerun gives other rows; {_REMEDY}",
            )


def _named_day(node: exp.Expr) -> exp.Literal | None:
    """The text of a cast that Spark takes for the clock's: `DATE 'today'`, `CAST('now' AS TIMESTAMP)`; else None."""
    if isinstance(node, exp.Cast):
        is_moment = simple_name(node.to) in _MOMENTS
    else:
        is_moment = isinstance(node, exp.TsOrDsToDate) and not node.args.get("format")
    text = node.this if is_moment else None
    return text if isinstance(text, exp.Literal) and text.is_string and _NAMED_DAY.match(text.name) else None


def _span_of_text(sql: SqlDataset, text: exp.Literal) -> Span:
    """The place of a text in quotes, which the parser does not record."""
    within = sql.span_of("AS") if sql.query is not None else Span(0, len(sql.source.text))
    quoted = re.compile(rf"(['\"]){re.escape(text.name)}\1").search(sql.source.text, within.start)
    return Span(*quoted.span()) if quoted else within
