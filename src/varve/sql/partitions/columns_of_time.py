"""Partition columns of one time series, taken from their INSERT expressions: `year = YEAR(t), hour = HOUR(t)`.

Each expression is compared with the forms in which a column can spell the start of a window (`TimeColumn`), over many
windows, those where clocks go back among them. Together the columns must say which window it is.

Not here: one column of text or date, which is the key itself (key_format.py), and the evaluation of expressions.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pendulum

from varve.model.errors import VarveError
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.time_columns import TIME_TYPES, TimeColumn
from varve.model.schema import ColumnType
from varve.sql.partitions.key_format import date_formats

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlglot import exp

    from varve.sql.syntax.errors import Span
    from varve.sql.syntax.sql_file import ColumnDefinition, TimeSeries

    Computed: TypeAlias = Callable[[exp.Expr, Sequence[tuple[int, int]]], list[object]]

_NUMBERS = (
    "%Y", "%m", "%d", "%H", "%M", "%S", "%j", "%G", "%V", "%q", "%E", "%s", "%s000", "%Y%m%d", "%Y%m", "%Y%m%d%H",
    "%Y%m%d%H%M", "%Y%j", "%H%M", "%m%d",
)  # fmt: skip
_TEXTS = (
    "%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H", "%Y-%m", "%Y", "%m", "%d", "%H", "%M", "%S", "%-m", "%-d", "%-H",
    "%-M", "%-S", "%j", "%-j", "%V", "%-V", "%q", "%E", "%-E", "%s", "%Y%m%d", "%Y%m", "%Y%m%d%H", "%H:%M",
)  # fmt: skip
_FORMS = {
    ColumnType.INT: _NUMBERS,
    ColumnType.BIGINT: _NUMBERS,
    ColumnType.DATE: ("%Y-%m-%d", "%Y-%m-01", "%Y-01-01"),
    ColumnType.TIMESTAMP: ("%s",),
}
_EXAMPLES = {
    ColumnType.STRING: "DATE_FORMAT({t}, 'yyyy-MM-dd') or DATE_FORMAT({t}, 'HH')",
    ColumnType.INT: "YEAR({t}), MONTH({t}), DAY({t}), HOUR({t}) or CAST(DATE_FORMAT({t}, 'yyyyMMdd') AS INT)",
    ColumnType.BIGINT: "UNIX_TIMESTAMP({t}) or CAST(DATE_FORMAT({t}, 'yyyyMMddHH') AS BIGINT)",
    ColumnType.DATE: "CAST({t} AS DATE)",
    ColumnType.TIMESTAMP: "{t} itself",
}
# A boolean is an int, and a moment a date.
_KINDS = {bool: "a boolean", int: "a whole number", str: "a text", dt.datetime: "a moment", dt.date: "a date"}


@dataclass(frozen=True)
class PartitionValue:
    """A partition column, the expression of its value over the variables of FOR, and where that is written."""

    column: ColumnDefinition
    expression: exp.Expr
    span: Span


class ColumnError(VarveError):
    """An expression that gives no part of a window's start, at its place in the file."""

    def __init__(self, span: Span, message: str) -> None:
        self.span = span
        super().__init__(message)


def columns_of_time(series: TimeSeries, values: Sequence[PartitionValue], computed: Computed) -> TimeDimension:
    """Return the dimension whose partition columns have the values of the expressions.

    `computed` returns the values of an expression for windows that are given as (start, end) in seconds since 1970.

    Raises ColumnError at the first column that gives no part of the start of its window, VarveError where the columns
    do not say together which window it is.
    """
    name = values[0].column.name if len(values) == 1 else series.variable.lower()
    plain = TimeDimension(name, series.tiling, series.start, series.end)
    plain.check()
    columns = tuple(_column(plain, series, value, computed) for value in values)
    dimension = TimeDimension(name, series.tiling, series.start, series.end, columns=columns)
    if problem := dimension.column_problem():
        listed = ", ".join(dimension.column_names)
        raise VarveError(f"PARTITIONED BY ({listed}): {problem}{_advice(dimension, series)}")
    return dimension


def _column(plain: TimeDimension, series: TimeSeries, value: PartitionValue, computed: Computed) -> TimeColumn:
    """The form in which a column spells the starts of the windows."""
    name, declared = value.column.name, value.column.type
    if declared not in TIME_TYPES:
        raise ColumnError(
            value.column.span,
            f"{name} is {declared}; a column of time is {', '.join(TIME_TYPES[:-1])} or {TIME_TYPES[-1]}: write "
            f"PARTITIONED BY ({name} INT), for example.",
        )
    starts = list(plain.sample())
    values = computed(value.expression, [(start, plain.calendar.following(start)) for start in starts])
    at = pendulum.from_timestamp(starts[0], tz=plain.timezone)
    if None in values:
        raise ColumnError(value.span, f"{name} is NULL at {at}; no partition is named by NULL.")
    kind = ColumnType(declared)
    for form in dict.fromkeys([*date_formats(value.expression), *_TEXTS]) if kind == "STRING" else _FORMS[kind]:
        column = TimeColumn(name, form, kind)
        dimension = TimeDimension(plain.name, plain.tiling, plain.start, plain.end, columns=(column,))
        try:
            if all(
                type(own) is type(theirs) and own == theirs
                for (own,), theirs in zip(map(dimension.column_values_at, starts), values, strict=True)
            ):
                return column
        except VarveError:
            # The type cannot hold what the form writes.
            continue
    example, first = _EXAMPLES[kind].format(t=series.variable), values[0]
    kind_found = next((words for type_, words in _KINDS.items() if isinstance(first, type_)), type(first).__name__)
    found = repr(first) if isinstance(first, str) else str(first)
    raise ColumnError(
        value.span,
        f"{name} is declared {declared}, and its expression is {kind_found}, {found} at {at}: that is no part of the "
        f"start of a window which can be read back as {declared}; write {example}.",
    )


def _advice(dimension: TimeDimension, series: TimeSeries) -> str:
    """What to write instead, in SQL."""
    t = series.variable
    if "of 25 hours" in dimension.column_problem():
        return (
            f" Write TIMEZONE 'UTC', or hour = (UNIX_TIMESTAMP({t}) - UNIX_TIMESTAMP(DATE_TRUNC('DAY', {t}))) DIV 3600."
        )
    return f" Write year = YEAR({t}), month = MONTH({t}), day = DAY({t}), hour = HOUR({t}), or as many as it takes."
