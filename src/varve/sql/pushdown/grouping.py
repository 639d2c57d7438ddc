"""Which rows of a SELECT belong to one group: by GROUP BY, and by every PARTITION BY.

Not here: the tree of relations of a query (relations.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.names.scope_variables import SCOPE
from varve.sql.names.trees import text_of

if TYPE_CHECKING:
    from collections.abc import Collection

_SETS = ("rollup", "cube", "grouping_sets", "totals")


def is_aggregate(node: exp.Expr) -> bool:
    """Whether an expression aggregates rows of its own SELECT."""
    if isinstance(node, exp.Query):
        return False
    if isinstance(node, exp.Window):
        # SUM(SUM(x)) OVER (...): the inner SUM belongs to the GROUP BY.
        inner = [*node.this.iter_expressions(), *(node.args.get("partition_by") or ())]
        return any(is_aggregate(part) for part in inner)
    if isinstance(node, exp.AggFunc):
        return True
    return any(is_aggregate(child) for child in node.iter_expressions())


def is_determined_by(node: exp.Expr, keys: Collection[str]) -> bool:
    """Whether an expression is determined by expressions that are among the keys (SQL texts)."""
    if keys and text_of(node) in keys:
        return True
    if isinstance(node, exp.Column):
        return node.table == SCOPE
    return all(is_determined_by(child, keys) for child in node.iter_expressions())


def group_keys(node: exp.Select) -> frozenset[str] | None:
    """The expressions that rows are grouped by, as SQL texts.

    Empty where all rows are one group, or where there are several grouping sets; None where rows are not grouped.
    """
    group, having = node.args.get("group"), node.args.get("having")
    if group is None:
        return (
            frozenset() if having is not None or any(is_aggregate(projection) for projection in node.selects) else None
        )
    if has_several_sets(node):
        return frozenset()
    if group.args.get("all"):
        return frozenset(text_of(projection.unalias()) for projection in node.selects if not is_aggregate(projection))
    keys = set()
    for key in group.expressions:
        at = int(key.name) - 1 if isinstance(key, exp.Literal) and key.is_int else None
        if at is None:
            keys.add(text_of(key))
        elif 0 <= at < len(node.selects):
            keys.add(text_of(node.selects[at].unalias()))
    return frozenset(keys)


def has_several_sets(node: exp.Select) -> bool:
    """Whether its rows are grouped several times: what is grouped by is NULL in some of them, even a constant."""
    group = node.args.get("group")
    if group is None:
        return False
    return any(group.args.get(word) for word in _SETS) or any(
        isinstance(key, exp.Rollup | exp.Cube | exp.GroupingSets) for key in group.expressions
    )


def window_keys(node: exp.Select) -> frozenset[str] | None:
    """The expressions by which every window function of a SELECT partitions, as SQL texts; None without windows."""
    holders = [*node.selects, node.args.get("qualify"), node.args.get("order")]
    windows = [window for holder in holders if holder is not None for window in holder.find_all(exp.Window)]
    if not windows:
        return None
    named = {window.name: window for window in node.args.get("windows") or ()}
    partition_keys: list[set[str]] = []
    for window in windows:
        over = named.get(window.alias, window) if window.args.get("alias") else window
        partition_keys.append({text_of(key) for key in over.args.get("partition_by") or ()})
    return frozenset(set.intersection(*partition_keys))
