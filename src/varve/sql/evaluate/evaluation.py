"""`Evaluation`: what a function may ask of the evaluation that it is a part of.

Not here: the evaluation itself, which knows all functions (functions.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sqlglot import exp

    from varve.sql.evaluate.vector import Vector


class Evaluation(Protocol):
    """The values of a function's arguments, casts, and the session's time zone."""

    timezone: str

    def of(self, node: exp.Expr) -> Vector:
        """The value of an expression. Raises CannotEvaluate."""
        ...

    def cast(self, vector: Vector, to: str) -> Vector:
        """The column as another type, in the session's zone."""
        ...
