"""What is known of an expression before it runs: `Cell`.

Not here: how it is found (expressions.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlglot import exp

# A dataset and one of its columns.
ColumnName: TypeAlias = tuple[str, str]


class Cell(NamedTuple):
    """What is known of an expression: its type, whether it may be NULL, and the columns that it is made of."""

    type: str
    nullable: bool = True
    sources: frozenset[ColumnName] = frozenset()


class Lookup(Protocol):
    """What an expression can name."""

    def column(self, node: exp.Column) -> Cell:
        """The cell of a column."""
        ...

    def nested(self, node: exp.Expr) -> Cell:
        """The cell of a query inside an expression."""
        ...


# The cells of the parts of an expression.
Of: TypeAlias = "Callable[[exp.Expr | None], Cell]"
