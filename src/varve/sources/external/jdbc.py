"""An external table in a database for which Spark has a JDBC driver: a GROUP BY lists partitions, Spark reads the rows.

A change of a partition is detected by the number of its rows and the highest value of a declared column: SQL that all
databases understand offers nothing better.

Not here: PostgreSQL, which offers more and needs no Java (postgres.py).
"""

from __future__ import annotations

import contextlib
import datetime as dt
from dataclasses import dataclass
from operator import and_, or_
from typing import TYPE_CHECKING, Any

from varve.model.errors import NOTHING_LOST, ServiceUnavailable, VarveError
from varve.model.partitions.key import plain, text_of
from varve.model.schema import DECIMAL_DIGITS, Kind
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
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField

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
# What a number without a scale may be declared as: each holds it exactly, or not at all.
_EXACT = frozenset({Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT, Kind.DECIMAL})
_NO_DRIVER = ("No suitable driver", "ClassNotFoundException")
# The driver of a URL `jdbc:NAME:`. Java finds one by itself only on the class path that it was started with; Spark's
# jars are added later, and Spark takes a driver from them by the name of its class alone.
_DRIVERS = {
    "ch": "com.clickhouse.jdbc.ClickHouseDriver",
    "clickhouse": "com.clickhouse.jdbc.ClickHouseDriver",
    "db2": "com.ibm.db2.jcc.DB2Driver",
    "duckdb": "org.duckdb.DuckDBDriver",
    "h2": "org.h2.Driver",
    "mariadb": "org.mariadb.jdbc.Driver",
    "mysql": "com.mysql.cj.jdbc.Driver",
    "oracle": "oracle.jdbc.OracleDriver",
    "postgresql": "org.postgresql.Driver",
    "redshift": "com.amazon.redshift.Driver",
    "sap": "com.sap.db.jdbc.Driver",
    "snowflake": "net.snowflake.client.jdbc.SnowflakeDriver",
    "sqlserver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
    "teradata": "com.teradata.jdbc.TeraDriver",
    "trino": "io.trino.jdbc.TrinoDriver",
}


@dataclass(frozen=True)
class JdbcTable:
    """See `tables.ExternalSource`."""

    table: ExternalTable
    spark: Callable[[], SparkSession]

    def listed(self, dataset: Dataset, keys: Sequence[PartitionKey] | None = None) -> Listing:
        """See `tables.ExternalSource`. It reads the partition columns of all rows, from an index if there is one."""
        names = dataset.partitioning.names
        with self._explained(dataset):
            columns = self._columns(dataset, [*names, self.table.changed])
            by = [self._quoted(dataset, columns[name.lower()].name) for name in names]
            newest = self._quoted(dataset, columns[self.table.changed.lower()].name)
            # Names as the database spells and quotes them. The alias has no AS, which not all databases accept.
            counted = f"COUNT(*) AS varve_rows, MAX({newest}) AS varve_newest"
            exactly = [f"CAST({quoted} AS BINARY)" for name, quoted in zip(names, by, strict=True)
                       if self._is_mysql(dataset) and _is_text(columns[name.lower()])]  # fmt: skip
            grouped = f" GROUP BY {', '.join([*by, *exactly])}" if by else ""
            query = f"(SELECT {', '.join([*by, counted])} FROM {self.table}{grouped}) v"  # noqa: S608 - quoted above
            rows = self._load(dataset, query, queryTimeout=_SECONDS)
            if keys is None:
                return listing_of_rows(dataset, as_texts(rows, dataset, "varve_newest").collect())
            parts = [as_texts(self._only(dataset, rows, part), dataset, "varve_newest") for part in _parts(keys)]
            return listing_of_rows(dataset, [row for part in parts for row in part.collect()])

    def read(self, dataset: Dataset, keys: Sequence[PartitionKey]) -> Rows:
        """See `tables.ExternalSource`. Each of Spark's tasks asks for some of the partitions."""
        with self._explained(dataset):
            wanted = [column.name for column in (*dataset.schema.columns, *dataset.partition_columns)]
            unscaled = _numbers_without_scale(dataset, self._columns(dataset, wanted))
            texts = ", ".join(f"`{field.name.replace('`', '``')}` STRING" for field in unscaled.values())
            rows = self._load(dataset, str(self.table), **({"customSchema": texts} if texts else {}))
            parts = [self._only(dataset, rows, part) for part in _parts(keys)]
            frame = declared_columns(dataset, folded(lambda first, second: first.unionAll(second), parts), unscaled)
            return Rows(frame, here=False)

    def _load(self, dataset: Dataset, table_or_query: str, **options: str) -> DataFrame:
        url = url_of(dataset, self.table)
        # Timestamps without a zone are read as such, not as instants in the zone of the session.
        options |= {"fetchsize": _FETCH, "preferTimestampNTZ": "true", "url": url, "dbtable": table_or_query}
        if driver := self._driver(url):
            options["driver"] = driver
        return self.spark().read.format("jdbc").options(**options).load()

    def _driver(self, url: str) -> str:
        """The class of the driver; "" where Java has to find one."""
        return self.table.driver or _DRIVERS.get(url.split(":")[1] if ":" in url else "", "")

    def _only(self, dataset: Dataset, rows: DataFrame, keys: Sequence[PartitionKey]) -> DataFrame:
        """The rows of these partitions and no others, whatever texts the database takes for the same."""
        if not keys[0].fields:
            return rows
        texts = frozenset(field.name.lower() for field in rows.schema.fields if _is_text(field))
        if not self._is_mysql(dataset):
            return rows.where(_any_of(keys, texts, _equal))
        return rows.where(_any_of(keys, texts, _between)).where(_any_of(keys, texts, _same_bytes))

    def _columns(self, dataset: Dataset, wanted: Sequence[str]) -> dict[str, StructField]:
        """The columns as the database spells them, by lower-case name. Raises BadInput where one is missing."""
        fields = self._load(dataset, str(self.table)).schema.fields
        columns = {field.name.lower(): field for field in fields}
        if missing := [name for name in wanted if name.lower() not in columns]:
            raise no_such_column(dataset, self.table, missing, [field.name for field in fields])
        return columns

    def _is_mysql(self, dataset: Dataset) -> bool:
        """Whether it is MySQL or MariaDB, for which `de`, `DE` and `de ` are one text, as a rule."""
        return url_of(dataset, self.table).startswith(("jdbc:mysql:", "jdbc:mariadb:"))

    def _quoted(self, dataset: Dataset, name: str) -> str:
        mark = "`" if self._is_mysql(dataset) else '"'
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
                raise _no_driver(where, self._driver(url_of(dataset, self.table))) from error
            raise VarveError(f"{where} cannot be read: {first_line} {NOTHING_LOST}") from error


