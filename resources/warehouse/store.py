"""The warehouse as a `Store`: stage, verify, publish and read, each a call into the room that does it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import fsspec

from pipeline_defs.model.errors import NOTHING_LOST, VerifyFailed, some
from resources.lake.write import survey, write_batches
from resources.lake.write import verify_rows as verify_files
from resources.warehouse import load, projection, publish, types, view
from resources.warehouse.reading import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from pipeline_defs.model.batch import Batch, StagedBatch
    from pipeline_defs.model.dataset import Dataset
    from resources.catalog import Catalog
    from resources.lake.layout import Layout
    from resources.store import Build
    from resources.warehouse.load import Route


@dataclass(frozen=True)
class WarehouseStore:
    """Period tables under a union view.

    Attributes:
        route: by which way rows go into the warehouse and out of it.
        spooling: where Spark puts the rows on their way into PostgreSQL.
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
        # What a publish would refuse is refused before Spark computes it.
        projection.change_of(connection, build.dataset)
        wire = replace(build, dataset=types.wire_dataset(build.dataset))
        try:
            written = write_batches(self.spooling, wire, types.to_wire(build, frame))
            files = survey(self.spooling, wire)
            verify_files(wire, files, written.rows)
            loaded = load.load(connection, self.route, build, files)
            load.verify_rows(connection, build, files, loaded)
        finally:
            self._remove_spool(build)
        return loaded

    def verify(self, build: Build, staged: Sequence[StagedBatch]) -> None:
        """See `Store.verify`: every table is there."""
        connection = self.catalog.connection
        names = [view.table_name(build.dataset, batch.location).as_string(connection) for batch in staged]
        missing = connection.execute(
            "select name from unnest(%s::text[]) as name where to_regclass(name) is null", (names,)
        ).fetchall()
        if missing:
            raise VerifyFailed(f"{build}: {some(name for (name,) in missing)} vanished after the load. {NOTHING_LOST}")

    def publish(self, build: Build, staged: Sequence[StagedBatch]) -> None:
        """See `Store.publish`."""
        del staged
        publish.publish(self.catalog, build, seconds=self.publish_seconds)

    def discard(self, build: Build) -> None:
        """See `Store.discard`."""
        self._remove_spool(build)
        load.drop_tables(self.catalog.connection, build)

    def read(self, dataset: Dataset, batches: Sequence[Batch]) -> DataFrame:
        """See `Store.read`."""
        return Reader(self.catalog.connection, self.route.url, self.spark()).read(dataset, batches)

    def _remove_spool(self, build: Build) -> None:
        files, _ = fsspec.core.url_to_fs(self.spooling.root)
        for partition in build.partitions:
            folder = self.spooling.batch(build.dataset, partition, build.batch_id)
            if files.exists(folder):
                files.rm(folder, recursive=True)
