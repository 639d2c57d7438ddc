"""What is known of a query before it runs, as values.

Not here: how it comes to be known (inference.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.sql.syntax.type_names import UNKNOWN

if TYPE_CHECKING:
    from sqlglot import exp

    from varve.sql.types.cells import ColumnName


@dataclass(frozen=True)
class QueryFinding:
    """Something in a query that its author should mend; `node` is where."""

    message: str
    node: exp.Expr


@dataclass(frozen=True)
class Output:
    """A column that a query gives out.

    Attributes:
        type: Spark's simple name; `unknown` where only Spark can tell.
        nullable: whether it may be NULL, as far as is known.
        sources: the columns of datasets that its values are made of.
    """

    name: str
    type: str
    nullable: bool = True
    sources: frozenset[ColumnName] = frozenset()

    @property
    def verified(self) -> bool:
        """Whether the type is certain."""
        return UNKNOWN not in self.type


@dataclass(frozen=True)
class Use:
    """A place in a query that names a column of a dataset; `SELECT *` names none."""

    column: ColumnName
    node: exp.Column


@dataclass(frozen=True)
class Inferred:
    """What is known of a query before it runs.

    Attributes:
        tree: the query with every column qualified and typed; its variables are columns of `@scope`.
        outputs: what it gives out, in order.
        uses: where it names columns of datasets.
        findings: what stands against it.
    """

    tree: exp.Expr
    outputs: tuple[Output, ...]
    uses: tuple[Use, ...]
    findings: tuple[QueryFinding, ...] = ()
