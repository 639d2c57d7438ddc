"""Generators in the list of a SELECT, `EXPLODE(items)`, and the columns that a part of such a list is.

Not here: LATERAL VIEW, whose columns stand behind it (visible.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Iterator

# Those that the parser takes for any other function.
_BY_NAME = {"INLINE_OUTER", "JSON_TUPLE"}
# What sqlglot's optimizer calls a part of a list that has no name.
_NAMELESS = "_col_"


def is_generator(node: exp.Expr) -> bool:
    """Whether an expression is the call of a generator, which gives several rows, and may give several columns."""
    return isinstance(node, exp.UDTF) or (isinstance(node, exp.Anonymous) and node.name.upper() in _BY_NAME)


def names_of(projection: exp.Expr) -> tuple[str, ...]:
    """The names of the columns that a part of a SELECT's list is; one "" where it has no name."""
    if isinstance(projection, exp.Aliases):
        return tuple(name.name for name in projection.expressions)
    return (projection.alias_or_name,)


def result_selects(query: exp.Expr) -> Iterator[exp.Select]:
    """Yield the SELECTs whose columns are those of a query's result; the first one names them."""
    if isinstance(query, exp.Select):
        yield query
    elif isinstance(query, exp.SetOperation):
        yield from result_selects(query.left)
        yield from result_selects(query.right)
    elif isinstance(query, exp.Subquery):
        yield from result_selects(query.unnest())


def has_uncounted_columns(query: exp.Expr) -> bool:
    """Whether the first SELECT of a qualified query has a generator without names: only its data say how many columns.

    `SELECT EXPLODE(amounts)` is one column of an array, and two of a map.
    """
    first = next(result_selects(query), None)
    return first is not None and any(
        isinstance(projection, exp.Alias) and is_generator(projection.this) and projection.alias.startswith(_NAMELESS)
        for projection in first.selects
    )
