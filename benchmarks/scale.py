"""How a run grows with its rows and with its partitions: `python -m benchmarks.scale`.

    python -m benchmarks.scale [--rows 1 10 50] [--partitions 365 3650] [--projected 1000]

Rows (in millions) lie in 365 partitions; partitions, by the hour, share 1 million rows. Each step is what a run or a
command does, without the start of a process: `stage` computes, writes, surveys and verifies the files; `publish` is the
catalog and the lake's own record; `rerun` stages and publishes the newest hundredth of the partitions again; `doctor`
compares every folder with the catalog; `status` counts; `sweep` finds and deletes what the rerun replaced, and walks
over all folders. The Hive table follows where there are no more than `--projected` partitions: the embedded metastore
takes them one by one.

Of each step: wall seconds; processor seconds of this process and of Spark's, which count where others use the machine
too; and the most memory that each of the two held. Spark is local, so its process is driver and executors. Then what
Spark's UI says of the same steps: how many tasks there were, what they spilled to disk, and of the stage that ran
longest how long its tasks took.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pendulum
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.commands import home_of_its_own
from varve.catalog.catalog import Catalog
from varve.catalog.history.history import History
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.services.ports import free_port
from varve.services.postgres import connect
from varve.services.postgres_server import PostgresServer
from varve.services.spark import open_session
from varve.services.spark_server import SparkServer
from varve.stores.lake import record
from varve.stores.lake.store import LAKE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.model.inventory import Finding
    from varve.model.partitions.key import PartitionKey
    from varve.services.settings import Settings
    from varve.stores.store import Store

START = pendulum.datetime(2010, 1, 1)
SCHEMA = Schema(
    (
        Column("id", ColumnType.BIGINT),
        Column("product", ColumnType.STRING),
        Column("price", ColumnType.DOUBLE),
        Column("sold_at", ColumnType.TIMESTAMP),
    )
)
_YEAR, _MILLION = 365, 1_000_000
_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage as Spark's UI shows it: seconds that its tasks ran, all, the median one and the longest one."""

    number: int
    tasks: int
    seconds: float
    spilled: int
    median: float
    longest: float


