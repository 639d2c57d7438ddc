"""A table that others write, and whose partitions a dataset takes over as they come to be and change.

Not here: how it is listed and read (varve/sources/external).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class OutsideKind(StrEnum):
    """Where the table is: in the metastore of Spark, in some PostgreSQL, or where a JDBC driver of Spark leads."""

    TABLE = "table"
    POSTGRES = "postgres"
    JDBC = "jdbc"


@dataclass(frozen=True, slots=True)
class OutsideTable:
    """A table, by its name as readers write it, without quotes.

    Attributes:
        url: the name of the environment variable that holds the URL of its database.
        changed: the column whose highest value in a partition tells that the partition was changed; "" where that is
            told by the table itself: by its files, or by the transactions that wrote its rows.
    """

    kind: OutsideKind
    name: str
    url: str = ""
    changed: str = ""

    def __str__(self) -> str:
        return self.name
