"""What is NULL in the rows of totals that ROLLUP, CUBE and GROUPING SETS add: the keys that a row is not grouped by.

Not here: what may be NULL otherwise (expressions.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.names.trees import text_of
from varve.sql.types.expressions import NULL_IN_TOTALS

if TYPE_CHECKING:
    from collections.abc import Iterator


def mark_nulls_in_totals(select: exp.Select) -> None:
    """Mark the keys in the projections of a SELECT that are NULL in rows of totals.

    An expression of a key keeps what it knows of NULL: COALESCE(store, 'all') has a value in every row.
    """
    group = select.args.get("group")
    if not isinstance(group, exp.Group) or not (keys := _null_in_totals(group, select)):
        return
    for projection in select.selects:
        for part in projection.unalias().walk():
            if not isinstance(part, exp.Identifier | exp.DataType) and text_of(part) in keys:
                part.meta[NULL_IN_TOTALS] = True


def _null_in_totals(group: exp.Group, select: exp.Select) -> frozenset[str]:
    """The keys, as SQL texts, that some rows of a GROUP BY are not grouped by."""
    # GROUP BY a, b WITH ROLLUP and GROUP BY a, b GROUPING SETS (...): the keys stand before it.
    behind = [part for name in ("rollup", "cube", "grouping_sets") for part in group.args.get(name) or ()]
    in_some: set[str] = set()
    in_all: set[str] = set()
    for part in [*group.expressions, *behind]:
        if isinstance(part, exp.Rollup | exp.Cube | exp.GroupingSets):
            in_some |= _keys(part, select)
            if isinstance(part, exp.GroupingSets):
                sets = [
                    set() if isinstance(of, exp.Rollup | exp.Cube | exp.GroupingSets) else _keys(of, select)
                    for of in part.expressions
                ]
                in_all |= set.intersection(*sets) if sets else set()
        else:
            (in_some if behind else in_all).update(_keys(part, select))
    return frozenset(in_some - in_all)


def _keys(part: exp.Expr, select: exp.Select) -> set[str]:
    return {text_of(_meant(key, select)) for key in _listed(part)}


def _listed(part: exp.Expr) -> Iterator[exp.Expr]:
    """The keys within a part of a GROUP BY: `ROLLUP((a, b), c)` has three."""
    if isinstance(part, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple):
        for within in part.expressions:
            yield from _listed(within)
    else:
        yield part.unnest()


def _meant(key: exp.Expr, select: exp.Select) -> exp.Expr:
    """The expression that a key stands for: one of a result's column, where it names it or its place."""
    if isinstance(key, exp.Literal) and key.is_int and 0 < int(key.name) <= len(select.selects):
        return select.selects[int(key.name) - 1].unalias()
    if isinstance(key, exp.Column) and not key.table:
        return next((column.unalias() for column in select.selects if column.alias == key.name), key)
    return key
