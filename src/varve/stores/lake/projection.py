"""The Hive table through which any Spark, Trino or Hive user reads the current batches by name.

The catalog is the truth, and the table follows it. The catalog records how far the table has come, so that the next
publish repairs what a crash has left behind (docs/decisions/0002).

Not here: the text of the statements (statements.py).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.parse import unquote

from varve.catalog.code.generations import Generations, dataset_of
from varve.catalog.rows import declaration
from varve.model.errors import NOTHING_LOST, StillShown, VarveError, some
from varve.model.partitions.key import WHOLE, escape, parse_path
from varve.services.files import open_files
from varve.stores.folders import metastore
from varve.stores.folders.clean import batch_of
from varve.stores.frames import column_type, described_location, spark_errors
from varve.stores.lake import executing, statements
from varve.stores.lake.executing import ALREADY_THERE, LOST
from varve.stores.lake.statements import table_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import SparkSession

    from varve.catalog.catalog import Catalog
    from varve.model.batch import Batch
    from varve.model.dataset import Dataset
    from varve.stores.folders.layout import Layout

logger = logging.getLogger(__name__)
# One statement adds so many partitions; the metastore takes them in one call.
ADD_AT_ONCE = 200


def shown(spark: SparkSession, dataset: Dataset, uris: str | None = None) -> dict[str, str]:
    """The folder that the table shows of each partition, by the catalog's spelling; empty without a table."""
    if not spark.catalog.tableExists(table_name(dataset)):
        return {}
    if not dataset.partitioning.dimensions:
        location = _described_location(spark, dataset, WHOLE)
        return {} if statements.is_no_batch(location) else {WHOLE: location}
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


def refuse_shown(
    spark: Callable[[], SparkSession], catalog: Catalog, dataset_name: str, folders: Iterable[str], uris: str | None
) -> None:
    """Raise StillShown where the table shows one of these folders, and the catalog knows no batch of its id.

    A catalog that was restored from a backup knows neither what was published since, nor that the table shows it.
    """
    unknown = catalog.unknown(dataset_name, [found for folder in folders if (found := batch_of(folder)) is not None])
    published = Generations(catalog.connection).published([dataset_name]).get(dataset_name) if unknown else None
    if published is None:
        return
    dataset = dataset_of(dataset_name, published.store, published.declaration)
    wrong = [path for path, location in shown(spark(), dataset, uris).items() if batch_of(location) in unknown]
    if wrong:
        raise StillShown(
            f"{dataset}: the Hive table shows {some(sorted(wrong))} at batches that the catalog does not know, as "
            "after it was restored from a backup. Of what belongs to no batch of the dataset nothing was deleted. "
            f"`varve repair {dataset}` lets the table show what is current; then sweep again."
        )


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
    rows = spark.sql(f"DESCRIBE EXTENDED {table_name(dataset)} {statements.partition_clause(spelling)}").collect()
    location = described_location(rows)
    assert location is not None, "a table of ours has a folder"
    return location


def follow(spark: SparkSession, catalog: Catalog, layout: Layout, dataset: Dataset, uris: str | None = None) -> int:
    """Make the table show every current batch. Returns how many partitions it did not show, or should not have shown.

    `uris` are those of a deployed metastore, which moves many partitions in one call.

    One process at a time follows a dataset: a slow one must not move partitions back that a faster one has moved.
    """
    from pyspark.errors import AnalysisException

    catalog.lock_projection(dataset.name)
    try:
        missing = _evolve(spark, catalog, layout, dataset)
        withdrawn = _withdraw(spark, catalog, layout, dataset)
        lagging = catalog.lagging(dataset.name)
        if not lagging:
            return withdrawn
        projected = catalog.ever_projected(dataset.name, lagging)
        if missing:
            # A new table shows no partition at all, also none that did not lag: an earlier table may have been lost.
            _begin_again(spark, catalog, layout, dataset)
            lagging, projected = catalog.lagging(dataset.name), set()
        catalog.projecting(dataset.name, lagging)
        try:
            moved = _move(spark, uris, dataset, [batch for path, batch in lagging.items() if path in projected])
            left = {path: batch for path, batch in lagging.items() if path not in moved}
            _point(spark, uris, dataset, list(left.values()), projected)
        except AnalysisException as error:
            if error.getCondition() not in LOST:
                raise
            # The metastore was lost: begin again with all current batches.
            _begin_again(spark, catalog, layout, dataset)
            lagging = catalog.lagging(dataset.name)
            catalog.projecting(dataset.name, lagging)
            _point(spark, uris, dataset, list(lagging.values()), set())
        catalog.projected(dataset.name, lagging.values())
        return withdrawn + len(lagging)
    finally:
        catalog.unlock_projection(dataset.name)


def refuse_foreign(spark: SparkSession, catalog: Catalog, layout: Layout, dataset: Dataset) -> None:
    """Raise VarveError where a table or view of somebody else has the dataset's name in the metastore.

    The table that a catalog has shown rows by is the dataset's, wherever it lies.
    """
    if catalog.shown_columns(dataset.name) is None and spark.catalog.tableExists(table_name(dataset)):
        _refuse_elsewhere(spark, layout, dataset)


