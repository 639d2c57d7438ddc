"""Capturing and applying changes of a live PostgreSQL: `python -m benchmarks.capture`.

Ours beside `pg_recvlogical`, which drains a copy of the same slot to nowhere, the same plugin and the same changes; the
decoding at the server is in both. Then the changes are applied to a dataset of 200 partitions, of which they touch 30:
partitions rewritten beside partitions touched. Goal: no partition is written that no row of differs.

Last, one transaction of a million rows: what the memory of this process grows by while it is captured. Goal: under 100
MB, however large the transaction.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import tempfile
import time
from contextlib import closing

import psycopg
from rich.console import Console
from rich.table import Table

from varve.cdc.captured_table import CapturedTable
from varve.cdc.captures import OpenCapture, opened, source_url
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import StaticDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.services.postgres_server import PostgresServer, binaries
from varve.services.settings import Settings
from varve.services.spark import open_session

DAYS, TOUCHED = 200, 30
DATASET = Dataset(
    name="bench.orders",
    comment="Orders by day.",
    partitioning=Partitioning((StaticDimension("part", tuple(str(day) for day in range(DAYS))),)),
    schema=Schema(
        (Column("id", ColumnType.BIGINT), Column("day", ColumnType.INT), Column("note", ColumnType.STRING),
         Column("amount", ColumnType.DOUBLE))
    ),
    store=StoreKind.LAKE,
)  # fmt: skip
ORDERS = CapturedTable(DATASET, "public.orders", {"part": "cast(day as string)"})
# Two thirds updates, one in six deletes and inserts each, in transactions of a hundred changes.
_CHANGES = f"""
    do $$ begin for i in 1..%(transactions)s loop
        update public.orders set amount = amount + 1, note = 'changed ' || i
        where id in (select ((i::bigint * 104729 + n * 7919) %% %(rows)s) / {DAYS} * {DAYS} + (n + i) %% {TOUCHED}
                     from generate_series(1, 66) n);
        delete from public.orders where id in (
            select ((i::bigint * 15485863 + n * 104723) %% %(rows)s) / {DAYS} * {DAYS} + (n + i) %% {TOUCHED}
            from generate_series(1, 17) n);
        insert into public.orders
        select %(rows)s + i * {DAYS}::bigint * 17 + n * {DAYS} + n %% {TOUCHED}, n %% {TOUCHED}, 'new', 1
        from generate_series(1, 17) n;
        commit;
    end loop; end $$
"""


def changed(url: str, rows: int, events: int) -> None:
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute((_CHANGES % {"rows": rows, "transactions": events // 100}).encode())


def drained(url: str, slot: str, upto: str) -> float:
    """The seconds that pg_recvlogical takes for the slot."""
    began = time.perf_counter()
    subprocess.run(
        [str(binaries() / "pg_recvlogical"), "--dbname", url, "--slot", slot, "--start", "--endpos", upto, "--file",
         "/dev/null", "--no-loop", "-o", "proto_version=1", "-o", f"publication_names={ORDERS.slot}"],
        check=True, capture_output=True,
    )  # fmt: skip
    return time.perf_counter() - began


def measure(capture: OpenCapture, url: str, rows: int, events: int) -> Table:
    spark = open_session(capture.settings)
    capture.bootstrap()
    loaded = capture.apply(lambda: spark, "bench")
    assert loaded is not None
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute("select pg_copy_logical_replication_slot(%s, 'bench_drain')", (ORDERS.slot,))
        changed(url, rows, events)
        (end,) = connection.execute("select pg_current_wal_insert_lsn()::text").fetchone() or ("",)
        plain = drained(url, "bench_drain", end)
        connection.execute("select pg_drop_replication_slot('bench_drain')")
    began = time.perf_counter()
    captured = capture.capture()
    ours = time.perf_counter() - began
    began = time.perf_counter()
    done = capture.apply(lambda: spark, "bench")
    applied = time.perf_counter() - began
    assert done is not None
    table = Table(title=f"{rows:,} rows in {DAYS} partitions, {captured:,} changes up to {end}")
    for heading in ("", "s", "events/s", "ratio"):
        table.add_column(heading)
    table.add_row("pg_recvlogical to nowhere", f"{plain:.2f}", f"{captured / plain:,.0f}", "1.00")
    table.add_row("captured, durable", f"{ours:.2f}", f"{captured / ours:,.0f}", f"{ours / plain:.2f}")
    table.add_row("resolved and published", f"{applied:.2f}", f"{captured / applied:,.0f}", "")
    table.caption = f"{len(done.published)} of {DAYS} partitions rewritten, {TOUCHED} touched"
    return table


def giant(capture: OpenCapture, url: str, rows: int) -> Table:
    """One transaction of so many rows."""
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute(
            "insert into public.orders select 1000000000000 + i, i % 200, 'all at once ' || i, i "
            f"from generate_series(1, {rows}) i".encode()
        )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began = time.perf_counter()
    captured = capture.capture()
    seconds = time.perf_counter() - began
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    table = Table("rows in one transaction", "s", "events/s", "memory before", "grown by")
    table.add_row(
        f"{captured:,}", f"{seconds:.2f}", f"{captured / seconds:,.0f}", f"{before:,.0f} MB", f"{grown:,.0f} MB"
    )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--giant", type=int, default=1_000_000, help="rows of the one transaction; 0: none")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="varve-bench-") as home:
        os.chmod(home, 0o755)  # noqa: PTH101, S103 - PostgreSQL runs as a user of its own
        os.environ |= {"VARVE_HOME": home, "VARVE_SPARK_MASTER": "local[2]"}
        settings = Settings()
        server = PostgresServer(settings.home_dir)
        server.ensure_up()
        try:
            url = source_url(settings)
            with closing(psycopg.connect(url, autocommit=True)) as connection:
                connection.execute(
                    "create table public.orders (id bigint primary key, day int, note text, amount float8)"
                )
                connection.execute(
                    f"insert into public.orders select i, i %% {DAYS}, 'as it was', i from generate_series(0, %s) i",
                    (given.rows - 1,),
                )
            with opened(ORDERS, settings) as capture:
                Console().print(measure(capture, url, given.rows, given.events))
                if given.giant:
                    Console().print(giant(capture, url, given.giant))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
