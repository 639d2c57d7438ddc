"""What a call of a function is made of: whether its arguments are enough, and how it is written.

Not here: the functions (scalars.py), and evaluating the arguments (functions.py).
"""

from __future__ import annotations

from functools import cache
from inspect import signature
from typing import TYPE_CHECKING

from varve.sql.evaluate.vector import CannotEvaluate

if TYPE_CHECKING:
    from sqlglot import exp

    from varve.sql.evaluate.evaluation import Evaluation
    from varve.sql.evaluate.vector import Scalar, Vector


@cache
def takes(function: Scalar, count: int) -> bool:
    """Whether a function takes so many arguments."""
    try:
        signature(function).bind(*range(count + 2))
    except TypeError:
        return False
    return True


def written(node: exp.Expr) -> str:
    """The beginning of an expression, for a person; its kind where sqlglot cannot write what it has read."""
    try:
        return node.sql("spark")[:60]
    except Exception:  # noqa: BLE001 - of whatever kind: it is said that it is not evaluated, and that is all
        return type(node).__name__


def named(ev: Evaluation, node: exp.Expr, name: str) -> Vector:
    """An argument that sqlglot knows by name."""
    argument = node.args.get(name)
    if argument is None:
        raise CannotEvaluate(node, "too few arguments")
    return ev.of(argument)
