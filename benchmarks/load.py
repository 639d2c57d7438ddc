"""Rows per second from a Spark DataFrame into PostgreSQL: `python -m benchmarks.load`.

Real flights, several times over. Ours is all that a build does between its frame and its publish: Spark's files, COPY,
ANALYZE, counting. Beside it, in turn, on the same server: `COPY FROM` a binary file on the server; ADBC from one plain
process that has the rows in memory; the same rows handed by Spark's tasks to Python workers that load them (what ours
decided against); Spark's JDBC writer (Debian's libpostgresql-jdbc-java, or any jar with --jdbc).

Goals: at least 0.75 of the plain ADBC process, at least 3 times JDBC.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from assets.flights import DEPARTURES
from resources.partner import FLIGHTS_COLUMNS, data_folder
from varve.catalog.catalog import Catalog
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.key import PartitionKey
from varve.services.postgres import connect, warehouse_url
from varve.services.postgres_server import PostgresServer
from varve.services.settings import Settings
from varve.services.spark import open_session
from varve.stores.folders.layout import Layout
from varve.stores.frames import arrow_schema, spark_schema
from varve.stores.warehouse.loading import load
from varve.stores.warehouse.store import WarehouseStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import psycopg
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

JDBC_JAR = "/usr/share/java/postgresql.jar"
PARTITION = PartitionKey.of(day=dt.date(2013, 1, 1))
DATASET = Dataset("bench.flights", DEPARTURES.partitioning, DEPARTURES.schema, StoreKind.WAREHOUSE, "A benchmark.")


@dataclass
class Bench:
    """One server, one Spark in this process, and the rows in both of the forms that a loader may want."""

    settings: Settings
    spark: SparkSession
    connection: psycopg.Connection
    frame: DataFrame
    rows: pa.Table
    host: str
    jdbc: str
    folder: Path

    def ours(self, way: str = "chosen") -> float:
        """A build up to its publish; `way` forces who copies: `threads` of this process, or `spark` tasks."""
        url = warehouse_url(self.settings)
        route = load.Route(url, self.settings.load_connections, None if way == "threads" else lambda: self.spark)
        catalog = Catalog(self.connection)
        layout = Layout(f"{self.settings.lake}/_spool")
        store = WarehouseStore(route, layout, catalog, lambda: self.spark, 60.0)
        build = catalog.begin(DATASET, [PARTITION], run_id="benchmark", code_version="")
        before = load._BYTES_FOR_SPARK
        load._BYTES_FOR_SPARK = 0 if way == "spark" else before
        try:
            started = time.monotonic()
            (staged,) = store.stage(build, self.frame)
            took = time.monotonic() - started
        finally:
            load._BYTES_FOR_SPARK = before
        assert staged.rows == self.rows.num_rows
        store.discard(build)
        catalog.fail(build, "a benchmark")
        catalog.release(build)
        return took

    def adbc(self) -> float:
        """One connection of this process, rows in memory."""
        import adbc_driver_postgresql.dbapi as adbc

        self._empty_table()
        started = time.monotonic()
        with adbc.connect(warehouse_url(self.settings)) as copying, copying.cursor() as cursor:
            cursor.adbc_ingest("flights_plain", self.rows, mode="append", db_schema_name="public")
            copying.commit()
        self.connection.execute("analyze public.flights_plain")
        return self._checked(time.monotonic() - started)

    def server_copy(self) -> float:
        """`COPY FROM` a binary file that lies on the server."""
        file = self.folder / "flights.bin"
        if not file.exists():
            self.adbc()
            self.connection.execute(f"copy public.flights_plain to '{file}' (format binary)".encode())
        self._empty_table()
        started = time.monotonic()
        self.connection.execute(f"copy public.flights_plain from '{file}' (format binary)".encode())
        self.connection.execute("analyze public.flights_plain")
        return self._checked(time.monotonic() - started)

    def arrow_workers(self) -> float:
        """Every row from the JVM to a Python worker, which loads what it is handed."""
        self._empty_table()
        url = warehouse_url(self.settings)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import adbc_driver_postgresql.dbapi as adbc
            import pyarrow as pa

            first = next(batches, None)
            if first is None:
                return

            def every() -> Iterator[pa.RecordBatch]:
                yield first
                yield from batches

            reader = pa.RecordBatchReader.from_batches(first.schema, every())
            with adbc.connect(url) as copying, copying.cursor() as cursor:
                count = cursor.adbc_ingest("flights_plain", reader, mode="append", db_schema_name="public")
                copying.commit()
            yield pa.RecordBatch.from_arrays([pa.array([count], pa.int64())], names=["rows"])

        started = time.monotonic()
        self.frame.mapInArrow(run, "rows BIGINT").collect()
        self.connection.execute("analyze public.flights_plain")
        return self._checked(time.monotonic() - started)

    def jdbc_writer(self) -> float:
        """Spark's own writer."""
        self._empty_table()
        url = f"jdbc:postgresql://{self.host}:5432/{self.connection.info.dbname}?reWriteBatchedInserts=true"
        started = time.monotonic()
        self.frame.write.mode("append").format("jdbc").options(
            url=url, dbtable="public.flights_plain", user="postgres", driver="org.postgresql.Driver", batchsize="10000"
        ).save()
        self.connection.execute("analyze public.flights_plain")
        return self._checked(time.monotonic() - started)

    def _empty_table(self) -> None:
        from psycopg import sql

        from varve.stores.postgres.types import postgres_type, type_sql

        columns = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(column.name), type_sql(postgres_type(column.type)))
            for column in DATASET.schema.columns
        )
        self.connection.execute("drop table if exists public.flights_plain")
        self.connection.execute(sql.SQL("create table public.flights_plain ({})").format(columns))
        self.connection.execute("checkpoint")

    def _checked(self, took: float) -> float:
        found = self.connection.execute("select count(*) from public.flights_plain").fetchone()
        assert found == (self.rows.num_rows,), found
        return took


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and say whether the goals were met (exit 1 where not)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000, help="about how many rows (default 2 million)")
    parser.add_argument("--rounds", type=int, default=3, help="counted rounds, after one that is not (default 3)")
    parser.add_argument("--jdbc", default=JDBC_JAR, help="the PostgreSQL JDBC driver; without it that row is left out")
    given = parser.parse_args(arguments)
    console = Console(width=120)
    home = Path(tempfile.mkdtemp(prefix="varve-bench-"))
    home.chmod(0o755)
    os.environ |= {"VARVE_HOME": str(home), "VARVE_SPARK_MASTER": "local[2]", "VARVE_SPARK_DRIVER_MEMORY": "4g"}
    settings = Settings()
    try:
        with console.status("Starting a server and laying the rows..."):
            bench = _bench(settings, given.rows, given.jdbc)
        measured = _measure(console, bench, given.rounds)
        rows = bench.rows.num_rows
        bench.connection.close()
        bench.spark.stop()
    finally:
        PostgresServer(settings.home_dir).stop()
        shutil.rmtree(home, ignore_errors=True)
    return _report(console, measured, rows)


