"""The Hive table through which any Spark, Trino or Hive user reads the current batches by name.

The catalog is the truth, and the table follows it. The catalog records how far the table has come, so that the next
publish repairs what a crash has left behind (docs/decisions/0002). SQL text, naming and execution are functions apart.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.parse import unquote

from sqlglot import exp

from varve.catalog.rows import declaration
from varve.model.partitions.key import WHOLE, escape, parse_path
from varve.model.schema import ColumnType
from varve.services.jvm.class_path import PARTITIONS
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
# One call of the embedded metastore moves so many, all or none.
MOVE_AT_ONCE = 1_000
_NO_BATCH = "_no_batch"
# What Spark says where the table or its partitions are gone.
_LOST = {"TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "PARTITIONS_NOT_FOUND"}


def table_name(dataset: Dataset) -> str:
    """The name under which readers find the dataset, quoted."""
    return f"`{dataset.db}`.`{dataset.table}`"


def create_database_sql(dataset: Dataset) -> str:
    """Create the database where it is missing."""
    return f"CREATE DATABASE IF NOT EXISTS `{dataset.db}`"


def create_table_sql(dataset: Dataset, root: str) -> str:
    """Create an external table over the dataset's folder. It shows nothing until partitions are added.

    A table without partitions lies at a folder without files, until it is pointed at a batch.
    """
    columns = ", ".join(
        f"`{column.name}` {column.type} COMMENT {_literal(column.comment)}" for column in dataset.schema.columns
    )
    if not dataset.partitioning.dimensions:
        return (
            f"CREATE TABLE IF NOT EXISTS {table_name(dataset)} ({columns}) USING parquet "
            f"LOCATION {_literal(no_batch(root))} COMMENT {_literal(dataset.comment)}"
        )
    return (
        f"CREATE TABLE IF NOT EXISTS {table_name(dataset)} ({columns}, {spark_schema(dataset.partition_columns)}) "
        f"USING parquet PARTITIONED BY ({', '.join(f'`{name}`' for name in dataset.partitioning.names)}) "
        f"LOCATION {_literal(root)} COMMENT {_literal(dataset.comment)}"
    )


def add_columns_sql(dataset: Dataset, added: Iterable[Column]) -> str:
    """Add columns. In batches that do not have them, they are NULL."""
    columns = ", ".join(f"`{column.name}` {column.type} COMMENT {_literal(column.comment)}" for column in added)
    return f"ALTER TABLE {table_name(dataset)} ADD COLUMNS ({columns})"


def add_partitions_sql(dataset: Dataset, batches: Iterable[Batch], *, if_not_exists: bool = False) -> str:
    """Add partitions, each at the folder of its batch."""
    clauses = " ".join(f"{_spec(batch.partition)}LOCATION {_literal(batch.location)}" for batch in batches)
    return f"ALTER TABLE {table_name(dataset)} ADD {'IF NOT EXISTS ' if if_not_exists else ''}{clauses}"


def set_location_sql(dataset: Dataset, batch: Batch) -> str:
    """Point an existing partition, or a table without partitions, at the folder of another batch."""
    return f"ALTER TABLE {table_name(dataset)} {_spec(batch.partition)}SET LOCATION {_literal(batch.location)}"


def move_partitions_sql(dataset: Dataset, batches: Iterable[Batch]) -> str:
    """Point many partitions that exist at their batches, by the procedure of services/jvm/source."""
    keys, locations = [], []
    for batch in batches:
        texts = (text for pair in parse_path(batch.partition) for text in pair)
        keys.append(f"MAP({', '.join(map(_literal, texts))})")
        locations.append(_literal(batch.location))
    table = f"{_literal(dataset.db)}, {_literal(dataset.table)}"
    return f"CALL {PARTITIONS}.move({table}, ARRAY({', '.join(keys)}), ARRAY({', '.join(locations)}))"


def no_batch(root: str) -> str:
    """Where a table without partitions lies as long as it has no batch: a folder that stays empty."""
    return f"{root}/{WHOLE}/{_NO_BATCH}"


def clear_location_sql(dataset: Dataset, root: str) -> str:
    """Let a table without partitions show nothing."""
    return f"ALTER TABLE {table_name(dataset)} SET LOCATION {_literal(no_batch(root))}"


def drop_partition_sql(dataset: Dataset, path: str) -> str:
    """Remove a partition from the table. Its files stay, because the table is external."""
    return f"ALTER TABLE {table_name(dataset)} DROP IF EXISTS {_spec(path)}"


def shown(spark: SparkSession, dataset: Dataset, uris: str | None = None) -> dict[str, str]:
    """The folder that the table shows of each partition, by the catalog's spelling; empty without a table."""
    if not spark.catalog.tableExists(table_name(dataset)):
        return {}
    if not dataset.partitioning.dimensions:
        location = _described_location(spark, dataset, WHOLE)
        return {} if location.endswith(f"/{_NO_BATCH}") else {WHOLE: location}
    if uris is not None:
        try:
            return metastore.locations(uris, dataset)
        except metastore.MetastoreUnusable as error:
            logger.info("%s: asking Spark for each partition, for the metastore does not answer us: %s", dataset, error)
    by_files = _folders_by_files(spark, dataset)
    locations = {}
    for (spelling,) in spark.sql(f"SHOW PARTITIONS {table_name(dataset)}").collect():
        values = parse_path(spelling)
        folders = by_files.get(tuple(value for _, value in values), set())
        path = "/".join(f"{name}={escape(value)}" for name, value in values)
        locations[path] = folders.pop() if len(folders) == 1 else _described_location(spark, dataset, spelling)
    return locations


