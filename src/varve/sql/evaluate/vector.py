"""`Vector`, a column of Spark values over numpy: what the functions of functions.py take and return.

Dates are days since 1970, timestamps microseconds since 1970 in UTC, whole numbers int64, texts Python's own. Two
vectors of shapes (scopes, 1) and (1, partitions) broadcast to every pair of them.

Not here: what SQL does with them (functions.py), and which of Spark's types exist otherwise (syntax/type_names.py).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sqlglot import exp

DAY_MICROS = 86_400_000_000
_EPOCH = dt.date(1970, 1, 1)
_MOMENT = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICRO = dt.timedelta(microseconds=1)

STRING, BOOLEAN, DATE, TIMESTAMP, DOUBLE, NULL = "string", "boolean", "date", "timestamp", "double", "void"
# The whole numbers, narrowest first, with their bits.
INTEGERS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
KNOWN_TYPES = frozenset({STRING, BOOLEAN, DATE, TIMESTAMP, DOUBLE, NULL, *INTEGERS})

# Why mypy is told nothing of the shapes: numpy's stubs cannot say "broadcasts".
Array = np.ndarray[Any, Any]
# A function of SQL: an evaluator, the call, and the columns that it is called with.
Scalar: TypeAlias = "Callable[..., Vector]"


class CannotEvaluate(Exception):
    """An expression has no value here: an unknown function, or a value on which Spark itself would fail."""

    def __init__(self, node: exp.Expr | None, why: str) -> None:
        self.node = node
        super().__init__(why)


@dataclass(frozen=True, eq=False, slots=True)
class Vector:
    """Values of one Spark type, and where they are not NULL.

    Attributes:
        type: Spark's simple name: `bigint`, `date`; one of `KNOWN_TYPES`.
        values: int64, float64, bool or object (texts); anything where `valid` is False.
        valid: booleans of a shape that broadcasts with that of `values`.
    """

    type: str
    values: Array
    valid: Array

    @classmethod
    def of(cls, type_: str, values: Iterable[object]) -> Vector:
        """A column of Python's values: str, int, bool, float, date, datetime (in any zone) or None."""
        listed = list(values)
        valid = np.array([value is not None for value in listed], dtype=bool)
        if type_ not in KNOWN_TYPES:
            raise CannotEvaluate(None, f"values of type {type_} are not compared before a run")
        plain = [_empty(type_) if value is None else _plain(type_, value) for value in listed]
        return cls(type_, _array(type_, plain), valid)

    @classmethod
    def constant(cls, type_: str, value: object) -> Vector:
        """One value, which broadcasts with any column."""
        made = cls.of(type_, [value])
        return cls(type_, made.values.reshape(()), made.valid.reshape(()))

    @property
    def is_integer(self) -> bool:
        """Whether it has whole numbers."""
        return self.type in INTEGERS

    def to_list(self) -> list[object]:
        """Python's values, None for NULL; timestamps in UTC."""
        values, valid = np.broadcast_arrays(self.values, self.valid)
        return [
            _python(self.type, value) if there else None
            for value, there in zip(values.ravel().tolist(), valid.ravel().tolist(), strict=True)
        ]

    def reshaped(self, *shape: int) -> Vector:
        """The same values in another shape."""
        values, valid = np.broadcast_arrays(self.values, self.valid)
        return Vector(self.type, values.reshape(shape), valid.reshape(shape))

    def taken(self, places: Array) -> Vector:
        """The values at some places of a flat column."""
        return Vector(self.type, self.values[places], self.valid[places])


def text_vector(values: Array, valid: Array) -> Vector:
    """Texts."""
    return Vector(STRING, values, valid)


def mapped_texts(function: Callable[..., Any], result: str, arguments: Sequence[Vector]) -> Vector:
    """A function of one value of each argument, over columns; called once for each distinct value of one column."""
    valid = arguments[0].valid
    for argument in arguments[1:]:
        valid = valid & argument.valid
    columns = [argument.values for argument in arguments]
    sized = [place for place, column in enumerate(columns) if column.size > 1]
    if len(sized) == 1 and columns[sized[0]].size > 64:
        place = sized[0]
        column = columns[place]
        distinct, codes = np.unique(column, return_inverse=True)
        fixed = [each if at == place else each.reshape(-1)[0] for at, each in enumerate(columns)]
        # What stands where there is no value must not be computed with.
        used = np.unique(codes.reshape(column.shape)[np.broadcast_to(valid, column.shape)])
        plain = distinct.tolist()
        found = np.empty(len(distinct), dtype=object)
        found[:] = _empty(result)
        for code in used.tolist():
            found[code] = function(*[plain[code] if at == place else each for at, each in enumerate(fixed)])
        return Vector(result, _array(result, found.tolist())[codes.reshape(column.shape)], valid)
    spread = np.broadcast_arrays(valid, *columns)
    there, rest = spread[0], spread[1:]
    flat = [each.ravel().tolist() for each in rest]
    out = [
        function(*each) if given else _empty(result) for given, *each in zip(there.ravel().tolist(), *flat, strict=True)
    ]
    return Vector(result, _array(result, out).reshape(there.shape), there)


def ranked(left: Array, right: Array) -> tuple[Array, Array]:
    """Texts as numbers of the same order, which compare a hundred times faster in pairs."""
    if left.size * right.size <= 64:
        return left, right
    _, codes = np.unique(np.concatenate([left.ravel(), right.ravel()]), return_inverse=True)
    return codes[: left.size].reshape(left.shape), codes[left.size :].reshape(right.shape)


def _array(type_: str, values: Sequence[object]) -> Array:
    if type_ == STRING:
        found = np.empty(len(values), dtype=object)
        found[:] = values
        return found
    return np.array(values, dtype={BOOLEAN: bool, DOUBLE: np.float64}.get(type_, np.int64))


def _empty(type_: str) -> object:
    return {STRING: "", BOOLEAN: False, DOUBLE: 0.0}.get(type_, 0)


def _plain(type_: str, value: object) -> object:
    if isinstance(value, dt.datetime) and type_ == TIMESTAMP:
        moment = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
        return (moment - _MOMENT) // _MICRO
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime) and type_ == DATE:
        return (value - _EPOCH).days
    kinds: dict[str, type | tuple[type, ...]] = {STRING: str, BOOLEAN: bool, DOUBLE: (int, float)}
    expected = kinds.get(type_, int if type_ in INTEGERS else ())
    if not isinstance(value, expected) or (isinstance(value, bool) and type_ != BOOLEAN):
        raise CannotEvaluate(None, f"{value!r} is no {type_}")
    return value


def _python(type_: str, value: Any) -> object:
    if type_ == DATE:
        return _EPOCH + dt.timedelta(days=value)
    if type_ == TIMESTAMP:
        return _MOMENT + dt.timedelta(microseconds=value)
    return value


def both(left: Vector, right: Vector) -> Array:
    """Where two columns have values."""
    return left.valid & right.valid


def integer(node: exp.Expr, vector: Vector, *, widest: str = "bigint") -> Array:
    """The whole numbers of a column. Raises CannotEvaluate for another one."""
    if vector.type == NULL:
        return np.zeros(vector.values.shape, dtype=np.int64)
    if not vector.is_integer or INTEGERS[vector.type] > INTEGERS[widest]:
        raise CannotEvaluate(node, f"a whole number was expected, not {vector.type}")
    return vector.values