def _no_driver(where: str, driver: str) -> ServiceUnavailable:
    """The error where Spark has not the class of the driver, or it is not known which one that is."""
    jar = 'its jar in VARVE_SPARK_CONF, as \'{"spark.jars": "/path/driver.jar"}\''
    name = "driver = 'org.postgresql.Driver'"
    hint = "where it is of another class, name that" if driver else "name its class too"
    return ServiceUnavailable(
        f"{where}: Spark has no driver for this database{driver and f', {driver}'}. Name {jar}, and start Spark anew "
        f"(`varve down`, `varve up`); {hint} in the dataset's OPTIONS, as {name}. {NOTHING_LOST}"
    )


def _numbers_without_scale(dataset: Dataset, columns: Mapping[str, StructField]) -> dict[str, StructField]:
    """The columns, by the names that are declared, that Spark gives a scale of its own: it would round their numbers.

    Which these are cannot be seen: all that have as many digits as there can be are taken for such columns.
    """
    from pyspark.sql.types import DecimalType

    found = {}
    for column in dataset.schema.columns:
        field = columns[column.name.lower()]
        kind = field.dataType
        if column.type.kind in _EXACT and isinstance(kind, DecimalType) and kind.precision == DECIMAL_DIGITS:
            found[column.name] = field
    return found


def _parts(keys: Sequence[PartitionKey]) -> list[Sequence[PartitionKey]]:
    size = min(_KEYS_AT_ONCE, -(-len(keys) // _TASKS))
    return [keys[place : place + size] for place in range(0, len(keys), size)]


def _is_text(field: StructField) -> bool:
    return field.dataType.typeName() in {"string", "char", "varchar"}


def _any_of(keys: Sequence[PartitionKey], texts: Collection[str], compared: Callable[[Column, str], Column]) -> Column:
    """Whether a row is in one of the partitions. `texts` are the columns of texts, which are `compared`."""
    conditions = [
        [_is(name, value, compared if name.lower() in texts else None) for name, value in key.fields] for key in keys
    ]
    return folded(or_, [folded(and_, fields) for fields in conditions])


def _is(name: str, value: Any, compared: Callable[[Column, str], Column] | None) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    column = F.col(f"`{name}`")
    if compared is None:
        return column == F.lit(plain(value))
    if isinstance(value, int | dt.datetime):
        # Spelled in any way, as in the listing. What is none is in no partition, and stops none.
        kind = "timestamp" if isinstance(value, dt.datetime) else "boolean" if isinstance(value, bool) else "bigint"
        return F.coalesce(column.try_cast(kind) == F.lit(plain(value)), F.lit(False))  # noqa: FBT003
    return compared(column, text_of(value))


def _equal(column: Column, text: str) -> Column:
    """A text, as the database compares it, but for a backslash.

    Some databases take it for an escape of the next letter, and Spark pushes a text down as it is.
    """
    return _same_bytes(column, text) if "\\" in text else column == text


def _between(column: Column, text: str) -> Column:
    """As `_equal`. What is asked for with `=`, Spark puts in the place of the column in all other conditions."""
    return _same_bytes(column, text) if "\\" in text else column.between(text, text)


def _same_bytes(column: Column, text: str) -> Column:
    """A text letter by letter, which Spark compares itself."""
    from pyspark.sql import functions as F  # noqa: N812

    return column.cast("binary") == F.lit(text.encode())
