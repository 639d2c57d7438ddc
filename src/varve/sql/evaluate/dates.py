"""Spark's functions of dates and timestamps over columns.

Not here: intervals that are added to them (scalars.py), and date patterns (date_patterns.py).
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from varve.sql.evaluate.clocks import to_instant, to_wall
from varve.sql.evaluate.date_patterns import formatted
from varve.sql.evaluate.vector import (
    DATE,
    DAY_MICROS,
    STRING,
    TIMESTAMP,
    Array,
    CannotEvaluate,
    Scalar,
    Vector,
    both,
    integer,
    mapped_texts,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from varve.sql.evaluate.evaluation import Evaluation

_SECOND = 1_000_000
UNITS = {"SECOND": _SECOND, "MINUTE": 60 * _SECOND, "HOUR": 3_600 * _SECOND}
_NAMES = {"YYYY": "YEAR", "YY": "YEAR", "MON": "MONTH", "MM": "MONTH", "DD": "DAY"}


def _days(ev: Evaluation, vector: Vector) -> Array:
    return ev.cast(vector, DATE).values


def unit_of(node: exp.Expr, default: str = "DAY") -> str:
    """Return the unit of a call or an interval, in upper case. Raises CannotEvaluate where it is no literal."""
    unit = node.args.get("unit")
    if unit is not None and not isinstance(unit, exp.Var | exp.Literal):
        raise CannotEvaluate(node, "a unit that is no literal")
    name = unit.name.upper() if unit is not None else default
    return _NAMES.get(name, name)


def date_add(ev: Evaluation, node: exp.Expr, day: Vector, count: Vector) -> Vector:
    """DATE_ADD, and a date plus a whole number."""
    if unit_of(node) != "DAY":
        raise CannotEvaluate(node, "days only")
    return Vector(DATE, _days(ev, day) + integer(node, count, widest="int"), both(day, count))


def _date_diff(ev: Evaluation, node: exp.Expr, end: Vector, start: Vector) -> Vector:
    if node.args.get("unit") is not None:
        raise CannotEvaluate(node, "DATEDIFF with a unit")
    return Vector("int", _days(ev, end) - _days(ev, start), both(end, start))


def _months(days: Array) -> Array:
    months: Array = days.astype("M8[D]").astype("M8[M]").astype(np.int64)
    return months


def _first_days(months: Array) -> Array:
    days: Array = months.astype("M8[M]").astype("M8[D]").astype(np.int64)
    return days


def add_months(days: Array, months: Array | int) -> Array:
    """Return the same day of another month, or the last day of that month."""
    to = _months(days) + months
    moved_days: Array = np.minimum(_first_days(to) + days - _first_days(_months(days)), _first_days(to + 1) - 1)
    return moved_days


def _add_months(ev: Evaluation, node: exp.Expr, day: Vector, count: Vector) -> Vector:
    return Vector(DATE, add_months(_days(ev, day), integer(node, count, widest="int")), both(day, count))


def _last_day(ev: Evaluation, _: exp.Expr, day: Vector) -> Vector:
    return Vector(DATE, _first_days(_months(_days(ev, day)) + 1) - 1, day.valid)


def truncated_days(days: Array, unit: str) -> Array:
    """Return the first day of the year, quarter, month or week of each day."""
    months = _months(days)
    match unit:
        case "YEAR":
            return _first_days(months // 12 * 12)
        case "QUARTER":
            return _first_days(months // 3 * 3)
        case "MONTH":
            return _first_days(months)
        case "WEEK":
            monday: Array = days - (days + 3) % 7
            return monday
        case "DAY":
            return days
    raise CannotEvaluate(None, f"the unit {unit} is not known")


def _trunc(ev: Evaluation, node: exp.Expr, day: Vector) -> Vector:
    unit = unit_of(node)
    if unit not in {"YEAR", "QUARTER", "MONTH", "WEEK"}:
        raise CannotEvaluate(node, f"TRUNC by {unit}")
    return Vector(DATE, truncated_days(_days(ev, day), unit), day.valid)


def _date_trunc(ev: Evaluation, node: exp.Expr, moment: Vector) -> Vector:
    at, unit = ev.cast(moment, TIMESTAMP), unit_of(node)
    walls = to_wall(at.values, ev.timezone)
    if unit in UNITS:
        return Vector(TIMESTAMP, at.values - walls % UNITS[unit], at.valid)
    days = truncated_days(walls // DAY_MICROS, unit)
    return Vector(TIMESTAMP, to_instant(days * DAY_MICROS, ev.timezone), at.valid)


def _iso_week(days: Array) -> Array:
    thursday = days - (days + 3) % 7 + 3
    week: Array = (thursday - _first_days(_months(thursday) // 12 * 12)) // 7 + 1
    return week


_FIELDS: dict[str, Callable[[Array], Array]] = {
    "YEAR": lambda days: _months(days) // 12 + 1970,
    "QUARTER": lambda days: _months(days) % 12 // 3 + 1,
    "MONTH": lambda days: _months(days) % 12 + 1,
    "DAY": lambda days: days - _first_days(_months(days)) + 1,
    "DAYOFWEEK": lambda days: (days + 4) % 7 + 1,
    "WEEKDAY": lambda days: (days + 3) % 7,
    "DOY": lambda days: days - _first_days(_months(days) // 12 * 12) + 1,
    # ISO 8601: the week that contains the Thursday.
    "WEEK": _iso_week,
}


def _field(name: str) -> Scalar:
    def field(ev: Evaluation, _: exp.Expr, day: Vector) -> Vector:
        return Vector("int", _FIELDS[name](_days(ev, day)), day.valid)

    return field


def _clock_field(name: str) -> Scalar:
    def field(ev: Evaluation, _: exp.Expr, moment: Vector) -> Vector:
        at = ev.cast(moment, TIMESTAMP)
        values = to_wall(at.values, ev.timezone) // UNITS[name] % (24 if name == "HOUR" else 60)
        return Vector("int", values, at.valid)

    return field


def _extract(ev: Evaluation, node: exp.Expr, value: Vector) -> Vector:
    name = {"DAYS": "DAY", "MONTHS": "MONTH", "YEARS": "YEAR", "HOURS": "HOUR", "W": "WEEK", "WEEKS": "WEEK"}
    unit = name.get(node.this.name.upper(), node.this.name.upper())
    if unit in {"HOUR", "MINUTE"}:
        return _clock_field(unit)(ev, node, value)
    if unit in {"YEAR", "QUARTER", "MONTH", "DAY", "DAYOFWEEK", "DOY", "WEEK"}:
        return _field(unit)(ev, node, value)
    raise CannotEvaluate(node, f"EXTRACT of {unit}")


def _zoned(ev: Evaluation, node: exp.Expr, moment: Vector, zone: Vector) -> Vector:
    """FROM_UTC_TIMESTAMP and TO_UTC_TIMESTAMP, which do not depend on the session's zone."""
    at = ev.cast(moment, TIMESTAMP)
    if zone.type != STRING or zone.values.size != 1:
        raise CannotEvaluate(node, "a zone that is no literal")
    name = str(zone.values.reshape(-1)[0])
    if not (name == "UTC" or "/" in name):
        raise CannotEvaluate(node, f"the zone {name!r}; name one of the IANA database")
    turned = to_wall(at.values, name) if isinstance(node, exp.AtTimeZone) else to_instant(at.values, name)
    return Vector(TIMESTAMP, turned, at.valid)


