"""Batches are plain parquet, and an Iceberg table: other engines read the rows that Spark reads by name."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import duckdb
import pytest

from tests.stores.lake.iceberg.readers import by_duckdb, by_polars, by_pyiceberg, by_text, iceberg_table
from tests.support.sales import DAY, sales_dataset
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import StaticDimension
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.stores.lake import statements

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.support.workbench import Workbench
    from varve.model.batch import Batch

pytestmark = pytest.mark.spark

STORES = ("Paris", "Zürich", "100% a/b=c", 'it\'s "here"', "+1 2")
SCHEMA = Schema(
    (
        Column("n", ColumnType.BIGINT),
        Column("name", ColumnType.STRING),
        Column("price", ColumnType.decimal(12, 3)),
        Column("weight", ColumnType.DOUBLE),
        Column("on", ColumnType.DATE),
        Column("at", ColumnType.TIMESTAMP),
        Column("local", ColumnType.TIMESTAMP_NTZ),
        Column("raw", ColumnType.BINARY),
        Column("tags", ColumnType.array(ColumnType.STRING)),
    )
)


@pytest.fixture
def typed() -> Dataset:
    sales = sales_dataset(StoreKind.LAKE, dimensions=(DAY, StaticDimension("store", STORES)))
    return Dataset(sales.name, Partitioning(sales.partitioning.dimensions), SCHEMA, StoreKind.LAKE, "Every type.")


def duckdb_rows(batches: Iterable[Batch], names: str) -> list[dict[str, object]]:
    """What DuckDB reads from these folders, with the partition columns that their names spell."""
    globs = [f"{batch.location}/*.parquet" for batch in batches]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows = connection.sql(
            f"SELECT {names} FROM read_parquet(?, hive_partitioning = true, hive_types = "
            "{'day': DATE, 'store': VARCHAR}) ORDER BY day, store, n",
            params=[globs],
        )
        return list(rows.to_arrow_table().to_pylist())


def test_duckdb_reads_the_rows_that_spark_reads_by_name(workbench: Workbench, typed: Dataset) -> None:
    keys = [PartitionKey.of(day=dt.date(2013, 1, day), store=store) for day in (5, 6) for store in STORES]
    listed = ", ".join(f"""('{store.replace("'", chr(92) + "'")}')""" for store in STORES)
    rows = workbench.spark.sql(
        f"""
        SELECT id AS n, IF(id % 3 = 0, NULL, concat('é', id)) AS name, CAST(id / 7 AS DECIMAL(12, 3)) AS price,
            CASE id WHEN 1 THEN DOUBLE('NaN') WHEN 2 THEN DOUBLE('Infinity') ELSE id / 3.0D END AS weight,
            DATE_ADD(DATE'1582-01-01', INT(id * 20000)) AS `on`, TIMESTAMP_MICROS(id * 123456789012345) AS at,
            TIMESTAMP_NTZ'1969-12-31 23:59:59.999999' AS local, IF(id = 4, NULL, encode(string(id), 'UTF-8')) AS raw,
            IF(id = 5, NULL, array('a', NULL, string(id))) AS tags, DATE'2013-01-05' AS day, store
        FROM range(20) CROSS JOIN VALUES {listed} AS t (store)
        """
    )
    current = workbench.publish_frame(typed, keys, rows)
    current = workbench.publish_frame(typed, keys[:1], rows.where("store = 'Paris' AND n < 7"))
    names = ", ".join(f"`{name}`" for name in (*SCHEMA.names, "day", "store"))
    table = f"SELECT {names} FROM {statements.table_name(typed)} ORDER BY day, store, n"
    by_name = workbench.spark.sql(table).toArrow().to_pylist()
    duckdb_result = duckdb_rows(current.values(), names.replace("`", '"'))
    assert len(current) == len(keys)
    assert len(duckdb_result) == 7 + 20 * (len(STORES) - 1)
    table = iceberg_table(workbench.settings, typed)
    expected = list(map(_with_utc, by_text(by_name)))
    assert list(map(_with_utc, by_pyiceberg(table))) == expected
    assert list(map(_with_utc, by_polars(table))) == expected
    assert list(map(_with_utc, by_duckdb(table))) == expected
    # As texts, in which NaN equals itself.
    assert list(map(str, duckdb_result)) == list(map(str, by_name))


def _with_utc(row: dict[str, object]) -> str:
    """A row as text, with the name of UTC that pyarrow gives it where Spark has made the table."""
    return str(row).replace("zoneinfo.ZoneInfo(key='UTC')", "<UTC>")
