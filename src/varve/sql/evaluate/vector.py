"""`Vector`, a column of Spark values stored in numpy arrays: the arguments and results of functions.py.

Dates are days since 1970, timestamps are microseconds since 1970 in UTC, whole numbers are int64, texts are Python
strings. Two vectors of shapes (scopes, 1) and (1, partitions) broadcast to all pairs.

Not here: the functions of SQL (functions.py), and Spark's types in general.
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
# The integer types, narrowest first, with their number of bits.
INTEGERS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
KNOWN_TYPES = frozenset({STRING, BOOLEAN, DATE, TIMESTAMP, DOUBLE, NULL, *INTEGERS})

# Shapes and types are not declared: numpy's stubs cannot express broadcasting.
Array = np.ndarray[Any, Any]
# A SQL function: it takes an evaluator, the call's node, and one column for each argument.
Scalar: TypeAlias = "Callable[..., Vector]"


class CannotEvaluate(Exception):
    """An expression has no value before a run: an unknown function, or a value on which Spark itself would fail."""

    def __init__(self, node: exp.Expr | None, why: str) -> None:
        self.node = node
        super().__init__(why)


@dataclass(frozen=True, eq=False, slots=True)
class Vector:
    """A column of values of one Spark type, with a mask for NULL.

    Attributes:
        type: Spark's simple name, such as `bigint` or `date`; one of `KNOWN_TYPES`.
        values: int64, float64, bool or object (texts); arbitrary where `valid` is False.
        valid: booleans, False for NULL; their shape broadcasts with that of `values`.
    """

    type: str
    values: Array
    valid: Array

    @classmethod
    def of(cls, type_: str, values: Iterable[object]) -> Vector:
        """Build a column of Python values: str, int, bool, float, date, datetime (in any zone) or None."""
        listed = list(values)
        valid = np.array([value is not None for value in listed], dtype=bool)
        if type_ not in KNOWN_TYPES:
            raise CannotEvaluate(None, f"values of type {type_} are not compared before a run")
        plain = [_empty(type_) if value is None else _plain(type_, value) for value in listed]
        return cls(type_, _array(type_, plain), valid)

    @classmethod
    def constant(cls, type_: str, value: object) -> Vector:
        """Return a single value that broadcasts with any column."""
        column = cls.of(type_, [value])
        return cls(type_, column.values.reshape(()), column.valid.reshape(()))

    @property
    def is_integer(self) -> bool:
        """Whether the column has an integer type."""
        return self.type in INTEGERS

    def to_list(self) -> list[object]:
        """Return the values as Python values, None for NULL; timestamps are in UTC."""
        values, valid = np.broadcast_arrays(self.values, self.valid)
        return [
            _python(self.type, value) if is_valid else None
            for value, is_valid in zip(values.ravel().tolist(), valid.ravel().tolist(), strict=True)
        ]

    def reshaped(self, *shape: int) -> Vector:
        """Return the same values in another shape."""
        values, valid = np.broadcast_arrays(self.values, self.valid)
        return Vector(self.type, values.reshape(shape), valid.reshape(shape))

    def taken(self, places: Array) -> Vector:
        """Return the values at some positions of a one-dimensional column."""
        return Vector(self.type, self.values[places], self.valid[places])

    def part(self, axis: int, begin: int, end: int) -> Vector:
        """Return the values from one place to before another along an axis, counted from the last one (-1).

        A column that has one value along it keeps that for all.
        """
        values, valid = np.broadcast_arrays(self.values, self.valid)
        if values.ndim < -axis or values.shape[axis] == 1:
            return self
        places: Any = (..., slice(begin, end), *[slice(None)] * (-axis - 1))
        return Vector(self.type, values[places], valid[places])


def text_vector(values: Array, valid: Array) -> Vector:
    """Return a column of texts."""
    return Vector(STRING, values, valid)


def mapped_texts(function: Callable[..., Any], result: str, arguments: Sequence[Vector]) -> Vector:
    """Apply a Python function to the values of each row.

    Where only one argument is a long column, the function is called once for each distinct value of it.
    """
    valid = arguments[0].valid
    for argument in arguments[1:]:
        valid = valid & argument.valid
    columns = [argument.values for argument in arguments]
    sized = [place for place, column in enumerate(columns) if column.size > 1]
    if len(sized) == 1 and columns[sized[0]].size > 64:
        place = sized[0]
        column = columns[place]
        distinct, codes = np.unique(column, return_inverse=True)
        fixed = [
            column_values if at == place else column_values.reshape(-1)[0] for at, column_values in enumerate(columns)
        ]
        # Values that are masked as NULL must not be computed with.
        used = np.unique(codes.reshape(column.shape)[np.broadcast_to(valid, column.shape)])
        plain = distinct.tolist()
        results = np.empty(len(distinct), dtype=object)
        results[:] = _empty(result)
        for code in used.tolist():
            results[code] = function(*[plain[code] if at == place else argument for at, argument in enumerate(fixed)])
        return Vector(result, _array(result, results.tolist())[codes.reshape(column.shape)], valid)
    spread = np.broadcast_arrays(valid, *columns)
    valid_rows, rest = spread[0], spread[1:]
    flat = [values.ravel().tolist() for values in rest]
    out = [
        function(*row) if is_valid else _empty(result)
        for is_valid, *row in zip(valid_rows.ravel().tolist(), *flat, strict=True)
    ]
    return Vector(result, _array(result, out).reshape(valid_rows.shape), valid_rows)


def ranked(left: Array, right: Array) -> tuple[Array, Array]:
    """Return texts as integers of the same order, which compare about a hundred times faster in pairs."""
    if left.size * right.size <= 64:
        return left, right
    _, codes = np.unique(np.concatenate([left.ravel(), right.ravel()]), return_inverse=True)
    return codes[: left.size].reshape(left.shape), codes[left.size :].reshape(right.shape)


def _array(type_: str, values: Sequence[object]) -> Array:
    if type_ == STRING:
        texts = np.empty(len(values), dtype=object)
        texts[:] = values
        return texts
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
    """Return where both columns have values."""
    return left.valid & right.valid


def integer(node: exp.Expr, vector: Vector, *, widest: str = "bigint") -> Array:
    """Return the whole numbers of a column. Raises CannotEvaluate for other types."""
    if vector.type == NULL:
        return np.zeros(vector.values.shape, dtype=np.int64)
    if not vector.is_integer or INTEGERS[vector.type] > INTEGERS[widest]:
        raise CannotEvaluate(node, f"a whole number was expected, not {vector.type}")
    return vector.values