def _make_date(ev: Evaluation, node: exp.Expr, *parts: Vector) -> Vector:
    del ev

    def make(year: int, month: int, day: int) -> int:
        try:
            return (dt.date(year, month, day) - dt.date(1970, 1, 1)).days
        except (ValueError, OverflowError):
            raise CannotEvaluate(node, "no such date") from None

    if any(not part.is_integer for part in parts) or len(parts) != 3:
        raise CannotEvaluate(node, "MAKE_DATE of something else than whole numbers")
    return mapped_texts(make, DATE, parts)


def _unix_seconds(ev: Evaluation, node: exp.Expr, moment: Vector) -> Vector:
    if moment.type not in (TIMESTAMP, DATE):
        raise CannotEvaluate(node, "UNIX_TIMESTAMP of a text")
    return Vector("bigint", ev.cast(moment, TIMESTAMP).values // _SECOND, moment.valid)


def _from_seconds(_: Evaluation, node: exp.Expr, seconds: Vector) -> Vector:
    return Vector(TIMESTAMP, integer(node, seconds) * _SECOND, seconds.valid)


def _date_format(ev: Evaluation, node: exp.Expr, moment: Vector) -> Vector:
    return formatted(ev.cast(moment, TIMESTAMP), node.args["format"], ev.timezone)


# Functions that sqlglot parses as anonymous, by name.
DATES_BY_NAME: dict[str, Scalar] = {
    "WEEKDAY": _field("WEEKDAY"),
    "MAKE_DATE": _make_date,
    "TIMESTAMP_SECONDS": _from_seconds,
}

DATES: dict[type[exp.Expr], Scalar] = {
    exp.TsOrDsAdd: date_add,
    exp.DateDiff: _date_diff,
    exp.AddMonths: _add_months,
    exp.LastDay: _last_day,
    exp.DateTrunc: _trunc,
    exp.TimestampTrunc: _date_trunc,
    exp.TimeToStr: _date_format,
    exp.Year: _field("YEAR"),
    exp.Quarter: _field("QUARTER"),
    exp.Month: _field("MONTH"),
    exp.Day: _field("DAY"),
    exp.DayOfMonth: _field("DAY"),
    exp.DayOfWeek: _field("DAYOFWEEK"),
    exp.DayOfYear: _field("DOY"),
    exp.WeekOfYear: _field("WEEK"),
    exp.Hour: _clock_field("HOUR"),
    exp.Minute: _clock_field("MINUTE"),
    exp.Second: _clock_field("SECOND"),
    exp.Extract: _extract,
    exp.StrToUnix: _unix_seconds,
    exp.AtTimeZone: _zoned,
    exp.FromTimeZone: _zoned,
}