def _bench(settings: Settings, rows: int, jdbc: str) -> Bench:
    import pyarrow.parquet as pq

    host = _listen_on_tcp(settings)
    jar = jdbc if Path(jdbc).is_file() else ""
    spark = open_session(settings, {"spark.jars": jar} if jar else {})
    source = settings.home_dir / "flights.csv"
    shutil.copy(data_folder() / "flights.csv.zip", settings.home_dir)
    shutil.unpack_archive(settings.home_dir / "flights.csv.zip", settings.home_dir)
    one = spark.read.csv(str(source), header=True, nullValue="NA", inferSchema=True)
    one = one.selectExpr(*[f"cast({c.name} as {c.type}) as {c.name}" for c in DATASET.schema.columns])
    assert set(FLIGHTS_COLUMNS) == set(one.columns)
    folder = settings.home_dir / "rows"
    repeated = one.crossJoin(spark.range(max(1, round(rows / 336_776)))).drop("id")
    repeated.repartition(8).write.parquet(str(folder))
    frame = spark.read.schema(spark_schema(DATASET.schema.columns)).parquet(str(folder))
    table = pq.read_table(folder, coerce_int96_timestamp_unit="us").cast(arrow_schema(DATASET.schema.columns))
    connection = connect(settings)
    Catalog(connection).ensure_schema()
    shared = settings.home_dir / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    return Bench(settings, spark, connection, frame, table, host, jar, shared)


def _listen_on_tcp(settings: Settings) -> str:
    """JDBC knows no unix sockets; the address, one of the loopback's own, so that no port can be taken."""
    server = PostgresServer(settings.home_dir)
    server.ensure_up()
    server.stop()
    host = f"127.{random.randint(1, 254)}.{random.randint(1, 254)}.1"  # noqa: S311 - no secret
    with (server.data / "postgresql.conf").open("a", encoding="utf-8") as file:
        file.write(f"\nlisten_addresses = '{host}'\n")
    with (server.data / "pg_hba.conf").open("a", encoding="utf-8") as file:
        file.write("\nhost all all 127.0.0.0/8 trust\n")
    server.ensure_up()
    return host


def _measure(console: Console, bench: Bench, rounds: int) -> dict[str, list[float]]:
    ways: dict[str, Callable[[], float]] = {
        "ours": bench.ours,
        "ours, threads of one process": lambda: bench.ours("threads"),
        "ours, Spark tasks": lambda: bench.ours("spark"),
        "ADBC, one plain process": bench.adbc,
        "COPY FROM a file on the server": bench.server_copy,
        "rows through Spark's Python workers": bench.arrow_workers,
    }
    if bench.jdbc:
        ways["Spark's JDBC writer"] = bench.jdbc_writer
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with console.status("") as status:
        for turn in range(rounds + 1):
            for name, way in ways.items():
                status.update(f"round {turn} of {rounds}: {name}")
                took = way()
                if turn:
                    seconds[name].append(took)
    return seconds


def _report(console: Console, measured: dict[str, list[float]], rows: int) -> int:
    plain = statistics.median(measured["ADBC, one plain process"])
    ours = statistics.median(measured["ours"])
    table = Table("", "s (median)", "min - max", "rows/s", "x plain ADBC", title=f"load: {rows:,} flights, 14 columns")
    for name, seconds in measured.items():
        median = statistics.median(seconds)
        table.add_row(
            name, f"{median:.2f}", f"{min(seconds):.2f} - {max(seconds):.2f}", f"{rows / median:,.0f}",
            f"{plain / median:.2f}",
        )  # fmt: skip
    console.print(table)
    jdbc: Any = measured.get("Spark's JDBC writer")
    met = plain / ours >= 0.75 and (not jdbc or statistics.median(jdbc) / ours >= 3)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
