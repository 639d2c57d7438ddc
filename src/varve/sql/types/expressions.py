"""The Spark type of an expression, inferred from the types of its parts, where it is certain.

Not here: where columns come from (inference.py), and numbers (numeric.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.syntax.type_names import UNKNOWN
from varve.sql.types.cells import Cell, Lookup
from varve.sql.types.functions import BY_NAME
from varve.sql.types.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# The key of the meta of a call with the type that the project's function of this name declares.
RETURNS = "returns"
# The key of the meta of an expression that is NULL in rows of totals (grouping_sets.py).
NULL_IN_TOTALS = "null in totals"


def typed(node: exp.Expr, lookup: Lookup) -> Cell:
    """Return the cell of an expression."""
    cell = _cell(node, lookup)
    return cell._replace(nullable=True) if node.meta_get(NULL_IN_TOTALS) else cell


def _cell(node: exp.Expr, lookup: Lookup) -> Cell:
    if isinstance(node, exp.Column):
        return lookup.column(node)
    if isinstance(node, exp.Subquery | exp.Select | exp.SetOperation):
        return lookup.nested(node)
    if isinstance(node, exp.DataType | exp.Identifier | exp.Var):
        return Cell(UNKNOWN, nullable=False)
    parts = {id(child): typed(child, lookup) for child in node.iter_expressions()}
    sources = frozenset(source for part in parts.values() for source in part.sources)

    def of(child: exp.Expr | None) -> Cell:
        return parts[id(child)] if child is not None else Cell("void", nullable=True)

    kind = _type(node, of)
    return Cell(kind if UNKNOWN not in kind else UNKNOWN, _nullable(node, parts.values()), sources)  # type: ignore[arg-type]


def _type(node: exp.Expr, of: Callable[[exp.Expr | None], Cell]) -> str:
    if isinstance(node, exp.Anonymous):
        rule = node.meta.get(RETURNS) or BY_NAME.get(node.name.upper())
    else:
        rule = RULES.get(type(node))
    if rule is None:
        return UNKNOWN
    return rule if isinstance(rule, str) else rule(node, of)


def _nullable(node: exp.Expr, parts: Sequence[Cell]) -> bool:
    if isinstance(node, exp.Count | exp.RowNumber | exp.Rank | exp.DenseRank | exp.Is | exp.CountIf):
        return False
    if isinstance(node, exp.Null | exp.Exists):
        # EXISTS over a query is never NULL; over an array it is where its elements are.
        return isinstance(node, exp.Null) or node.args.get("expression") is not None
    if isinstance(node, exp.Literal | exp.Boolean | exp.NullSafeEQ | exp.NullSafeNEQ):
        return False
    if isinstance(node, exp.Coalesce):
        return all(part.nullable for part in parts)
    if isinstance(node, exp.Window):
        return typed_window_nullable(node, parts)
    keeps = (
        exp.Paren, exp.Alias, exp.Add, exp.Sub, exp.Mul, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.And,
        exp.Or, exp.Not, exp.Between, exp.Upper, exp.Lower, exp.Concat, exp.DPipe, exp.Year, exp.Month, exp.Length,
        exp.Neg, exp.Abs, exp.Substring, exp.Trim,
    )  # fmt: skip
    return any(part.nullable for part in parts) if isinstance(node, keeps) else True


def typed_window_nullable(node: exp.Window, parts: Sequence[Cell]) -> bool:
    """Whether a window function may return NULL: every function may, over an empty frame, except counts and ranks."""
    return not isinstance(node.this, exp.RowNumber | exp.Rank | exp.DenseRank | exp.Count) or not parts
