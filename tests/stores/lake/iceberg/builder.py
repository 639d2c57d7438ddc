"""Builds of lake datasets whose files pyarrow writes: the store's publish without a Spark, so that a test has many."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from varve.catalog.catalog import Catalog
from varve.services.files import open_files
from varve.services.postgres import connect
from varve.stores.folders import write
from varve.stores.folders.layout import Layout
from varve.stores.frames import arrow_schema
from varve.stores.lake.iceberg.tables import IcebergTables
from varve.stores.lake.store import LakeStore
from varve.stores.together import PendingChange, make_current

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from varve.model.batch import Batch, BatchId, StagedBatch
    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey
    from varve.services.settings import Settings

Rows = list[dict[str, Any]]


def no_spark() -> SparkSession:
    """These tests are not about the Hive table."""
    raise AssertionError("no Spark here")


@dataclass(frozen=True)
class LakeWithoutHive(LakeStore):
    """The lake's store, whose Hive table nobody makes."""

    def published(self, build: Build) -> None:
        """Let it count as shown, so that a sweep does not wait for it."""
        self.catalog.projected(build.dataset.name, self.catalog.lagging(build.dataset.name).values())
        self.catalog.forget_withdrawn(build.dataset.name, self.catalog.withdrawn(build.dataset.name))


@dataclass
class Builder:
    """Publishes rows that are given as values."""

    settings: Settings
    keep: int = 100
    on: bool = True
    published: list[tuple[str, int]] = field(default_factory=list)

    @contextmanager
    def store(self) -> Iterator[LakeWithoutHive]:
        """A store over a connection of its own."""
        with connect(self.settings, application="varve test") as connection:
            catalog = Catalog(connection)
            catalog.ensure_schema()
            yield self.over(catalog)
            if not connection.closed:
                connection.execute("select pg_advisory_unlock_all()")

    def over(self, catalog: Catalog) -> LakeWithoutHive:
        """A store over a catalog."""
        layout = Layout(self.settings.lake)
        tables = IcebergTables(layout, catalog, self.on, keep=self.keep)
        return LakeWithoutHive(layout, catalog, no_spark, iceberg=tables)

    def stage(
        self, store: LakeStore, dataset: Dataset, rows: Mapping[PartitionKey, Rows]
    ) -> tuple[Build, list[StagedBatch]]:
        """Begin a build of these partitions, and write their rows."""
        build = store.catalog.begin(dataset, list(rows), run_id=f"run-{uuid.uuid4()}", code_version="")
        files, _ = open_files(store.layout.root)
        for key, values in rows.items():
            folder = store.layout.batch(dataset, key, build.batch_id)
            files.makedirs(folder, exist_ok=True)
            table = pa.Table.from_pylist(values, schema=arrow_schema(dataset.schema.columns))
            pq.write_table(table, Path(folder) / "part-00000-of-a-test.zstd.parquet", compression="zstd")
        staged = write.survey(store.layout, build)
        write.write_manifests(store.layout, build, staged)
        store.catalog.staged(build, staged)
        return build, staged

    def publish(self, dataset: Dataset, rows: Mapping[PartitionKey, Rows]) -> BatchId:
        """Publish one batch for each partition."""
        with self.store() as store:
            build, staged = self.stage(store, dataset, rows)
            store.publish(build, staged)
            return build.batch_id

    def publish_together(self, rows: Sequence[tuple[Dataset, Mapping[PartitionKey, Rows]]]) -> None:
        """Publish builds of several datasets in one transaction."""
        with self.store() as store:
            self.staged_together(store, rows)()

    def staged_together(
        self, store: LakeStore, rows: Sequence[tuple[Dataset, Mapping[PartitionKey, Rows]]]
    ) -> Callable[[], None]:
        """Stage builds of several datasets, and return what publishes them in one transaction."""
        builds = [self.stage(store, dataset, values)[0] for dataset, values in rows]
        changes = [PendingChange(build, partial(_publish, store.catalog, build)) for build in builds]
        return partial(make_current, store.catalog, changes, lambda _: store)

    def go_back(self, dataset: Dataset, targets: Mapping[PartitionKey, int | None]) -> None:
        """Make earlier batches current again; None withdraws the partition."""
        with self.store() as store:
            build = store.catalog.lock_partitions(dataset, list(targets), run_id=f"rollback-{uuid.uuid4()}")
            batches = [
                self.batch(store, dataset, key, batch_id) for key, batch_id in targets.items() if batch_id is not None
            ]
            store.republish(build, batches, reason="test")

    def batch(self, store: LakeStore, dataset: Dataset, key: PartitionKey, batch_id: int) -> Batch:
        """A batch that may be retired."""
        from varve.catalog.history.history import History

        present = History(store.catalog.connection).present(dataset.name)
        return next(each for each in present if each.partition == key.path and each.batch_id.millis == batch_id)

    def rows(self, dataset: Dataset) -> list[dict[str, Any]]:
        """What is current by the catalog, read from its folders, with the partition columns."""
        with self.store() as store:
            current = store.catalog.current(dataset.name)
        return sorted(
            (
                row | dict(zip(dataset.partitioning.names, dataset.partitioning.from_path(path).values, strict=True))
                for path, batch in current.items()
                for file in sorted(Path(batch.location).glob("*.parquet"))
                for row in pq.read_table(file, partitioning=None).to_pylist()
            ),
            key=str,
        )


def _publish(catalog: Catalog, build: Build, at: dt.datetime) -> None:
    catalog.publish(build, at=at)
