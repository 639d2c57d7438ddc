"""Resolving change events beside the algorithm of the post that they come from: `python -m benchmarks.cdc`.

All get the same table and the same events, as parquet, in one Spark, in turn; the median of the rounds counts. The
events update whole rows whose keys stay, in distinct transactions, which is where the post's algorithm is right: the
results are compared, row for row. Goal: eight times faster than the post's at 5,000,000 rows and 500,000 events.

MERGE of Delta Lake runs in a Spark that it has a release for, which is another than ours: `--merge-python` is a Python
with that PySpark, `--merge-jars` the jars of Delta (delta-spark, delta-storage), comma-separated. It writes its table,
and so do we for that comparison. Goal: faster than MERGE.

How fast changes are captured: benchmarks/capture.py.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from functools import reduce
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import track
from rich.table import Table

from varve.cdc.event import Counts
from varve.cdc.resolve.resolve import resolve
from varve.cdc.resolve.shape import TableShape
from varve.model.schema import Column, ColumnType
from varve.services.settings import Settings
from varve.services.spark import open_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

NAMES = ("id", "name", "seats")
SHAPE = TableShape("bench.planes", tuple(Column(name, ColumnType.STRING) for name in NAMES), ("id",))


def base_of(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(rows).selectExpr("cast(id as string) id", "'old ' || id name", "cast(id % 300 as string) seats")


def events_of(spark: SparkSession, rows: int, events: int) -> DataFrame:
    """Two thirds updates, one in six deletes and inserts each; every event in a transaction of its own."""
    step = max(1, rows // events)
    return spark.range(events).selectExpr(
        "case when id % 6 = 0 then 'delete' when id % 6 = 1 then 'insert' else 'update' end changeType",
        "lpad(id, 12, '0') timestamp",
        "if(id % 6 = 0, array(), array('id', 'name', 'seats')) columnNames",
        f"if(id % 6 = 0, array(), array(cast(if(id % 6 = 1, {rows} + id, id * {step}) as string), 'new ' || id, '7')) "
        "columnValues",
        "if(id % 6 = 1, array(), array('id')) oldKeyNames",
        f"if(id % 6 = 1, array(), array(cast(id * {step} as string))) oldKeyValues",
        *in_transactions_of_their_own("bench.planes"),
    )


def in_transactions_of_their_own(relation: str) -> list[str]:
    """The columns of events that say where they stand: each in a transaction of its own, by a column `id`."""
    return [
        f"'{relation}' relation",
        "id + 1 commitLsn",
        "cast(1 as bigint) seq",
        "id xid",
        "cast(array() as array<string>) oldNames",
        "cast(array() as array<string>) oldValues",
        "1 schemaVersion",
    ]


def ours(base: DataFrame, events: DataFrame) -> DataFrame:
    found = resolve(base, events, SHAPE, Counts(events=1))
    return found.replaced(base).select(*NAMES).unionByName(found.after)


def of_the_post(base: DataFrame, events: DataFrame) -> DataFrame:
    """Its loop, step by step, in PySpark; the array of key names is taken whole, as the post means it."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    split = reduce(
        lambda frame, at: frame.withColumn(NAMES[at], F.get("columnValues", F.lit(at))), range(len(NAMES)), events
    ).select("changeType", "timestamp", "oldKeyNames", "oldKeyValues", *NAMES)
    inserts = split.where("changeType = 'insert'").drop("oldKeyNames", "oldKeyValues")
    table = base.withColumn("timestamp", F.lit("")).unionByName(inserts, allowMissingColumns=True)
    changes = split.where("changeType in ('update', 'delete')")
    for (key,) in changes.select("oldKeyNames").distinct().collect():
        current = reduce(lambda frame, name: frame.withColumn(f"old_{name}", F.col(name)), key, table)
        mine = changes.where(F.col("oldKeyNames") == F.array(*[F.lit(name) for name in key]))
        for at, name in enumerate(key):
            mine = mine.withColumn(f"old_{name}", F.get("oldKeyValues", F.lit(at)))
        found = current.unionByName(mine.drop("oldKeyNames", "oldKeyValues"), allowMissingColumns=True).cache()
        newest = Window.partitionBy(*[f"old_{name}" for name in key]).orderBy(F.desc("timestamp"))
        done, round_ = False, 0
        while not done:
            before = found
            if round_:
                for name in key:
                    moved = F.when(F.col("changeType") == "update", F.col(name)).otherwise(F.col(f"old_{name}"))
                    before = before.withColumn(f"old_{name}", moved)
            found = before.withColumn("rank", F.row_number().over(newest)).where("rank = 1").drop("rank")
            done, round_ = found.count() == before.count(), round_ + 1
        kept = found.where("changeType <> 'delete' or changeType is null")
        table = kept.drop(*[f"old_{name}" for name in key])
    return table.select(*NAMES).distinct()


