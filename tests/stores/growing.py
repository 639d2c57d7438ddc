"""A week whose hourly files keep coming, without Dagster: a partner that sends, runs that take, readers that compare.

What must come out is told by the files alone, which are parsed here with no code of the project.
"""

from __future__ import annotations

import csv
import os
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pendulum
from psycopg import sql

from varve.model.dataset import Dataset, StoreKind
from varve.model.landing.growth import Incremental
from varve.model.landing.options import LandingOptions
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.sources.landing.landing import Landing
from varve.stores.open_build import OpenBuild

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.workbench import Workbench
    from varve.catalog.catalog import Catalog
    from varve.model.batch import Batch
    from varve.model.partitions.key import PartitionKey
    from varve.stores.store import Store

T = TypeVar("T")
WEEK = TimeDimension("week", Grain.WEEK, pendulum.datetime(2026, 9, 7))
SCHEMA = Schema((Column("product", ColumnType.STRING), Column("sold", ColumnType.BIGINT)))
# A week that is over: it may be folded, and takes files as long as it is not closed.
OVER = pendulum.datetime(2026, 11, 2)


def weekly(store: StoreKind, incremental: Incremental | None = None) -> Dataset:
    """A dataset of its own database whose weeks are folders of files."""
    return Dataset(
        name=f"g{uuid.uuid4().hex[:8]}.orders",
        partitioning=Partitioning((WEEK,)),
        schema=SCHEMA,
        store=store,
        comment="One row per product sold.",
        landing=LandingOptions(files="week={week}/*.csv"),
        incremental=incremental or Incremental(),
    )


@dataclass
class Growing:
    """One week of a dataset: what a partner sends, and what runs make of it."""

    workbench: Workbench
    dataset: Dataset
    started: pendulum.DateTime = OVER
    code_version: str = "test"
    reasons: list[str] = field(default_factory=list)

    @property
    def key(self) -> PartitionKey:
        """The week."""
        return self.dataset.partitioning.from_dagster(self.started.to_date_string())

    @property
    def folder(self) -> Path:
        """Where its files arrive."""
        return (
            Path(self.workbench.settings.landing) / self.dataset.db / "orders" / f"week={self.started.to_date_string()}"
        )

    def send(self, name: str, sold: Sequence[int]) -> Path:
        """A file of these rows, put into its place at once."""
        self.folder.mkdir(parents=True, exist_ok=True)
        beside = self.folder / f".{uuid.uuid4().hex}"
        beside.write_text("product,sold\n" + "".join(f"{name},{number}\n" for number in sold))
        # An age, so that a file that is sent again within a tick of the clock is another one.
        os.utime(beside, ns=(1_700_000_000_000_000_000, uuid.uuid4().int % 10**18))
        return beside.replace(self.folder / f"{name}.csv")

    def expected(self) -> list[tuple[str, int]]:
        """The rows of all files that lie there."""
        rows = []
        for path in sorted(self.folder.glob("*.csv")):
            with path.open() as file:
                rows += [(row["product"], int(row["sold"])) for row in csv.DictReader(file)]
        return sorted(rows)

    def stage(self, catalog: Catalog, *, reuse_allowed: bool = False) -> tuple[OpenBuild, Store]:
        """A run up to its publish."""
        build = catalog.begin(self.dataset, [self.key], run_id=f"run-{uuid.uuid4()}", code_version=self.code_version)
        opened = OpenBuild(build, catalog)
        frame = Landing(self.workbench.settings.landing).read(opened, self.workbench.spark, reuse_allowed=reuse_allowed)
        store = self.workbench.store(self.dataset, catalog)
        opened.staged = store.stage(build, frame)
        catalog.staged(build, opened.staged)
        store.verify(build, opened.staged)
        for look in opened.pre_publish_checks:
            look()
        self.reasons.append(build.growth[self.key].reason)
        return opened, store

    def take(self, *, reuse_allowed: bool = False) -> Batch:
        """A complete run. Returns the batch that is current afterwards."""
        catalog = self.workbench.catalog()
        try:
            opened, store = self.stage(catalog, reuse_allowed=reuse_allowed)
            store.publish(opened.build, opened.staged)
            catalog.release(opened.build)
            return catalog.current(self.dataset.name)[self.key.path]
        finally:
            catalog.connection.close()

    def read(self) -> list[tuple[str, int]]:
        """What a pinned read of the current batch finds."""
        return sorted((row[1], row[2]) for row in self.workbench.read(self.dataset))  # type: ignore[misc]

    def with_catalog(self, what: Callable[[Catalog, Store], T]) -> T:
        """Something over a connection of its own."""
        catalog = self.workbench.catalog()
        try:
            return what(catalog, self.workbench.store(self.dataset, catalog))
        finally:
            catalog.connection.close()

    def findings(self) -> list[str]:
        """What a deep look at all that is kept has to say."""
        from varve.catalog.history.history import History

        def look(catalog: Catalog, store: Store) -> list[str]:
            present = History(catalog.connection).present(self.dataset.name)
            return [finding.problem for finding in store.examine(self.dataset, present, deep=True)]

        return self.with_catalog(look)

    def go_back(self, to: Batch) -> None:
        """A rollback to an earlier batch."""

        def back(catalog: Catalog, store: Store) -> None:
            build = catalog.lock_partitions(self.dataset, [self.key], run_id=f"back-{uuid.uuid4()}")
            store.republish(build, [to], reason="it was wrong")
            catalog.release(build)

        self.with_catalog(back)

    def view(self) -> list[tuple[str, int]]:
        """What a reader of PostgreSQL sees."""

        def rows(catalog: Catalog, store: Store) -> list[tuple[str, int]]:
            del store
            name = sql.Identifier(self.dataset.db, self.dataset.table)
            query = sql.SQL("select product, sold from {} order by 1, 2").format(name)
            return catalog.connection.execute(query).fetchall()

        return self.with_catalog(rows)

    def parts(self, batch: Batch) -> int:
        """Of how many parts a batch consists."""
        from varve.catalog.parts import Parts

        def count(catalog: Catalog, store: Store) -> int:
            del store
            parts_by_batch = Parts(catalog.connection).of(self.dataset.name, [(batch.partition, batch.batch_id)])
            return len(parts_by_batch[batch.partition, batch.batch_id.millis])

        return self.with_catalog(count)