def _refuse_elsewhere(spark: SparkSession, layout: Layout, dataset: Dataset) -> None:
    """Raise VarveError where what has the dataset's name in the metastore lies where no lake would have it."""
    rows = spark.sql(f"DESCRIBE EXTENDED {table_name(dataset)}").collect()
    location = described_location(rows)
    ours = open_files(layout.table(dataset))[1]
    place = "" if location is None else open_files(location)[1]
    # Of another deployment, with another lake: where two share a metastore, the table shows what was published last.
    lies_in_a_lake = f"{place}/".endswith(f"/{dataset.db}/{dataset.table}/") or f"/{dataset.table}/{WHOLE}/" in place
    is_external = any(row[0] == "Type" and row[1] == "EXTERNAL" for row in rows)
    if place != ours and not place.startswith(f"{ours}/") and not (is_external and lies_in_a_lake):
        what = "a view" if location is None else f"a table, which lies at {location},"
        raise VarveError(
            f"{dataset}: {what} of the metastore has its name, and is not Varve's: {NOTHING_LOST} Its own table would "
            f"lie at {layout.table(dataset)}. Rename or drop that one, or rename the dataset."
        )


def _evolve(spark: SparkSession, catalog: Catalog, layout: Layout, dataset: Dataset) -> bool:
    """Give the table the columns that the dataset declares now. Returns whether it has seen that there is no table.

    New columns are added in place. Spark's catalog cannot widen a column or take one away, so that the table is created
    again over the same files; readers may find it missing for a moment.

    Where the columns are shown already, nobody asks: a table that was lost is noticed by the statements that move it.
    """
    shown_columns = catalog.shown_columns(dataset.name)
    if shown_columns == declaration(dataset):
        return False
    is_there = spark.catalog.tableExists(table_name(dataset))
    if is_there and shown_columns is None:
        _refuse_elsewhere(spark, layout, dataset)
    columns = (*dataset.schema.columns, *dataset.partition_columns)
    declared = {column.name: column.type for column in columns}
    if is_there and any(declared.get(name) != kind for name, kind in catalog.published_columns(dataset.name).items()):
        # It was published with other code than this since: which columns readers see is for that to say.
        return False
    if is_there:
        types = {field.name: field.dataType for field in spark.table(table_name(dataset)).schema.fields}
        existing = [column for column in columns if column.name in types]
        removed = types.keys() - {column.name for column in columns}
        listed = spark.catalog.listColumns(table_name(dataset))
        if (
            removed
            or [column.name for column in listed if column.isPartition] != list(dataset.partitioning.names)
            or any(column_type(types[column.name]) != column.type for column in existing)
        ):
            catalog.forget_projection(dataset.name)
            spark.sql(f"DROP TABLE {table_name(dataset)}")
            _ensure_table(spark, layout, dataset)
            # A new table shows no partition, also none of an earlier generation.
            catalog.forget_withdrawn(dataset.name, catalog.withdrawn(dataset.name))
        elif added := [column for column in dataset.schema.columns if column not in existing]:
            spark.sql(statements.add_columns_sql(dataset, added))
    catalog.set_shown_columns(dataset)
    return not is_there


def _withdraw(spark: SparkSession, catalog: Catalog, layout: Layout, dataset: Dataset) -> int:
    """Remove the partitions that have no batch any more. Returns how many."""
    from pyspark.errors import AnalysisException

    withdrawn = catalog.withdrawn(dataset.name)
    if dataset.partitioning.dimensions:
        texts = [statements.drop_partition_sql(dataset, path) for path in withdrawn]
    else:
        texts = [statements.clear_location_sql(dataset, layout.table(dataset)) for _ in withdrawn]
    try:
        executing.execute(spark, *texts)
    except AnalysisException as error:
        if error.getCondition() not in {"TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND"}:
            raise
    if withdrawn:
        catalog.forget_withdrawn(dataset.name, withdrawn)
    return len(withdrawn)


def _begin_again(spark: SparkSession, catalog: Catalog, layout: Layout, dataset: Dataset) -> None:
    """Make the table, which shows nothing. That is recorded first: whoever dies in between leaves all of it lagging."""
    catalog.forget_projection(dataset.name)
    _ensure_table(spark, layout, dataset)


def _ensure_table(spark: SparkSession, layout: Layout, dataset: Dataset) -> None:
    executing.execute(
        spark, statements.create_database_sql(dataset), statements.create_table_sql(dataset, layout.table(dataset))
    )


def _move(spark: SparkSession, uris: str | None, dataset: Dataset, batches: Sequence[Batch]) -> set[str]:
    """Point partitions at their batches, many in a call of the metastore. Returns those that it could move."""
    if not batches or not dataset.partitioning.dimensions:
        return set()
    if uris is not None:
        try:
            return {batch.partition for batch in metastore.move(uris, dataset, batches)}
        except metastore.MetastoreUnusable as error:
            logger.info("%s: Spark moves its partitions, for the metastore does not answer us: %s", dataset, error)
    return executing.move(spark, dataset, batches)


def _point(
    spark: SparkSession, uris: str | None, dataset: Dataset, batches: Sequence[Batch], projected: set[str]
) -> None:
    """Add new partitions, and point those that the table has shown before (`projected`) at their batches."""
    from pyspark.errors import AnalysisException

    if not dataset.partitioning.dimensions:
        executing.execute(spark, *(statements.set_location_sql(dataset, batch) for batch in batches))
        return
    new = [batch for batch in batches if batch.partition not in projected]
    for start in range(0, len(new), ADD_AT_ONCE):
        chunk = new[start : start + ADD_AT_ONCE]
        try:
            executing.execute(spark, statements.add_partitions_sql(dataset, chunk))
        except AnalysisException as error:
            if error.getCondition() != ALREADY_THERE:
                raise
            # A run has added them, perhaps at an older batch, and died before it could record that.
            spark.sql(statements.add_partitions_sql(dataset, chunk, if_not_exists=True))
            moved = _move(spark, uris, dataset, chunk)
            for batch in chunk:
                if batch.partition not in moved:
                    spark.sql(statements.set_location_sql(dataset, batch))
    for batch in batches:
        if batch.partition in projected:
            spark.sql(statements.set_location_sql(dataset, batch))