def fingerprint(table: DataFrame) -> tuple[int, int]:
    """Rows and a sum of their hashes: makes Spark compute every column of every row."""
    row = table.selectExpr("count(*) n", "sum(cast(xxhash64(id, name, seats) as decimal(38))) h").first()
    assert row is not None
    return int(row["n"]), int(row["h"])


def written(base: DataFrame, events: DataFrame, folder: str) -> None:
    ours(base, events).write.mode("overwrite").parquet(folder)


def merge(given: argparse.Namespace, home: str) -> tuple[list[float], tuple[int, int]]:
    """The seconds of each MERGE in a Spark of its own, and the fingerprint of what it made."""
    asked = [given.merge_python, "benchmarks/merge_peer.py", home, str(given.rounds), given.merge_jars,
             given.memory]  # fmt: skip
    done = subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True)
    told = json.loads(done.stdout.splitlines()[-1])
    return told["seconds"], tuple(told["fingerprint"])


def report(title: str, seconds: dict[str, list[float]], *, least: str) -> None:
    table = Table(title=title)
    for heading in ("", "s (median)", "min - max", "ratio"):
        table.add_column(heading)
    one = statistics.median(seconds[least])
    for name, found in seconds.items():
        middle = statistics.median(found)
        table.add_row(name, f"{middle:.2f}", f"{min(found):.2f} - {max(found):.2f}", f"{middle / one:.2f}")
    Console().print(table)


def timed(work: Callable[[], object], into: list[float]) -> None:
    began = time.perf_counter()
    work()
    into.append(time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="4g", help="of each Spark")
    parser.add_argument("--merge-python", help="a Python with a PySpark that Delta Lake has a release for")
    parser.add_argument("--merge-jars", default="")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="varve-bench-") as home:
        os.environ |= {"VARVE_HOME": home, "VARVE_SPARK_MASTER": "local[2]", "VARVE_SPARK_DRIVER_MEMORY": given.memory}
        spark = open_session(Settings())
        made = {"base": base_of(spark, given.rows), "events": events_of(spark, given.rows, given.events)}
        for name, frame in made.items():
            frame.write.parquet(f"{home}/{name}")
        base, events = (spark.read.parquet(f"{home}/{name}") for name in made)
        ways = {"ours": ours, "the post's": of_the_post}
        resolved: dict[str, list[float]] = {name: [] for name in ways}
        merged: dict[str, list[float]] = {"ours, written": []}
        results = set()
        for _ in track(range(given.rounds), "rounds"):
            for name, way in ways.items():
                timed(lambda way=way: results.add(fingerprint(way(base, events))), resolved[name])  # type: ignore[misc]
                # The post's algorithm caches a frame for each key and keeps it.
                spark.catalog.clearCache()
            timed(lambda: written(base, events, f"{home}/written"), merged["ours, written"])
        spark.stop()
        if given.merge_python:
            merged["MERGE of Delta Lake"], found = merge(given, home)
            results.add(found)
    size = f"{given.rows:,} rows, {given.events:,} events, {given.rounds} rounds"
    report(f"Resolved: {size}", resolved, least="ours")
    report(f"Written: {size}", merged, least="ours, written")
    assert len(results) == 1, f"the results differ: {results}"


if __name__ == "__main__":
    main()
