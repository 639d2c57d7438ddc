"""Publishing and planning by the number of periods: `python -m benchmarks.view`.

The union view at 52, 500 and 2,000 period tables beside PostgreSQL's own list partitioning with as many partitions: the
time to load a file of one period again into a table of its own, and to make that current (for the partitioned table: to
detach the old and attach the new), and the time to plan and to run a query of one period and of all.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pendulum
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from psycopg import sql
from rich.console import Console
from rich.table import Table

from varve.catalog.catalog import Catalog
from varve.model.batch import StagedBatch
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.services.postgres import connect, warehouse_url
from varve.services.postgres_server import PostgresServer
from varve.services.settings import Settings
from varve.stores.warehouse import publish
from varve.stores.warehouse.loading import load
from varve.stores.warehouse.tables import notes, view
from varve.stores.warehouse.tables.naming import period_table
from varve.stores.warehouse.tables.schemas import ensure_schemas_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FIRST = dt.date(2000, 1, 1)
ROWS = 20
_AT_ONCE = 100


@dataclass(frozen=True)
class Timed:
    """Milliseconds, medians."""

    name: str
    periods: int
    load: float
    publish: float
    plan_one: float
    one: float
    all: float


class Union_:  # noqa: N801 - typing has taken the name
    """Our view."""

    name = "union view"

    def __init__(self, connection: psycopg.Connection, url: str, periods: int) -> None:
        self.connection, self.url, self.periods, self.catalog = connection, url, periods, Catalog(connection)
        day = TimeDimension("day", Grain.DAY, pendulum.instance(dt.datetime(2000, 1, 1, tzinfo=dt.UTC)))
        schema = Schema((Column("batch", ColumnType.BIGINT), Column("value", ColumnType.BIGINT)))
        name = f"u{uuid.uuid4().hex[:6]}.days"
        self.dataset = Dataset(name, Partitioning((day,)), schema, StoreKind.WAREHOUSE, "A benchmark.")
        self.relation = name
        self.catalog.ensure_schema()
        notes.ensure_tables(connection)
        ensure_schemas_of(connection, self.dataset)
        for start in range(0, periods, _AT_ONCE):
            self._put(range(start, min(start + _AT_ONCE, periods)))

    def replace(self, number: int, folder: Path) -> tuple[float, float]:
        """Load a period from a file and publish it; the milliseconds of both."""
        key = PartitionKey.of(day=FIRST + dt.timedelta(days=number))
        build = self.catalog.begin(self.dataset, [key], run_id="benchmark", code_version="")
        started = time.monotonic()
        size = sum(file.stat().st_size for file in folder.iterdir())
        files = [StagedBatch(key, folder.as_uri(), ROWS, size, 1)]
        staged = load.load(self.connection, load.Route(self.url), build, files)
        self.catalog.staged(build, staged)
        loaded = time.monotonic()
        publish.publish(self.catalog, build, seconds=60)
        took = time.monotonic() - loaded
        self.catalog.release(build)
        return (loaded - started) * 1000, took * 1000

    def _put(self, numbers: Sequence[int]) -> None:
        keys = [PartitionKey.of(day=FIRST + dt.timedelta(days=number)) for number in numbers]
        build = self.catalog.begin(self.dataset, keys, run_id="benchmark", code_version="")
        staged = []
        with self.connection.transaction():
            for key in keys:
                table = period_table(self.dataset, key, build.batch_id)
                for statement in view.create_period_table(self.dataset, table, {}):
                    self.connection.execute(statement)
                self.connection.execute(
                    sql.SQL("insert into {} select 1, 1 from generate_series(1, {})").format(
                        view.table_name(self.dataset, table), sql.Literal(ROWS)
                    )
                )
                staged.append(StagedBatch(key, table, ROWS, 1, 1))
        self.catalog.staged(build, staged)
        publish.publish(self.catalog, build, seconds=60)
        self.catalog.release(build)


class Native:
    """A table partitioned by list."""

    name = "list partitioning"

    def __init__(self, connection: psycopg.Connection, _url: str, periods: int) -> None:
        self.connection, self.periods = connection, periods
        self.schema = f"n{uuid.uuid4().hex[:6]}"
        self.relation = f"{self.schema}.days"
        self._names: dict[int, str] = {}
        connection.execute(f"create schema {self.schema}".encode())
        connection.execute(
            f"create table {self.relation} (day date, batch bigint, value bigint) partition by list (day)".encode()
        )
        for start in range(0, periods, _AT_ONCE):
            with connection.transaction():
                for number in range(start, min(start + _AT_ONCE, periods)):
                    self._attach(number, self._fill(number))

    def replace(self, number: int, _folder: Path) -> tuple[float, float]:
        """Fill a table of a period, detach its old one and attach it; the milliseconds of both."""
        started = time.monotonic()
        new = self._fill(number)
        filled = time.monotonic()
        with self.connection.transaction():
            self.connection.execute(f"alter table {self.relation} detach partition {self._names[number]}".encode())
            self._attach(number, new)
        return (filled - started) * 1000, (time.monotonic() - filled) * 1000

    def _fill(self, number: int) -> str:
        name = f"{self.schema}.p{number}_{uuid.uuid4().hex[:8]}"
        day = FIRST + dt.timedelta(days=number)
        # With the constraint that spares the scan when it is attached.
        self.connection.execute(
            f"create table {name} (day date not null check (day = '{day}'), batch bigint, value bigint)".encode()
        )
        self.connection.execute(f"insert into {name} select '{day}', 1, 1 from generate_series(1, {ROWS})".encode())
        return name

    def _attach(self, number: int, name: str) -> None:
        day = FIRST + dt.timedelta(days=number)
        self.connection.execute(f"alter table {self.relation} attach partition {name} for values in ('{day}')".encode())
        self._names[number] = name


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--periods", default="52,500,2000", help="how many, separated by commas (default 52,500,2000)")
    parser.add_argument("--rounds", type=int, default=15, help="of each figure the median of so many (default 15)")
    given = parser.parse_args(arguments)
    console = Console(width=120)
    home = Path(tempfile.mkdtemp(prefix="varve-bench-"))
    home.chmod(0o755)
    os.environ["VARVE_HOME"] = str(home)
    settings = Settings()
    measured = []
    try:
        with connect(settings) as connection, console.status("") as status:
            for periods in map(int, given.periods.split(",")):
                for kind in (Union_, Native):
                    status.update(f"{kind.name}, {periods} periods")
                    way = kind(connection, warehouse_url(settings), periods)
                    measured.append(_measure(way, given.rounds, _file(home / "file")))
    finally:
        PostgresServer(settings.home_dir).stop()
        shutil.rmtree(home, ignore_errors=True)
    table = Table("", "periods", "load ms", "publish ms", "plan one ms", "query one ms", "query all ms", title="view")
    for one in measured:
        figures = [f"{figure:,.1f}" for figure in (one.load, one.publish, one.plan_one, one.one, one.all)]
        table.add_row(one.name, f"{one.periods:,}", *figures)
    console.print(table)
    return 0


def _file(folder: Path) -> Path:
    """A folder with a file of one period's rows."""
    folder.mkdir(exist_ok=True)
    ones = pa.array([1] * ROWS, pa.int64())
    pq.write_table(pa.table({"batch": ones, "value": ones}), folder / "part-0.parquet")
    return folder


def _measure(way: Union_ | Native, rounds: int, folder: Path) -> Timed:
    loaded, published = zip(*[way.replace(number * 7 % way.periods, folder) for number in range(rounds)], strict=True)
    day = FIRST + dt.timedelta(days=way.periods // 2)
    one = f"select count(*), sum(value) from {way.relation} where day = '{day}'"
    every = f"select count(*), sum(value) from {way.relation}"
    way.connection.execute(f"analyze {way.relation}".encode()) if isinstance(way, Native) else None

    def planned() -> float:
        rows = way.connection.execute(f"explain (summary on) {one}".encode()).fetchall()
        (line,) = [text for (text,) in rows if text.startswith("Planning Time")]
        return float(line.split()[2])

    def ran(query: str, count: int) -> Callable[[], float]:
        def run() -> float:
            started = time.monotonic()
            assert way.connection.execute(query.encode()).fetchone() == (count, count)
            return (time.monotonic() - started) * 1000

        return run

    def median(figure: Callable[[], float]) -> float:
        return statistics.median(figure() for _ in range(rounds))

    return Timed(
        way.name, way.periods, statistics.median(loaded), statistics.median(published), median(planned),
        median(ran(one, ROWS)), median(ran(every, ROWS * way.periods)),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
