"""Values of functions that Spark computed beforehand, for calls that are written out (pushdown.asked_calls.py).

Not here: how Spark is asked (spark/values.py), and where its answers are kept (sql/values.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from sqlglot import exp

from varve.sql.evaluate.vector import CannotEvaluate, Vector

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# How such a call is written in a tree of conditions.
ASKED, TRIED = "VARVE_ASKED", "VARVE_TRIED"
_NO_ANSWER = object()
# A call as it is written, and the types of its arguments: of a date and of a text it may give different values.
TypedCall = tuple[str, tuple[str, ...]]


class SparkValues(Protocol):
    """What Spark says of calls."""

    def of(self, call: str, arguments: Sequence[Vector]) -> Vector:
        """Return the values of a call, written with `{0}` ... for its arguments. Raises CannotEvaluate."""
        ...


class NoValues:
    """Spark was not asked for anything."""

    def of(self, call: str, arguments: Sequence[Vector]) -> Vector:
        """Raises CannotEvaluate."""
        raise CannotEvaluate(None, f"{call} is not evaluated before a run ({len(arguments)} arguments)")


class StoredValues:
    """Answers of Spark by call: the type of its values, and the values by arguments."""

    def __init__(self, answers: Mapping[TypedCall, tuple[str, Mapping[tuple[object, ...], object]]]) -> None:
        self.answers = answers

    def of(self, call: str, arguments: Sequence[Vector]) -> Vector:
        """See SparkValues; Spark must have been asked for each of the arguments."""
        gives, values = self.answers.get((call, tuple(argument.type for argument in arguments)), ("", {}))
        if not gives:
            raise CannotEvaluate(None, f"Spark was not asked for {call}")
        rows, shape = rows_of(arguments)
        found = [values.get(row, _NO_ANSWER) for row in rows]
        if _NO_ANSWER in found:
            raise CannotEvaluate(None, f"Spark was not asked for {call} of {rows[found.index(_NO_ANSWER)]}")
        return Vector.of(gives, found).reshaped(*shape)


def rows_of(arguments: Sequence[Vector]) -> tuple[list[tuple[object, ...]], tuple[int, ...]]:
    """Return the arguments of each call as Python values, and the shape in which the columns broadcast together."""
    if not arguments:
        return [()], ()
    shape = np.broadcast_shapes(*(part.shape for argument in arguments for part in (argument.values, argument.valid)))
    columns = [
        Vector(argument.type, np.broadcast_to(argument.values, shape), np.broadcast_to(argument.valid, shape)).to_list()
        for argument in arguments
    ]
    return list(zip(*columns, strict=True)), shape


def asked_value(node: exp.Expr, of: Callable[[exp.Expr], Vector], spark_values: SparkValues) -> Vector:
    """Return the value of such a call: its own before a run, where it has one, else Spark's. Raises CannotEvaluate."""
    written, *arguments = node.expressions
    if node.name.upper() == TRIED:
        call, *arguments = arguments
        try:
            return of(call)
        except CannotEvaluate:
            pass
    if not written.is_string:
        raise CannotEvaluate(node, "it is not evaluated before a run")
    return spark_values.of(written.name, [of(argument) for argument in arguments])


def is_asked(node: exp.Expr) -> bool:
    """Whether Spark was asked for the values of a call."""
    return isinstance(node, exp.Anonymous) and node.name.upper() in {ASKED, TRIED} and bool(node.expressions)