def _folders_by_files(spark: SparkSession, dataset: Dataset) -> dict[tuple[str, ...], set[str]]:
    """The folders in which Spark finds rows, by the texts of the partition's values.

    This is one query, where DESCRIBE would be one for each partition. Partitions without rows are missing; where a file
    cannot be opened, all are.
    """
    names = dataset.partitioning.names
    # Two partitions may have the same texts. They then have two folders here, and the caller asks DESCRIBE.
    texts = [f"CAST(`{name}` AS STRING)" for name in names]
    rows = spark.table(table_name(dataset)).selectExpr(*texts, "regexp_replace(_metadata.file_path, '/[^/]*$', '')")
    folders: dict[tuple[str, ...], set[str]] = {}
    try:
        # Spark caches the files of a table that it has read.
        spark.catalog.refreshTable(table_name(dataset))
        for *values, folder in rows.distinct().collect():
            folders.setdefault(tuple(values), set()).add(unquote(folder))
    except spark_errors() as error:
        logger.info("%s: asking Spark for each partition, for a file cannot be read: %s", dataset, error)
        return {}
    return folders


def _described_location(spark: SparkSession, dataset: Dataset, spelling: str) -> str:
    rows = spark.sql(f"DESCRIBE EXTENDED {table_name(dataset)} {_spec(spelling)}").collect()
    return next(str(row[1]) for row in rows if row[0] == "Location")


def follow(spark: SparkSession, catalog: Catalog, layout: Layout, dataset: Dataset, uris: str | None = None) -> int:
    """Make the table show every current batch. Returns how many partitions it did not show, or should not have shown.

    `uris` are those of a deployed metastore, which moves many partitions in one call.

    One process at a time follows a dataset: a slow one must not move partitions back that a faster one has moved.
    """
    from pyspark.errors import AnalysisException

    catalog.lock_projection(dataset.name)
    try:
        _evolve(spark, catalog, layout, dataset)
        withdrawn = _withdraw(spark, catalog, layout, dataset)
        lagging = catalog.lagging(dataset.name)
        if not lagging:
            return withdrawn
        projected = catalog.ever_projected(dataset.name, lagging)
        if len(projected) < len(lagging) and not spark.catalog.tableExists(table_name(dataset)):
            _ensure_table(spark, layout, dataset)
            # A new table shows no partition at all, also none that did not lag: an earlier table may have been lost.
            catalog.forget_projection(dataset.name)
            lagging, projected = catalog.lagging(dataset.name), set()
        try:
            moved = _move(spark, uris, dataset, [batch for path, batch in lagging.items() if path in projected])
            left = {path: batch for path, batch in lagging.items() if path not in moved}
            _point(spark, dataset, list(left.values()), projected)
        except AnalysisException as error:
            if error.getCondition() not in _LOST:
                raise
            # The metastore was lost: begin again with all current batches.
            _ensure_table(spark, layout, dataset)
            catalog.forget_projection(dataset.name)
            lagging = catalog.lagging(dataset.name)
            _point(spark, dataset, list(lagging.values()), set())
        catalog.projected(dataset.name, lagging.values())
        return withdrawn + len(lagging)
    finally:
        catalog.unlock_projection(dataset.name)


