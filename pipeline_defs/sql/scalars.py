"""Spark's scalar functions over columns: dates, timestamps and whole numbers; and the list of them all.

Not here: texts (texts.py), date patterns (patterns.py), and what is part of the language (functions.py).
"""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from sqlglot import exp

from pipeline_defs.sql.casts import fits
from pipeline_defs.sql.clocks import to_instant, to_wall
from pipeline_defs.sql.columns import (
    DATE,
    DAY_MICROS,
    INTEGERS,
    NULL,
    STRING,
    TIMESTAMP,
    Array,
    CannotEvaluate,
    Vector,
    mapped_texts,
)
from pipeline_defs.sql.patterns import formatted
from pipeline_defs.sql.texts import TEXTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline_defs.sql.functions import Evaluator

Scalar: TypeAlias = "Callable[..., Vector]"

_SECOND = 1_000_000
_UNITS = {"SECOND": _SECOND, "MINUTE": 60 * _SECOND, "HOUR": 3_600 * _SECOND}
_NAMES = {"YYYY": "YEAR", "YY": "YEAR", "MON": "MONTH", "MM": "MONTH", "DD": "DAY"}
_POSITIONS = ("this", "expression", "start", "length", "replacement", "fill_pattern")


def arguments_of(node: exp.Expr) -> list[exp.Expr]:
    """What a function is called with, without its units and formats."""
    named = [node.args.get(name) for name in _POSITIONS]
    found = [each for each in named if isinstance(each, exp.Expr)]
    if isinstance(node, exp.Extract):
        return [node.expression]
    if isinstance(node, exp.Repeat):
        found.append(node.args["times"])
    if isinstance(node, exp.AtTimeZone | exp.FromTimeZone):
        found.append(node.args["zone"])
    return [*found, *node.expressions]


def _days(ev: Evaluator, vector: Vector) -> Array:
    return ev.cast(vector, DATE).values


def _unit(node: exp.Expr, default: str = "DAY") -> str:
    unit = node.args.get("unit")
    if unit is not None and not isinstance(unit, exp.Var | exp.Literal):
        raise CannotEvaluate(node, "a unit that is no literal")
    name = unit.name.upper() if unit is not None else default
    return _NAMES.get(name, name)


def _both(left: Vector, right: Vector) -> Array:
    return left.valid & right.valid


def _integer(node: exp.Expr, vector: Vector, *, widest: str = "bigint") -> Array:
    if vector.type == NULL:
        return np.zeros(vector.values.shape, dtype=np.int64)
    if not vector.is_integer or INTEGERS[vector.type] > INTEGERS[widest]:
        raise CannotEvaluate(node, f"a whole number was expected, not {vector.type}")
    return vector.values


def _date_add(ev: Evaluator, node: exp.Expr, day: Vector, count: Vector) -> Vector:
    if _unit(node) != "DAY":
        raise CannotEvaluate(node, "days only")
    return Vector(DATE, _days(ev, day) + _integer(node, count, widest="int"), _both(day, count))


def _date_diff(ev: Evaluator, node: exp.Expr, end: Vector, start: Vector) -> Vector:
    if node.args.get("unit") is not None:
        raise CannotEvaluate(node, "DATEDIFF with a unit")
    return Vector("int", _days(ev, end) - _days(ev, start), _both(end, start))


def _months(days: Array) -> Array:
    found: Array = days.astype("M8[D]").astype("M8[M]").astype(np.int64)
    return found


def _first_days(months: Array) -> Array:
    found: Array = months.astype("M8[M]").astype("M8[D]").astype(np.int64)
    return found


def add_months(days: Array, months: Array | int) -> Array:
    """The same day of another month, or its last day."""
    to = _months(days) + months
    found: Array = np.minimum(_first_days(to) + days - _first_days(_months(days)), _first_days(to + 1) - 1)
    return found


def _add_months(ev: Evaluator, node: exp.Expr, day: Vector, count: Vector) -> Vector:
    return Vector(DATE, add_months(_days(ev, day), _integer(node, count, widest="int")), _both(day, count))


def _last_day(ev: Evaluator, _: exp.Expr, day: Vector) -> Vector:
    return Vector(DATE, _first_days(_months(_days(ev, day)) + 1) - 1, day.valid)


def truncated_days(days: Array, unit: str) -> Array:
    """The first day of the year, quarter, month or week."""
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


def _trunc(ev: Evaluator, node: exp.Expr, day: Vector) -> Vector:
    unit = _unit(node)
    if unit not in {"YEAR", "QUARTER", "MONTH", "WEEK"}:
        raise CannotEvaluate(node, f"TRUNC by {unit}")
    return Vector(DATE, truncated_days(_days(ev, day), unit), day.valid)


def _date_trunc(ev: Evaluator, node: exp.Expr, moment: Vector) -> Vector:
    at, unit = ev.cast(moment, TIMESTAMP), _unit(node)
    walls = to_wall(at.values, ev.timezone)
    if unit in _UNITS:
        return Vector(TIMESTAMP, at.values - walls % _UNITS[unit], at.valid)
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
    # ISO: the week of the Thursday.
    "WEEK": _iso_week,
}


