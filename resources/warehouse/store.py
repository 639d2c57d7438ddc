"""The warehouse as a `Store`: stage, verify, publish and read, each a call into the room that does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import fsspec

from pipeline_defs.model.errors import NOTHING_LOST, VerifyFailed, some
from resources.frames import arrow_schema, spark_schema
from resources.lake.write import survey, write_batches
from resources.lake.write import verify_rows as verify_files
from resources.warehouse import load, publish, view

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from pipeline_defs.model.batch import Batch, StagedBatch
    from pipeline_defs.model.dataset import Dataset
    from resources.catalog import Catalog
    from resources.lake.layout import Layout
    from resources.store import Build, Finding, Leftover, Remains


@dataclass(frozen=True)
class WarehouseStore:
    """Period tables under a union view.

    Attributes:
        url: the libpq URL of the warehouse.
        spooling: where Spark puts the rows on their way into PostgreSQL.
        publish_seconds: how long a publish may wait for readers.
        spark: opens the session when it is first needed.
    """

    url: str
    spooling: Layout
    catalog: Catalog
    spark: Callable[[], SparkSession]
    publish_seconds: float

    def stage(self, build: Build, frame: DataFrame) -> list[StagedBatch]:
        """See `Store.stage`."""
        try:
            written = write_batches(self.spooling, build, frame)
            files = survey(self.spooling, build)
            verify_files(build, files, written.rows)
            loaded = load.load(self.catalog.connection, self.url, build, files)
            load.verify_rows(build, files, loaded)
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

    def republish(self, build: Build, batches: Sequence[Batch], *, reason: str = "") -> None:
        """See `Store.republish`."""
        raise NotImplementedError

    def sweep(self, dataset_name: str, locations: Sequence[str]) -> None:
        """See `Store.sweep`."""
        raise NotImplementedError

    def leftovers(self) -> list[Leftover]:
        """See `Store.leftovers`."""
        raise NotImplementedError

    def examine(self, dataset: Dataset, batches: Sequence[Batch]) -> list[Finding]:
        """See `Store.examine`."""
        raise NotImplementedError

    def follow(self, dataset: Dataset) -> int:
        """See `Store.follow`."""
        raise NotImplementedError

    def mend(self, dataset: Dataset) -> int:
        """See `Store.mend`."""
        raise NotImplementedError

    def remains(self) -> list[Remains]:
        """See `Store.remains`."""
        raise NotImplementedError

    def read(self, dataset: Dataset, batches: Sequence[Batch]) -> DataFrame:
        """See `Store.read`: the immutable tables by name, so that a publish in between changes nothing."""
        import adbc_driver_postgresql.dbapi as adbc
        import pyarrow as pa

        columns = (*dataset.schema.columns, *dataset.partition_columns)
        with adbc.connect(self.url) as connection, connection.cursor() as cursor:
            tables = [self._fetch(cursor, dataset, batch) for batch in batches]
        schema = arrow_schema(columns)
        rows = pa.concat_tables([table.cast(schema) for table in tables]) if tables else schema.empty_table()
        if rows.num_rows == 0:
            return self.spark().createDataFrame([], spark_schema(columns))
        return self.spark().createDataFrame(rows)

    def _fetch(self, cursor: object, dataset: Dataset, batch: Batch) -> pa.Table:
        import pyarrow as pa

        query = view.select_period(dataset, batch).as_string(self.catalog.connection)
        cursor.execute(query)  # type: ignore[attr-defined]  # the driver is not typed
        table = cursor.fetch_arrow_table()  # type: ignore[attr-defined]
        assert isinstance(table, pa.Table)
        return table

    def _remove_spool(self, build: Build) -> None:
        files, _ = fsspec.core.url_to_fs(self.spooling.root)
        for partition in build.partitions:
            folder = self.spooling.batch(build.dataset, partition, build.batch_id)
            if files.exists(folder):
                files.rm(folder, recursive=True)
