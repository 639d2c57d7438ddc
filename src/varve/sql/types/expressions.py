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
    from collections.abc import Callable

# The key of the meta of a call with the type that the project's function of this name declares.
RETURNS = "returns"


def typed(node: exp.Expr, lookup: Lookup) -> Cell:
    """Return the cell of an expression."""
    if isinstance(node, exp.Column):
        return lookup.column(node)
    if isinstance(node, exp.Subquery | exp.Select | exp.SetOperation):
        return lookup.nested(node)
    if isinstance(node, exp.DataType | exp.Identifier | exp.Var):
        return Cell(UNKNOWN)
    parts = {id(child): typed(child, lookup) for child in node.iter_expressions()}
    sources = frozenset(source for part in parts.values() for source in part.sources)

    def of(child: exp.Expr | None) -> Cell:
        return parts[id(child)] if child is not None else Cell("void")

    kind = _type(node, of)
    return Cell(kind if UNKNOWN not in kind else UNKNOWN, sources)


def _type(node: exp.Expr, of: Callable[[exp.Expr | None], Cell]) -> str:
    if isinstance(node, exp.Anonymous):
        rule = node.meta.get(RETURNS) or BY_NAME.get(node.name.upper())
    else:
        rule = RULES.get(type(node))
    if rule is None:
        return UNKNOWN
    return rule if isinstance(rule, str) else rule(node, of)
