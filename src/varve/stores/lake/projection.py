"""The Hive table through which any Spark, Trino or Hive user reads the current batches by name.

The catalog is the truth; the table follows it, and the catalog remembers how far, so that the next publish mends what
a crash has left behind. SQL text, naming and execution are kept apart.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.parse import unquote

from sqlglot import exp

from varve.catalog.rows import declaration
from varve.model.evolution import widens
from varve.model.partitions.key import escape, parse_path
from varve.model.schema import ColumnType
from varve.stores.folders import metastore
from varve.stores.frames import spark_errors, spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import SparkSession

    from varve.catalog.catalog import Catalog
    from varve.model.batch import Batch
    from varve.model.dataset import Dataset
    from varve.model.schema import Column
    from varve.stores.folders.layout import Layout

logger = logging.getLogger(__name__)
# One statement adds so many partitions; the metastore takes them in one call.
ADD_AT_ONCE = 200


def table_name(dataset: Dataset) -> str:
    """The name under which readers find the dataset, quoted."""
    return f"`{dataset.db}`.`{dataset.table}`"


def create_database_sql(dataset: Dataset) -> str:
    """The database, if there is none."""
    return f"CREATE DATABASE IF NOT EXISTS `{dataset.db}`"


def create_table_sql(dataset: Dataset, root: str) -> str:
    """An external table over the dataset's folder, which shows nothing until partitions are added."""
    columns = ", ".join(
        f"`{column.name}` {column.type} COMMENT {_literal(column.comment)}" for column in dataset.schema.columns
    )
    return (
        f"CREATE TABLE IF NOT EXISTS {table_name(dataset)} ({columns}, {spark_schema(dataset.partition_columns)}) "
        f"USING parquet PARTITIONED BY ({', '.join(f'`{name}`' for name in dataset.partitioning.names)}) "
        f"LOCATION {_literal(root)} COMMENT {_literal(dataset.comment)}"
    )


def add_columns_sql(dataset: Dataset, added: Iterable[Column]) -> str:
    """Add columns, which older batches have not: they read as NULL there."""
    columns = ", ".join(f"`{column.name}` {column.type} COMMENT {_literal(column.comment)}" for column in added)
    return f"ALTER TABLE {table_name(dataset)} ADD COLUMNS ({columns})"


def add_partitions_sql(dataset: Dataset, batches: Iterable[Batch], *, if_not_exists: bool = False) -> str:
    """Add partitions, each at the folder of its batch."""
    clauses = " ".join(f"{_spec(batch.partition)} LOCATION {_literal(batch.location)}" for batch in batches)
    return f"ALTER TABLE {table_name(dataset)} ADD {'IF NOT EXISTS ' if if_not_exists else ''}{clauses}"


def set_location_sql(dataset: Dataset, batch: Batch) -> str:
    """Point an existing partition at the folder of another batch."""
    return f"ALTER TABLE {table_name(dataset)} {_spec(batch.partition)} SET LOCATION {_literal(batch.location)}"


def drop_partition_sql(dataset: Dataset, path: str) -> str:
    """Take a partition out of the table; its files stay, the table is external."""
    return f"ALTER TABLE {table_name(dataset)} DROP IF EXISTS {_spec(path)}"


def shown(spark: SparkSession, dataset: Dataset, uris: str | None = None) -> dict[str, str]:
    """What the table shows: the folder of each of its partitions, by the catalog's spelling; none without a table."""
    if not spark.catalog.tableExists(table_name(dataset)):
        return {}
    if uris is not None:
        try:
            return metastore.locations(uris, dataset)
        except metastore.MetastoreUnusable as error:
            logger.info("%s: asking Spark for each partition, for the metastore does not answer us: %s", dataset, error)
    by_files = _folders_by_files(spark, dataset)
    found = {}
    for (spelt,) in spark.sql(f"SHOW PARTITIONS {table_name(dataset)}").collect():
        values = parse_path(spelt)
        seen = by_files.get(tuple(value for _, value in values), set())
        path = "/".join(f"{name}={escape(value)}" for name, value in values)
        found[path] = seen.pop() if len(seen) == 1 else _described_location(spark, dataset, spelt)
    return found


def _folders_by_files(spark: SparkSession, dataset: Dataset) -> dict[tuple[str, ...], set[str]]:
    """The folders in which Spark finds rows, by the texts of the partition: one query, as DESCRIBE is one for each.

    What has no row is not in it, and nothing is where a file cannot be opened.
    """
    names = dataset.partitioning.names
    # A text that looks like another partition's leads to two folders, and they to DESCRIBE.
    texts = [f"CAST(`{name}` AS STRING)" for name in names]
    rows = spark.table(table_name(dataset)).selectExpr(*texts, "regexp_replace(_metadata.file_path, '/[^/]*$', '')")
    found: dict[tuple[str, ...], set[str]] = {}
    try:
        # Spark remembers the files of a table that it has read.
        spark.catalog.refreshTable(table_name(dataset))
        for *values, folder in rows.distinct().collect():
            found.setdefault(tuple(values), set()).add(unquote(folder))
    except spark_errors() as error:
        logger.info("%s: asking Spark for each partition, for a file cannot be read: %s", dataset, error)
        return {}
    return found


