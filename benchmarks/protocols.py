"""Four ways to replace the rows of a period under readers: ours, and three that people use.

Each fills a period on the server, so that what differs is the order of operations and not the client.

Not here: readers (readers.py) and the run (publish.py).
"""

from __future__ import annotations

import datetime as dt
import itertools
import threading
import time
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import psycopg
from psycopg import sql

from varve.catalog.catalog import Catalog
from varve.catalog.history.history import History
from varve.model.batch import StagedBatch
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import StaticDimension
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.stores.warehouse import clean, publish
from varve.stores.warehouse.tables import notes, view
from varve.stores.warehouse.tables.naming import period_table
from varve.stores.warehouse.tables.schemas import ensure_schemas_of

if TYPE_CHECKING:
    from collections.abc import Callable

PERIODS = 12
# What the sweep leaves at least: a reader may have begun before a table was replaced.
_GRACE = dt.timedelta(seconds=30)
_FILL = sql.SQL("insert into {} select {}, {} from generate_series(1, {})")


class PublishProtocol(Protocol):
    """One way to replace periods; readers query `relation`."""

    name: str
    relation: str

    def prepare(self) -> None:
        """Make all periods."""
        ...

    def publisher(self) -> tuple[Callable[[int], None], Callable[[], None]]:
        """A function that replaces one period, for one thread, and one that ends it."""
        ...

    def tidy(self) -> None:
        """What must be done now and then."""
        ...


@dataclass
class Ours:
    """Period tables under a view, as the warehouse publishes them."""

    url: str
    rows: int
    name: str = "ours"
    dataset: Dataset = field(init=False)

    def __post_init__(self) -> None:
        self.dataset = Dataset(
            f"b{uuid.uuid4().hex[:6]}.ours",
            Partitioning((StaticDimension("period", tuple(map(str, range(PERIODS)))),)),
            Schema((Column("batch", ColumnType.BIGINT), Column("value", ColumnType.BIGINT))),
            StoreKind.WAREHOUSE,
            "A benchmark.",
        )
        self.relation = self.dataset.name

    def prepare(self) -> None:
        """See `PublishProtocol`."""
        replace, end = self.publisher()
        for period in range(PERIODS):
            replace(period)
        end()

    def publisher(self) -> tuple[Callable[[int], None], Callable[[], None]]:
        """See `PublishProtocol`: what a run does, but for Spark."""
        connection = psycopg.connect(self.url, autocommit=True, application_name="varve publisher")
        catalog = Catalog(connection)
        catalog.ensure_schema()
        notes.ensure_tables(connection)
        ensure_schemas_of(connection, self.dataset)

        def replace(period: int) -> None:
            key = PartitionKey.of(period=str(period))
            build = catalog.begin(self.dataset, [key], run_id="benchmark", code_version="")
            table = period_table(self.dataset, key, build.batch_id)
            named = view.table_name(self.dataset, table)
            described = {"dataset": self.dataset.name, "partition": key.path, "batch_id": build.batch_id.millis}
            for statement in view.create_period_table(self.dataset, table, described):
                connection.execute(statement)
            batch = sql.Literal(build.batch_id.millis)
            connection.execute(_FILL.format(named, batch, batch, sql.Literal(self.rows)))
            connection.execute(sql.SQL("analyze {}").format(named))
            catalog.staged(build, [StagedBatch(key, table, self.rows, 1, 1)])
            publish.publish(catalog, build, seconds=120)
            catalog.release(build)

        return replace, connection.close

    def tidy(self) -> None:
        """See `PublishProtocol`: the sweep."""
        with psycopg.connect(self.url, autocommit=True, application_name="varve sweep") as connection:
            history = History(connection)
            retired = history.retired(self.dataset.name, older_than=_GRACE, keep_last=1)
            history.mark_swept([batch for batch in retired if not batch.kept])
            gone = history.undeleted(self.dataset.name)
            clean.drop(connection, self.dataset.name, [batch.location for batch in gone])
            history.deleted(gone)


