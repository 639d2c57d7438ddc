"""The value of an expression for one scope, as Spark would compute it; and values as SQL literals.

Not here: the functions (functions.py), each of which tests compare with Spark.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from varve.sql.evaluate.functions import Evaluator
from varve.sql.evaluate.vector import DATE, DAY_MICROS, TIMESTAMP, CannotEvaluate, Vector
from varve.sql.names.scope_variables import replace_variables
from varve.sql.syntax.body import parsed, span_of
from varve.sql.syntax.lexer import quoted
from varve.sql.syntax.other_dialects import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varve.sql.syntax.errors import Span


# The first and the last day of Python's calendar, in days since 1970.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_YEARS = {DATE: (_FIRST_DAY, _LAST_DAY), TIMESTAMP: (_FIRST_DAY * DAY_MICROS, (_LAST_DAY + 1) * DAY_MICROS - 1)}


@dataclass(frozen=True, slots=True)
class Typed:
    """A value and its Spark type, in upper case: the binding of a variable of a scope.

    A timestamp is a datetime with a zone, UTC.
    """

    type: str
    value: object

    @classmethod
    def of(cls, value: object) -> Typed:
        """Return a partition key's value as a binding: a text, a whole number or a date; anything else as its text."""
        if isinstance(value, int):
            return cls("BIGINT", value)
        if isinstance(value, dt.date):
            return cls("DATE", value)
        return cls("STRING", str(value))

    def __str__(self) -> str:
        """Return the value for display: `2022-03-31T00:00:00Z`."""
        if isinstance(self.value, dt.datetime):
            return f"{_utc(self.value).isoformat(timespec='seconds')}Z"
        return "NULL" if self.value is None else str(self.value)


class NotConstant(Exception):
    """An expression of FOR, LET or INSERT has no value before a run; `span` is its place in the file."""

    def __init__(self, span: Span | None, why: str) -> None:
        self.span = span
        super().__init__(why)


def evaluate(expression: exp.Expr, values: Mapping[str, Typed], timezone: str) -> Typed:
    """Return the value of an expression of variables. Raises NotConstant where only Spark can compute it."""
    columns = {name: Vector.constant(typed.type.lower(), typed.value) for name, typed in values.items()}
    result = vector(expression, columns, timezone, 1)
    return Typed(result.type.upper(), result.to_list()[0])


def vector(expression: exp.Expr, columns: Mapping[str, Vector], timezone: str, count: int) -> Vector:
    """Return the values of an expression over columns of variables, `count` in number. Raises NotConstant."""
    bare = replace_variables(expression, columns.keys(), exp.column)
    try:
        result = Evaluator({("", name): column for name, column in columns.items()}, timezone).of(bare)
        _check_years(result)
    except CannotEvaluate as error:
        where = error.node if error.node is not None else expression
        raise NotConstant(span_of(where) or span_of(expression), _why(error)) from None
    return Vector(
        result.type, np.broadcast_to(result.values, (count,)).copy(), np.broadcast_to(result.valid, (count,)).copy()
    )


def _check_years(result: Vector) -> None:
    """Raise CannotEvaluate for a date, or a moment in UTC, outside of the years 1 to 9999: Python has no others."""
    first, last = _YEARS.get(result.type, (0, 0))
    if last and np.any(result.valid & ((result.values < first) | (result.values > last))):
        raise CannotEvaluate(None, f"a {result.type} outside of the years 1 to 9999 (in UTC)")


def _why(error: CannotEvaluate) -> str:
    """Return why an expression has no value before a run, and what to write instead, in the author's spelling."""
    node, message = error.node, str(error)
    if "outside of the years" in message:
        return f"it is {message}; write a nearer one."
    if "date pattern" in message:
        return "this date pattern is not read before a run; write it as yyyy-MM-dd'T'HH:mm:ss, or parts of that."
    if isinstance(node, exp.Func) and "is not evaluated before a run" in message:
        name = node.name.upper() if isinstance(node, exp.Anonymous) else node.sql_name().upper()
        if (instead := FUNCTIONS.get(name)) is not None:
            return f"Spark has no function {name}; write {instead}."
        message = f"{name} is not evaluated before a run"
    return f"{message}; write it with the functions that docs/sql.md lists."


def literal(typed: Typed) -> exp.Expr:
    """Return the value as an SQL tree that Spark folds to it."""
    return parsed(literal_text(typed))


def literal_text(typed: Typed) -> str:
    """Return the value as SQL text that Spark folds to it.

    It is a CAST, since a bare number in GROUP BY would be a position.
    """
    value = typed.value
    if value is None:
        return f"CAST(NULL AS {typed.type})"
    if isinstance(value, dt.datetime):
        text = f"{_utc(value).isoformat(sep=' ', timespec='microseconds')}Z"
    else:
        text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"CAST({quoted(text)} AS {typed.type})"


def _utc(moment: dt.datetime) -> dt.datetime:
    """Return what a clock in UTC shows. Its isoformat has years of four digits, which strftime does not fill up."""
    return moment.astimezone(dt.UTC).replace(tzinfo=None)