def _evolve(spark: SparkSession, catalog: Catalog, layout: Layout, dataset: Dataset) -> None:
    """Give the table the columns that the dataset declares now.

    New columns are added in place. Spark's catalog cannot widen a column or take one away, so that the table is created
    again over the same files; readers may find it missing for a moment.
    """
    if catalog.shown_columns(dataset.name) == declaration(dataset):
        return
    if spark.catalog.tableExists(table_name(dataset)):
        types = {field.name: field.dataType.simpleString() for field in spark.table(table_name(dataset)).schema.fields}
        columns = (*dataset.schema.columns, *dataset.partition_columns)
        existing = [column for column in columns if column.name in types]
        removed = types.keys() - {column.name for column in columns}
        listed = spark.catalog.listColumns(table_name(dataset))
        if (
            removed
            or [column.name for column in listed if column.isPartition] != list(dataset.partitioning.names)
            or any(ColumnType(types[column.name]) != column.type for column in existing)
        ):
            spark.sql(f"DROP TABLE {table_name(dataset)}")
            _ensure_table(spark, layout, dataset)
            catalog.forget_projection(dataset.name)
            # A new table shows no partition, also none of an earlier generation.
            catalog.forget_withdrawn(dataset.name, catalog.withdrawn(dataset.name))
        elif added := [column for column in dataset.schema.columns if column not in existing]:
            spark.sql(add_columns_sql(dataset, added))
    catalog.set_shown_columns(dataset)


def _withdraw(spark: SparkSession, catalog: Catalog, layout: Layout, dataset: Dataset) -> int:
    """Remove the partitions that have no batch any more. Returns how many."""
    from pyspark.errors import AnalysisException

    withdrawn = catalog.withdrawn(dataset.name)
    for path in withdrawn:
        try:
            whole = not dataset.partitioning.dimensions
            root = layout.table(dataset)
            spark.sql(clear_location_sql(dataset, root) if whole else drop_partition_sql(dataset, path))
        except AnalysisException as error:
            if error.getCondition() not in {"TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND"}:
                raise
    if withdrawn:
        catalog.forget_withdrawn(dataset.name, withdrawn)
    return len(withdrawn)


def _ensure_table(spark: SparkSession, layout: Layout, dataset: Dataset) -> None:
    spark.sql(create_database_sql(dataset))
    spark.sql(create_table_sql(dataset, layout.table(dataset)))


def _move(spark: SparkSession, uris: str | None, dataset: Dataset, batches: Sequence[Batch]) -> set[str]:
    """Point partitions at their batches, many in a call of the metastore. Returns those that it could move."""
    if not batches or not dataset.partitioning.dimensions:
        return set()
    if uris is not None:
        try:
            return {batch.partition for batch in metastore.move(uris, dataset, batches)}
        except metastore.MetastoreUnusable as error:
            logger.info("%s: Spark moves its partitions, for the metastore does not answer us: %s", dataset, error)
    return _move_by_our_class(spark, dataset, batches)


def _move_by_our_class(spark: SparkSession, dataset: Dataset, batches: Sequence[Batch]) -> set[str]:
    """The same by a procedure within Spark, where Varve has started it. One partition is not worth it."""
    from pyspark.errors import AnalysisException

    moved: set[str] = set()
    if len(batches) == 1 or spark.conf.get(f"spark.sql.catalog.{PARTITIONS}", None) is None:
        return moved
    for start in range(0, len(batches), MOVE_AT_ONCE):
        chunk = batches[start : start + MOVE_AT_ONCE]
        try:
            spark.sql(move_partitions_sql(dataset, chunk))
        except AnalysisException as error:
            if error.getCondition() in _LOST:
                raise
            # All or none: whichever of them the table does not have is found one by one.
            logger.info("%s: its partitions are moved one by one: %s", dataset, error)
            break
        moved |= {batch.partition for batch in chunk}
    return moved


def _point(spark: SparkSession, dataset: Dataset, batches: Sequence[Batch], projected: set[str]) -> None:
    """Add new partitions, and point those that the table has shown before (`projected`) at their batches."""
    from pyspark.errors import AnalysisException

    if not dataset.partitioning.dimensions:
        for batch in batches:
            spark.sql(set_location_sql(dataset, batch))
        return
    new = [batch for batch in batches if batch.partition not in projected]
    for start in range(0, len(new), ADD_AT_ONCE):
        chunk = new[start : start + ADD_AT_ONCE]
        try:
            spark.sql(add_partitions_sql(dataset, chunk))
        except AnalysisException as error:
            if error.getCondition() != "PARTITIONS_ALREADY_EXIST":
                raise
            # A run has added them, perhaps at an older batch, and died before it could record that.
            spark.sql(add_partitions_sql(dataset, chunk, if_not_exists=True))
            for batch in chunk:
                spark.sql(set_location_sql(dataset, batch))
    for batch in batches:
        if batch.partition in projected:
            spark.sql(set_location_sql(dataset, batch))


def _spec(path: str) -> str:
    # Values are texts: the dataset's dimensions may not have the partition any more, which is then dropped.
    values = parse_path(path)
    return f"PARTITION ({', '.join(f'`{name}`={_literal(text)}' for name, text in values)}) " if values else ""


def _literal(text: str) -> str:
    return exp.Literal.string(text).sql(dialect="spark")