def _field(name: str) -> Scalar:
    def field(ev: Evaluator, _: exp.Expr, day: Vector) -> Vector:
        return Vector("int", _FIELDS[name](_days(ev, day)), day.valid)

    return field


def _clock_field(name: str) -> Scalar:
    def field(ev: Evaluator, _: exp.Expr, moment: Vector) -> Vector:
        at = ev.cast(moment, TIMESTAMP)
        values = to_wall(at.values, ev.timezone) // _UNITS[name] % (24 if name == "HOUR" else 60)
        return Vector("int", values, at.valid)

    return field


def _extract(ev: Evaluator, node: exp.Expr, value: Vector) -> Vector:
    name = {"DAYS": "DAY", "MONTHS": "MONTH", "YEARS": "YEAR", "HOURS": "HOUR", "W": "WEEK", "WEEKS": "WEEK"}
    unit = name.get(node.this.name.upper(), node.this.name.upper())
    if unit in {"HOUR", "MINUTE"}:
        return _clock_field(unit)(ev, node, value)
    if unit in {"YEAR", "QUARTER", "MONTH", "DAY", "DAYOFWEEK", "DOY", "WEEK"}:
        return _field(unit)(ev, node, value)
    raise CannotEvaluate(node, f"EXTRACT of {unit}")


