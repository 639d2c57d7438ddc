"""What joined constants say of the other sources: `JOIN (SELECT 'EU' AS r UNION ALL SELECT 'US') c`, or VALUES.

A row of such a union comes from one of its branches. A condition that must hold for the joined row, `ON s.r = c.r`,
holds with the constants of one of the branches in the place of its columns: `s.r = 'EU' OR s.r = 'US'`.

Not here: conditions on the columns of the union itself, which go into its branches (scans.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.names.scope_variables import SCOPE
from varve.sql.names.trees import copied, replaced
from varve.sql.pushdown.predicates import columns_of, opaque

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varve.sql.pushdown.relations import JoinedRelation, Leaf, SelectRelation

# A union of more branches than this says nothing: each of them is another copy of the conditions.
_MOST_BRANCHES = 64


def constant_conditions(
    selection: SelectRelation, source: JoinedRelation, conditions: Sequence[exp.Expr]
) -> Iterator[exp.Expr]:
    """Yield what the conditions of a join say of one source, because of constants in the branches of another one.

    Columns of sources for which an outer join may have no row are NULL where it has none, and say nothing.
    """
    for alias, other in selection.sources.items():
        branches = other.relation.leaves
        if alias in {source.alias, *selection.nullable} or not 1 < len(branches) <= _MOST_BRANCHES:
            continue
        about = [condition for condition in conditions if _mentions(condition, alias)]
        if not any(_mentions(condition, source.alias) for condition in about):
            continue
        if any(_is_constant(origin) for branch in branches for origin in branch.values()):
            yield exp.or_(*(exp.and_(*(_with_constants(each, alias, branch) for each in about)) for branch in branches))


def _with_constants(condition: exp.Expr, alias: str, branch: Leaf) -> exp.Expr:
    """Return the condition with the constants of a branch for the columns of the union; other columns stay open."""

    def constant(column: exp.Column) -> exp.Expr:
        if column.table != alias:
            return copied(column)
        origin = branch.get(column.name)
        return exp.Paren(this=copied(origin)) if origin is not None and _is_constant(origin) else opaque()

    return replaced(condition, constant)


def _is_constant(origin: exp.Expr) -> bool:
    return all(column.table == SCOPE for column in columns_of(origin))


def _mentions(condition: exp.Expr, alias: str) -> bool:
    return any(column.table == alias for column in columns_of(condition))
