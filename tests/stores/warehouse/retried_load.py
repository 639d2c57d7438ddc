"""A load in tasks of Spark whose first attempts die or are overtaken; test_retries.py runs it in a process of its own.

    python retried_load.py retried|speculative FOLDER

Each attempt leaves a file in FOLDER. The last line says how many rows each table has, by its count and by its notes.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import functions as F  # noqa: N812

from tests.support.sales import sales_dataset
from tests.support.workbench import Workbench
from varve.model.dataset import StoreKind
from varve.model.partitions.key import PartitionKey
from varve.services.postgres import warehouse_url
from varve.services.settings import Settings
from varve.services.spark import open_session
from varve.stores.folders.layout import Layout
from varve.stores.folders.write import survey, write_batches
from varve.stores.warehouse.loading import copying, load
from varve.stores.warehouse.tables import notes

if TYPE_CHECKING:
    from collections.abc import Callable

SPECULATION = {
    "spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1", "spark.speculation.minTaskRuntime": "200ms",
}  # fmt: skip


def disturbed(how: str, folder: str, url: str, copy: Callable[..., int]) -> Callable[..., int]:
    """`copy` as tasks shall do it: the first attempt dies after its commit, or waits until another has overtaken it."""

    def first_attempt_fails(connection: Any, schema: Any, piece: Any) -> int:
        context = TaskContext.get()
        attempt = context.attemptNumber()
        Path(folder, f"{context.partitionId()}-{attempt}").touch()
        if how == "speculative" and attempt == 0 and context.partitionId() == 0:
            import psycopg

            deadline = time.monotonic() + 90
            with psycopg.connect(url, autocommit=True) as watching:
                query = "select from varve.loaded where table_name = %s"
                while watching.execute(query, (piece.table,)).fetchone() is None:
                    assert time.monotonic() < deadline, "nobody overtook"
                    time.sleep(0.05)
        rows = copy(connection, schema, piece)
        if how == "retried" and attempt == 0:
            os._exit(1)
        return rows

    return first_attempt_fails


def main(how: str, folder: str) -> None:
    settings = Settings()
    spark = open_session(settings, SPECULATION if how == "speculative" else {})
    bench = Workbench(settings, spark)
    sales = sales_dataset(StoreKind.WAREHOUSE)
    keys = [PartitionKey.of(day=dt.date(2013, 1, 5), store=store) for store in ("Detroit", "Paris")]
    rows = spark.range(0, 1_000, 1, 4).select(
        F.lit("pen").alias("product"), F.col("id").alias("sold"), F.lit(1.5).alias("price"),
        F.timestamp_seconds("id").alias("at"), F.lit(dt.date(2013, 1, 5)).alias("day"),
        F.when(F.col("id") % 2 == 0, "Detroit").otherwise("Paris").alias("store"),
    )  # fmt: skip
    catalog = bench.catalog()
    build = bench.begin(catalog, sales, keys)
    layout = Layout(f"{settings.lake}/_spool")
    write_batches(layout, build, rows)
    files = survey(layout, build)
    load._BYTES_FOR_SPARK, load._BYTES_A_CONNECTION = 0, 1
    url = warehouse_url(settings)
    copying._copy = disturbed(how, folder, url, copying._copy)  # type: ignore[assignment]
    loaded = load.load(catalog.connection, load.Route(url, 2, lambda: spark), build, files)
    load.verify_rows(catalog.connection, build, files, loaded)
    noted = notes.loaded(catalog.connection, [batch.location for batch in loaded])
    print(json.dumps([[batch.rows, noted[batch.location]] for batch in loaded]))  # noqa: T201
    catalog.connection.close()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
