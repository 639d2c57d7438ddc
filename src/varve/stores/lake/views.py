"""A Hive table over chosen batches under another name: what an environment's readers see by SQL.

Not here: the table that follows what is current (projection.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from varve.stores.lake import executing, projection, statements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from varve.model.batch import Batch
    from varve.model.dataset import Dataset
    from varve.stores.folders.layout import Layout


def show_as(spark: SparkSession, layout: Layout, dataset: Dataset, batches: Sequence[Batch], database: str) -> None:
    """Make the table anew, with exactly these batches; readers of it may find it missing for a moment."""
    named = replace(dataset, name=f"{database}.{dataset.table}")
    shown = (
        [
            statements.add_partitions_sql(named, batches[start : start + projection.ADD_AT_ONCE])
            for start in range(0, len(batches), projection.ADD_AT_ONCE)
        ]
        if dataset.partitioning.dimensions
        else [statements.set_location_sql(named, batch) for batch in batches]
    )
    executing.execute(
        spark,
        statements.create_database_sql(named),
        f"DROP TABLE IF EXISTS {statements.table_name(named)}",
        statements.create_table_sql(named, layout.table(dataset)),
        *shown,
    )


def taken(spark: SparkSession, database: str, tables: Sequence[str]) -> list[str]:
    """Those of the names that a table or view in the database has."""
    return [table for table in tables if spark.catalog.tableExists(f"`{database}`.`{table}`")]


def hide(spark: SparkSession, database: str, tables: Sequence[str]) -> None:
    """Remove these tables, and the database where nothing else is in it. No file is touched: tables are external."""
    executing.execute(spark, *(f"DROP TABLE IF EXISTS `{database}`.`{table}`" for table in tables))
    # Spark lists the temporary views of the session with the tables of every database.
    if spark.catalog.databaseExists(database) and all(
        table.isTemporary for table in spark.catalog.listTables(database)
    ):
        spark.sql(f"DROP DATABASE IF EXISTS `{database}`")
