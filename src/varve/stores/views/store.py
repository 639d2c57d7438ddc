"""The store of EXTERNAL VIEW: a batch is a list of files of others, which stay where they are and are read there.

A build of such a dataset lists the files of its partitions and publishes the list. Whoever reads a batch gets exactly
these files, or an error where one of them is not as it was listed: nothing is kept of what others replace.

Not here: the lists (pinned.py), and finding the folders (varve/sources/external).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from varve.catalog.history.drops import Drops
from varve.model.batch import Part, StagedBatch, TakenFile
from varve.model.errors import NOTHING_LOST, MissingUpstream, VarveError
from varve.model.external import ExternalTableKind
from varve.model.inventory import Finding
from varve.model.partitions.key import plain
from varve.stores.basic import BasicStore
from varve.stores.folders.listing import ListedFile
from varve.stores.frames import folded, read_path, spark_schema
from varve.stores.store import StoreType
from varve.stores.views.footers import rows_by_footer
from varve.stores.views.pinned import changes, folders_of, location_of, pinned_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.catalog.catalog import Catalog
    from varve.catalog.history.drops import DroppedDataset
    from varve.model.batch import Batch
    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.model.inventory import Leftover
    from varve.services.settings import Settings

# What a build gets in the place of rows: a row for each file, and one without a file for each folder.
LISTING = "partition STRING, folder STRING, inside STRING, size BIGINT, changed STRING"
_COLUMNS = ["partition", "folder", "inside", "size", "changed"]
_NOT_KEPT = (
    "It is an EXTERNAL VIEW: its files are those of others, and nothing is kept of what they replace, so that it has "
    "no history to read or to roll back to. Nothing was changed. The arrival sensor takes the partition as it is now; "
    "one that is gone for good is taken out by varve rollback DATASET COL=VALUE --at TIME --withdraw, with a time "
    "before it came. To keep what was there, declare it as EXTERNAL without VIEW, which copies."
)


@dataclass(frozen=True)
class ViewStore(BasicStore):
    """Lists of others' parquet files; the lists are in the catalog.

    Attributes:
        spark: opens the session when it is first needed.
    """

    spark: Callable[[], SparkSession]

    def stage(self, build: Build, frame: DataFrame) -> list[StagedBatch]:
        """See `Store.stage`: the frame is a listing (`LISTING`). Raises BadInput for files that cannot be read."""
        if frame.columns != _COLUMNS:
            raise VarveError(
                f"{build}: rows cannot be put into an EXTERNAL VIEW, which has the files of others. {NOTHING_LOST} "
                "Leave its rows to its source, or declare it as EXTERNAL without VIEW."
            )
        folders: dict[str, set[str]] = {}
        files: dict[str, list[ListedFile]] = {}
        for path, folder, inside, size, changed in frame.collect():
            folders.setdefault(path, set()).add(folder)
            if inside is not None:
                files.setdefault(path, []).append(ListedFile(folder, inside, size, changed))
        listed = sorted({file for path in build.paths for file in files.get(path, ())})
        rows = rows_by_footer(build.dataset, listed)
        return [
            _staged(build, key.path, sorted(folders.get(key.path, ())), files.get(key.path, []), rows)
            for key in build.partitions
        ]

    def verify(self, build: Build, staged: Sequence[StagedBatch]) -> None:
        """See `Store.verify`: nothing was written. The source lists the files again before the publish."""

    def discard(self, build: Build) -> None:
        """See `Store.discard`: nothing was written."""

    def refuse_missing(self, dataset: Dataset, batches: Sequence[Batch]) -> None:
        """See `Store.refuse_missing`: raises where a file is another one than was listed, too."""
        if changed := self._changes(dataset, batches):
            path, change = min(changed.items())
            more = f" (and {len(changed) - 1} more partitions changed)" if len(changed) > 1 else ""
            raise MissingUpstream(f"{dataset} {path}: {change}{more}. {_NOT_KEPT}")

    def sweep(self, dataset_name: str, locations: Sequence[str]) -> None:
        """See `Store.sweep`: the files of others are never deleted."""

    def leftovers(self) -> list[Leftover]:
        """See `Store.leftovers`: the store has nothing of its own."""
        return []

    def scratch(self, dataset: Dataset) -> str:
        """See `Store.scratch`: nothing is on its way to such a batch. Raises VarveError."""
        raise VarveError(f"{dataset}: nothing is written for an EXTERNAL VIEW.")

    def examine(self, dataset: Dataset, batches: Sequence[Batch], *, deep: bool = False) -> list[Finding]:
        """See `Store.examine`: only current batches can be as they were listed."""
        del deep
        current = self.catalog.current(dataset.name)
        shown = [batch for batch in batches if current.get(batch.partition) == batch]
        ids = {batch.partition: batch.batch_id for batch in shown}
        return [
            Finding(dataset.name, path, ids[path], change, "The arrival sensor takes the partition as it is now.")
            for path, change in self._changes(dataset, shown).items()
        ]

    def read(self, dataset: Dataset, batches: Sequence[Batch], columns: Sequence[str] | None = None) -> DataFrame:
        """See `Store.read`: exactly the files that were listed. Raises MissingUpstream where one of them changed."""
        self.refuse_missing(dataset, batches)
        pinned = pinned_files(self.catalog.connection, dataset.name, batches)
        wanted = dataset.read_columns(columns)
        names = [column.name for column in wanted]
        with_files = [batch for batch in batches if pinned.get(batch.partition)]
        if not with_files:
            return self.spark().createDataFrame([], spark_schema(wanted))
        bases = {_base(batch) for batch in with_files}
        if dataset.partitioning.names and len(bases) == 1 and None not in bases:
            # Folders that are called as Hive calls them: one scan of all files.
            files = [read_path(file.name) for batch in with_files for file in pinned[batch.partition]]
            reader = self.spark().read.schema(spark_schema(wanted)).option("basePath", str(bases.pop()))
            return reader.parquet(*files).select(*[f"`{name}`" for name in names])
        frames = [self._partition(dataset, batch, pinned[batch.partition], names) for batch in with_files]
        return folded(lambda frame, other: frame.unionByName(other), frames)

    def follow(self, dataset: Dataset) -> int:
        """See `Store.follow`: a view in the metastore over the table, or over the folder, as it is now."""
        if dataset.external is not None and dataset.external.name != dataset.name:
            spark = self.spark()
            spark.sql(f"CREATE DATABASE IF NOT EXISTS `{dataset.db}`")
            _create_view(spark, dataset)
        return BasicStore.follow(self, dataset)

    def finish_drop(self, dropped: DroppedDataset) -> None:
        """See `Store.finish_drop`: the view goes; a table of others with that name stays."""
        self.left(dropped.name)
        Drops(self.catalog.connection).finished(dropped)

    def left(self, dataset_name: str) -> None:
        """See `Store.left`."""
        spark = self.spark()
        db, _, table = dataset_name.partition(".")
        if spark.catalog.databaseExists(db) and any(
            entry.name == table and entry.tableType == "VIEW" for entry in spark.catalog.listTables(db)
        ):
            spark.sql(f"DROP VIEW IF EXISTS `{db}`.`{table}`")

    def _changes(self, dataset: Dataset, batches: Sequence[Batch]) -> dict[str, str]:
        return changes(batches, pinned_files(self.catalog.connection, dataset.name, batches))

    def _partition(self, dataset: Dataset, batch: Batch, files: Sequence[TakenFile], names: list[str]) -> DataFrame:
        """The rows of one partition; its columns are in no folder's name as its dataset spells them."""
        from pyspark.sql import functions as F  # noqa: N812

        schema = spark_schema([column for column in dataset.schema.columns if column.name in names])
        frame = self.spark().read.schema(schema).parquet(*[read_path(file.name) for file in files])
        key = dataset.partitioning.from_path(batch.partition)
        for column in dataset.partition_columns:
            frame = frame.withColumn(column.name, F.lit(plain(key[column.name])).cast(str(column.type)))
        return frame.select(*[f"`{name}`" for name in names])


