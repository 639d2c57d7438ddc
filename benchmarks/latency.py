"""From a file to the rows that a reader sees, second by second: `python -m benchmarks.latency`.

The real daemon with its sensors on, warm services, one file after the other: it lands in a lake dataset, whose publish
makes a warehouse dataset due, whose view a reader keeps asking. Every second is given to the step that it was spent in,
from Dagster's own events and the catalog's times; the last column is what the reader measured by itself.

Goal: 15 s at the median from a settled file to the rows in the view, on 2 idle cores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from rich.console import Console
from rich.table import Table

from benchmarks.commands import home_of_its_own
from varve.catalog.catalog import Catalog
from varve.dagster.automation.sensors import DATASET_TAG
from varve.dagster.instance import open_instance
from varve.project import Project
from varve.services.postgres import connect, warehouse_url
from varve.services.spark_server import SparkServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dagster import DagsterInstance, DagsterRun

    from varve.services.settings import Settings

GOAL_SECONDS = 15
MODULE = "benchmarks.latency_project.definitions"
ORDERS, REVENUE = "shop.orders", "shop.revenue"
# The first file meets cold servers; on a machine that others use it has waited for five minutes.
_DEADLINE = 900
_STEPS = ("tick", "queue", "process", "step", "publish")
_ASKED = "select coalesce(sum(orders), 0)::bigint from shop.revenue where hour = %s"


@dataclass(frozen=True)
class Sample:
    """One file's way: seconds in each part, in order."""

    parts: dict[str, float]

    @property
    def settled_to_seen(self) -> float:
        """From the instant at which the file counts as settled to the reader's answer."""
        return sum(seconds for name, seconds in self.parts.items() if name != "settle")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and say whether the goal was met (exit 1 where not)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10, help="counted files, after two that are not (default 10)")
    given = parser.parse_args(arguments)
    console = Console()
    with home_of_its_own() as settings:
        with console.status("Starting PostgreSQL, Spark and the daemon..."):
            SparkServer(settings).ensure_up()
            with connect(settings) as connection:
                Catalog(connection).ensure_schema()
        with open_instance(settings) as instance, _daemon(settings):
            samples = [_measured(console, settings, instance, number) for number in range(given.files + 2)][2:]
    return _report(console, samples)


@contextmanager
def _daemon(settings: Settings) -> Iterator[None]:
    """Dagster's daemon over the project, with every sensor on."""
    programs = Path(sys.executable).parent
    # Both read the home folder from the environment.
    environment = {**os.environ, "VARVE_HOME": str(settings.home_dir)}
    words = ["-m", MODULE, "-d", str(Project.find().root)]
    subprocess.run(
        [programs / "dagster", "sensor", "start", "--start-all", *words],
        env=environment, cwd=Project.find().root, check=True, capture_output=True,
    )  # fmt: skip
    log = settings.home_dir / "daemon.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [programs / "dagster-daemon", "run", *words],
            env=environment, cwd=Project.find().root, stdout=file, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


def _measured(console: Console, settings: Settings, instance: DagsterInstance, number: int) -> Sample:
    hour = f"2026-02-{1 + number // 24:02}T{number % 24:02}"
    folder = Path(settings.landing) / "shop" / "orders"
    folder.mkdir(parents=True, exist_ok=True)
    rows = "\n".join(f"{number * 1000 + n},product {n % 7},{n / 4}" for n in range(1000))
    hidden = folder / f".{hour}.csv"
    hidden.write_text(f"order_id,product,amount\n{rows}\n", encoding="utf-8")
    hidden.rename(folder / f"{hour}.csv")
    landed = time.time()
    with console.status(f"file {number + 1}: {hour}"):
        seen = _seen(settings, hour, deadline=landed + _DEADLINE)
    runs = {run.tags[DATASET_TAG]: run for run in instance.get_runs() if run.tags.get("dagster/partition") == hour}
    parts = {"settle": settings.settle_seconds}
    at = landed + settings.settle_seconds
    for dataset in (ORDERS, REVENUE):
        moments = _moments(settings, instance, runs[dataset], dataset)
        for step, moment in zip(_STEPS, moments, strict=True):
            parts[f"{dataset.partition('.')[2]}: {step}"] = moment - at
            at = moment
    parts["seen by the reader"] = seen - at
    return Sample(parts)


def _seen(settings: Settings, hour: str, *, deadline: float) -> float:
    """When a reader that asks the view every 20 ms first found the hour's rows. Ends the benchmark after a deadline."""
    with closing(psycopg.connect(warehouse_url(settings), autocommit=True)) as reader:
        while time.time() < deadline:
            try:
                (found,) = reader.execute(_ASKED, (hour,)).fetchone() or (0,)
            except psycopg.errors.UndefinedTable:
                found = 0
            if found:
                return time.time()
            time.sleep(0.02)
    log = (settings.home_dir / "daemon.log").read_text(encoding="utf-8", errors="replace")
    raise SystemExit(f"no rows of {hour} in shop.revenue after {_DEADLINE} s:\n{log[-3000:]}")


def _moments(
    settings: Settings, instance: DagsterInstance, run: DagsterRun, dataset: str
) -> tuple[float, float, float, float, float]:
    """When the run was asked for, taken from the queue, begun by its process; when its step began and published."""
    times: dict[str, float] = {}
    for entry in instance.all_logs(run.run_id):
        if entry.dagster_event is not None:
            times.setdefault(entry.dagster_event.event_type_value, entry.timestamp)
    with connect(settings) as connection:
        row = connection.execute(
            "select extract(epoch from published_at)::float8 from varve.publish where dataset = %s and run_id = %s",
            (dataset, run.run_id),
        ).fetchone()
    assert row is not None
    return (
        times["PIPELINE_ENQUEUED"], times["PIPELINE_STARTING"], times["PIPELINE_START"], times["STEP_START"], row[0],
    )  # fmt: skip


def _report(console: Console, samples: Sequence[Sample]) -> int:
    table = Table("where", "s (median)", "min - max", title=f"From a file to a reader, {len(samples)} files")
    for name in samples[0].parts:
        seconds = [sample.parts[name] for sample in samples]
        table.add_row(name, f"{statistics.median(seconds):.2f}", f"{min(seconds):.2f} - {max(seconds):.2f}")
    whole = [sample.settled_to_seen for sample in samples]
    median = statistics.median(whole)
    table.add_section()
    table.add_row("settled to seen", f"{median:.2f}", f"{min(whole):.2f} - {max(whole):.2f}")
    console.print(table)
    console.print(f"Goal: {GOAL_SECONDS} s at the median; {'met' if median <= GOAL_SECONDS else 'missed'}.")
    return 0 if median <= GOAL_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