def _described_location(spark: SparkSession, dataset: Dataset, spelt: str) -> str:
    described = spark.sql(f"DESCRIBE EXTENDED {table_name(dataset)} {_spec(spelt)}").collect()
    return next(str(row[1]) for row in described if row[0] == "Location")


def follow(spark: SparkSession, catalog: Catalog, layout: Layout, dataset: Dataset, uris: str | None = None) -> int:
    """Make the table show every current batch it does not show yet; how many it did not.

    `uris` are those of a deployed metastore, which moves many partitions in one call.

    One process at a time per dataset: a slow one must not put back what a faster one has moved on.
    """
    from pyspark.errors import AnalysisException

    catalog.lock_projection(dataset.name)
    try:
        _evolve(spark, catalog, layout, dataset)
        withdrawn = _withdraw(spark, catalog, dataset)
        lagging = catalog.lagging(dataset.name)
        if not lagging:
            return withdrawn
        known = catalog.ever_projected(dataset.name, lagging)
        if len(known) < len(lagging) and not spark.catalog.tableExists(table_name(dataset)):
            _ensure_table(spark, layout, dataset)
            # A table made anew shows nothing, also of what does not lag: an earlier one may have been lost.
            catalog.forget_projection(dataset.name)
            lagging, known = catalog.lagging(dataset.name), set()
        try:
            moved = _move(uris, dataset, [batch for path, batch in lagging.items() if path in known])
            left = {path: batch for path, batch in lagging.items() if path not in moved}
            _point(spark, dataset, list(left.values()), known)
        except AnalysisException as error:
            if error.getCondition() not in {"TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "PARTITIONS_NOT_FOUND"}:
                raise
            # The metastore was lost: begin again with all that is current.
            _ensure_table(spark, layout, dataset)
            catalog.forget_projection(dataset.name)
            lagging = catalog.lagging(dataset.name)
            _point(spark, dataset, list(lagging.values()), set())
        catalog.projected(dataset.name, lagging.values())
        return withdrawn + len(lagging)
    finally:
        catalog.unlock_projection(dataset.name)


def _evolve(spark: SparkSession, catalog: Catalog, layout: Layout, dataset: Dataset) -> None:
    """Give the table the columns that the dataset has now.

    New ones are added in place. Spark's catalog cannot widen a column: the table is made anew, over the same files, and
    readers by name may find it missing for that moment.
    """
    if catalog.shown_columns(dataset.name) == declaration(dataset):
        return
    if spark.catalog.tableExists(table_name(dataset)):
        found = {field.name: field.dataType.simpleString() for field in spark.table(table_name(dataset)).schema.fields}
        known = [column for column in dataset.schema.columns if column.name in found]
        if any(widens(ColumnType(found[column.name]), column.type) for column in known):
            spark.sql(f"DROP TABLE {table_name(dataset)}")
            _ensure_table(spark, layout, dataset)
            catalog.forget_projection(dataset.name)
        elif added := [column for column in dataset.schema.columns if column not in known]:
            spark.sql(add_columns_sql(dataset, added))
    catalog.set_shown_columns(dataset)


def _withdraw(spark: SparkSession, catalog: Catalog, dataset: Dataset) -> int:
    from pyspark.errors import AnalysisException

    withdrawn = catalog.withdrawn(dataset.name)
    for path in withdrawn:
        try:
            spark.sql(drop_partition_sql(dataset, path))
        except AnalysisException as error:
            if error.getCondition() not in {"TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND"}:
                raise
    if withdrawn:
        catalog.forget_withdrawn(dataset.name, withdrawn)
    return len(withdrawn)


def _ensure_table(spark: SparkSession, layout: Layout, dataset: Dataset) -> None:
    spark.sql(create_database_sql(dataset))
    spark.sql(create_table_sql(dataset, layout.table(dataset)))


def _move(uris: str | None, dataset: Dataset, batches: Sequence[Batch]) -> set[str]:
    """Those partitions that the metastore could move by itself."""
    if uris is None or not batches:
        return set()
    try:
        return {batch.partition for batch in metastore.move(uris, dataset, batches)}
    except metastore.MetastoreUnusable as error:
        logger.info(
            "%s: Spark moves its partitions one by one, for the metastore does not answer us: %s", dataset, error
        )
        return set()


def _point(spark: SparkSession, dataset: Dataset, batches: Sequence[Batch], known: set[str]) -> None:
    from pyspark.errors import AnalysisException

    fresh = [batch for batch in batches if batch.partition not in known]
    for start in range(0, len(fresh), ADD_AT_ONCE):
        some = fresh[start : start + ADD_AT_ONCE]
        try:
            spark.sql(add_partitions_sql(dataset, some))
        except AnalysisException as error:
            if error.getCondition() != "PARTITIONS_ALREADY_EXIST":
                raise
            # Added by a run that died before the catalog could note it, perhaps at an older batch.
            spark.sql(add_partitions_sql(dataset, some, if_not_exists=True))
            for batch in some:
                spark.sql(set_location_sql(dataset, batch))
    for batch in batches:
        if batch.partition in known:
            spark.sql(set_location_sql(dataset, batch))


def _spec(path: str) -> str:
    # The dataset's dimensions may not have the partition any more: it is dropped by its texts.
    return f"PARTITION ({', '.join(f'`{name}`={_literal(text)}' for name, text in parse_path(path))})"


def _literal(text: str) -> str:
    return exp.Literal.string(text).sql(dialect="spark")