def _base(batch: Batch) -> str | None:
    """The folder of the whole table, where that of the batch is called as its partition is spelled."""
    folders = folders_of(batch.location)
    if len(folders) != 1 or not folders[0].rstrip("/").endswith(f"/{batch.partition}"):
        return None
    return folders[0].rstrip("/").removesuffix(f"/{batch.partition}")


def _staged(
    build: Build, path: str, folders: Sequence[str], files: Sequence[ListedFile], rows: Mapping[ListedFile, int]
) -> StagedBatch:
    key = next(partition for partition in build.partitions if partition.path == path)
    location, count, size = location_of(folders), sum(rows[file] for file in files), sum(file.size for file in files)
    taken = tuple(TakenFile(file.uri, file.state, "", file.size) for file in files)
    part = Part(build.batch_id, location, count, size, taken)
    return StagedBatch(key, location, count, size, len(files), parts=(part,))


def _create_view(spark: SparkSession, dataset: Dataset) -> None:
    """Create the view of a dataset. Where the first file of a folder lacks a column, it looks into all of them."""
    from pyspark.errors import AnalysisException

    try:
        spark.sql(_view_sql(dataset))
    except AnalysisException as error:
        if "UNRESOLVED_COLUMN" not in str(error.getCondition()):
            raise
        spark.sql(f"{_view_sql(dataset)} WITH ('mergeSchema' = 'true')")


def _view_sql(dataset: Dataset) -> str:
    table = dataset.external
    assert table is not None
    db, name = ("parquet", read_path(table.name)) if table.kind is ExternalTableKind.PARQUET else table.name.split(".")
    columns = [
        exp.cast(exp.column(column.name, quoted=True), exp.DataType.build(str(column.type), dialect="spark")).as_(
            column.name, quoted=True
        )
        for column in (*dataset.schema.columns, *dataset.partition_columns)
    ]
    source = exp.table_(name, db=db, quoted=True)
    query = exp.select(*columns).from_(source).sql("spark", identify=True)
    return f"CREATE OR REPLACE VIEW `{dataset.db}`.`{dataset.table}` AS {query}"


def _open(settings: Settings, catalog: Catalog, spark: Callable[[], SparkSession]) -> ViewStore:
    del settings
    return ViewStore(catalog, spark)


VIEW = StoreType("view", "parquet", _open)
