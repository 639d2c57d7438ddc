"""What equal columns imply: a condition on one of them is one on the other.

Not here: which conditions are gathered (scans.py).
"""

from __future__ import annotations

from sqlglot import exp

from varve.sql.names.scope_variables import SCOPE
from varve.sql.pushdown.grouping import is_aggregate
from varve.sql.pushdown.predicates import columns_of, replaced
from varve.sql.pushdown.relation_tree import nested_queries
from varve.sql.syntax.type_names import UNKNOWN, simple_name


def closed(conditions: list[exp.Expr]) -> list[exp.Expr]:
    """The conditions, and what equal columns of theirs imply: a.x = b.y and P(b.y) give P(a.x)."""
    found = {each.sql("spark"): each for each in conditions}
    for _ in range(2):
        equal = [pair for each in found.values() if (pair := _equal_columns(each))]
        for one, other in [*equal, *[(other, one) for one, other in equal]]:
            for condition in list(found.values()):
                columns = [column for column in columns_of(condition) if column.table != SCOPE]
                if not columns or any(_place(column) != _place(other) for column in columns):
                    continue
                if nested_queries(condition) or is_aggregate(condition):
                    continue
                implied = _at(condition, one)
                found.setdefault(implied.sql("spark"), implied)
    return list(found.values())


def _at(condition: exp.Expr, other: exp.Column) -> exp.Expr:
    """The condition on its one column as a condition on another one."""
    return replaced(condition, lambda column: (column if column.table == SCOPE else other).copy())


def _equal_columns(condition: exp.Expr) -> tuple[exp.Column, exp.Column] | None:
    """The two columns of one type that a condition equates."""
    if not isinstance(condition, exp.EQ):
        return None
    one, other = condition.left.unnest(), condition.right.unnest()
    if not isinstance(one, exp.Column) or not isinstance(other, exp.Column) or SCOPE in (one.table, other.table):
        return None
    kind = simple_name(one.type)
    return (one, other) if kind == simple_name(other.type) != UNKNOWN else None


def _place(column: exp.Column) -> tuple[str, str]:
    return column.table, column.name
