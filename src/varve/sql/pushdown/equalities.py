"""What equal columns imply: a condition on one of two equal columns is also a condition on the other.

Not here: which conditions are collected (scans.py).
"""

from __future__ import annotations

from sqlglot import exp

from varve.sql.names.scope_variables import SCOPE
from varve.sql.names.trees import copied, replaced, text_of
from varve.sql.pushdown.grouping import is_aggregate
from varve.sql.pushdown.predicates import columns_of
from varve.sql.pushdown.relation_tree import nested_queries
from varve.sql.syntax.type_names import UNKNOWN, simple_name


def with_implied_conditions(conditions: list[exp.Expr]) -> list[exp.Expr]:
    """The conditions, and those that equal columns imply: a.x = b.y and P(b.y) give P(a.x)."""
    by_text = {text_of(condition): condition for condition in conditions}
    for _ in range(2):
        equal = [pair for condition in by_text.values() if (pair := _equal_columns(condition))]
        for first, second in [*equal, *[(second, first) for first, second in equal]]:
            for condition in list(by_text.values()):
                columns = [column for column in columns_of(condition) if column.table != SCOPE]
                if not columns or any(_place(column) != _place(second) for column in columns):
                    continue
                if nested_queries(condition) or is_aggregate(condition):
                    continue
                implied = _at(condition, first)
                by_text.setdefault(text_of(implied), implied)
    return list(by_text.values())


def _at(condition: exp.Expr, replacement: exp.Column) -> exp.Expr:
    """Return the condition, which concerns one column, as a condition on another column."""
    return replaced(condition, lambda column: copied(column if column.table == SCOPE else replacement))


def _equal_columns(condition: exp.Expr) -> tuple[exp.Column, exp.Column] | None:
    """The two columns that an equality compares, where both have the same known type; otherwise None."""
    if not isinstance(condition, exp.EQ):
        return None
    left, right = condition.left.unnest(), condition.right.unnest()
    if not isinstance(left, exp.Column) or not isinstance(right, exp.Column) or SCOPE in (left.table, right.table):
        return None
    kind = simple_name(left.type)
    return (left, right) if kind == simple_name(right.type) != UNKNOWN else None


def _place(column: exp.Column) -> tuple[str, str]:
    return column.table, column.name
