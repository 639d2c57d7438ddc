"""Conditions, weakened: each TRUE wherever the one it comes from may be; and where they are TRUE, over columns.

A condition is a tree of AND and OR over atoms, with NOT only right above atoms. What keeps a row is that its condition
is TRUE, not NULL and not FALSE; an atom whose value is not known before a run counts as TRUE under NOT and without it.
Such trees are monotone in their atoms, so the whole can only become wider, never lose a row.

Not here: which conditions hold for which scan (scans.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from varve.sql.evaluate.functions import Evaluator, is_known, truth
from varve.sql.evaluate.vector import Array, CannotEvaluate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Tables of columns that are none of a query: what a relation gives out, and what nobody knows.
OUT, OPAQUE = "@out", "@opaque"

_OPPOSITES: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.NEQ,
    exp.NEQ: exp.EQ,
    exp.LT: exp.GTE,
    exp.GTE: exp.LT,
    exp.GT: exp.LTE,
    exp.LTE: exp.GT,
}


def conjuncts(node: exp.Expr | None) -> Iterator[exp.Expr]:
    """The parts that must all be TRUE."""
    if node is None:
        return
    node = (node.this if isinstance(node, exp.Where | exp.Having | exp.Qualify) else node).unnest()
    if isinstance(node, exp.And):
        yield from conjuncts(node.left)
        yield from conjuncts(node.right)
    else:
        yield node


def columns_of(node: exp.Expr) -> list[exp.Column]:
    """All columns that an expression mentions."""
    return list(node.find_all(exp.Column))


def opaque() -> exp.Column:
    """A column of which nothing is known."""
    return exp.column("_", OPAQUE)


def replaced(node: exp.Expr, column: Callable[[exp.Column], exp.Expr]) -> exp.Expr:
    """A copy with each column replaced."""
    return node.copy().transform(lambda each: column(each) if isinstance(each, exp.Column) else each, copy=False)


def weakened(node: exp.Expr, known: Callable[[exp.Column], bool]) -> exp.Expr | None:
    """The condition in the form of this module; None where nothing is left of it."""
    return _weakened(node, known, negated=False)


def holds(node: exp.Expr, evaluator: Evaluator, warn: Callable[[exp.Expr, str], None]) -> Array:
    """Where a weakened condition is TRUE: booleans that broadcast over the evaluator's columns."""
    node = node.unnest()
    if isinstance(node, exp.And):
        return holds(node.left, evaluator, warn) & holds(node.right, evaluator, warn)
    if isinstance(node, exp.Or):
        return holds(node.left, evaluator, warn) | holds(node.right, evaluator, warn)
    try:
        return truth(evaluator.of(node))[0]
    except CannotEvaluate as error:
        warn(node, str(error))
        return np.ones((), dtype=bool)


def _weakened(  # noqa: PLR0911 - one for each kind of condition
    node: exp.Expr, known: Callable[[exp.Column], bool], *, negated: bool
) -> exp.Expr | None:
    node = node.unnest()
    if isinstance(node, exp.Not):
        return _weakened(node.this, known, negated=not negated)
    if isinstance(node, exp.And | exp.Or):
        left = _weakened(node.left, known, negated=negated)
        right = _weakened(node.right, known, negated=negated)
        if isinstance(node, exp.Or) != negated:
            return None if left is None or right is None else exp.Or(this=left, expression=right)
        if left is None or right is None:
            return left if right is None else right
        return exp.And(this=left, expression=right)
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        low = exp.GTE(this=node.this, expression=node.args["low"])
        high = exp.LTE(this=node.this, expression=node.args["high"])
        both = exp.And(this=low.copy(), expression=high.copy())
        return _weakened(both, known, negated=negated)
    if not _is_known(node, known):
        return None
    atom = node.copy()
    if not negated:
        return atom
    opposite = _OPPOSITES.get(type(atom))
    return opposite(this=atom.this, expression=atom.expression) if opposite else exp.Not(this=atom)


def _is_known(atom: exp.Expr, known: Callable[[exp.Column], bool]) -> bool:
    for node in atom.walk(prune=lambda each: isinstance(each, exp.Column | exp.DataType | exp.Interval)):
        if isinstance(node, exp.Column):
            if not known(node):
                return False
        elif not isinstance(node, exp.DataType | exp.Interval | exp.Var | exp.Identifier) and not is_known(node):
            return False
    return True