@dataclass
class Peer(ABC):
    """A way that needs no more than its statements, `steps`: in `one_transaction`, or each in its own."""

    url: str
    rows: int
    name: str
    one_transaction: bool
    schema: str = field(init=False)

    def __post_init__(self) -> None:
        self.schema = f"b{uuid.uuid4().hex[:6]}"
        self.relation = f"{self.schema}.v"
        self._batches = itertools.count(1)
        self._lock = threading.Lock()
        self._shown = set(range(PERIODS))

    def prepare(self) -> None:
        """See `PublishProtocol`."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in [f"create schema {self.schema}", *self.making()]:
                connection.execute(statement.encode())
            for period in range(PERIODS):
                connection.execute(self.fill(period, next(self._batches)).encode())
            for period in range(PERIODS):
                connection.execute(f"analyze {self.table(period)}".encode())

    def publisher(self) -> tuple[Callable[[int], None], Callable[[], None]]:
        """See `PublishProtocol`."""
        connection = psycopg.connect(self.url, autocommit=True, application_name="peer")

        def replace(period: int) -> None:
            batch = next(self._batches)
            while True:
                try:
                    if self.one_transaction:
                        with connection.transaction():
                            for statement in self.steps(period, batch):
                                connection.execute(statement.encode())
                    else:
                        # Each step commits by itself; its two publishers must not rebuild the view at once.
                        with self._lock:
                            for statement in self.steps(period, batch):
                                connection.execute(statement.encode())
                except psycopg.errors.DeadlockDetected:
                    time.sleep(0.05)
                    continue
                return

        return replace, connection.close

    def tidy(self) -> None:  # noqa: B027 - autovacuum does it for most
        """See `PublishProtocol`: autovacuum does it."""

    def making(self) -> list[str]:
        """Statements that make the tables and the view."""
        made = [f"create table {self.table(period)} (batch bigint, value bigint)" for period in range(PERIODS)]
        return [*made, self.view()]

    def table(self, period: int) -> str:
        """The table of a period."""
        return f"{self.schema}.p{period}"

    def fill(self, period: int, batch: int) -> str:
        """The load."""
        return f"insert into {self.table(period)} select {batch}, {batch} from generate_series(1, {self.rows})"

    def view(self) -> str:
        """The view over the tables that are shown."""
        arms = [f"select '{period}'::text as period, batch, value from {self.table(period)}" for period in self._shown]
        return f"create or replace view {self.schema}.v as {' union all '.join(arms)}"

    @abstractmethod
    def steps(self, period: int, batch: int) -> list[str]:
        """The statements that replace a period, in order."""


class DropCreateLoad(Peer):
    """Take the period out of the view, drop, create, put it into the view, load."""

    def steps(self, period: int, batch: int) -> list[str]:
        """See `Peer`."""
        self._shown.discard(period)
        without = self.view()
        self._shown.add(period)
        return [
            without,
            f"drop table {self.table(period)}",
            f"create table {self.table(period)} (batch bigint, value bigint)",
            self.view(),
            self.fill(period, batch),
        ]


class TruncateInsert(Peer):
    """Empty the table of the period and fill it again."""

    def steps(self, period: int, batch: int) -> list[str]:
        """See `Peer`."""
        return [f"truncate {self.table(period)}", self.fill(period, batch)]


class DeleteInsert(Peer):
    """One table with an index on the period."""

    def making(self) -> list[str]:
        """See `Peer`."""
        return [
            f"create table {self.schema}.v (period text, batch bigint, value bigint)",
            f"create index on {self.schema}.v (period)",
        ]

    def table(self, period: int) -> str:
        """See `Peer`."""
        del period
        return f"{self.schema}.v"

    def fill(self, period: int, batch: int) -> str:
        """See `Peer`."""
        return f"insert into {self.schema}.v select '{period}', {batch}, {batch} from generate_series(1, {self.rows})"

    def steps(self, period: int, batch: int) -> list[str]:
        """See `Peer`."""
        return [f"delete from {self.schema}.v where period = '{period}'", self.fill(period, batch)]


def ways(url: str, rows: int) -> list[PublishProtocol]:
    """All of them, ours first."""
    return [
        Ours(url, rows),
        DropCreateLoad(url, rows, "drop, create, load", one_transaction=False),
        DeleteInsert(url, rows, "DELETE + INSERT", one_transaction=True),
        TruncateInsert(url, rows, "TRUNCATE + INSERT", one_transaction=True),
    ]
