"""Casts as Spark makes them in its ANSI mode, over columns; and the casts that a comparison implies.

Where Spark would fail on a value, so does the whole cast here (`CannotEvaluate`): whoever plans with it must then take
the condition for true.

Not here: the functions (functions.py).
"""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING

import numpy as np

from varve.sql.evaluate.clocks import day_of, to_instant, to_wall
from varve.sql.evaluate.vector import (
    BOOLEAN,
    DATE,
    DAY_MICROS,
    DOUBLE,
    INTEGERS,
    NULL,
    STRING,
    TIMESTAMP,
    Array,
    CannotEvaluate,
    Vector,
    mapped_texts,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_EPOCH = dt.date(1970, 1, 1)
# Spark trims these, and takes a date that is followed by a T or a blank and anything.
_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?)?")
_INTEGER = re.compile(r"[+-]?\d+")
_BLANKS = "".join(map(chr, range(0x21)))
_TRUE, _FALSE = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}
# Beyond it doubles leave out whole numbers.
_EXACT = 2**53


def cast(vector: Vector, to: str, timezone: str) -> Vector:
    """The column as another type. Raises CannotEvaluate for a value that Spark would refuse."""
    if vector.type == to:
        return vector
    if vector.type == NULL:
        empty = Vector.constant(to, None)
        return Vector(to, np.broadcast_to(empty.values, vector.values.shape), vector.valid)
    found = _CASTS.get((_family(vector.type), _family(to)))
    if found is None:
        raise CannotEvaluate(None, f"no cast from {vector.type} to {to} is known before a run")
    return found(vector, to, timezone)


def compared(left: Vector, right: Vector, timezone: str) -> tuple[Vector, Vector]:
    """Both sides of a comparison as the type that Spark compares them in."""
    to = common([left.type, right.type])
    return cast(left, to, timezone), cast(right, to, timezone)


def common(types: Sequence[str]) -> str:
    """The type in which values of these types meet. Raises CannotEvaluate where Spark has none, or another."""
    kinds = list(dict.fromkeys(each for each in types if each != NULL))
    if not kinds:
        return NULL
    found = kinds[0]
    for kind in kinds[1:]:
        found = _wider(found, kind)
    return found


def _wider(one: str, other: str) -> str:
    if one == other:
        return one
    if one in INTEGERS and other in INTEGERS:
        return max(one, other, key=INTEGERS.__getitem__)
    if {one, other} == {DATE, TIMESTAMP}:
        return TIMESTAMP
    if DOUBLE in (one, other) and (one in INTEGERS or other in INTEGERS):
        return DOUBLE
    if STRING in (one, other):
        stranger = other if one == STRING else one
        return "bigint" if stranger in INTEGERS else stranger
    raise CannotEvaluate(None, f"{one} and {other} do not compare")


def fits(values: Array, valid: Array, to: str) -> bool:
    """Whether whole numbers lie within a type."""
    if to == "bigint":
        return True
    bound = 1 << (INTEGERS[to] - 1)
    return not bool(np.any(valid & ((values < -bound) | (values >= bound))))


def parse_date(text: str) -> int:
    """Days since 1970, as Spark casts a text to DATE. Raises CannotEvaluate."""
    found = _DATE.fullmatch(text.strip(_BLANKS))
    try:
        if found:
            return (dt.date(int(found[1]), int(found[2] or 1), int(found[3] or 1)) - _EPOCH).days
    except ValueError:
        pass
    raise CannotEvaluate(None, f"{text!r} is no date")


def parse_wall(text: str) -> int:
    """Microseconds on the wall clock, as Spark casts a text without a zone to TIMESTAMP. Raises CannotEvaluate."""
    found = _TIMESTAMP.fullmatch(text.strip(_BLANKS))
    if not found:
        return parse_date(text) * DAY_MICROS if re.fullmatch(r"\d{4}(-\d{1,2}){0,2}", text) else _refuse(text)
    hours, minutes, seconds = (int(found[place] or 0) for place in (2, 3, 4))
    if hours > 23 or minutes > 59 or seconds > 59:
        _refuse(text)
    micros = int((found[5] or "").ljust(6, "0"))
    return parse_date(found[1]) * DAY_MICROS + ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros


def date_text(days: int) -> str:
    """A date as Spark casts it to STRING."""
    return (_EPOCH + dt.timedelta(days=days)).isoformat()