def _arithmetic(ev: Evaluator, node: exp.Expr, left: Vector, right: Vector) -> Vector:
    if NULL in (left.type, right.type) and (left.is_integer or right.is_integer):
        left, right = (ev.cast(each, right.type if each is left else left.type) if each.type == NULL else each
                       for each in (left, right))  # fmt: skip
    if left.type == DATE and right.is_integer and not isinstance(node, exp.Mul | exp.Mod | exp.IntDiv):
        return _date_add(ev, node, left, right if isinstance(node, exp.Add) else _negated(right))
    if not (left.is_integer and right.is_integer):
        raise CannotEvaluate(node, f"arithmetic of {left.type} and {right.type}")
    to = left.type if INTEGERS[left.type] >= INTEGERS[right.type] else right.type
    valid = _both(left, right)
    one, other = np.where(left.valid, left.values, 0), np.where(right.valid, right.values, 1)
    if isinstance(node, exp.IntDiv | exp.Mod):
        if np.any((other == 0) & valid):
            raise CannotEvaluate(node, "a division by zero")
        quotient = np.sign(one) * np.sign(other) * (np.abs(one) // np.abs(other))
        if isinstance(node, exp.Mod):
            return Vector(to, one - quotient * other, valid)
        return Vector("bigint", quotient, valid)
    sizes = [max(int(np.abs(each).max(initial=0)), 1) for each in (one, other)]
    if max(sizes) >= 2**62 or (isinstance(node, exp.Mul) and sizes[0] * sizes[1] >= 2**62):
        raise CannotEvaluate(node, "whole numbers near the end of bigint")
    values = one + other if isinstance(node, exp.Add) else one - other if isinstance(node, exp.Sub) else one * other
    if not fits(values, valid, to):
        raise CannotEvaluate(node, f"a result beyond {to}")
    return Vector(to, values, valid)


def _negated(vector: Vector) -> Vector:
    return Vector(vector.type, -vector.values, vector.valid)


def _pmod(ev: Evaluator, node: exp.Expr, left: Vector, right: Vector) -> Vector:
    if np.any(right.valid & (_integer(node, right) <= 0)):
        raise CannotEvaluate(node, "PMOD by less than 1")
    found = _arithmetic(ev, exp.Mod(), left, right)
    return Vector(found.type, np.where(found.values < 0, found.values + right.values, found.values), found.valid)


def _abs(_: Evaluator, node: exp.Expr, value: Vector) -> Vector:
    if not value.is_integer or not fits(-value.values, value.valid, value.type):
        raise CannotEvaluate(node, "ABS of something else than whole numbers")
    return Vector(value.type, np.abs(value.values), value.valid)


def _neg(ev: Evaluator, node: exp.Expr, value: Vector) -> Vector:
    del ev
    if not value.is_integer or not fits(-value.values, value.valid, value.type):
        raise CannotEvaluate(node, "the negative of something else than whole numbers")
    return _negated(value)


def plus(ev: Evaluator, node: exp.Expr) -> Vector:
    """A + B and A - B, where B may be an interval of one unit."""
    interval = node.expression
    if not isinstance(interval, exp.Interval):
        return _arithmetic(ev, node, ev.of(node.this), ev.of(interval))
    if not isinstance(interval.this, exp.Literal) or not re.fullmatch(r"-?\d{1,6}", interval.this.name.strip()):
        raise CannotEvaluate(node, "an interval that is no whole number of one unit")
    count = int(interval.this.name) * (1 if isinstance(node, exp.Add) else -1)
    return _moved(ev, node, ev.of(node.this), count, _unit(interval).removesuffix("S"))


def _moved(ev: Evaluator, node: exp.Expr, value: Vector, count: int, unit: str) -> Vector:
    if value.type not in (DATE, TIMESTAMP):
        raise CannotEvaluate(node, f"{value.type} and an interval")
    if unit in {"YEAR", "MONTH", "QUARTER"}:
        months = count * {"YEAR": 12, "QUARTER": 3}.get(unit, 1)
        if value.type == DATE:
            return Vector(DATE, add_months(value.values, months), value.valid)
        walls = to_wall(value.values, ev.timezone)
        dates = add_months(walls // DAY_MICROS, months)
        moved = _at_wall(value.values, dates * DAY_MICROS + walls % DAY_MICROS, ev.timezone)
        return Vector(TIMESTAMP, moved, value.valid)
    if unit in {"DAY", "WEEK"}:
        days = count * (7 if unit == "WEEK" else 1)
        if value.type == DATE:
            return Vector(DATE, value.values + days, value.valid)
        return Vector(TIMESTAMP, _days_later(value.values, days, ev.timezone), value.valid)
    if unit in _UNITS:
        at = ev.cast(value, TIMESTAMP)
        # Spark takes the whole days of an interval by the clock, and only the rest as time: 36 HOURS are a day and 12.
        days = abs(count) * _UNITS[unit] // DAY_MICROS * (1 if count > 0 else -1)
        rest = count * _UNITS[unit] - days * DAY_MICROS
        return Vector(TIMESTAMP, _days_later(at.values, days, ev.timezone) + rest, at.valid)
    raise CannotEvaluate(node, f"an interval of {unit}")


def _at_wall(micros: Array, walls: Array, timezone: str) -> Array:
    """The instants of other walls; where the clock shows one twice, by the offset of the instants they come from."""
    same = walls - (to_wall(micros, timezone) - micros)
    return np.where(to_wall(same, timezone) == walls, same, to_instant(walls, timezone))


def _days_later(micros: Array, days: int, timezone: str) -> Array:
    return _at_wall(micros, to_wall(micros, timezone) + days * DAY_MICROS, timezone) if days else micros


def _zoned(ev: Evaluator, node: exp.Expr, moment: Vector, zone: Vector) -> Vector:
    """FROM_UTC_TIMESTAMP and TO_UTC_TIMESTAMP, which do not look at the session's zone."""
    at = ev.cast(moment, TIMESTAMP)
    if zone.type != STRING or zone.values.size != 1:
        raise CannotEvaluate(node, "a zone that is no literal")
    name = str(zone.values.reshape(-1)[0])
    if not (name == "UTC" or "/" in name):
        raise CannotEvaluate(node, f"the zone {name!r}; name one of the IANA database")
    turned = to_wall(at.values, name) if isinstance(node, exp.AtTimeZone) else to_instant(at.values, name)
    return Vector(TIMESTAMP, turned, at.valid)


def _make_date(ev: Evaluator, node: exp.Expr, *parts: Vector) -> Vector:
    del ev

    def make(year: int, month: int, day: int) -> int:
        try:
            return (dt.date(year, month, day) - dt.date(1970, 1, 1)).days
        except ValueError:
            raise CannotEvaluate(node, "no such date") from None

    if any(not part.is_integer for part in parts) or len(parts) != 3:
        raise CannotEvaluate(node, "MAKE_DATE of something else than whole numbers")
    return mapped_texts(make, DATE, parts)


def _unix_seconds(ev: Evaluator, node: exp.Expr, moment: Vector) -> Vector:
    if moment.type not in (TIMESTAMP, DATE):
        raise CannotEvaluate(node, "UNIX_TIMESTAMP of a text")
    return Vector("bigint", ev.cast(moment, TIMESTAMP).values // _SECOND, moment.valid)


def _from_seconds(_: Evaluator, node: exp.Expr, seconds: Vector) -> Vector:
    return Vector(TIMESTAMP, _integer(node, seconds) * _SECOND, seconds.valid)


def _date_format(ev: Evaluator, node: exp.Expr, moment: Vector) -> Vector:
    return formatted(ev.cast(moment, TIMESTAMP), node.args["format"], ev.timezone)


# By the names that sqlglot leaves as they are.
BY_NAME: dict[str, Scalar] = {
    "WEEKDAY": _field("WEEKDAY"),
    "PMOD": _pmod,
    "MAKE_DATE": _make_date,
    "TIMESTAMP_SECONDS": _from_seconds,
}
BY_CLASS: dict[type[exp.Expr], Scalar] = {
    exp.TsOrDsAdd: _date_add,
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
    **TEXTS,
    exp.Mul: _arithmetic,
    exp.IntDiv: _arithmetic,
    exp.Mod: _arithmetic,
    exp.Neg: _neg,
    exp.Abs: _abs,
}
