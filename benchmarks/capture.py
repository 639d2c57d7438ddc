"""Capturing and applying changes of a live PostgreSQL: `python -m benchmarks.capture`.

Ours beside `pg_recvlogical`, which drains a copy of the same slot to nowhere, the same plugin and the same changes; the
decoding at the server is in both. Several rounds, of which the medians are shown; on a machine that others use too, the
processor's seconds say more: those of the server and of whoever reads the slot together. Goals: at least 150,000
events/s, at most twice what `pg_recvlogical` takes.

Then the changes are applied to a dataset of 200 partitions, of which they touch 30: partitions rewritten beside
partitions touched. Goal: no partition is written that no row of differs.

Last, one transaction of a million rows: what the memory of this process grows by while it is captured. Goals: under 8
seconds, and under 100 MB, however large the transaction.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import statistics
import subprocess
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import psutil
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
from varve.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

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
    do $$ begin for i in %(first)s..%(last)s loop
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


@dataclass(frozen=True)
class Cost:
    """What something took: seconds, and seconds of the processor; `count`: the events."""

    seconds: float
    processor: float
    count: int


def processor_seconds(server: PostgresServer) -> float:
    """What this process, its children that have ended, and the server's processes have used so far."""
    postmaster = psutil.Process(server.pid())
    live = [postmaster.cpu_times()]
    for child in postmaster.children():
        # One that has just ended counts among those below.
        with contextlib.suppress(psutil.NoSuchProcess):
            live.append(child.cpu_times())
    ended = postmaster.cpu_times()
    theirs = sum(times.user + times.system for times in live) + ended.children_user + ended.children_system
    return float(theirs + sum(os.times()[:4]))


def cost(server: PostgresServer, work: Callable[[], int]) -> Cost:
    used, began = processor_seconds(server), time.perf_counter()
    count = work()
    return Cost(time.perf_counter() - began, processor_seconds(server) - used, count)


def changed(url: str, rows: int, events: int, number: int) -> None:
    """The changes of one round."""
    transactions = events // 100
    values = {"rows": rows, "first": number * transactions + 1, "last": (number + 1) * transactions}
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute((_CHANGES % values).encode())


def drained(url: str, slot: str, upto: str) -> int:
    """pg_recvlogical takes the slot; it does not count."""
    subprocess.run(
        [str(binaries() / "pg_recvlogical"), "--dbname", url, "--slot", slot, "--start", "--endpos", upto, "--file",
         "/dev/null", "--no-loop", "-o", "proto_version=1", "-o", f"publication_names={ORDERS.slot}"],
        check=True, capture_output=True,
    )  # fmt: skip
    return 0


def measure(capture: OpenCapture, server: PostgresServer, url: str, given: argparse.Namespace) -> Table:
    capture.bootstrap()
    if given.apply:
        capture.apply(open_store, lambda: open_session(capture.settings), "bench")
    plain, ours = list[Cost](), list[Cost]()
    for number in range(given.rounds):
        with closing(psycopg.connect(url, autocommit=True)) as connection:
            connection.execute("select pg_copy_logical_replication_slot(%s, 'bench_drain')", (ORDERS.slot,))
            changed(url, given.rows, given.events, number)
            (end,) = connection.execute("select pg_current_wal_insert_lsn()::text").fetchone() or ("",)
            plain.append(cost(server, partial(drained, url, "bench_drain", end)))
            connection.execute("select pg_drop_replication_slot('bench_drain')")
        ours.append(cost(server, lambda: int(capture.capture() or 0)))
    total = sum(taken.count for taken in ours)
    table = Table(title=f"{given.rows:,} rows in {DAYS} partitions, {total:,} changes in {given.rounds} rounds")
    for heading in ("", "s", "events/s", "ratio", "processor s", "ratio"):
        table.add_column(heading)

    def line(name: str, costs: list[Cost]) -> None:
        """The medians of the rounds; each ratio is within its round."""
        values = [
            (cost.seconds, count.count / cost.seconds, cost.seconds / base.seconds, cost.processor,
             cost.processor / base.processor)
            for cost, base, count in zip(costs, plain, ours, strict=True)
        ]  # fmt: skip
        seconds, rate, ratio, processor, of_processor = map(statistics.median, zip(*values, strict=True))
        table.add_row(name, f"{seconds:.2f}", f"{rate:,.0f}", f"{ratio:.2f}", f"{processor:.2f}", f"{of_processor:.2f}")

    line("pg_recvlogical to nowhere", plain)
    line("captured, durable", ours)
    if given.apply:
        began = time.perf_counter()
        done = capture.apply(open_store, lambda: open_session(capture.settings), "bench")
        applied = time.perf_counter() - began
        assert done is not None
        table.add_row("resolved and published", f"{applied:.2f}", f"{total / applied:,.0f}", "", "", "")
        table.caption = f"{len(done.published)} of {DAYS} partitions rewritten, {TOUCHED} touched"
    return table


def giant(capture: OpenCapture, server: PostgresServer, url: str, rows: int) -> Table:
    """One transaction of so many rows."""
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute(
            "insert into public.orders select 1000000000000 + i, i % 200, 'all at once ' || i, i "
            f"from generate_series(1, {rows}) i".encode()
        )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    taken = cost(server, lambda: int(capture.capture() or 0))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    table = Table("rows in one transaction", "s", "events/s", "processor s", "memory before", "grown by")
    table.add_row(
        f"{taken.count:,}", f"{taken.seconds:.2f}", f"{taken.count / taken.seconds:,.0f}", f"{taken.processor:.2f}",
        f"{before:,.0f} MB", f"{grown:,.0f} MB",
    )  # fmt: skip
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=200_000, help="about so many changes in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-apply", dest="apply", action="store_false", help="capture only, without Spark")
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
                Console().print(measure(capture, server, url, given))
                if given.giant:
                    Console().print(giant(capture, server, url, given.giant))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