def wall_text(micros: int) -> str:
    """A wall clock as Spark casts a timestamp to STRING."""
    rest = micros % 1_000_000
    shown = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=micros - rest)  # noqa: DTZ001 - a wall clock's
    return shown.isoformat(sep=" ") + (f".{rest:06d}".rstrip("0") if rest else "")


def _refuse(text: str) -> int:
    raise CannotEvaluate(None, f"{text!r} is no timestamp that is read here")


def _family(type_: str) -> str:
    return "bigint" if type_ in INTEGERS else type_


def _integers(vector: Vector, to: str, _: str) -> Vector:
    if not fits(vector.values, vector.valid, to):
        raise CannotEvaluate(None, f"a value is beyond {to}")
    return Vector(to, vector.values, vector.valid)


def _integer_of(text: str) -> int:
    stripped = text.strip(_BLANKS)
    if not _INTEGER.fullmatch(stripped) or not -(2**63) <= int(stripped) < 2**63:
        raise CannotEvaluate(None, f"{text!r} is no whole number")
    return int(stripped)


def _double_of(text: str) -> float:
    stripped = text.strip(_BLANKS)
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", stripped):
        raise CannotEvaluate(None, f"{text!r} is no number")
    return float(stripped)


def _boolean_of(text: str) -> bool:
    word = text.strip(_BLANKS).lower()
    if word not in _TRUE | _FALSE:
        raise CannotEvaluate(None, f"{text!r} is no boolean")
    return word in _TRUE


def _to_double(vector: Vector, _to: str, _: str) -> Vector:
    if np.any(np.abs(vector.values) > _EXACT):
        raise CannotEvaluate(None, "a value is beyond what a double holds exactly")
    return Vector(DOUBLE, vector.values.astype(np.float64), vector.valid)


def _truncated(vector: Vector, to: str, _: str) -> Vector:
    with np.errstate(invalid="ignore"):
        if np.any(vector.valid & ~(np.abs(vector.values) < _EXACT)):
            raise CannotEvaluate(None, "a value is beyond a whole number")
        whole = np.trunc(np.where(vector.valid, vector.values, 0.0)).astype(np.int64)
    return _integers(Vector("bigint", whole, vector.valid), to, _)


def _dates_to_instants(vector: Vector, _to: str, timezone: str) -> Vector:
    return Vector(TIMESTAMP, to_instant(vector.values * DAY_MICROS, timezone), vector.valid)


def _walls_to_instants(vector: Vector, _to: str, timezone: str) -> Vector:
    walls = mapped_texts(parse_wall, TIMESTAMP, [vector])
    return Vector(TIMESTAMP, to_instant(walls.values, timezone), walls.valid)


_CASTS = {
    (STRING, DATE): lambda vector, _, __: mapped_texts(parse_date, DATE, [vector]),
    (STRING, TIMESTAMP): _walls_to_instants,
    (STRING, "bigint"): lambda vector, to, zone: _integers(mapped_texts(_integer_of, "bigint", [vector]), to, zone),
    (STRING, DOUBLE): lambda vector, _, __: mapped_texts(_double_of, DOUBLE, [vector]),
    (STRING, BOOLEAN): lambda vector, _, __: mapped_texts(_boolean_of, BOOLEAN, [vector]),
    (DATE, TIMESTAMP): _dates_to_instants,
    (TIMESTAMP, DATE): lambda vector, _, zone: Vector(DATE, day_of(vector.values, zone), vector.valid),
    (DATE, STRING): lambda vector, _, __: mapped_texts(date_text, STRING, [vector]),
    (TIMESTAMP, STRING): lambda vector, _, zone: mapped_texts(
        wall_text, STRING, [Vector(TIMESTAMP, to_wall(vector.values, zone), vector.valid)]
    ),
    (TIMESTAMP, "bigint"): lambda vector, to, zone: _integers(
        Vector("bigint", vector.values // 1_000_000, vector.valid), to, zone
    ),
    ("bigint", "bigint"): _integers,
    ("bigint", STRING): lambda vector, _, __: mapped_texts(str, STRING, [vector]),
    ("bigint", DOUBLE): _to_double,
    ("bigint", BOOLEAN): lambda vector, _, __: Vector(BOOLEAN, vector.values != 0, vector.valid),
    (BOOLEAN, "bigint"): lambda vector, to, __: Vector(to, vector.values.astype(np.int64), vector.valid),
    (BOOLEAN, STRING): lambda vector, _, __: mapped_texts(lambda value: str(bool(value)).lower(), STRING, [vector]),
    (DOUBLE, "bigint"): _truncated,
}
