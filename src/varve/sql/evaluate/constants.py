"""The value of an expression for one scope, as Spark would have it; and values as SQL literals.

Not here: the functions and their meaning (functions.py), which are compared with Spark one by one.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from varve.sql.evaluate.functions import Evaluator
from varve.sql.evaluate.vector import CannotEvaluate, Vector
from varve.sql.names.scope_variables import replace_variables
from varve.sql.syntax.body import parsed, span_of
from varve.sql.syntax.lexer import quoted
from varve.sql.syntax.other_dialects import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varve.sql.syntax.errors import Span


@dataclass(frozen=True, slots=True)
class Typed:
    """A value and its Spark type, upper case: what a variable of a scope is bound to.

    A timestamp is a moment with a zone, UTC.
    """

    type: str
    value: object

    @classmethod
    def of(cls, value: object) -> Typed:
        """A value of a key as a variable: a text, a whole number, a date; anything else as its text."""
        if isinstance(value, int):
            return cls("BIGINT", value)
        if isinstance(value, dt.date):
            return cls("DATE", value)
        return cls("STRING", str(value))

    def __str__(self) -> str:
        """As a person reads it: `2022-03-31T00:00:00Z`."""
        if isinstance(self.value, dt.datetime):
            return self.value.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return "NULL" if self.value is None else str(self.value)


class NotConstant(Exception):
    """An expression of FOR, LET or INSERT has no value before a run; `span` is where, in its file."""

    def __init__(self, span: Span | None, why: str) -> None:
        self.span = span
        super().__init__(why)


def evaluate(expression: exp.Expr, values: Mapping[str, Typed], timezone: str) -> Typed:
    """The value of an expression of variables. Raises NotConstant where only Spark could tell it."""
    columns = {name: Vector.constant(each.type.lower(), each.value) for name, each in values.items()}
    found = vector(expression, columns, timezone, 1)
    return Typed(found.type.upper(), found.to_list()[0])


def vector(expression: exp.Expr, columns: Mapping[str, Vector], timezone: str, count: int) -> Vector:
    """The values of an expression over columns of variables. Raises NotConstant as `evaluate`."""
    bare = replace_variables(expression, columns.keys(), exp.column)
    try:
        found = Evaluator({("", name): each for name, each in columns.items()}, timezone).of(bare)
    except CannotEvaluate as error:
        where = error.node if error.node is not None else expression
        raise NotConstant(span_of(where) or span_of(expression), _why(error)) from None
    return Vector(
        found.type, np.broadcast_to(found.values, (count,)).copy(), np.broadcast_to(found.valid, (count,)).copy()
    )


def _why(error: CannotEvaluate) -> str:
    """Why an expression has no value before a run, and what to write; never as somebody else would have written it."""
    node, said = error.node, str(error)
    if "date pattern" in said:
        return "this date pattern is not read before a run; write it as yyyy-MM-dd'T'HH:mm:ss, or parts of that."
    if isinstance(node, exp.Func) and "is not evaluated before a run" in said:
        name = node.name.upper() if isinstance(node, exp.Anonymous) else node.sql_name().upper()
        if (instead := FUNCTIONS.get(name)) is not None:
            return f"Spark has no function {name}; write {instead}."
        said = f"{name} is not evaluated before a run"
    return f"{said}; write it with the functions that docs/sql.md lists."


def literal(typed: Typed) -> exp.Expr:
    """The value as SQL that Spark folds to it, as a tree."""
    return parsed(literal_text(typed))


def literal_text(typed: Typed) -> str:
    """The value as SQL that Spark folds to it. A CAST, as a bare number in GROUP BY would be a position."""
    value = typed.value
    if value is None:
        return f"CAST(NULL AS {typed.type})"
    if isinstance(value, dt.datetime):
        text = value.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%fZ")
    else:
        text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"CAST({quoted(text)} AS {typed.type})"
