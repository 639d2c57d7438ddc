"""Columns and their types, as every store understands them.

Not here: what Spark, Arrow, PostgreSQL or Dagster call a type; each room that talks to one translates.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pipeline_defs.model.errors import VarveError


class ColumnType(StrEnum):
    """The type of a column, by its Spark SQL name."""

    STRING = "STRING"
    BOOLEAN = "BOOLEAN"
    INT = "INT"
    BIGINT = "BIGINT"
    DOUBLE = "DOUBLE"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, type and what it means (units included)."""

    name: str
    type: ColumnType
    comment: str = ""
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Schema:
    """The data columns of a dataset in their declared order; partition columns are not among them."""

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        names = [column.name.lower() for column in self.columns]
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise VarveError(f"column {', '.join(doubled)} is declared more than once.")

    @property
    def names(self) -> tuple[str, ...]:
        """The column names, in order."""
        return tuple(column.name for column in self.columns)
