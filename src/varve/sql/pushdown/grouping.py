"""Which rows of a SELECT go together: by GROUP BY, and by every PARTITION BY.

Not here: the relations that queries are (relations.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.names.scope_variables import SCOPE

if TYPE_CHECKING:
    from collections.abc import Collection


def is_aggregate(node: exp.Expr) -> bool:
    """Whether an expression aggregates rows of its own SELECT."""
    if isinstance(node, exp.Query):
        return False
    if isinstance(node, exp.Window):
        # SUM(SUM(x)) OVER (...): the inner one is of the GROUP BY.
        inner = [*node.this.iter_expressions(), *(node.args.get("partition_by") or ())]
        return any(is_aggregate(each) for each in inner)
    if isinstance(node, exp.AggFunc):
        return True
    return any(is_aggregate(each) for each in node.iter_expressions())


def within(node: exp.Expr, keys: Collection[str]) -> bool:
    """Whether an expression follows from expressions that are among the keys."""
    if node.sql("spark") in keys:
        return True
    if isinstance(node, exp.Column):
        return node.table == SCOPE
    return all(within(each, keys) for each in node.iter_expressions())


def group_keys(node: exp.Select) -> frozenset[str] | None:
    """What rows are grouped by, as SQL; empty for one group of all, None where they are not grouped."""
    group, having = node.args.get("group"), node.args.get("having")
    if group is None:
        return frozenset() if having is not None or any(is_aggregate(each) for each in node.selects) else None
    if any(group.args.get(word) for word in ("rollup", "cube", "grouping_sets", "totals")):
        return frozenset()
    if group.args.get("all"):
        return frozenset(each.unalias().sql("spark") for each in node.selects if not is_aggregate(each))
    keys = set()
    for key in group.expressions:
        if isinstance(key, exp.Rollup | exp.Cube | exp.GroupingSets):
            return frozenset()
        at = int(key.name) - 1 if isinstance(key, exp.Literal) and key.is_int else None
        if at is None:
            keys.add(key.sql("spark"))
        elif 0 <= at < len(node.selects):
            keys.add(node.selects[at].unalias().sql("spark"))
    return frozenset(keys)


def window_keys(node: exp.Select) -> frozenset[str] | None:
    """What every window function of a SELECT partitions by, as SQL; None where it has none."""
    holders = [*node.selects, node.args.get("qualify"), node.args.get("order")]
    windows = [window for each in holders if each is not None for window in each.find_all(exp.Window)]
    if not windows:
        return None
    named = {each.name: each for each in node.args.get("windows") or ()}
    found: list[set[str]] = []
    for window in windows:
        over = named.get(window.alias, window) if window.args.get("alias") else window
        found.append({each.sql("spark") for each in over.args.get("partition_by") or ()})
    return frozenset(set.intersection(*found))
