"""An external table: others write it, and a dataset takes its partitions when they appear and when they change.

They are copied, or listed and read where they are (`in_place`).

Not here: how it is listed and read (varve/sources/external/).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

# The store of datasets that read the files of others where they are (varve/stores/views).
VIEW = "view"
# The kinds of tables that consist of files.
OF_FILES = ("table", "parquet")


class ExternalTableKind(StrEnum):
    """Where the table is: in Spark's metastore, in a folder, in PostgreSQL, or in a database behind JDBC."""

    TABLE = "table"
    PARQUET = "parquet"
    POSTGRES = "postgres"
    JDBC = "jdbc"


@dataclass(frozen=True, slots=True)
class ExternalTable:
    """An external table; `name` is written as readers write it, without quotes, and of PARQUET it is the folder.

    Attributes:
        url: the name of the environment variable that holds the URL of its database.
        changed: the column whose highest value in a partition changes whenever the partition changes; "" where the
            table itself shows a change: by its files, or by the transactions that wrote its rows.
        driver: the class of its JDBC driver; "" where the URL tells it.
        in_place: whether its files are read where they are, and nothing is copied.
    """

    kind: ExternalTableKind
    name: str
    url: str = ""
    changed: str = ""
    # These are not in the code version: the rows are the same.
    in_place: bool = field(default=False, repr=False)
    driver: str = field(default="", repr=False)

    def __str__(self) -> str:
        return self.name
