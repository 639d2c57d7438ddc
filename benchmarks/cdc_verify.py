"""Comparing a captured table with its source, beside reading both: `python -m benchmarks.cdc_verify`.

A table of common types is captured, and compared: as it is, with a row changed in a file of the lake, and with a row
changed at the source whose change capture has lost. What it costs stands beside one full read of each side: COPY of
the table to this process, and all rows of the lake through Spark to this process. Goal: found on either side, and less
than the two reads. Processor seconds are those of the whole machine, so let nothing else run.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import psycopg
from psycopg import sql
from rich.console import Console
from rich.table import Table

from varve.cdc.captured_table import CapturedTable
from varve.cdc.captures import OpenCapture, opened, source_url
from varve.cdc.verify.verification import Verification, verify
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import StaticDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.services.postgres_server import PostgresServer
from varve.services.settings import Settings
from varve.services.spark import open_session
from varve.services.spark_server import SparkServer
from varve.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

PARTS = 100
DATASET = Dataset(
    name="bench.orders",
    comment="Orders.",
    partitioning=Partitioning((StaticDimension("part", tuple(str(part) for part in range(PARTS))),)),
    schema=Schema(
        (Column("id", ColumnType.BIGINT), Column("day", ColumnType.DATE), Column("customer", ColumnType.STRING),
         Column("amount", ColumnType.STRING), Column("weight", ColumnType.DOUBLE), Column("paid", ColumnType.BOOLEAN),
         Column("at", ColumnType.TIMESTAMP), Column("note", ColumnType.STRING))
    ),
    store=StoreKind.LAKE,
)  # fmt: skip
ORDERS = CapturedTable(DATASET, "public.orders", {"part": f"cast(pmod(id, {PARTS}) as string)"})
_MAKE = sql.SQL("""
    create table public.orders (id bigint primary key, day date, customer text, amount numeric(12,2), weight float8,
                                paid boolean, at timestamptz, note text);
    insert into public.orders
    select i, date '2013-01-01' + (i % 365)::int, md5((i % 100000)::text), (i % 99999) / 100.0, i / 7.0, i % 3 = 0,
           timestamptz '2013-01-01' + i * interval '1 second', case when i % 5 = 0 then null else 'order ' || i end
    from generate_series(1, {rows}) i;
    analyze public.orders;
""")
_CHANGE = "update public.orders set weight = weight + 1e-9 where id = %s"
# Read by DuckDB, whose literals are PostgreSQL's.
_FORGE = sql.SQL("""
    copy (select * replace (case when id = {row} then weight + 1e-9 else weight end as weight) from {file})
    to {edited} (format parquet)
""")
# A change that was captured and never applied: what a defect of ours, or a hand in the catalog, would leave.
_LOSE = "update varve.cdc_position set applied_lsn = %s where dataset = %s"


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def busy() -> float:
    """Processor seconds of everything on this machine since it started."""
    times = psutil.cpu_times()
    return float(times.user + times.system)


def copied(url: str) -> None:
    """One full read of the source: COPY of the table, its bytes not even parsed."""
    with (
        closing(psycopg.connect(url)) as connection,
        connection.cursor().copy("copy public.orders to stdout") as copy,
    ):
        for _ in copy:
            pass


def collected(capture: OpenCapture, spark: SparkSession) -> None:
    """One full read of the lake: its rows as Arrow in this process."""
    store = open_store(DATASET.store, capture.settings, capture.catalog, lambda: spark)
    store.read(DATASET, list(capture.catalog.current(DATASET.name).values())).toArrow()


def compared(settings: Settings, spark: SparkSession) -> Verification:
    with opened(ORDERS, settings) as capture:
        return verify(capture, open_store, lambda: spark, "benchmark")


def forge(settings: Settings, row: int) -> Callable[[], None]:
    """Change a row in a file of the lake; returns what puts the file back."""
    import duckdb

    with opened(ORDERS, settings) as capture:
        batch = capture.catalog.current(DATASET.name)[f"part={row % PARTS}"]
    file = next(Path(batch.location).glob("*.parquet"))
    before, edited = file.read_bytes(), file.with_name("edited")
    statement = _FORGE.format(row=row, file=str(file), edited=str(edited))
    with duckdb.connect() as connection:
        connection.execute(statement.as_string())
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    edited.replace(file)

    def put_back() -> None:
        file.write_bytes(before)

    return put_back


def lose(settings: Settings, url: str, row: int) -> None:
    """Change a row at the source, and let its capture lose the change."""
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute(_CHANGE, (row,))
    with opened(ORDERS, settings) as capture:
        capture.capture()
        durable = capture.capturing.log.captured(capture.position.generation)
        capture.catalog.connection.execute(_LOSE, (durable, DATASET.name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="varve-bench-") as home:
        os.environ |= {"VARVE_HOME": home, "VARVE_SPARK_DRIVER_MEMORY": "4g"}
        settings = Settings()
        try:
            run(settings, given.rows, given.rounds)
        finally:
            SparkServer(settings).stop()
            PostgresServer(settings.home_dir).stop()


def run(settings: Settings, rows: int, rounds: int) -> None:
    url, console = source_url(settings), Console()
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute(_MAKE.format(rows=rows))
    spark = open_session(settings)
    with opened(ORDERS, settings) as capture:
        capture.bootstrap()
        capture.apply(open_store, lambda: spark, "benchmark")
    table = Table(title=f"{rows:,} rows")
    for heading in ("", "s (median)", "min - max", "processor s (mean)", "found"):
        table.add_column(heading)

    def add(name: str, work: Callable[[], object], found: str = "") -> None:
        before = busy()
        times = sorted(seconds(work) for _ in range(rounds))
        processor = f"{(busy() - before) / rounds:.1f}"
        table.add_row(name, f"{times[len(times) // 2]:.1f}", f"{times[0]:.1f} - {times[-1]:.1f}", processor, found)
        console.print(name, [round(one, 2) for one in times])

    add("full read of the source (COPY)", lambda: copied(url))
    with opened(ORDERS, settings) as capture:
        add("full read of the lake (Arrow)", lambda: collected(capture, spark))
    results: list[Verification] = []
    add("verify: equal", lambda: results.append(compared(settings, spark)), "nothing")
    console.print([result.seconds for result in results])
    assert all(result.equal for result in results)
    planted = rows // 2 + 1
    put_back = forge(settings, planted)
    results.clear()
    add("verify: a row changed in the lake", lambda: results.append(compared(settings, spark)), f"id {planted}")
    assert all([dict(row.key) for row in result.rows] == [{"id": str(planted)}] for result in results)
    put_back()
    lose(settings, url, planted)
    results.clear()
    add("verify: a row changed at the source", lambda: results.append(compared(settings, spark)), f"id {planted}")
    assert all([dict(row.key) for row in result.rows] == [{"id": str(planted)}] for result in results)
    console.print(table)


if __name__ == "__main__":
    main()
