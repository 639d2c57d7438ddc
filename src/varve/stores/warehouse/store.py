"""The warehouse as a `Store`: stage, verify, publish and read; each calls the module that does the work."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from varve.model.errors import NOTHING_LOST, BadInput, MissingUpstream, VerifyFailed, some
from varve.services.postgres import warehouse_url
from varve.stores.folders import clean as clean_folders
from varve.stores.folders import content as hash_of_rows
from varve.stores.folders.layout import Layout
from varve.stores.folders.write import WriteOptions, remove_batches, survey, write_batches
from varve.stores.folders.write import verify_rows as verify_files
from varve.stores.frames import read_path, spark_schema
from varve.stores.postgres import types
from varve.stores.store import StoreType
from varve.stores.warehouse import (
    clean,
    compact,
    drop,
    evolve,
    examine,
    migrate,
    projection,
    publish,
    views,
)
from varve.stores.warehouse.inventory import take_inventory
from varve.stores.warehouse.loading import grown, load
from varve.stores.warehouse.loading.load import Route
from varve.stores.warehouse.reading import PinnedReader
from varve.stores.warehouse.tables import grants, notes, shape
from varve.stores.warehouse.tables.batch_tables import BatchTables
from varve.stores.warehouse.tables.naming import periods_schema

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

# Where the warehouse's rows wait for their COPY, in the lake's root but no part of the lake.
SPOOL = "_spool"
_EARLIER_TYPE = (
    "Choose another batch; or declare a type that holds what is in this one, `varve warehouse migrate {}`, and go back "
    "then."
)


@dataclass(frozen=True)
class WarehouseStore:
    """Period tables under a union view.

    Attributes:
        route: how rows get into the warehouse and out of it.
        spooling: the folders into which Spark writes the rows before they are loaded.
        publish_seconds: how long a publish may wait for readers.
        spark: opens the session when it is first needed.
    """

    route: Route
    spooling: Layout
    catalog: Catalog
    spark: Callable[[], SparkSession]
    publish_seconds: float

    def stage(self, build: Build, frame: DataFrame) -> list[StagedBatch]:
        """See `Store.stage`."""
        connection = self.catalog.connection
        types.refuse_what_postgresql_cannot_hold(build.dataset)
        _refuse_lost_partitions(build)
        # Refuses before Spark computes anything what the publish would refuse.
        if build.generation is None:
            projection.change_of(connection, build.dataset)
        grants.refuse_missing_roles(connection, build.dataset)
        evolve.refuse_former(build)
        self._refuse_missing_parts(build)
        wire = replace(build, dataset=types.wire_dataset(build.dataset))
        try:
            # The rows of a partition that grows are hashed, so that its parts can be compared with their fold.
            is_hashed = bool(build.growth) or build.compared
            options = WriteOptions(hashed=is_hashed, hashed_sets=True)
            written = write_batches(self.spooling, wire, types.to_wire(build, frame), options)
            files = survey(self.spooling, wire)
            verify_files(wire, files, written)
            if len(files) == 1:
                files = [replace(files[0], content=written.content, digests=written.digests)]
            elif is_hashed:
                files = self._hashed(wire, files)
            loaded = load.load(connection, self.route, build, files)
            load.verify_rows(connection, build, files, loaded)
        finally:
            self._remove_spool(build)
        return [grown.with_base(build, batch) for batch in loaded]

    def verify(self, build: Build, staged: Sequence[StagedBatch]) -> None:
        """See `Store.verify`: every table exists."""
        tables = [part.location for batch in staged for part in batch.parts]
        if missing := self._missing(build.dataset, [*(batch.location for batch in staged), *tables]):
            raise VerifyFailed(f"{build}: {some(missing)} is gone: somebody dropped it. {NOTHING_LOST} Run it again.")

    def publish(self, build: Build, staged: Sequence[StagedBatch]) -> None:
        """See `Store.publish`."""
        del staged
        publish.publish(self.catalog, build, seconds=self.publish_seconds)
        self.published(build)

    def commit(self, builds: Sequence[Build], point: Callable[[], None]) -> None:
        """See `Store.commit`: the views change in the same transaction."""
        publish.change(self.catalog, builds, point, self.publish_seconds)

    def commit_in_environment(self, builds: Sequence[Build], point: Callable[[], None]) -> None:
        """See `Store.commit_in_environment`: only the catalog changes."""
        del builds
        point()

    def name_publishes(self, dataset_name: str, publishes: Mapping[str, BatchId | None]) -> None:
        """See `Store.name_publishes`: readers are shown what is current."""
        del dataset_name, publishes

    def shown_together(self) -> Sequence[tuple[str, str, str]]:
        """See `Store.shown_together`: readers see one state of all."""
        return ()

    def name_current(self, name: str) -> Sequence[str]:
        """See `Store.name_current`."""
        del name
        return ()

    def published(self, build: Build) -> None:
        """See `Store.published`: periods that are over are compacted, and columns taken away leave the view."""
        compact.compact_closed(self.catalog, build.dataset, seconds=self.publish_seconds)
        migrate.narrow(self.catalog, build.dataset, seconds=self.publish_seconds)

    def discard(self, build: Build) -> None:
        """See `Store.discard`."""
        self._remove_spool(build)
        load.drop_tables(self.catalog.connection, build)

    def republish(self, build: Build, batches: Sequence[Batch], *, reason: str = "") -> None:
        """See `Store.republish`: the view shows tables of earlier batches, which still exist."""
        self.refuse_missing(build.dataset, batches)
        publish.republish(self.catalog, build, batches, reason=reason, seconds=self.publish_seconds)

    def refuse_missing(self, dataset: Dataset, batches: Sequence[Batch]) -> None:
        """See `Store.refuse_missing`. Raises VarveError where the view would show other values than a batch has."""
        self._refuse_dropped(dataset, batches)
        migrate.refuse_loss(self.catalog.connection, dataset, batches, remedy=_EARLIER_TYPE.format(dataset))

    def sweep(self, dataset_name: str, locations: Sequence[str]) -> None:
        """See `Store.sweep`."""
        notes.ensure_tables(self.catalog.connection)
        spooled = [location for location in locations if location.startswith(self.spooling.root)]
        clean_folders.remove(self.spooling, spooled)
        clean.drop(
            self.catalog.connection, dataset_name, [location for location in locations if location not in spooled]
        )

    def leftovers(self) -> list[Leftover]:
        """See `Store.leftovers`: tables, and files that a killed load has left in the spool."""
        kept = partial(clean_folders.kept_folders, self.spooling, self.catalog)
        spooled = clean_folders.units(self.spooling, kept=kept)
        return [*clean.leftovers(self.catalog.connection), *spooled]

    def unnamed(self, strays: Sequence[str]) -> list[str]:
        """See `Store.unnamed`: tables that somebody else has made in a schema of ours."""
        notes.ensure_tables(self.catalog.connection)
        return notes.newly_named(self.catalog.connection, strays)

    def scratch(self, dataset: Dataset) -> str:
        """See `Store.scratch`: in the spool."""
        return self.spooling.table(dataset)

    def hashes(self, build: Build, batches: Sequence[Batch]) -> Mapping[str, Hashes]:
        """See `Store.hashes`: of the rows as they are loaded."""
        self._refuse_dropped(build.dataset, batches)
        tables = BatchTables.of(self.catalog.connection, build.dataset.name, batches)
        columns = shape.columns_of(self.catalog.connection, periods_schema(build.dataset), [*tables.of_all(batches)])
        of_batches = {
            batch.partition: set.intersection(*({name for name, _ in columns[table]} for table in tables.all_of(batch)))
            for batch in batches
        }
        wire = replace(build, dataset=types.wire_dataset(build.dataset))
        return hash_of_rows.of_batches(wire, types.to_wire(build, self.read(build.dataset, batches)), of_batches)

    def damaged(self, dataset: Dataset, batches: Sequence[Batch], *, deep: bool = False) -> list[Finding]:
        """See `Store.damaged`: their tables, whose rows are counted."""
        return list(examine.tables(self.catalog.connection, dataset, batches, deep=deep))

    def examine(self, dataset: Dataset, batches: Sequence[Batch], *, deep: bool = False) -> list[Finding]:
        """See `Store.examine`."""
        current = self.catalog.current(dataset.name)
        return [
            *self.damaged(dataset, batches, deep=deep),
            *examine.shown(self.catalog.connection, dataset, current),
        ]

    def follow(self, dataset: Dataset) -> int:
        """See `Store.follow`: the view changes in the transaction of the publish, so that only a lost view lags."""
        behind = len(self.catalog.lagging(dataset.name)) + len(self.catalog.withdrawn(dataset.name))
        if behind:
            publish.show_current(self.catalog, dataset, seconds=self.publish_seconds)
        return behind

    def repair(self, dataset: Dataset) -> int:
        """See `Store.repair`."""
        wrong = list(examine.shown(self.catalog.connection, dataset, self.catalog.current(dataset.name)))
        if wrong:
            publish.show_current(self.catalog, dataset, seconds=self.publish_seconds)
        return len(wrong)

    def show_as(self, dataset: Dataset, batches: Sequence[Batch], database: str, readers: Sequence[str] = ()) -> bool:
        """See `Store.show_as`: a view in a schema of that name."""
        views.show_as(self.catalog, dataset, batches, database, readers)
        return True

    def taken(self, database: str, tables: Sequence[str]) -> Sequence[str]:
        """See `Store.taken`: whatever has such a name in the schema."""
        return views.taken(self.catalog.connection, database, tables)

    def hide(self, database: str, tables: Sequence[str]) -> None:
        """See `Store.hide`."""
        views.hide(self.catalog.connection, database, tables)

    def refuse_drop(self, dataset_name: str) -> None:
        """See `Store.refuse_drop`: views, functions and whatever else PostgreSQL knows."""
        drop.refuse_dependents(self.catalog.connection, dataset_name)

    def drop(self, dataset_name: str, end: Callable[[], DroppedDataset]) -> DroppedDataset:
        """See `Store.drop`: the view goes in the same transaction."""
        return drop.drop(self.catalog, dataset_name, end, seconds=self.publish_seconds)

    def finish_drop(self, dropped: DroppedDataset) -> None:
        """See `Store.finish_drop`."""
        drop.finish(self.catalog, dropped)

    def forget_drop(self, dropped: DroppedDataset) -> None:
        """See `Store.forget_drop`: its tables have remembered it, and are gone."""
        notes.forget_batches(self.catalog.connection, dropped.remains)

    def leave(self, dataset_name: str, point: Callable[[], None]) -> None:
        """See `Store.leave`: the view goes in the same transaction."""
        drop.leave(self.catalog, dataset_name, point, seconds=self.publish_seconds)

    def left(self, dataset_name: str) -> None:
        """See `Store.left`: nothing is left to be done."""

    def inventory(self) -> list[StoreInventory]:
        """See `Store.inventory`: tables describe their batches, and the view shows which are current."""
        return take_inventory(self.catalog.connection)

    def read(self, dataset: Dataset, batches: Sequence[Batch], columns: Sequence[str] | None = None) -> DataFrame:
        """See `Store.read`."""
        return PinnedReader(self.catalog.connection, self.route.reading_url, self.spark()).read(
            dataset, batches, columns
        )

    def _hashed(self, wire: Build, files: list[StagedBatch]) -> list[StagedBatch]:
        """The files with the hashes of each partition's rows."""
        columns = (*wire.dataset.schema.columns, *wire.dataset.partition_columns)
        reader = self.spark().read.schema(spark_schema(columns)).option("basePath", self.spooling.table(wire.dataset))
        hashes = hash_of_rows.of_written(wire, reader.parquet(*(read_path(batch.location) for batch in files)))
        with_hashes = [(batch, hashes[batch.partition.path]) for batch in files]
        return [
            replace(batch, content=of_rows.content, digests={} if wire.growth else of_rows.digests)
            for batch, of_rows in with_hashes
        ]

    def _refuse_missing_parts(self, build: Build) -> None:
        """Raise MissingUpstream where a table is missing whose rows the build would keep."""
        tables = [part.location for growth in build.growth.values() for part in growth.parts]
        existing = shape.columns_of(self.catalog.connection, periods_schema(build.dataset), tables)
        if missing := [table for table in tables if table not in existing]:
            raise MissingUpstream(
                f"{build.dataset}: {some(missing)} is gone, to which rows were to be added: somebody dropped it. "
                f"{NOTHING_LOST} `varve backfill start {build.dataset}` reads all files of those partitions again."
            )

    def _refuse_dropped(self, dataset: Dataset, batches: Sequence[Batch]) -> None:
        """Raise MissingUpstream where a table of the batches is missing."""
        notes.ensure_tables(self.catalog.connection)
        tables = BatchTables.of(self.catalog.connection, dataset.name, batches)
        if missing := self._missing(dataset, [table for batch in batches for table in tables.all_of(batch)]):
            raise MissingUpstream(
                f"{dataset}: {some(missing)} is gone: somebody dropped it. {NOTHING_LOST} Put it back from a dump, or "
                f"compute those partitions again: varve backfill start {dataset}."
            )

    def _missing(self, dataset: Dataset, tables: Sequence[str]) -> list[str]:
        existing = shape.columns_of(self.catalog.connection, periods_schema(dataset), tables)
        return [table for table in tables if table not in existing]

    def _remove_spool(self, build: Build) -> None:
        remove_batches(self.spooling, build)


def _refuse_lost_partitions(build: Build) -> None:
    """Raise BadInput where the dataset has lost its partitions: the view would show the old ones beside the whole."""
    before = (build.registered or {}).get("partition_columns")
    if before and not build.dataset.partition_columns:
        names = ", ".join(name for name, *_ in before)
        raise BadInput(
            f"{build}: it was partitioned by {names}, and has no partitions now. {NOTHING_LOST} "
            f"`varve evolve {build.dataset}` builds it anew, and moves its readers."
        )


def _open(settings: Settings, catalog: Catalog, spark: Callable[[], SparkSession]) -> WarehouseStore:
    route = Route(warehouse_url(settings), settings.load_connections, spark)
    return WarehouseStore(route, Layout(f"{settings.lake}/{SPOOL}"), catalog, spark, settings.publish_seconds)


def _address(dataset: Dataset, location: str) -> str:
    return f"{periods_schema(dataset)}.{location}"


WAREHOUSE = StoreType("warehouse", "postgres", _open, address=_address, consequences=evolve.consequences)


def in_warehouse(dataset: Dataset) -> bool:
    """Whether the dataset's batches lie here, for commands that only concern period tables."""
    return dataset.store == WAREHOUSE.name
