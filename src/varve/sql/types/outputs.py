"""The results of type inference for a query, as values.

Not here: how they are inferred (inference.py).
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
    """A problem in a query that its author should fix; `node` is where."""

    message: str
    node: exp.Expr


@dataclass(frozen=True)
class Output:
    """A column of a query's result.

    Attributes:
        type: Spark's simple name; `unknown` where only Spark can tell.
        sources: the columns of datasets that its values are computed from.
        copy_of: the columns of datasets whose values it passes on as they are; several by a UNION.
    """

    name: str
    type: str
    sources: frozenset[ColumnName] = frozenset()
    copy_of: frozenset[ColumnName] = frozenset()

    @property
    def verified(self) -> bool:
        """Whether the type is certain."""
        return UNKNOWN not in self.type


@dataclass(frozen=True)
class Use:
    """A place in a query that names a column of a dataset; `SELECT *` names none.

    Attributes:
        is_left_out: whether it only leaves the column out of a star, so that its type does not matter.
    """

    column: ColumnName
    node: exp.Column
    is_left_out: bool = False


@dataclass(frozen=True)
class Inferred:
    """The inferred columns of a query, before it runs.

    Attributes:
        tree: the query with every column qualified and typed; its variables are columns of `@scope`.
        outputs: the columns of its result, in order.
        uses: the places where it names columns of datasets.
        findings: the problems in it.
    """

    tree: exp.Expr
    outputs: tuple[Output, ...]
    uses: tuple[Use, ...]
    findings: tuple[QueryFinding, ...] = ()
