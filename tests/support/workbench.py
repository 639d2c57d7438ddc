"""`Workbench`: builds without Dagster."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.catalog.catalog import Catalog
from varve.model.dataset import Dataset, StoreKind
from varve.services.postgres import connect, warehouse_url
from varve.stores.folders.layout import Layout
from varve.stores.lake.iceberg.tables import IcebergTables
from varve.stores.lake.store import LakeStore
from varve.stores.warehouse.loading.load import Route
from varve.stores.warehouse.store import WarehouseStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.model.batch import Batch
    from varve.model.build import Build
    from varve.model.partitions.key import PartitionKey
    from varve.services.settings import Settings
    from varve.stores.store import Store


@dataclass
class Workbench:
    """Builds without Dagster: what an IO manager does, step by step, for a test to stop or disturb anywhere."""

    settings: Settings
    spark: SparkSession

    def catalog(self) -> Catalog:
        """A catalog over a new connection."""
        found = Catalog(connect(self.settings, application="varve test"))
        found.ensure_schema()
        return found

    def store(self, dataset: Dataset, catalog: Catalog) -> Store:
        if dataset.store == StoreKind.LAKE:
            layout = Layout(self.settings.lake)
            return LakeStore(layout, catalog, lambda: self.spark, iceberg=IcebergTables(layout, catalog))
        url = warehouse_url(self.settings)
        return WarehouseStore(
            Route(url, 2, lambda: self.spark), Layout(f"{self.settings.lake}/_spool"), catalog, lambda: self.spark, 5.0
        )

    def frame(self, dataset: Dataset, rows: Sequence[tuple[PartitionKey, str, int]]) -> DataFrame:
        """Rows of (partition, product, sold) with their partition columns."""
        from pyspark.sql import functions as F  # noqa: N812

        names = dataset.partitioning.names
        kinds = "".join(f", {column.name} {column.type}" for column in dataset.partition_columns)
        values = [(product, sold, sold * 1.5, *(key[name] for name in names)) for key, product, sold in rows]
        found = self.spark.createDataFrame(values, f"product STRING, sold BIGINT, price DOUBLE{kinds}")
        return found.withColumn("at", F.timestamp_seconds(F.col("sold")))

    def begin(self, catalog: Catalog, dataset: Dataset, partitions: Sequence[PartitionKey]) -> Build:
        return catalog.begin(dataset, partitions, run_id=f"run-{uuid.uuid4()}", code_version="")

    def publish(
        self, dataset: Dataset, partitions: Sequence[PartitionKey], rows: Sequence[tuple[PartitionKey, str, int]]
    ) -> dict[str, Batch]:
        """Begin, stage, verify and publish; what is current afterwards."""
        return self.publish_frame(dataset, partitions, self.frame(dataset, rows))

    def publish_frame(self, dataset: Dataset, partitions: Sequence[PartitionKey], frame: DataFrame) -> dict[str, Batch]:
        """The same with a frame of any columns."""
        catalog = self.catalog()
        try:
            build = self.begin(catalog, dataset, partitions)
            store = self.store(dataset, catalog)
            staged = store.stage(build, frame)
            catalog.staged(build, staged)
            store.verify(build, staged)
            store.publish(build, staged)
            return catalog.current(dataset.name)
        finally:
            # As a run does: a server lets go of a closed session's locks a moment later.
            catalog.connection.execute("select pg_advisory_unlock_all()")
            catalog.connection.close()

    def current(self, dataset: Dataset) -> dict[str, Batch]:
        """What is current, by the catalog's spelling of a partition."""
        catalog = self.catalog()
        try:
            return catalog.current(dataset.name)
        finally:
            catalog.connection.close()

    def read(self, dataset: Dataset, partitions: Sequence[PartitionKey] | None = None) -> list[tuple[object, ...]]:
        """What is current, as sorted (partition values..., product, sold)."""
        catalog = self.catalog()
        try:
            batches = list(catalog.current(dataset.name, partitions).values())
            frame = self.store(dataset, catalog).read(dataset, batches)
            names = (*dataset.partitioning.names, "product", "sold")
            return sorted(tuple(row[name] for name in names) for row in frame.collect())
        finally:
            catalog.connection.close()
