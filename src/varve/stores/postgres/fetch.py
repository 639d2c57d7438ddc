"""Rows of queries to a PostgreSQL as a frame of Spark: fetched by this process, or by Spark's tasks.

Not here: what runs in a task (spark_source.py).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from varve.stores.frames import arrow_schema, spark_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.model.schema import Column

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def at_once(spark: SparkSession, url: str, columns: Sequence[Column], queries: Sequence[str]) -> DataFrame:
    """The rows of the queries, fetched by this process, now."""
    import pyarrow as pa

    from varve.stores.postgres import spark_source

    schema = arrow_schema(columns)
    rows = pa.Table.from_batches(spark_source.fetch(url, queries, schema) if queries else (), schema)
    # Spark takes no empty table.
    return spark.createDataFrame(rows if rows.num_rows else [], spark_schema(columns))


def lazily(spark: SparkSession, url: str, columns: Sequence[Column], tasks: Sequence[Sequence[str]]) -> DataFrame:
    """The same by Spark's tasks, each with its queries, when the frame is used."""
    from pyspark import cloudpickle

    from varve.stores.postgres import driver, spark_source

    for module in (driver, spark_source):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(spark_source.PeriodTables)
    return (
        spark.read.format(spark_source.NAME)
        .options(
            url=url,
            schema=spark_schema(columns),
            arrow=arrow_schema(columns).serialize().to_pybytes().hex(),
            queries=json.dumps(tasks),
        )
        .load()
    )
