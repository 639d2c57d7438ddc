"""The lake as a `Store`: stage, verify, publish and read; each calls the module that does the work."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from varve.catalog.history.drops import Drops
from varve.catalog.history.history import History
from varve.model.errors import NOTHING_LOST, MissingUpstream, VarveError, VerifyFailed, some
from varve.services.distribution import install_command
from varve.services.files import open_files
from varve.services.settings import Compression, ContentHash
from varve.stores.folders import clean, content, footers, write
from varve.stores.folders.file_calls import at_once
from varve.stores.folders.layout import Layout
from varve.stores.frames import read_path, spark_schema
from varve.stores.lake import drop, evolve, examine, grown, projection, record, views
from varve.stores.lake.iceberg import clean as iceberg_clean
from varve.stores.lake.iceberg import examine as iceberg_examine
from varve.stores.lake.iceberg.tables import IcebergTables
from varve.stores.lake.inventory import take_inventory
from varve.stores.store import StoreType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.catalog.catalog import Catalog
    from varve.catalog.history.drops import DroppedDataset
    from varve.model.batch import Batch, BatchId, Hashes, StagedBatch
    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.model.inventory import Finding, Leftover, StoreInventory
    from varve.services.settings import Settings

# The size of a row is estimated by the current batches of so many partitions.
_SAMPLE = 50
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LakeStore:
    """Batch folders of parquet under one root.

    Attributes:
        spark: opens the session when it is first needed.
        codec: the compression of its files.
        hashing: which runs hash the rows of their batches.
        metastore: the `thrift://` URIs of a deployed Hive metastore, where there is one.
        iceberg: its tables as Iceberg tables.
    """

    layout: Layout
    catalog: Catalog
    spark: Callable[[], SparkSession]
    codec: str = Compression.ZSTD
    hashing: ContentHash = ContentHash.SINGLE
    metastore: str | None = None
    iceberg: IcebergTables | None = None

    def stage(self, build: Build, frame: DataFrame) -> list[StagedBatch]:
        """See `Store.stage`. Also raises BadInput where older batches cannot be read by the new declaration.

        Raises VarveError where somebody else's Hive table has the dataset's name.
        """
        evolve.refuse_breaking(build)
        projection.refuse_foreign(self.spark(), self.catalog, self.layout, build.dataset)
        hashed = self.hashing is not ContentHash.NEVER
        options = write.WriteOptions(self.codec, self._rows_per_file(build), hashed=hashed, hashed_sets=hashed)
        frame = grown.with_folded(build, frame, partial(self._scan, build.dataset))
        written = write.write_batches(self.layout, build, frame, options)
        staged = write.survey(self.layout, build)
        write.verify_rows(build, staged, written)
        staged = grown.with_base(self.layout, build, self._with_content(build, staged, written))
        write.write_manifests(self.layout, build, staged)
        return staged

    def verify(self, build: Build, staged: Sequence[StagedBatch]) -> None:
        """See `Store.verify`: every folder exists, because a table that points at a missing one shows no rows."""
        if missing := self._missing([batch.location for batch in staged]):
            raise VerifyFailed(f"{build}: {some(missing)} vanished after it was written. {NOTHING_LOST} Run it again.")

    def publish(self, build: Build, staged: Sequence[StagedBatch]) -> None:
        """See `Store.publish`. Then the Hive table follows; where it cannot, the next run makes it follow."""
        del staged
        self.commit([build], partial(self.catalog.publish, build))
        self.published(build)

    def commit(self, builds: Sequence[Build], point: Callable[[], None]) -> None:
        """See `Store.commit`: Iceberg tables move in the same transaction; the Hive table follows in `published`."""
        if self.iceberg is None:
            point()
        else:
            self.iceberg.commit(builds, point)

    def commit_in_environment(self, builds: Sequence[Build], point: Callable[[], None]) -> None:
        """See `Store.commit_in_environment`: its Iceberg tables, in namespaces of their own, move with it."""
        self.commit(builds, point)

    def name_publishes(self, dataset_name: str, publishes: Mapping[str, BatchId | None]) -> None:
        """See `Store.name_publishes`: as tags of the Iceberg table."""
        if self.iceberg is not None:
            self.iceberg.name_publishes(dataset_name, publishes)

    def shown_together(self) -> list[tuple[str, str, str]]:
        """See `Store.shown_together`: the metadata of Iceberg tables, by one statement."""
        return [] if self.iceberg is None else self.iceberg.pointers.all()

    def name_current(self, name: str) -> list[str]:
        """See `Store.name_current`: a tag of each Iceberg table."""
        return [] if self.iceberg is None else self.iceberg.name_current(name)

    def published(self, build: Build) -> None:
        """See `Store.published`: the lake's own record and the Hive table.

        Whatever fails here, the batches are published: the run must not fail, nor say that nothing was published.
        """
        name = build.dataset.name
        try:
            record.keep(self.layout, self.catalog, name)
        except Exception as error:  # noqa: BLE001
            logger.warning("%s is published, but the lake's own record does not have it yet: %s", build, error)
        try:
            self.follow(build.dataset)
        except Exception as error:  # noqa: BLE001
            logger.warning(
                "%s is published, but the Hive table %s does not show it yet: %s The sensor `projections` mends it, "
                "and so does the next run of the dataset.",
                build, name, error,
            )  # fmt: skip

    def republish(self, build: Build, batches: Sequence[Batch], *, reason: str = "") -> None:
        """See `Store.republish`: the folders must exist, because a table that points at a missing one shows no rows."""
        self.refuse_missing(build.dataset, batches)
        keys = {partition.path: partition for partition in build.partitions}
        targets = {keys[batch.partition]: batch.batch_id for batch in batches}
        self.commit([build], partial(self.catalog.repoint, build, targets, reason=reason))
        self.published(build)

    def refuse_missing(self, dataset: Dataset, batches: Sequence[Batch]) -> None:
        """See `Store.refuse_missing`."""
        if missing := self._missing([batch.location for batch in batches]):
            raise MissingUpstream(
                f"{dataset}: the catalog names {some(missing)}, which is not there: somebody removed it. "
                "Nothing was read or changed. Put the folder back, or rerun those partitions."
            )

    def sweep(self, dataset_name: str, locations: Sequence[str]) -> None:
        """See `Store.sweep`: no Iceberg snapshot may have files that are gone, so that it goes first.

        Raises StillShown where the Hive table shows folders of which the catalog knows no batch.
        """
        metadata = [location for location in locations if iceberg_clean.is_metadata(location)]
        batches = [location for location in locations if location not in set(metadata)]
        clean.refuse_others(self.layout, batches)
        projection.refuse_shown(self.spark, self.catalog, dataset_name, batches, self.metastore)
        if self.iceberg is not None:
            if metadata:
                iceberg_clean.remove(self.iceberg, dataset_name, metadata)
            if batches:
                iceberg_clean.let_go(self.iceberg, dataset_name, batches)
        clean.remove(self.layout, batches)

    def leftovers(self) -> list[Leftover]:
        """See `Store.leftovers`. Folders are listed first: a build that begins in between then counts as living."""
        units = clean.units(self.layout, kept=partial(clean.kept_folders, self.layout, self.catalog))
        return [*units, *([] if self.iceberg is None else iceberg_clean.leftovers(self.iceberg))]

    def unnamed(self, strays: Sequence[str]) -> list[str]:
        """See `Store.unnamed`: in the lake's root every folder is taken for a dataset's."""
        return list(strays)

    def scratch(self, dataset: Dataset) -> str:
        """See `Store.scratch`: beside the batches, where Spark's own staging lies."""
        return self.layout.table(dataset)

    def discard(self, build: Build) -> None:
        """See `Store.discard`."""
        write.remove_batches(self.layout, build)

    def read(self, dataset: Dataset, batches: Sequence[Batch], columns: Sequence[str] | None = None) -> DataFrame:
        """See `Store.read`: reads exactly these folders, with the declared schema, so that planning opens no footer."""
        if not batches:
            return self.spark().createDataFrame([], spark_schema(dataset.read_columns(columns)))
        self.refuse_missing(dataset, batches)
        return self._scan(dataset, [batch.location for batch in batches], columns)

    def hashes(self, build: Build, batches: Sequence[Batch]) -> Mapping[str, Hashes]:
        """See `Store.hashes`: the footers tell the columns."""
        self.refuse_missing(build.dataset, batches)
        files, _ = open_files(self.layout.root)
        columns = at_once(partial(footers.column_names, files), [batch.location for batch in batches])
        of_batches = {batch.partition: names for batch, names in zip(batches, columns, strict=True)}
        return content.of_batches(build, self._scan(build.dataset, [batch.location for batch in batches]), of_batches)

    def damaged(self, dataset: Dataset, batches: Sequence[Batch], *, deep: bool = False) -> list[Finding]:
        """See `Store.damaged`: their folders."""
        return examine.folders(self.layout, dataset, batches, deep=deep)

    def examine(self, dataset: Dataset, batches: Sequence[Batch], *, deep: bool = False) -> list[Finding]:
        """See `Store.examine`."""
        current = self.catalog.current(dataset.name)
        shown = projection.shown(self.spark(), dataset, self.metastore)
        in_folders = self.damaged(dataset, batches, deep=deep)
        # Where a folder is not as it was published, the Iceberg table is said to differ for that reason alone.
        damaged = {finding.partition for finding in in_folders} - {""}
        of_iceberg = [] if self.iceberg is None else iceberg_examine.findings(self.iceberg, dataset)
        return [
            *in_folders, *examine.table(dataset, current, shown),
            *(finding for finding in of_iceberg if finding.partition not in damaged),
        ]  # fmt: skip

    def follow(self, dataset: Dataset) -> int:
        """See `Store.follow`. The table of a dropped dataset of the same name goes first."""
        for dropped in Drops(self.catalog.connection).of(dataset.name):
            if not dropped.finished:
                self.finish_drop(dropped)
        return projection.follow(self.spark(), self.catalog, self.layout, dataset, self.metastore)

    def repair(self, dataset: Dataset) -> int:
        """See `Store.repair`."""
        record.keep(self.layout, self.catalog, dataset.name)
        described = History(self.catalog.connection).described(dataset.name)
        mended = examine.describe_again(self.layout, described)
        # Who moves partitions of the table waits meanwhile: what it shows is noted as it is.
        self.catalog.lock_projection(dataset.name)
        try:
            current = self.catalog.current(dataset.name)
            wrong, extra = examine.misshown(dataset, current, projection.shown(self.spark(), dataset, self.metastore))
            self.catalog.projected(dataset.name, [batch for path, batch in current.items() if path not in wrong])
            self.catalog.invalidate_projection(dataset.name, wrong, extra)
        finally:
            self.catalog.unlock_projection(dataset.name)
        mended += 0 if self.iceberg is None else self.iceberg.write_again(dataset)
        return mended + self.follow(dataset)

    def show_as(self, dataset: Dataset, batches: Sequence[Batch], database: str, readers: Sequence[str] = ()) -> bool:
        """See `Store.show_as`: a Hive table, which has no roles."""
        del readers
        views.show_as(self.spark(), self.layout, dataset, batches, database)
        return True

    def taken(self, database: str, tables: Sequence[str]) -> Sequence[str]:
        """See `Store.taken`: tables and views of the metastore."""
        return views.taken(self.spark(), database, tables)

    def hide(self, database: str, tables: Sequence[str]) -> None:
        """See `Store.hide`."""
        views.hide(self.spark(), database, tables)

    def refuse_drop(self, dataset_name: str) -> None:
        """See `Store.refuse_drop`: a metastore does not say what depends on a table."""

    def drop(self, dataset_name: str, end: Callable[[], DroppedDataset]) -> DroppedDataset:
        """See `Store.drop`: the Iceberg table goes in the same transaction, and the Hive table in `finish_drop`."""
        with self.catalog.connection.transaction():
            dropped = end()
            if self.iceberg is not None:
                self.iceberg.drop(dataset_name)
        return dropped

    def finish_drop(self, dropped: DroppedDataset) -> None:
        """See `Store.finish_drop`."""
        drop.finish(self.spark(), self.catalog, self.layout, dropped)

    def forget_drop(self, dropped: DroppedDataset) -> None:
        """See `Store.forget_drop`. The folders stay where a dataset of the same name has been made since."""
        is_declared_again = dropped.name in History(self.catalog.connection).stores()
        if self.iceberg is not None and not is_declared_again:
            self.iceberg.remove_metadata(dropped.name)
        record.forget_drop(self.layout, dropped, with_folders=not is_declared_again)

    def leave(self, dataset_name: str, point: Callable[[], None]) -> None:
        """See `Store.leave`: the Iceberg table goes with it, and the Hive table follows the catalog, in `left`."""
        with self.catalog.connection.transaction():
            point()
            if self.iceberg is not None:
                self.iceberg.drop(dataset_name)

    def left(self, dataset_name: str) -> None:
        """See `Store.left`."""
        record.keep(self.layout, self.catalog, dataset_name)
        drop.hide(self.spark(), self.catalog, self.layout, dataset_name)

    def inventory(self) -> list[StoreInventory]:
        """See `Store.inventory`."""
        return take_inventory(self.layout)

    def _missing(self, locations: Sequence[str]) -> list[str]:
        files, _ = open_files(self.layout.root)
        existence = at_once(files.exists, locations)
        return [location for location, exists in zip(locations, existence, strict=True) if not exists]

    def _rows_per_file(self, build: Build) -> int | None:
        """The limit of rows in a file; where the dataset limits bytes, estimated by the size of earlier rows."""
        options = build.dataset.lake
        if options.file_rows is not None or options.file_bytes is None or not any(build.expected.values()):
            return options.file_rows
        before = self.catalog.current(build.dataset.name, build.partitions[:_SAMPLE]).values()
        rows, size = sum(batch.rows for batch in before), sum(batch.size for batch in before)
        return max(1, options.file_bytes * rows // size) if rows and size else None

    def _with_content(self, build: Build, staged: list[StagedBatch], written: write.WriteReport) -> list[StagedBatch]:
        if len(staged) == 1:
            return [replace(staged[0], content=written.content, digests=written.digests)]
        if not self._hashes_many(build):
            return staged
        hashes = content.of_written(build, self._scan(build.dataset, [batch.location for batch in staged]))
        with_hashes = [(batch, hashes[batch.partition.path]) for batch in staged]
        return [
            replace(batch, content=of_rows.content, digests={} if build.growth else of_rows.digests)
            for batch, of_rows in with_hashes
        ]

    def _hashes_many(self, build: Build) -> bool:
        """Whether a build of several partitions hashes each. One that adds rows does, or the sums would be unknown."""
        if self.hashing is ContentHash.NEVER:
            return False
        return self.hashing is ContentHash.ALWAYS or build.compared or bool(build.growth)

    def _scan(self, dataset: Dataset, locations: Sequence[str], columns: Sequence[str] | None = None) -> DataFrame:
        read_columns = dataset.read_columns(columns)
        reader = self.spark().read.schema(spark_schema(read_columns)).option("basePath", self.layout.table(dataset))
        return reader.parquet(*map(read_path, locations)).select(*[f"`{column.name}`" for column in read_columns])


def _open(settings: Settings, catalog: Catalog, spark: Callable[[], SparkSession]) -> LakeStore:
    return LakeStore(
        Layout(settings.lake), catalog, spark,
        codec=settings.compression, hashing=settings.content_hash, metastore=settings.hive_metastore_uri,
        iceberg=_iceberg(settings, catalog),
    )  # fmt: skip


def _iceberg(settings: Settings, catalog: Catalog) -> IcebergTables:
    """The Iceberg side; no table has one where pyiceberg is not installed."""
    installed = find_spec("pyiceberg") is not None
    if settings.iceberg and not installed:
        raise VarveError(
            "the setting iceberg is on, and pyiceberg is not installed. Nothing was read or changed. "
            f"Run: {install_command('iceberg')}, or take the setting away."
        )
    return IcebergTables(
        Layout(settings.lake), catalog, settings.iceberg is not False, installed, settings.iceberg_snapshots
    )


LAKE = StoreType("lake", "parquet", _open, in_folders=True, consequences=evolve.consequences)
