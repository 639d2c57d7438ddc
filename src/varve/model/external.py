"""An external table: others write it, and a dataset copies its partitions when they appear and when they change.

Not here: how it is listed and read (varve/sources/external/).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ExternalTableKind(StrEnum):
    """Where the table is: in Spark's metastore, in a PostgreSQL database, or in a database that Spark reads by JDBC."""

    TABLE = "table"
    POSTGRES = "postgres"
    JDBC = "jdbc"


@dataclass(frozen=True, slots=True)
class ExternalTable:
    """An external table; `name` is written as readers write it, without quotes.

    Attributes:
        url: the name of the environment variable that holds the URL of its database.
        changed: the column whose highest value in a partition changes whenever the partition changes; "" where the
            table itself shows a change: by its files, or by the transactions that wrote its rows.
    """

    kind: ExternalTableKind
    name: str
    url: str = ""
    changed: str = ""

    def __str__(self) -> str:
        return self.name
