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
from varve.sql.syntax.type_names import UNKNOWN, simple_name
from varve.sql.types.cells import Cell
from varve.sql.types.expressions import typed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.sql.syntax.errors import Problem

CLOCKS = {
    "CURRENT_DATE", "CURDATE", "CURRENT_TIMESTAMP", "CURRENT_TIME", "NOW", "LOCALTIMESTAMP", "CURRENT_TIMEZONE",
    "UNIX_TIMESTAMP",
}  # fmt: skip
RANDOM = {
    "RAND", "RANDN", "RANDOM", "UUID", "SHUFFLE", "RANDSTR", "UNIFORM", "MONOTONICALLY_INCREASING_ID",
    "SPARK_PARTITION_ID", "INPUT_FILE_NAME", "INPUT_FILE_BLOCK_START", "INPUT_FILE_BLOCK_LENGTH", "CURRENT_USER",
    "USER", "SESSION_USER", "CURRENT_DATABASE", "CURRENT_SCHEMA", "CURRENT_CATALOG",
}  # fmt: skip
_REMEDY = "take a variable of the scope (the end of its window is t_end), or write ALLOW CLOCK."
# What Spark takes a text for that becomes one of these types, with a time zone behind it or none.
_NAMED_DAY = re.compile(r"\s*(now|today|yesterday|tomorrow)(?![a-z])", re.IGNORECASE)
_MOMENTS = {"date", "timestamp", "timestamp_ntz"}
# Functions that cast a text to a moment, without a pattern: tests/sql/test_clock_texts.py asks Spark of each.
_OF_MOMENTS = (
    exp.TsOrDsAdd, exp.AddMonths, exp.NextDay, exp.LastDay, exp.MonthsBetween, exp.DateTrunc, exp.TimestampTrunc,
    exp.TimestampAdd, exp.TimestampDiff, exp.TimeStrToTime, exp.Extract, exp.Quarter, exp.Hour, exp.Minute, exp.Second,
    exp.Dayname, exp.Monthname, exp.ConvertTimezone,
)  # fmt: skip
_OF_MOMENTS_BY_NAME = {
    "WEEKDAY", "DATE_PART", "DATEPART", "TO_TIMESTAMP_NTZ", "TO_TIMESTAMP_LTZ", "TRY_TO_TIMESTAMP",
}  # fmt: skip
# Where a text stands beside a moment in one of these, Spark casts it to the type of that.
_OF_ONE_TYPE = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In,
    exp.Coalesce, exp.Nullif, exp.Array, exp.Sub,
)  # fmt: skip


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
        elif _samples_at_random(node) and Allowed.RANDOM not in sql.allows:
            yield sql.problem(
                call_span(sql, node, "TABLESAMPLE"),
                "TABLESAMPLE takes other rows in every run; write REPEATABLE (1) behind it, or ALLOW RANDOM.",
            )
        elif Allowed.CLOCK not in sql.allows and _casts_to_moment(node):
            for text in filter(_is_named_day, node.iter_expressions()):
                yield _named_day_problem(sql, text)


def named_day_problems(sql: SqlDataset, tree: exp.Expr) -> Iterator[Problem]:
    """Yield a problem for each text that Spark takes for the clock's because of the type of what it stands beside.

    Such as `sold_on < 'today'`, where sold_on is a DATE. `tree` is the query with the types of its columns.
    """
    if Allowed.CLOCK in sql.allows:
        return
    for text in filter(_is_named_day, tree.find_all(exp.Literal)):
        if any(typed(other, _TypedColumns()).type in _MOMENTS for other in _of_same_type(text)):
            yield _named_day_problem(sql, text)


def _samples_at_random(node: exp.Expr) -> bool:
    """Whether a sample is of a seed that Spark draws; one of a number of rows is as LIMIT is."""
    return isinstance(node, exp.TableSample) and node.args.get("seed") is None and node.args.get("size") is None


class _TypedColumns:
    """The cells of columns in a tree that has their types."""

    def column(self, node: exp.Column) -> Cell:
        return Cell(simple_name(node.type))

    def nested(self, node: exp.Expr) -> Cell:
        columns = node.selects if isinstance(node, exp.Query) else []
        return Cell(simple_name(columns[0].type) if len(columns) == 1 else UNKNOWN)


def _is_named_day(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and node.is_string and _NAMED_DAY.match(node.name) is not None


def _casts_to_moment(node: exp.Expr) -> bool:
    """Whether a call casts texts to moments whatever stands beside them: `DATE 'today'`, `DATE_ADD('now', 1)`."""
    if isinstance(node, exp.Cast):
        return simple_name(node.to) in _MOMENTS
    if isinstance(node, exp.TsOrDsToDate):
        return not node.args.get("format")
    return isinstance(node, _OF_MOMENTS) or (
        isinstance(node, exp.Anonymous) and node.name.upper() in _OF_MOMENTS_BY_NAME
    )


def _of_same_type(text: exp.Expr) -> list[exp.Expr]:
    """What Spark brings to one type with a text, the text itself among them."""
    parent = text.parent
    while isinstance(parent, exp.Paren):
        text, parent = parent, parent.parent
    if isinstance(parent, exp.If) and isinstance(parent.parent, exp.Case):
        return _of_same_type_in_case(parent.parent, is_result=text is not parent.this)
    if isinstance(parent, exp.Case):
        return _of_same_type_in_case(parent, is_result=text is not parent.this)
    if isinstance(parent, exp.If):
        results = [parent.args["true"], parent.args.get("false")]
        return [] if text is parent.this else [result for result in results if result is not None]
    return [*parent.iter_expressions()] if isinstance(parent, _OF_ONE_TYPE) else []


def _of_same_type_in_case(case: exp.Case, *, is_result: bool) -> list[exp.Expr]:
    """The results of a CASE, or what it compares: its operand and the values of WHEN."""
    branches = case.args["ifs"]
    if is_result:
        parts = [case.args.get("default"), *(branch.args["true"] for branch in branches)]
    else:
        parts = [case.this, *(branch.this for branch in branches)] if case.this is not None else []
    return [part for part in parts if part is not None]


def _named_day_problem(sql: SqlDataset, text: exp.Expr) -> Problem:
    return sql.problem(
        _span_of_text(sql, text), f"'{text.name}' depends on when it runs, so that a rerun gives other rows; {_REMEDY}"
    )


def _span_of_text(sql: SqlDataset, text: exp.Expr) -> Span:
    """The place of a text in quotes, which the parser does not record."""
    within = sql.span_of("AS") if sql.query is not None else Span(0, len(sql.source.text))
    quoted = re.compile(rf"(['\"]){re.escape(text.name)}\1").search(sql.source.text, within.start)
    return Span(*quoted.span()) if quoted else within
