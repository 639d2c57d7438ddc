"""Hints where a query takes a moment for a date, an hour or a text of a series whose zone is not UTC.

A query runs in a UTC session (docs/sql.md), so that `CAST(t AS DATE)` is the day in UTC there: of a day in Kathmandu
the one before. In LET the same expression is of the zone of the series: a column of moments that is compared with that,
as it is or as a date, is compared with what UTC makes of it, and a partition column of a dataset in another zone with a
date or an hour that is another time there. It may be what its author wants, so it is no problem.

Nor is a name of files that cannot tell the hour that a zone's clock shows twice: there may be no file of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from varve.model.landing.options import LandingOptions
from varve.model.landing.pattern import FilePattern
from varve.model.partitions.key import text_of
from varve.sql.names.scope_variables import variable_of
from varve.sql.syntax.body import parsed
from varve.sql.syntax.sql_file import TimeSeries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from varve.model.dataset import Dataset
    from varve.sql.syntax.errors import Problem
    from varve.sql.syntax.sql_file import SqlDataset

UTC_NAMES = frozenset(
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
# What brings a moment to the zone that is meant.
_TO_A_ZONE = exp.AtTimeZone | exp.FromTimeZone | exp.ConvertTimezone
_COMPARISONS = (exp.EQ, exp.NullSafeEQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between)


def zone_hints(
    sql: SqlDataset, moments: Collection[str] = (), zones: Mapping[str, Collection[str]] | None = None
) -> Iterator[Problem]:
    """Yield a hint for each such expression, at its place.

    `moments` are the names, in lower case, of the columns of type TIMESTAMP that the queries may read, and `zones` by
    such a name the zones of the windows that partition columns of dates, hours and texts may name.
    """
    zones = {name: {_usual(zone) for zone in of_column} for name, of_column in (zones or {}).items()}
    for series in sql.generators:
        if not isinstance(series, TimeSeries):
            continue
        local = _local(sql, series)
        comparisons = [each for query in sql.queries for each in query.find_all(*_COMPARISONS)] if local else []
        for comparison in comparisons:
            if (column := _of_another_zone(comparison, zones, local, series)) is not None:
                yield sql.problem(sql.span_at(column), _of_other_windows(column, comparison, zones, local, series))
        if series.timezone in UTC_NAMES:
            continue
        for query in sql.queries:
            for node in query.walk():
                variable = variable_of(node, series.variables)
                if variable is not None and _is_made_by_zone(node) and not _is_compared_in_utc(node, zones):
                    yield sql.problem(sql.span_at(node), _message(variable, series))
        for comparison in comparisons if moments else ():
            if (column := _moment_of(comparison, moments, local)) is not None:
                yield sql.problem(sql.span_at(column), _compared(column, comparison, local, series))


def name_hints(sql: SqlDataset, dataset: Dataset) -> Iterator[Problem]:
    """Yield a hint where the names of files cannot tell the hour that the clock shows a second time."""
    if not isinstance(dataset.landing, LandingOptions) or not dataset.landing.files:
        return
    pattern = FilePattern.of(dataset.landing, dataset.partitioning)
    if (window := pattern.nameless()) is not None:
        yield sql.problem(
            sql.span_of("OPTIONS files"),
            f"no file can be named after {text_of(window)}, an hour that the clock shows a second time: what reads it "
            "would wait for ever. Write %z behind the hour, as in {hour:%Y%m%dT%H%z}.",
        )


def _local(sql: SqlDataset, series: TimeSeries) -> frozenset[str]:
    """The variables of LET that are a date, an hour or a text in the zone of a series."""
    local: set[str] = set()
    for let in sql.lets:
        for node in parsed(let.text).walk():
            if variable_of(node, local) or (variable_of(node, series.variables) and _is_made_by_zone(node)):
                local.add(let.name.lower())
                break
    return frozenset(local)


def _usual(zone: str) -> str:
    return "UTC" if zone in UTC_NAMES else zone


def _is_compared_in_utc(node: exp.Expr, zones: Mapping[str, Collection[str]]) -> bool:
    """Whether it is compared with a partition column that names windows in UTC, as what a query makes does."""
    comparison = node.find_ancestor(*_COMPARISONS)
    columns = [] if comparison is None else _below(comparison)
    return any(zones.get(column.name.lower()) == {"UTC"} for column in columns)


def _of_another_zone(
    comparison: exp.Expr, zones: Mapping[str, Collection[str]], local: Collection[str], series: TimeSeries
) -> exp.Expr | None:
    """The partition column of another zone that is compared with such a variable; None where there is none."""
    nodes = _below(comparison)
    if not any(_is(node, local) for node in nodes):
        return None
    ours = _usual(series.timezone)
    columns = (node for node in nodes if not _is(node, local))
    return next((each for each in columns if ours not in zones.get(each.name.lower(), {ours})), None)


def _of_other_windows(
    column: exp.Expr,
    comparison: exp.Expr,
    zones: Mapping[str, Collection[str]],
    local: Collection[str],
    series: TimeSeries,
) -> str:
    variable = next(name for node in _below(comparison) if (name := variable_of(node, local)) is not None)
    others = " or ".join(sorted(zones[column.name.lower()]))
    instead = f", as of {series.variables[0]} in the query, which is in UTC" if others == "UTC" else ""
    return (
        f"{column.name} names windows of {others}, and {variable} is of {_usual(series.timezone)}: the same date or "
        f"hour is another time there. Where the same time is meant, compare it with what is made in that zone{instead}."
    )


def _moment_of(comparison: exp.Expr, moments: Collection[str], local: Collection[str]) -> exp.Column | None:
    """The column of moments that is compared with such a variable; None where there is none."""
    sides = [side for side in comparison.args.values() if isinstance(side, exp.Expr)]
    for side in sides:
        columns = [
            node for node in _below(side)
            if isinstance(node, exp.Column) and node.name.lower() in moments and not _is(node, local)
        ]  # fmt: skip
        others = [node for other in sides if other is not side for node in _below(other)]
        if columns and any(_is(node, local) for node in others):
            return columns[0]
    return None


def _below(side: exp.Expr) -> list[exp.Expr]:
    """The columns and variables of one side, but for what is brought to another zone, and for queries within it.

    Those have comparisons of their own.
    """
    nodes = side.walk(prune=lambda each: isinstance(each, exp.Query | _TO_A_ZONE))
    return [node for node in nodes if isinstance(node, exp.Column | exp.Placeholder)]


def _is(node: exp.Expr, variables: Collection[str]) -> bool:
    return variable_of(node, variables) is not None


def _compared(column: exp.Column, comparison: exp.Expr, local: Collection[str], series: TimeSeries) -> str:
    variable = next(name for node in _below(comparison) if (name := variable_of(node, local)) is not None)
    begin, end = series.variables
    return (
        f"queries run in a UTC session: what {column.name} is compared with, {variable}, is of {series.timezone}, and "
        f"the moment is taken as in UTC for that. Compare it with moments, such as {column.name} >= {begin} AND "
        f"{column.name} < {end} for the window."
    )


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
