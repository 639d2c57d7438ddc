"""A week that grows by a file an hour: what each load costs, beside reading the whole folder each time.

`python -m benchmarks.growing`: loads 1 to 40 in both stores, INCREMENTAL and not, each a run from its locks to its
publish on warm services, without the start of a process (run_overhead.py has that). Loads of the four take turns, so
that a machine whose speed drifts treats all alike.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pendulum
from rich.console import Console
from rich.table import Table

from benchmarks.commands import home_of_its_own
from varve.catalog.catalog import Catalog
from varve.model.dataset import Dataset, StoreKind
from varve.model.growth import Incremental
from varve.model.landing.options import LandingOptions
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.services.postgres import connect
from varve.services.postgres_server import PostgresServer
from varve.services.spark import open_session
from varve.sources.landing.landing import Landing
from varve.stores.open import open_store
from varve.stores.open_build import OpenBuild

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from varve.services.settings import Settings

WEEK = TimeDimension("week", Grain.WEEK, pendulum.datetime(2026, 9, 7))
MONDAY = "2026-11-02"
SCHEMA = Schema(
    (
        Column("product", ColumnType.STRING),
        Column("sold", ColumnType.BIGINT),
        Column("price", ColumnType.DOUBLE),
        Column("at", ColumnType.TIMESTAMP),
    )
)
# So many loads at each end are compared: one alone tells what else the machine did just then.
_ENDS = 5


@dataclass
class Week:
    """One dataset with one week that grows, and the seconds of its loads."""

    dataset: Dataset
    seconds: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """How much the last loads cost, in those that came after the first, which warms up."""
        return statistics.median(self.seconds[-_ENDS:]) / statistics.median(self.seconds[1 : 1 + _ENDS])

    def send(self, root: str, hour: int, rows: int) -> None:
        """One more file."""
        folder = Path(root) / self.dataset.db / self.dataset.table / f"week={MONDAY}"
        folder.mkdir(parents=True, exist_ok=True)
        beside = folder / f".{uuid.uuid4().hex}"
        with beside.open("w") as file:
            file.write("product,sold,price,at\n")
            for number in range(rows):
                file.write(
                    f"product {number % 977},{number},{number * 0.25},2026-11-02T{hour % 24:02}:{number % 60:02}:00Z\n"
                )
        beside.replace(folder / f"h{hour:03}.csv")

    def load(self, settings: Settings, spark: SparkSession) -> None:
        """A run, from its locks to its publish."""
        start = time.monotonic()
        catalog = Catalog(connect(settings, application="varve benchmark"))
        catalog.ensure_schema()
        key = self.dataset.partitioning.from_dagster(MONDAY)
        build = catalog.begin(self.dataset, [key], run_id=f"run-{uuid.uuid4()}", code_version="1")
        opened = OpenBuild(build, catalog)
        store = open_store(self.dataset.store, settings, catalog, lambda: spark)
        staged = store.stage(build, Landing(settings.landing).read(opened, spark))
        catalog.staged(build, staged)
        store.verify(build, staged)
        for look in opened.pre_publish_checks:
            look()
        store.publish(build, staged)
        catalog.release(build)
        catalog.connection.close()
        self.seconds.append(time.monotonic() - start)


def weeks() -> dict[str, Week]:
    """The four that are compared, by their names."""
    return {
        f"{store}, {'INCREMENTAL' if incremental else 'the whole folder'}": Week(
            Dataset(
                name=f"b{store}{'_added' if incremental else '_whole'}.orders",
                partitioning=Partitioning((WEEK,)),
                schema=SCHEMA,
                store=store,
                comment="",
                landing=LandingOptions(files="week={week}/*.csv"),
                incremental=Incremental() if incremental else None,
            )
        )
        for store in StoreKind
        for incremental in (True, False)
    }


def measure(settings: Settings, files: int, rows: int) -> dict[str, Week]:
    """All loads of all weeks."""
    found = weeks()
    spark = open_session(settings)
    for hour in range(files):
        for week in found.values():
            week.send(settings.landing, hour, rows)
            week.load(settings, spark)
    spark.stop()
    return found


def show(console: Console, found: dict[str, Week], rows: int) -> None:
    """The table."""
    shown = [at for at in (1, 2, 5, 10, 20, 30, 40, 100, 168) if at <= len(next(iter(found.values())).seconds)]
    table = Table(
        "seconds of load", *map(str, shown), "last / first", title=f"{rows:,} rows a file", title_justify="left"
    )
    for name, week in found.items():
        table.add_row(name, *[f"{week.seconds[at - 1]:.2f}" for at in shown], f"{week.ratio:.2f}")
    console.print(table)
    console.print(f"last / first: medians of the last {_ENDS} loads and of loads 2 to {1 + _ENDS}.")


def main(words: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(words)
    with home_of_its_own() as settings:
        PostgresServer(settings.home_dir).ensure_up()
        found = measure(settings, asked.files, asked.rows)
    if asked.json:
        print(json.dumps({name: {"seconds": week.seconds, "ratio": week.ratio} for name, week in found.items()}))
    else:
        show(Console(width=140), found, asked.rows)


if __name__ == "__main__":
    main()
