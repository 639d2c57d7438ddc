"""An external table in a database for which Spark has a JDBC driver: a GROUP BY lists partitions, Spark reads the rows.

A change of a partition is detected by the number of its rows and the highest value of a declared column: SQL that all
databases understand offers nothing better.

Not here: PostgreSQL, which offers more and needs no Java (postgres.py).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from operator import and_, or_
from typing import TYPE_CHECKING

from varve.model.errors import NOTHING_LOST, ServiceUnavailable, VarveError
from varve.model.partitions.key import plain
from varve.services.secrets import redacted
from varve.sources.external.tables import (
    Listing,
    Rows,
    as_texts,
    declared_columns,
    listing_of_rows,
    no_such_column,
    url_of,
)
from varve.stores.frames import folded, spark_errors, spark_says

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from varve.model.dataset import Dataset
    from varve.model.external import ExternalTable
    from varve.model.partitions.key import PartitionKey

# How many partitions one task reads, as its WHERE names each of them.
_KEYS_AT_ONCE = 50
_TASKS = 8
# Without this option drivers fetch all rows into memory, or ten at a time.
_FETCH = "10000"
# In seconds; shorter than the minute that Dagster gives a sensor.
_SECONDS = "30"
_NO_DRIVER = ("No suitable driver", "ClassNotFoundException")


@dataclass(frozen=True)
class JdbcTable:
    """See `tables.ExternalSource`."""

    table: ExternalTable
    spark: Callable[[], SparkSession]

    def listed(self, dataset: Dataset, keys: Sequence[PartitionKey] | None = None) -> Listing:
        """See `tables.ExternalSource`. It reads the partition columns of all rows, from an index if there is one."""
        names = dataset.partitioning.names
        with self._explained(dataset):
            column_names = self._columns(dataset, [*names, self.table.changed])
            by = [self._quoted(dataset, column_names[name.lower()]) for name in names]
            newest = self._quoted(dataset, column_names[self.table.changed.lower()])
            # Names as the database spells and quotes them. The alias has no AS, which not all databases accept.
            counted = f"COUNT(*) AS varve_rows, MAX({newest}) AS varve_newest"
            grouped = f" GROUP BY {', '.join(by)}" if by else ""
            query = f"(SELECT {', '.join([*by, counted])} FROM {self.table}{grouped}) v"  # noqa: S608 - quoted above
            rows = self._load(dataset, query, queryTimeout=_SECONDS)
            if keys is None:
                return listing_of_rows(dataset, as_texts(rows, dataset, "varve_newest").collect())
            parts = [as_texts(rows.where(_any_of(part)), dataset, "varve_newest").collect() for part in _parts(keys)]
            return listing_of_rows(dataset, [row for part in parts for row in part])

    def read(self, dataset: Dataset, keys: Sequence[PartitionKey]) -> Rows:
        """See `tables.ExternalSource`. Each of Spark's tasks asks for some of the partitions."""
        with self._explained(dataset):
            wanted = [column.name for column in (*dataset.schema.columns, *dataset.partition_columns)]
            self._columns(dataset, wanted)
            rows = self._load(dataset, str(self.table))
            parts = [rows.where(_any_of(part)) for part in _parts(keys)]
            frame = declared_columns(dataset, folded(lambda first, second: first.unionAll(second), parts))
            return Rows(frame, here=False)

    def _load(self, dataset: Dataset, table_or_query: str, **options: str) -> DataFrame:
        # Timestamps without a zone are read as such, not as instants in the zone of the session.
        options |= {"fetchsize": _FETCH, "preferTimestampNTZ": "true"}
        reader = (
            self.spark().read.format("jdbc").options(url=url_of(dataset, self.table), dbtable=table_or_query, **options)
        )
        return reader.load()

    def _columns(self, dataset: Dataset, wanted: Sequence[str]) -> dict[str, str]:
        """The columns as the database spells them, by lower-case name. Raises BadInput where one is missing."""
        columns = self._load(dataset, str(self.table)).columns
        spelling_of_name = {name.lower(): name for name in columns}
        if missing := [name for name in wanted if name.lower() not in spelling_of_name]:
            raise no_such_column(dataset, self.table, missing, columns)
        return spelling_of_name

    def _quoted(self, dataset: Dataset, name: str) -> str:
        mark = "`" if url_of(dataset, self.table).startswith(("jdbc:mysql:", "jdbc:mariadb:")) else '"'
        return mark + name.replace(mark, mark * 2) + mark

    @contextlib.contextmanager
    def _explained(self, dataset: Dataset) -> Iterator[None]:
        where = f"{dataset}: {self.table} ({self.table.url})"
        try:
            yield
        except spark_errors() as error:
            # A URL may hold a password.
            message = redacted(spark_says(error).replace(url_of(dataset, self.table), self.table.url))
            first_line = next((line for line in message.splitlines() if line.strip()), type(error).__name__)
            if any(mark in message for mark in _NO_DRIVER):
                raise ServiceUnavailable(
                    f"{where}: Spark has no driver for this database. Name its jar in VARVE_SPARK_CONF, as "
                    """'{"spark.jars": "/path/driver.jar"}', and start Spark anew (`varve down`, `varve up`). """
                    f"{NOTHING_LOST}"
                ) from error
            raise VarveError(f"{where} cannot be read: {first_line} {NOTHING_LOST}") from error


def _parts(keys: Sequence[PartitionKey]) -> list[Sequence[PartitionKey]]:
    size = min(_KEYS_AT_ONCE, -(-len(keys) // _TASKS))
    return [keys[place : place + size] for place in range(0, len(keys), size)]


def _any_of(keys: Sequence[PartitionKey]) -> Column:
    """Whether a row is in one of the partitions, as a condition that Spark pushes down to the database."""
    from pyspark.sql import functions as F  # noqa: N812

    if not keys[0].fields:
        return F.lit(True)  # noqa: FBT003
    conditions = [[F.col(f"`{name}`") == F.lit(plain(value)) for name, value in key.fields] for key in keys]
    return folded(or_, [folded(and_, fields) for fields in conditions])
