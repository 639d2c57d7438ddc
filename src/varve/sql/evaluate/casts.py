"""Casts over columns, as Spark performs them in its ANSI mode; and the casts that a comparison implies.

Where Spark would fail on a value, the whole cast fails here (`CannotEvaluate`): a planner must then take the condition
for TRUE.

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
# In Spark, a date may be followed by a T or a blank and any text.
_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?)?")
_INTEGER = re.compile(r"[+-]?\d+")
_BLANKS = "".join(map(chr, range(0x21)))
_TRUE, _FALSE = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}
# Above this, a double cannot represent every whole number.
_EXACT = 2**53


def cast(vector: Vector, to: str, timezone: str) -> Vector:
    """Cast a column to another type. Raises CannotEvaluate for a value that Spark would refuse."""
    if vector.type == to:
        return vector
    if vector.type == NULL:
        empty = Vector.constant(to, None)
        return Vector(to, np.broadcast_to(empty.values, vector.values.shape), vector.valid)
    convert = _CASTS.get((_family(vector.type), _family(to)))
    if convert is None:
        raise CannotEvaluate(None, f"no cast from {vector.type} to {to} is known before a run")
    return convert(vector, to, timezone)


def compared(left: Vector, right: Vector, timezone: str) -> tuple[Vector, Vector]:
    """Cast both sides of a comparison to the type in which Spark compares them."""
    to = common([left.type, right.type])
    return cast(left, to, timezone), cast(right, to, timezone)


def common(types: Sequence[str]) -> str:
    """Return the common type of these types. Raises CannotEvaluate where Spark has none or one that is unknown here."""
    kinds = list(dict.fromkeys(type_name for type_name in types if type_name != NULL))
    if not kinds:
        return NULL
    widest = kinds[0]
    for kind in kinds[1:]:
        widest = _wider(widest, kind)
    return widest


def _wider(left: str, right: str) -> str:
    if left == right:
        return left
    if left in INTEGERS and right in INTEGERS:
        return max(left, right, key=INTEGERS.__getitem__)
    if {left, right} == {DATE, TIMESTAMP}:
        return TIMESTAMP
    if DOUBLE in (left, right) and (left in INTEGERS or right in INTEGERS):
        return DOUBLE
    if STRING in (left, right):
        stranger = right if left == STRING else left
        return "bigint" if stranger in INTEGERS else stranger
    raise CannotEvaluate(None, f"{left} and {right} do not compare")


def fits(values: Array, valid: Array, to: str) -> bool:
    """Whether the valid whole numbers fit into a type."""
    if to == "bigint":
        return True
    bound = 1 << (INTEGERS[to] - 1)
    return not bool(np.any(valid & ((values < -bound) | (values >= bound))))


def parse_date(text: str) -> int:
    """Return the days since 1970, as Spark casts a text to DATE. Raises CannotEvaluate."""
    match = _DATE.fullmatch(text.strip(_BLANKS))
    try:
        if match:
            return (dt.date(int(match[1]), int(match[2] or 1), int(match[3] or 1)) - _EPOCH).days
    except ValueError:
        pass
    raise CannotEvaluate(None, f"{text!r} is no date")


def parse_wall(text: str) -> int:
    """Return the wall-clock time in microseconds since 1970, as Spark casts a text without a zone to TIMESTAMP.

    Raises CannotEvaluate.
    """
    match = _TIMESTAMP.fullmatch(text.strip(_BLANKS))
    if not match:
        return parse_date(text) * DAY_MICROS if re.fullmatch(r"\d{4}(-\d{1,2}){0,2}", text) else _refuse(text)
    hours, minutes, seconds = (int(match[place] or 0) for place in (2, 3, 4))
    if hours > 23 or minutes > 59 or seconds > 59:
        _refuse(text)
    micros = int((match[5] or "").ljust(6, "0"))
    return parse_date(match[1]) * DAY_MICROS + ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros


def date_text(days: int) -> str:
    """Return a date (days since 1970) as Spark casts it to STRING."""
    return (_EPOCH + dt.timedelta(days=days)).isoformat()


def wall_text(micros: int) -> str:
    """Return a wall-clock time (microseconds since 1970) as Spark casts a timestamp to STRING."""
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
