"""Spark's arithmetic over columns, for whole numbers and intervals; and the list of all its scalar functions.

Not here: functions of dates (dates.py) and texts (texts.py), and expressions of the language (functions.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from varve.sql.evaluate.casts import fits
from varve.sql.evaluate.clocks import to_instant, to_wall
from varve.sql.evaluate.date_arithmetic import DATE_ARITHMETIC
from varve.sql.evaluate.dates import DATES, DATES_BY_NAME, UNITS, add_months, date_add, unit_of
from varve.sql.evaluate.texts import TEXTS
from varve.sql.evaluate.vector import (
    DATE,
    DAY_MICROS,
    INTEGERS,
    NULL,
    TIMESTAMP,
    Array,
    CannotEvaluate,
    Scalar,
    Vector,
    both,
    integer,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.sql.evaluate.evaluation import Evaluation
_POSITIONS = ("this", "expression", "start", "length", "replacement", "fill_pattern")

# The units of intervals that have a sum, and how many months, days or seconds each is.
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_WHOLE_DAYS = {"DAY": 1, "WEEK": 7}
_SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3_600, "DAY": 86_400, "WEEK": 604_800}


def arguments_of(node: exp.Expr) -> list[exp.Expr]:
    """Return the arguments of a function call, without its units and formats."""
    named = [node.args.get(name) for name in _POSITIONS]
    arguments = [argument for argument in named if isinstance(argument, exp.Expr)]
    if isinstance(node, exp.Extract):
        return [node.expression]
    if isinstance(node, exp.Repeat):
        arguments.append(node.args["times"])
    if isinstance(node, exp.AtTimeZone | exp.FromTimeZone):
        arguments.append(node.args["zone"])
    more = node.args.get("expressions")
    return [*arguments, *(more if isinstance(more, list) else ())]


def _arithmetic(ev: Evaluation, node: exp.Expr, left: Vector, right: Vector) -> Vector:
    if NULL in (left.type, right.type) and (left.is_integer or right.is_integer):
        left, right = (ev.cast(side, right.type if side is left else left.type) if side.type == NULL else side
                       for side in (left, right))  # fmt: skip
    if left.type == DATE and right.is_integer and not isinstance(node, exp.Mul | exp.Mod | exp.IntDiv):
        return date_add(ev, node, left, right if isinstance(node, exp.Add) else _negated(right))
    if not (left.is_integer and right.is_integer):
        raise CannotEvaluate(node, f"arithmetic of {left.type} and {right.type}")
    to = left.type if INTEGERS[left.type] >= INTEGERS[right.type] else right.type
    valid = both(left, right)
    left_values, right_values = np.where(left.valid, left.values, 0), np.where(right.valid, right.values, 1)
    if isinstance(node, exp.IntDiv | exp.Mod):
        if np.any((right_values == 0) & valid):
            raise CannotEvaluate(node, "a division by zero")
        quotient = np.sign(left_values) * np.sign(right_values) * (np.abs(left_values) // np.abs(right_values))
        if isinstance(node, exp.Mod):
            return Vector(to, left_values - quotient * right_values, valid)
        return Vector("bigint", quotient, valid)
    sizes = [max(int(np.abs(operand_values).max(initial=0)), 1) for operand_values in (left_values, right_values)]
    if max(sizes) >= 2**62 or (isinstance(node, exp.Mul) and sizes[0] * sizes[1] >= 2**62):
        raise CannotEvaluate(node, "whole numbers near the end of bigint")
    values = (
        left_values + right_values
        if isinstance(node, exp.Add)
        else left_values - right_values
        if isinstance(node, exp.Sub)
        else left_values * right_values
    )
    if not fits(values, valid, to):
        raise CannotEvaluate(node, f"a result beyond {to}")
    return Vector(to, values, valid)


def _negated(vector: Vector) -> Vector:
    return Vector(vector.type, -vector.values, vector.valid)


def _pmod(ev: Evaluation, node: exp.Expr, left: Vector, right: Vector) -> Vector:
    if np.any(right.valid & (integer(node, right) <= 0)):
        raise CannotEvaluate(node, "PMOD by less than 1")
    remainder = _arithmetic(ev, exp.Mod(), left, right)
    return Vector(
        remainder.type,
        np.where(remainder.values < 0, remainder.values + right.values, remainder.values),
        remainder.valid,
    )


def _abs(_: Evaluation, node: exp.Expr, value: Vector) -> Vector:
    if not value.is_integer or not fits(-value.values, value.valid, value.type):
        raise CannotEvaluate(node, "ABS of something else than whole numbers")
    return Vector(value.type, np.abs(value.values), value.valid)


def _neg(ev: Evaluation, node: exp.Expr, value: Vector) -> Vector:
    del ev
    if not value.is_integer or not fits(-value.values, value.valid, value.type):
        raise CannotEvaluate(node, "the negative of something else than whole numbers")
    return _negated(value)


def plus(ev: Evaluation, node: exp.Expr) -> Vector:
    """A + B and A - B, where B may be an interval, or the sum of several: `INTERVAL 1 DAY 12 HOURS`."""
    parts = _intervals(node.expression)
    if not parts:
        return _arithmetic(ev, node, ev.of(node.this), ev.of(node.expression))
    # `d - INTERVAL 7 DAYS + 1`: the parser takes the number for one more interval, without a unit. To Spark it is a
    # number of days that is added to what comes out.
    intervals = [part for part in parts if part.args.get("unit") is not None]
    numbers = parts[len(intervals) :]
    if parts[: len(intervals)] != intervals:
        raise CannotEvaluate(node, "a number between intervals")
    count, unit = _length_of(node, intervals)
    moved = _moved(ev, node, ev.of(node.this), count if isinstance(node, exp.Add) else -count, unit)
    for number in numbers:
        if moved.type != DATE:
            raise CannotEvaluate(node, f"{moved.type} and a number")
        moved = _moved(ev, node, moved, _length_of(node, [number])[0], "DAY")
    return moved


def _intervals(node: exp.Expr) -> list[exp.Interval]:
    """The intervals of a sum of intervals; empty where it is something else."""
    node = node.unnest()
    if isinstance(node, exp.Interval):
        return [node]
    if not isinstance(node, exp.Add):
        return []
    left, right = _intervals(node.this), _intervals(node.expression)
    return [*left, *right] if left and right else []


def _length_of(node: exp.Expr, intervals: Sequence[exp.Interval]) -> tuple[int, str]:
    """The sum of intervals in one unit. Spark adds up months, or days and hours, and never both."""
    parts = []
    for interval in intervals:
        if not isinstance(interval.this, exp.Literal) or not re.fullmatch(r"-?\d{1,6}", interval.this.name.strip()):
            raise CannotEvaluate(node, "an interval that is no whole number of a unit")
        parts.append((int(interval.this.name), unit_of(interval).removesuffix("S")))
    if len(parts) == 1:
        return parts[0]
    for lengths, unit in ((_MONTHS, "MONTH"), (_WHOLE_DAYS, "DAY"), (_SECONDS, "SECOND")):
        if all(of in lengths for _, of in parts):
            return sum(count * lengths[of] for count, of in parts), unit
    raise CannotEvaluate(node, "an interval of units that have no sum")


def _moved(ev: Evaluation, node: exp.Expr, value: Vector, count: int, unit: str) -> Vector:
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
    if unit in UNITS:
        at = ev.cast(value, TIMESTAMP)
        # Spark adds the whole days of an interval by the clock, and only the rest as elapsed time: 36 HOURS are a day
        # and 12 hours.
        days = abs(count) * UNITS[unit] // DAY_MICROS * (1 if count > 0 else -1)
        rest = count * UNITS[unit] - days * DAY_MICROS
        return Vector(TIMESTAMP, _days_later(at.values, days, ev.timezone) + rest, at.valid)
    raise CannotEvaluate(node, f"an interval of {unit}")


def _at_wall(micros: Array, walls: Array, timezone: str) -> Array:
    """Return the instants of other wall-clock times.

    Where the clock shows a time twice, the offset of the original instant decides.
    """
    same = walls - (to_wall(micros, timezone) - micros)
    return np.where(to_wall(same, timezone) == walls, same, to_instant(walls, timezone))


def _days_later(micros: Array, days: int, timezone: str) -> Array:
    return _at_wall(micros, to_wall(micros, timezone) + days * DAY_MICROS, timezone) if days else micros


BY_NAME: dict[str, Scalar] = {**DATES_BY_NAME, "PMOD": _pmod}
BY_CLASS: dict[type[exp.Expr], Scalar] = {
    **DATES,
    **DATE_ARITHMETIC,
    **TEXTS,
    exp.Mul: _arithmetic,
    exp.IntDiv: _arithmetic,
    exp.Mod: _arithmetic,
    exp.Neg: _neg,
    exp.Abs: _abs,
}
