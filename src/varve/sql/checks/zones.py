"""Hints where a query makes a date, an hour or a text of a window whose zone is not UTC.

A query runs in a UTC session (docs/sql.md), so that `CAST(t AS DATE)` is the day in UTC there: of a day in Kathmandu
the one before. In LET the same expression is of the zone of the series. It may be what its author wants, so it is no
problem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.names.scope_variables import variable_of
from varve.sql.syntax.sql_file import TimeSeries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.sql.syntax.errors import Problem
    from varve.sql.syntax.sql_file import SqlDataset

_UTC = frozenset(
    {"UTC", "Etc/UTC", "UCT", "Etc/UCT", "Universal", "Etc/Universal", "Zulu", "Etc/Zulu", "GMT", "Etc/GMT"}
)
# What Spark makes of a moment by the zone of the session. What stands between them and the moment does not matter.
_BY_ZONE = (
    exp.TimeToStr, exp.ToChar, exp.TsOrDsToDate, exp.TsOrDsAdd, exp.TimestampTrunc, exp.DateTrunc, exp.Extract,
    exp.Hour, exp.Minute, exp.Quarter, exp.LastDay, exp.Dayname, exp.Monthname, exp.Concat, exp.ConcatWs, exp.DPipe,
)  # fmt: skip
_CASTS_BY_ZONE = frozenset({exp.DType.DATE, exp.DType.TIMESTAMPNTZ, *exp.DataType.TEXT_TYPES})
_CALLS_BY_ZONE = frozenset({"DATE_PART", "DATEPART", "WEEKDAY"})
_BETWEEN = (exp.Paren, exp.Add, exp.Sub, exp.TimeStrToTime, exp.Cast)


def zone_hints(sql: SqlDataset) -> Iterator[Problem]:
    """Yield a hint for each such expression, at its place; none for a series in UTC."""
    for series in sql.generators:
        if not isinstance(series, TimeSeries) or series.timezone in _UTC:
            continue
        for query in sql.queries:
            for node in query.walk():
                variable = variable_of(node, series.variables)
                if variable is not None and _is_made_by_zone(node):
                    yield sql.problem(sql.span_at(node), _message(variable, series))


def _message(variable: str, series: TimeSeries) -> str:
    return (
        f"queries run in a UTC session: what is made of {variable} here is a date, an hour or a text in UTC, and the "
        f"windows are those of {series.timezone}. Make it in LET, where it is in that zone, and compare with that."
    )


def _is_made_by_zone(node: exp.Expr) -> bool:
    """Whether something else is made of a moment by the zone of the session."""
    parent = node.parent
    while parent is not None:
        if isinstance(parent, _BY_ZONE) or (isinstance(parent, exp.Cast) and parent.to.this in _CASTS_BY_ZONE):
            return True
        if isinstance(parent, exp.Anonymous) and parent.name.upper() in _CALLS_BY_ZONE:
            return True
        if not isinstance(parent, _BETWEEN):
            return False
        parent = parent.parent
    return False
