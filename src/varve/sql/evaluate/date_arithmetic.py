"""Spark's arithmetic of whole days and months, and dates from texts and from the time since 1970.

Not here: parts of dates and their beginnings (dates.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from varve.sql.evaluate.clocks import to_instant, to_wall
from varve.sql.evaluate.date_patterns import formatted, parsed
from varve.sql.evaluate.vector import (
    DATE,
    DAY_MICROS,
    DOUBLE,
    STRING,
    TIMESTAMP,
    CannotEvaluate,
    Scalar,
    Vector,
    both,
    integer,
    mapped_texts,
)

if TYPE_CHECKING:
    from varve.sql.evaluate.evaluation import Evaluation
    from varve.sql.evaluate.vector import Array

_SECOND = 1_000_000
# The weekday by name, 0 for Monday; NEXT_DAY accepts names in any case.
_WEEKDAYS = {
    name: place
    for place, day in enumerate(("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY"))
    for name in (day, day[:3], day[:2])
}
# The last second of the year 9999: later years have five digits.
_LAST_SECOND = 253_402_300_799


def _next_day(ev: Evaluation, node: exp.Expr, day: Vector, name: Vector) -> Vector:
    if name.type != STRING:
        raise CannotEvaluate(node, "a weekday that is no text")

    def following(days: int, weekday: str) -> int:
        weekday_number = _WEEKDAYS.get(weekday.upper())
        if weekday_number is None:
            raise CannotEvaluate(node, f"{weekday!r} is no weekday")
        # 1970-01-01 was a Thursday.
        return days + (weekday_number - (days + 3) % 7 - 1) % 7 + 1

    return mapped_texts(following, DATE, [ev.cast(day, DATE), name])


def _month_parts(ev: Evaluation, moment: Vector) -> tuple[Array, Array, Array, Array]:
    """Return months since 1970, the day of the month, the days left in it, and the seconds since the day began."""
    moments = ev.cast(moment, TIMESTAMP).values
    days = to_wall(moments, ev.timezone) // DAY_MICROS
    months = days.astype("M8[D]").astype("M8[M]").astype(np.int64)
    first, following = ((months + more).astype("M8[M]").astype("M8[D]").astype(np.int64) for more in (0, 1))
    # The seconds are elapsed time, also on a day on which the clock was changed.
    passed = moments - to_instant(days * DAY_MICROS, ev.timezone)
    return months, days - first + 1, following - 1 - days, passed // _SECOND


def _months_between(ev: Evaluation, node: exp.Expr, end: Vector, start: Vector) -> Vector:
    """MONTHS_BETWEEN with months of 31 days, rounded to eight digits.

    The result is whole where both are the same day of the month, or the last day of their months.
    """
    if node.args.get("roundoff") is not None:
        raise CannotEvaluate(node, "MONTHS_BETWEEN that is not rounded")
    months, day, left, seconds = _month_parts(ev, end)
    from_months, from_day, from_left, from_seconds = _month_parts(ev, start)
    whole = (months - from_months).astype(np.float64)
    apart = (day - from_day) * 86_400 + seconds - from_seconds
    # Java rounds halves up.
    broken = np.floor((whole + apart / (31.0 * 86_400)) * 1e8 + 0.5) / 1e8
    exact = (day == from_day) | ((left == 0) & (from_left == 0))
    return Vector(DOUBLE, np.where(exact, whole, broken), both(end, start))


def _unix_date(ev: Evaluation, _: exp.Expr, day: Vector) -> Vector:
    return Vector("int", ev.cast(day, DATE).values, day.valid)


def _from_unix_date(_: Evaluation, node: exp.Expr, days: Vector) -> Vector:
    return Vector(DATE, integer(node, days, widest="int"), days.valid)


def _from_unixtime(ev: Evaluation, node: exp.Expr, seconds: Vector) -> Vector:
    values = np.where(seconds.valid, integer(node, seconds), 0)
    if np.any((values < -_LAST_SECOND // 4) | (values > _LAST_SECOND)):
        raise CannotEvaluate(node, "a moment far off")
    if (pattern := node.args.get("format")) is None:
        raise CannotEvaluate(node, "FROM_UNIXTIME without a pattern")
    return formatted(Vector(TIMESTAMP, values * _SECOND, seconds.valid), pattern, ev.timezone)


def _parsed(to: str) -> Scalar:
    """TO_DATE and TO_TIMESTAMP, with or without a pattern."""

    def read(ev: Evaluation, node: exp.Expr, value: Vector) -> Vector:
        pattern = node.args.get("format")
        if pattern is not None and value.type == STRING:
            return parsed(value, pattern, to, ev.timezone)
        return ev.cast(value, to)

    return read


DATE_ARITHMETIC: dict[type[exp.Expr], Scalar] = {
    exp.NextDay: _next_day,
    exp.MonthsBetween: _months_between,
    exp.UnixDate: _unix_date,
    exp.DateFromUnixDate: _from_unix_date,
    exp.UnixToStr: _from_unixtime,
    exp.TsOrDsToDate: _parsed(DATE),
    exp.StrToTime: _parsed(TIMESTAMP),
    exp.TimeStrToTime: _parsed(TIMESTAMP),
}
