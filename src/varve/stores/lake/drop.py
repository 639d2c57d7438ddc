"""Ends what readers are shown of a dropped dataset: its Hive table goes, and the lake's own record says so.

The folders of its batches stay, because the table is external; the sweep deletes them as it does those of any retired
batch. Everything here may be repeated, also where a dataset of the same name has been made since.

Not here: ending a dataset in the catalog (catalog/history/drops.py).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from varve.catalog.code.generations import Generations
from varve.catalog.history.drops import Drops
from varve.model.partitions.key import WHOLE
from varve.services.files import open_files
from varve.stores.frames import described_location
from varve.stores.lake import record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from varve.catalog.catalog import Catalog
    from varve.catalog.history.drops import DroppedDataset
    from varve.stores.folders.layout import Layout

logger = logging.getLogger(__name__)


def finish(spark: SparkSession, catalog: Catalog, layout: Layout, dropped: DroppedDataset) -> None:
    """Write the drop into the record, drop the Hive table, and tell the catalog that the drop is finished."""
    record.keep_drop(layout, dropped)
    drops = Drops(catalog.connection)
    catalog.lock_projection(dropped.name)
    try:
        # Under the lock: where another process was first, the table may be that of the next dataset of this name.
        if dropped in drops.of(dropped.name):
            _drop_table(spark, layout, dropped.name)
            drops.finished(dropped)
    finally:
        catalog.unlock_projection(dropped.name)


def hide(spark: SparkSession, catalog: Catalog, layout: Layout, name: str) -> None:
    """Drop the Hive table of a dataset that has moved to another store."""
    catalog.lock_projection(name)
    try:
        # Under the lock: it may have come back meanwhile.
        if Generations(catalog.connection).left_stores(name):
            _drop_table(spark, layout, name)
    finally:
        catalog.unlock_projection(name)


def _drop_table(spark: SparkSession, layout: Layout, name: str) -> None:
    db, _, table = name.partition(".")
    quoted = f"`{db}`.`{table}`"
    if not spark.catalog.tableExists(quoted):
        return
    location = described_location(spark.sql(f"DESCRIBE EXTENDED {quoted}").collect())
    ours = open_files(layout.table_of(name))[1]
    place = ours if location is None else open_files(location)[1]
    # A table without partitions lies in the folder of its batch.
    if location is None or (place != ours and not place.startswith(f"{ours}/{WHOLE}/")):
        logger.warning("%s: the Hive table of this name lies at %s and is not ours: it stays.", name, location)
        return
    spark.sql(f"DROP TABLE {quoted}")
