"""The lake beside plain Spark, Delta and Iceberg, in one run: `python -m benchmarks.lake`.

Real flights repeated to so many rows, on a JVM of this process (classic mode). A round of each in turn, so that a
machine whose speed drifts treats all alike. Peers run in processes of their own: `--peer-python` is a Python with a
PySpark that they have a release for, `--delta-jars` and `--iceberg-jars` are their jars; without jars their rows are
left out.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pendulum
from psycopg import sql
from rich.console import Console
from rich.table import Table

from resources import partner
from varve.catalog.catalog import Catalog
from varve.catalog.history.history import History
from varve.model.batch import StagedBatch
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.services.postgres import connect
from varve.services.postgres_server import PostgresServer
from varve.services.settings import ContentHash, Settings
from varve.stores.folders.layout import Layout
from varve.stores.lake.iceberg.tables import IcebergTables
from varve.stores.lake.store import LakeStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import psycopg
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

DAY = TimeDimension("day", Grain.DAY, pendulum.datetime(2013, 1, 1), pendulum.datetime(2014, 1, 1))
FLIGHTS = Dataset(
    name="bench.flights",
    comment="Flights, repeated.",
    partitioning=Partitioning((DAY,)),
    schema=Schema(
        (
            *(Column(name, ColumnType.BIGINT) for name in ("copy", "dep_delay", "arr_delay", "flight", "distance")),
            *(Column(name, ColumnType.STRING) for name in ("carrier", "tailnum", "origin", "dest")),
            Column("time_hour", ColumnType.TIMESTAMP),
        )
    ),
    store=StoreKind.LAKE,
)
ONE = PartitionKey.of(day=dt.date(2013, 7, 1))
ONE_DAY = f"day = DATE'{ONE['day']}'"
PEERS = ("delta", "iceberg")
RERUN, RERUN_ICEBERG = "rerun: ours", "rerun: ours, its Iceberg table in the same transaction"
RERUN_SHOWN = "rerun: ours, and its Hive table"
# Plain Spark as everybody has it, in a session whose Spark sets permissions otherwise (docs/decisions/0022).
HADOOPS_OWN_FILES = {"fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem", "fs.file.impl.disable.cache": "true"}
BY_DAY, BY_DAY_OUR_FILES = "write: plain, by day", "write: plain, by day, with our local files"
# So many partitions of one Hive table are moved to other folders.
MOVED = 1_000
# A rerun of one partition takes a fraction of a second, so it has more rounds than the rest. The first dozens are
# slower, while a JVM compiles what it does, ours and the peers' alike.
RERUNS_PER_ROUND, UNCOUNTED_RERUNS = 5, 20


@dataclass
class Figures:
    """Seconds of every counted round, by what was timed; and the rows of the table."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def time(self, what: str, work: Callable[[], object], *, counted: bool = True) -> float:
        """Do it, and note how long it took."""
        start = time.monotonic()
        work()
        took = time.monotonic() - start
        if counted:
            self.add(what, took)
        return took

    def add(self, what: str, took: float) -> None:
        """Note how long something took."""
        self.seconds.setdefault(what, []).append(took)

    def median(self, what: str) -> float:
        """The figure to quote."""
        return statistics.median(self.seconds[what])

    def ratio(self, what: str, beside: str) -> float:
        """The median of the rounds' ratios."""
        return statistics.median(a / b for a, b in zip(self.seconds[what], self.seconds[beside], strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000, help="about so many rows over 365 days (default 5 M)")
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds, after one that is not (default 5)")
    parser.add_argument("--publish", type=int, nargs="+", default=[1, 10, 100, 1_000, 10_000], metavar="PARTITIONS")
    parser.add_argument("--sweep", type=int, default=10_000, metavar="BATCHES", help="how many batches to sweep")
    parser.add_argument("--peer-python", default=sys.executable, help="a Python with the peers' PySpark")
    for peer in PEERS:
        parser.add_argument(f"--{peer}-jars", default="", help="comma-separated jars of the peer")
    parser.add_argument("--part", choices=("files", "ours"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.part:
        part = Figures()
        rows = _files(part, given) if given.part == "files" else _rerun(part, RERUNS_PER_ROUND * given.rounds)
        print(json.dumps({"rows": rows, "seconds": part.seconds}))
        return 0
    console, figures = Console(), Figures()
    with tempfile.TemporaryDirectory(prefix="varve-bench-") as home, _postgres(home) as settings:
        rows = _in_its_process(figures, "files", given)
        for count in given.publish:
            _say(f"publishing {count} partitions")
            _publish(figures, settings, count, given.rounds)
        _say(f"sweeping {given.sweep} batches")
        _sweep(figures, settings, given.sweep)
        _in_its_process(figures, "ours", given)
        for peer in PEERS:
            if jars := getattr(given, f"{peer}_jars"):
                _peer(figures, peer, home, jars, given)
    _report(console, figures, rows, given)
    return 0


def _say(what: str) -> None:
    """Progress."""
    print(f"{dt.datetime.now(dt.UTC):%H:%M:%S} {what}", file=sys.stderr, flush=True)


def _files(figures: Figures, given: argparse.Namespace) -> int:
    """Writes and reads; how many rows there are."""
    settings = Settings()
    session = _session(settings)
    source = _flights(session, str(settings.home_dir), given.rows)
    _writes_and_reads(figures, session, settings, source, given.rounds)
    _moves(figures, session, settings, given.rounds)
    return source.count()


class _postgres:  # noqa: N801 - used as a function
    """A home of its own, whose PostgreSQL ends with the block."""

    def __init__(self, home: str) -> None:
        Path(home).chmod(0o755)
        os.environ |= {"VARVE_HOME": home, "VARVE_SPARK_MASTER": "local[*]"}

    def __enter__(self) -> Settings:
        self._settings = Settings()
        PostgresServer(self._settings.home_dir).ensure_up()
        return self._settings

    def __exit__(self, *_: object) -> None:
        PostgresServer(self._settings.home_dir).stop()


def _session(settings: Settings) -> SparkSession:
    from varve.services.spark import open_session

    return open_session(settings, {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"})


def _flights(session: SparkSession, home: str, rows: int) -> DataFrame:
    """The flights of 2013 as parquet files that are no part of any table, repeated to about so many rows."""
    import pandas as pd
    from pyspark.sql import functions as F  # noqa: N812

    frame = pd.read_csv(partner.data_folder() / "flights.csv.zip")
    path = f"{home}/source"
    columns = ["dep_delay", "arr_delay", "flight", "distance", "carrier", "tailnum", "origin", "dest"]
    listed = frame[[*columns, "time_hour", "year", "month", "day"]].astype({"time_hour": "string"})
    Path(path).mkdir()
    listed.to_parquet(f"{path}/flights.parquet")
    copies = max(1, round(rows / len(frame)))
    typed = session.read.parquet(path).select(
        *[F.col(name).cast(str(column.type)) for column in FLIGHTS.schema.columns[1:] for name in [column.name]],
        F.make_date("year", "month", "day").alias("day"),
    )
    repeated = typed.crossJoin(session.range(copies).withColumnRenamed("id", "copy"))
    target = f"{home}/repeated"
    repeated.select(*FLIGHTS.schema.names, "day").write.parquet(target)
    return session.read.parquet(target)


@dataclass(frozen=True)
class _Bench:
    """A catalog and the lake over it, for one way of hashing."""

    catalog: Catalog
    store: LakeStore

    def run(self, keys: Sequence[PartitionKey], frame: DataFrame) -> None:
        """All that a run does, without Dagster."""
        build = self.publish(keys, frame)
        self.store.published(build)
        self.catalog.release(build)

    def publish(self, keys: Sequence[PartitionKey], frame: DataFrame) -> Any:
        """As far as what readers through the catalog see."""
        build = self.stage(keys, frame)
        self.store.commit([build], partial(self.catalog.publish, build))
        return build

    def stage(self, keys: Sequence[PartitionKey], frame: DataFrame) -> Any:
        """As far as a batch that may be published."""
        build = self.catalog.begin(FLIGHTS, keys, run_id="bench", code_version="")
        staged = self.store.stage(build, frame)
        self.catalog.staged(build, staged)
        self.store.verify(build, staged)
        return build


def _bench(session: SparkSession, settings: Settings, hashing: ContentHash, *, iceberg: bool = False) -> _Bench:
    catalog, layout = Catalog(connect(settings, application="varve bench")), Layout(settings.lake)
    catalog.ensure_schema()
    tables = IcebergTables(layout, catalog) if iceberg else None
    return _Bench(catalog, LakeStore(layout, catalog, lambda: session, hashing=hashing, iceberg=tables))


def _writes_and_reads(
    figures: Figures, session: SparkSession, settings: Settings, source: DataFrame, rounds: int
) -> None:
    keys = [PartitionKey.of(day=day) for day in list(DAY.keys())]
    ours, hashed = (_bench(session, settings, kind) for kind in (ContentHash.SINGLE, ContentHash.ALWAYS))
    plain = f"{settings.home_dir}/plain"

    def by_day() -> DataFrameWriter:
        return source.repartition("day").write.mode("overwrite").partitionBy("day")

    writes: dict[str, Callable[[], object]] = {
        "write: plain": lambda: (
            source.write.mode("overwrite").options(**HADOOPS_OWN_FILES).partitionBy("day").parquet(plain)
        ),
        BY_DAY: lambda: by_day().options(**HADOOPS_OWN_FILES).parquet(f"{plain}2"),
        BY_DAY_OUR_FILES: lambda: by_day().parquet(f"{plain}3"),
        "write: ours": lambda: ours.catalog.release(ours.stage(keys, source)),
        "write: ours, hashed": lambda: hashed.catalog.release(hashed.stage(keys, source)),
    }
    for number in range(rounds + 1):
        for what, work in writes.items():
            _say(f"round {number} of {rounds}: {what}")
            figures.time(what, work, counted=number > 0)
    _say("publishing 365 partitions with their Hive table")
    ours.run(keys, source)
    batches = list(ours.catalog.current(FLIGHTS.name).values())
    reads: dict[str, Callable[[], object]] = {
        "read: plain": lambda: _consume(session.read.parquet(f"{plain}2")),
        "read: ours": lambda: _consume(ours.store.read(FLIGHTS, batches)),
        "read: plain, one day": lambda: _consume(session.read.parquet(f"{plain}2").where(ONE_DAY)),
        "read: ours, one day": lambda: _consume(
            ours.store.read(FLIGHTS, [batch for batch in batches if batch.partition == ONE.path])
        ),
    }
    for number in range(rounds + 1):
        for what, work in reads.items():
            _say(f"round {number} of {rounds}: {what}")
            figures.time(what, work, counted=number > 0)


def _moves(figures: Figures, session: SparkSession, settings: Settings, rounds: int) -> None:
    """A Hive table follows reruns of many partitions: what comes after the publish. Their folders have no files."""
    bench, (dataset, keys) = _bench(session, settings, ContentHash.SINGLE), _many("moved", MOVED)
    for number in range(rounds + 2):
        _say(f"round {number} of {rounds + 1}: moving {MOVED} partitions")
        build = bench.catalog.begin(dataset, keys, run_id="bench", code_version="")
        places = [f"{settings.lake}/bench/moved/{key.path}/batch_id={build.batch_id}" for key in keys]
        staged = [StagedBatch(key, place, 1, 1, 1) for key, place in zip(keys, places, strict=True)]
        bench.catalog.staged(build, staged)
        bench.catalog.publish(build)
        # The first adds them, and the second finds the JVM cold.
        figures.time("moved", lambda: bench.store.published(build), counted=number > 1)  # noqa: B023
        bench.catalog.release(build)


def _consume(frame: DataFrame) -> object:
    from pyspark.sql import functions as F  # noqa: N812

    return frame.agg(F.sum("dep_delay"), F.max("tailnum"), F.max("time_hour"), F.count_distinct("dest")).collect()


def _many(what: str, count: int) -> tuple[Dataset, list[PartitionKey]]:
    names = tuple(f"p{number:06}" for number in range(count))
    dataset = Dataset(
        f"bench.{what}{count}",
        Partitioning((StaticDimension("p", names, limit=count),)),
        FLIGHTS.schema,
        StoreKind.LAKE,
        "Many.",
    )
    return dataset, [PartitionKey.of(p=name) for name in names]


def _publish(figures: Figures, settings: Settings, count: int, rounds: int) -> None:
    dataset, keys = _many("published", count)
    with connect(settings) as connection:
        catalog = Catalog(connection)
        for number in range(rounds + 1):
            build = catalog.begin(dataset, keys, run_id="bench", code_version="")
            staged = [StagedBatch(key, f"/nowhere/{key.path}/{build.batch_id}", 1, 1, 1) for key in keys]
            catalog.staged(build, staged)
            figures.time(f"publish: {count}", lambda: catalog.publish(build), counted=number > 0)  # noqa: B023
            catalog.release(build)
            copied = _copied(connection, dataset, build.batch_id.millis)
            figures.time(f"publish: bare COPY of {count}", copied, counted=number > 0)


def _copied(connection: psycopg.Connection, dataset: Dataset, batch_id: int) -> Callable[[], None]:
    """A bare COPY of the catalog's rows of a build, into a table with the columns and indexes of theirs."""
    connection.execute("create table if not exists public.copied (like varve.batch including indexes)")
    connection.execute("truncate public.copied")
    of_build = sql.SQL(
        "copy (select * from varve.batch where dataset = {} and batch_id = {}) to stdout (format binary)"
    )
    with connection.cursor().copy(of_build.format(dataset.name, batch_id)) as rows:
        content = b"".join(rows)

    def copy() -> None:
        with connection.cursor().copy("copy public.copied from stdin (format binary)") as into:
            into.write(content)

    return copy


def _sweep(figures: Figures, settings: Settings, count: int) -> None:
    dataset, keys = _many("swept", count)
    with connect(settings) as connection:
        catalog, history, layout = Catalog(connection), History(connection), Layout(settings.lake)
        store = LakeStore(layout, catalog, lambda: None)  # type: ignore[arg-type,return-value]  # never asked
        for _ in range(2):
            build = catalog.begin(dataset, keys, run_id="bench", code_version="")
            staged = []
            for key in keys:
                folder = Path(layout.batch(dataset, key, build.batch_id))
                folder.mkdir(parents=True)
                (folder / "part-00000.zstd.parquet").write_bytes(b"0" * 1_000)
                staged.append(StagedBatch(key, str(folder), 1, 1_000, 1))
            catalog.staged(build, staged)
            catalog.publish(build)
            catalog.release(build)
            catalog.projected(dataset.name, catalog.lagging(dataset.name).values())

        def sweep() -> None:
            retired = history.retired(dataset.name, older_than=dt.timedelta(0), keep_last=0)
            history.mark_swept(one for one in retired if not one.kept)
            pending = history.undeleted(dataset.name)
            assert len(pending) == count, f"{len(pending)} batches to sweep"
            store.sweep(dataset.name, [one.location for one in pending])
            history.deleted(pending)

        figures.time("sweep", sweep)
        figures.time("leftovers", store.leftovers)


def _in_its_process(figures: Figures, part: str, given: argparse.Namespace) -> int:
    """One part in a process and a JVM of its own, for the embedded metastore takes one; its number of rows."""
    _say("writes and reads" if part == "files" else "one partition again: ours")
    command = [sys.executable, "-m", "benchmarks.lake", "--part", part]
    return _told(figures, [*command, "--rounds", str(given.rounds), "--rows", str(given.rows)])


def _peer(figures: Figures, peer: str, home: str, jars: str, given: argparse.Namespace) -> None:
    _say(f"one partition again: {peer}")
    script = str(Path(__file__).with_name("rerun_peer.py"))
    counts = [str(RERUNS_PER_ROUND * given.rounds), str(UNCOUNTED_RERUNS)]
    _told(figures, [given.peer_python, script, peer, home, str(ONE["day"]), *counts, jars])


def _told(figures: Figures, command: Sequence[str]) -> int:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    # The JVM may say something too.
    found = json.loads(next(line for line in reversed(done.stdout.splitlines()) if line.startswith("{")))
    figures.seconds |= found["seconds"]
    return int(found["rows"])


def _rerun(figures: Figures, rounds: int) -> int:
    """One day of the repeated flights written again, whole."""
    settings = Settings()
    session = _session(settings)
    day = session.read.parquet(f"{settings.home_dir}/repeated").where(ONE_DAY)

    def again(bench: _Bench, what: str, shown: str = "", *, counted: bool) -> None:
        start = time.monotonic()
        build = bench.publish([ONE], day)
        published = time.monotonic() - start
        bench.store.published(build)
        both = time.monotonic() - start
        bench.catalog.release(build)
        if counted:
            figures.add(what, published)
            if shown:
                figures.add(shown, both)

    plain, with_iceberg = (_bench(session, settings, ContentHash.SINGLE, iceberg=iceberg) for iceberg in (False, True))
    # One after the other, as a table is not an Iceberg table in every second publish.
    for number in range(rounds + UNCOUNTED_RERUNS):
        again(plain, RERUN, RERUN_SHOWN, counted=number >= UNCOUNTED_RERUNS)
    for number in range(rounds + 2):
        again(with_iceberg, RERUN_ICEBERG, counted=number > 1)
    return day.count()


def _report(console: Console, figures: Figures, rows: int, given: argparse.Namespace) -> None:
    table = Table("what", "s (median)", "ratio", "goal", title=f"lake, {rows:,} rows, {given.rounds} rounds")
    for what, beside, goal in _lines(figures, given):
        ratio = f"{figures.ratio(what, beside):.2f} x {beside.partition(': ')[2]}" if beside else ""
        table.add_row(what, f"{figures.median(what):.3f}", ratio, goal)
    console.print(table)


def _lines(figures: Figures, given: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    yield "write: plain", "", ""
    yield BY_DAY, "write: plain", ""
    yield BY_DAY_OUR_FILES, BY_DAY, ""
    yield "write: ours", BY_DAY, "<= 1.15"
    yield "write: ours", BY_DAY_OUR_FILES, ""
    yield "write: ours, hashed", "write: ours", ""
    yield "read: plain", "", ""
    yield "read: ours", "read: plain", "<= 1.10"
    yield "read: plain, one day", "", ""
    yield "read: ours, one day", "read: plain, one day", "<= 1.10"
    for peer in PEERS:
        if f"rerun: {peer}" in figures.seconds:
            yield f"rerun: {peer}", "", ""
    peers = [f"rerun: {peer}" for peer in PEERS if f"rerun: {peer}" in figures.seconds]
    for what in (RERUN, RERUN_ICEBERG, RERUN_SHOWN):
        for beside in peers or [""]:
            yield what, beside, "< 1" if beside else ""
    yield "moved", "", "<= 5 s"
    first = f"publish: {given.publish[0]}"
    for count in given.publish:
        yield f"publish: {count}", first, "<= 20" if count == 1_000 else ""
        yield f"publish: bare COPY of {count}", "", ""
        yield f"publish: {count}", f"publish: bare COPY of {count}", "<= 2"
    yield "sweep", "", ""
    yield "leftovers", "", ""


if __name__ == "__main__":
    sys.exit(main())
