"""`Cell`: the type and the source columns of an expression, as far as they are known before a run.

Not here: how they are inferred (expressions.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlglot import exp

# The name of a dataset and of one of its columns.
ColumnName: TypeAlias = tuple[str, str]


class Cell(NamedTuple):
    """The Spark type of an expression, and the columns of datasets that it is computed from."""

    type: str
    sources: frozenset[ColumnName] = frozenset()


class Lookup(Protocol):
    """Resolves the names in an expression."""

    def column(self, node: exp.Column) -> Cell:
        """Return the cell of a column."""
        ...

    def nested(self, node: exp.Expr) -> Cell:
        """Return the cell of a query inside an expression."""
        ...


# Returns the cell of a part of an expression.
CellOf: TypeAlias = "Callable[[exp.Expr | None], Cell]"