class SparkUi:
    """What Spark's UI, on a port of this machine, knows of stages that are complete."""

    def __init__(self, port: int) -> None:
        self._port = port
        (application, *_) = self._asked("")
        self._application = application["id"]
        self._seen: set[tuple[int, int]] = set()

    def new_stages(self) -> list[Stage]:
        """The stages that have ended since the last time."""
        stages = []
        for stage in self._asked(f"/{self._application}/stages?status=complete"):
            identity = (stage["stageId"], stage["attemptId"])
            if identity not in self._seen:
                self._seen.add(identity)
                times = self._asked(
                    f"/{self._application}/stages/{identity[0]}/{identity[1]}/taskSummary?quantiles=0.5,1.0"
                )["executorRunTime"]
                stages.append(
                    Stage(
                        identity[0], stage["numTasks"], stage["executorRunTime"] / 1_000, stage["diskBytesSpilled"],
                        times[0] / 1_000, times[1] / 1_000,
                    )
                )  # fmt: skip
        return stages

    def _asked(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/applications{path}", timeout=60) as answer:
            return json.load(answer)


@dataclass
class Cost:
    """What one step took: seconds, and the most memory in MB of this process and of Spark's."""

    wall: float = 0.0
    here: float = 0.0
    spark: float = 0.0
    here_mb: float = 0.0
    spark_mb: float = 0.0
    stages: list[Stage] = field(default_factory=list)


@dataclass
class Run:
    """One size, with the costs of its steps by their names."""

    rows: int
    partitions: int
    files: int = 0
    size: int = 0
    costs: dict[str, Cost] = field(default_factory=dict)


class Meter:
    """Measures steps by the processor time and the memory of this process and of Spark's, and by Spark's UI."""

    def __init__(self, spark_pid: int, ui: SparkUi) -> None:
        self._here, self._spark, self._ui = psutil.Process(), psutil.Process(spark_pid), ui

    @contextlib.contextmanager
    def measured(self, run: Run, step: str) -> Iterator[None]:
        """Add a step to a run."""
        cost, over = run.costs.setdefault(step, Cost()), threading.Event()

        def look() -> None:
            while True:
                cost.here_mb = max(cost.here_mb, self._here.memory_info().rss / 1e6)
                cost.spark_mb = max(cost.spark_mb, self._spark.memory_info().rss / 1e6)
                if over.wait(_LOOK_SECONDS):
                    return

        watcher = threading.Thread(target=look, daemon=True)
        before, start = self._seconds(), time.monotonic()
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
            here, spark = self._seconds()
            cost.wall += time.monotonic() - start
            cost.here += here - before[0]
            cost.spark += spark - before[1]
            cost.stages += self._ui.new_stages()

    def _seconds(self) -> tuple[float, float]:
        here, spark = self._here.cpu_times(), self._spark.cpu_times()
        return here.user + here.system, spark.user + spark.system


@dataclass(frozen=True)
class Bench:
    """One dataset in a catalog and a lake of its own."""

    dataset: Dataset
    catalog: Catalog
    store: Store
    spark: SparkSession
    settings: Settings
    meter: Meter

    def frame(self, rows: int, first: int, last: int) -> DataFrame:
        """So many rows of each partition from the `first` to before the `last`, in no order."""
        partitions, epoch = last - first, int(START.timestamp())
        return self.spark.range(rows * partitions).selectExpr(
            "id", "concat('product ', id % 977) AS product", "id * 0.25D AS price",
            f"timestamp_seconds({epoch} + id % 1000000) AS sold_at",
            f"date_format(timestamp_seconds({epoch} + 3600 * ({first} + pmod(hash(id), {partitions}))), "
            "\"yyyy-MM-dd'T'HH\") AS hour",
        )  # fmt: skip

    def publish(self, run: Run, prefix: str, keys: Sequence[PartitionKey], frame: DataFrame) -> None:
        """What a run does."""
        build = self.catalog.begin(self.dataset, keys, run_id=f"run-{time.time_ns()}", code_version="1")
        with self.meter.measured(run, f"{prefix}stage"):
            staged = self.store.stage(build, frame)
            self.catalog.staged(build, staged)
            self.store.verify(build, staged)
        with self.meter.measured(run, f"{prefix}publish"):
            self.catalog.publish(build)
            record.keep(self.store.layout, self.catalog, self.dataset.name)  # type: ignore[attr-defined]
        self.catalog.release(build)
        if not prefix:
            run.files, run.size = sum(batch.files for batch in staged), sum(batch.size for batch in staged)


def measure(settings: Settings, rows: int, partitions: int, projected: int) -> Run:
    """All steps of one size."""
    ui_port = free_port()
    settings = settings.model_copy(update={"spark_conf": {"spark.ui.enabled": "true", "spark.ui.port": str(ui_port)}})
    spark = open_session(settings)
    pid = SparkServer(settings).pid()
    assert pid is not None
    run, end = Run(rows, partitions), START.add(hours=partitions)
    dimension = TimeDimension("hour", Grain.HOUR, START, end)
    name = f"bench{rows}_{partitions}.sales"
    dataset = Dataset(name, Partitioning((dimension,)), SCHEMA, StoreKind.LAKE, "Sales.")
    with connect(settings, application="varve benchmark") as connection:
        catalog = Catalog(connection)
        catalog.ensure_schema()
        store = LAKE.open(settings, catalog, lambda: spark)
        bench, history = (
            Bench(dataset, catalog, store, spark, settings, Meter(pid, SparkUi(ui_port))),
            History(connection),
        )
        keys = list(dataset.partitioning.keys())
        bench.publish(run, "", keys, bench.frame(rows // partitions, 0, partitions))
        shown = partitions <= projected
        if shown:
            with bench.meter.measured(run, "follow"):
                store.follow(dataset)
        again = max(1, partitions // 100)
        bench.publish(run, "rerun ", keys[-again:], bench.frame(rows // partitions, partitions - again, partitions))
        with bench.meter.measured(run, "doctor"):
            findings = store.examine(dataset, history.present(name)) if shown else _folders(bench, history)
        assert not any("folder" in finding.problem for finding in findings), findings[:3]
        with bench.meter.measured(run, "status"):
            catalog.counts()
        with bench.meter.measured(run, "sweep"):
            if not shown:
                connection.execute("update varve.current set projected_batch_id = batch_id where dataset = %s", (name,))
            else:
                store.follow(dataset)
            retired = history.retired(name, older_than=dt.timedelta(0), keep_last=0)
            assert history.mark_swept([batch for batch in retired if not batch.kept]) == again
            store.sweep(name, [batch.location for batch in history.undeleted(name) if batch.location])
            history.deleted(history.undeleted(name))
            assert store.leftovers() == []
    spark.stop()
    return run


def _folders(bench: Bench, history: History) -> list[Finding]:
    """What `doctor` compares of the folders, where the Hive table shows nothing."""
    from varve.stores.lake import examine

    layout, present = bench.store.layout, history.present(bench.dataset.name)  # type: ignore[attr-defined]
    return list(examine.folders(layout, bench.dataset, present))


def show(console: Console, run: Run) -> None:
    """One size as a table."""
    title = f"{run.rows:,} rows, {run.partitions:,} partitions: {run.files:,} files, {run.size / 1e6:,.0f} MB"
    table = Table("step", "s", "processor s here", "of Spark", "MB here", "of Spark", title=title, title_justify="left")
    for step, cost in run.costs.items():
        numbers = (cost.wall, cost.here, cost.spark)
        table.add_row(step, *[f"{number:.1f}" for number in numbers], f"{cost.here_mb:.0f}", f"{cost.spark_mb:.0f}")
    console.print(table)
    table = Table("step", "tasks", "spilled MB", "longest stage: tasks", "task s, median", "longest")
    for step, cost in run.costs.items():
        if cost.stages:
            most = max(cost.stages, key=lambda stage: stage.seconds)
            tasks, spilled = sum(each.tasks for each in cost.stages), sum(each.spilled for each in cost.stages)
            table.add_row(
                step,
                f"{tasks:,}",
                f"{spilled / 1e6:,.0f}",
                f"{most.tasks:,}",
                f"{most.median:.2f}",
                f"{most.longest:.2f}",
            )
    console.print(table)


def main() -> None:
    """Measure the sizes one after the other, each in a home of its own, and print a table of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, nargs="*", default=[1, 10, 50], metavar="MILLIONS")
    parser.add_argument("--partitions", type=int, nargs="*", default=[_YEAR, 10 * _YEAR])
    parser.add_argument("--projected", type=int, default=1_000, help="the Hive table follows up to so many partitions")
    given = parser.parse_args()
    console = Console(width=110)
    sizes = [(int(millions * _MILLION), _YEAR) for millions in given.rows]
    sizes += [(_MILLION, partitions) for partitions in given.partitions]
    for rows, partitions in dict.fromkeys(sizes):
        with home_of_its_own() as settings:
            PostgresServer(settings.home_dir).ensure_up()
            show(console, measure(settings, rows, partitions, given.projected))


if __name__ == "__main__":
    main()
