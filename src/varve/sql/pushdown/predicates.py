"""Weakened conditions (TRUE wherever the original may be TRUE), and where they are TRUE over columns.

A condition is a tree of AND and OR over atoms, with NOT only directly above atoms. A row is kept where its condition is
TRUE, not NULL and not FALSE. An atom whose value is not known before a run counts as TRUE, both under NOT and without
it. Such trees are monotone in their atoms: replacing atoms by TRUE can only widen the whole, never lose a row.

Not here: which conditions hold for which scan (scans.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from varve.sql.evaluate.functions import Evaluator, is_known, truth
from varve.sql.evaluate.vector import Array, CannotEvaluate
from varve.sql.names.trees import copied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from varve.sql.evaluate.vector import Vector

# Names of the tables of columns that do not belong to a query: the output columns of a relation, and columns of which
# nothing is known.
OUT, OPAQUE = "@out", "@opaque"

# How many parts of a column are looked at for the keys for which a condition cannot be evaluated: for each of them
# about one for each time that the keys can be halved.
_TRIES = 64

_OPPOSITES: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.NEQ,
    exp.NEQ: exp.EQ,
    exp.LT: exp.GTE,
    exp.GTE: exp.LT,
    exp.GT: exp.LTE,
    exp.LTE: exp.GT,
}


def conjuncts(node: exp.Expr | None) -> Iterator[exp.Expr]:
    """Yield the parts of a condition that must all be TRUE."""
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
    """Return a column of which nothing is known."""
    return exp.column("_", OPAQUE)


def weakened(node: exp.Expr, is_known_column: Callable[[exp.Column], bool]) -> exp.Expr | None:
    """Return the weakened condition, in the form that this module describes; None where nothing is left of it."""
    return _weakened(node, is_known_column, negated=False)


def holds(node: exp.Expr, evaluator: Evaluator, warn: Callable[[exp.Expr, str], None]) -> Array:
    """Return where a weakened condition is TRUE: booleans that broadcast over the evaluator's columns."""
    node = node.unnest()
    if isinstance(node, exp.And):
        return holds(node.left, evaluator, warn) & holds(node.right, evaluator, warn)
    if isinstance(node, exp.Or):
        return holds(node.left, evaluator, warn) | holds(node.right, evaluator, warn)
    try:
        return truth(evaluator.of(node))[0]
    except CannotEvaluate as error:
        warn(node, str(error))
    names = {(column.table.lower(), column.name.lower()) for column in columns_of(node)}
    columns = {name: vector for name, vector in evaluator.columns.items() if name in names}
    return _in_parts(node, evaluator, columns, iter(range(_TRIES)))


def _in_parts(
    node: exp.Expr, evaluator: Evaluator, columns: Mapping[tuple[str, str], Vector], tries: Iterator[int]
) -> Array:
    """Return where an atom is TRUE that cannot be evaluated over the whole of these columns: one odd key is enough.

    Halves are tried, and halves of these, as long as there are `tries` left; what still fails counts as TRUE.
    """
    shape = np.broadcast_shapes(*(part.shape for vector in columns.values() for part in (vector.values, vector.valid)))
    if max(shape, default=1) <= 1:
        return np.ones((), dtype=bool)
    axis = shape.index(max(shape)) - len(shape)
    middle = shape[axis] // 2
    results = []
    for begin, end in ((0, middle), (middle, shape[axis])):
        half = {name: vector.part(axis, begin, end) for name, vector in columns.items()}
        result = np.ones((), dtype=bool)
        try:
            result = truth(Evaluator(half, evaluator.timezone, evaluator.spark_values).of(node))[0]
        except CannotEvaluate:
            if next(tries, None) is not None:
                result = _in_parts(node, evaluator, half, tries)
        results.append(np.broadcast_to(result, (*shape[:axis], end - begin, *shape[axis:][1:])))
    return np.concatenate(results, axis=axis)


def _weakened(  # noqa: PLR0911 - one for each kind of condition
    node: exp.Expr, is_known_column: Callable[[exp.Column], bool], *, negated: bool
) -> exp.Expr | None:
    node = node.unnest()
    if isinstance(node, exp.Not):
        return _weakened(node.this, is_known_column, negated=not negated)
    if isinstance(node, exp.And | exp.Or):
        left = _weakened(node.left, is_known_column, negated=negated)
        right = _weakened(node.right, is_known_column, negated=negated)
        if isinstance(node, exp.Or) != negated:
            return None if left is None or right is None else exp.Or(this=left, expression=right)
        if left is None or right is None:
            return left if right is None else right
        return exp.And(this=left, expression=right)
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        low = exp.GTE(this=node.this, expression=node.args["low"])
        high = exp.LTE(this=node.this, expression=node.args["high"])
        both = exp.And(this=copied(low), expression=copied(high))
        return _weakened(both, is_known_column, negated=negated)
    if not _is_known(node, is_known_column):
        return None
    atom = copied(node)
    if not negated:
        return atom
    opposite = _OPPOSITES.get(type(atom))
    return opposite(this=atom.this, expression=atom.expression) if opposite else exp.Not(this=atom)


def _is_known(atom: exp.Expr, is_known_column: Callable[[exp.Column], bool]) -> bool:
    for node in atom.walk(prune=lambda part: isinstance(part, exp.Column | exp.DataType | exp.Interval)):
        if isinstance(node, exp.Column):
            if not is_known_column(node):
                return False
        elif isinstance(node, exp.DPipe) and isinstance(node.expression, exp.Add | exp.Sub):
            # Read otherwise by Spark, which brackets of our own would hide.
            return False
        elif isinstance(node, exp.DataType) and node.args.get("collate"):
            # Texts are compared in another way then, and it is read as a column.
            return False
        elif not isinstance(node, exp.DataType | exp.Interval | exp.Var | exp.Identifier) and not is_known(node):
            return False
    return True
