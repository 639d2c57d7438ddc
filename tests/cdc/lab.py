"""A source of changes for tests: a database of its own on the suite's PostgreSQL, a table in it, and its capture."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
import threading
import uuid
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg

from varve.catalog.catalog import Catalog
from varve.cdc.apply import Applied, Apply
from varve.cdc.capture.bootstrap import Bootstrap
from varve.cdc.capture.capture import Capture
from varve.cdc.capture.event_log import EventLog
from varve.cdc.capture.positions import Positions
from varve.cdc.capture.source_database import SourceDatabase
from varve.cdc.captured_table import VALIDITY, CapturedTable
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import StaticDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.services.postgres import connect
from varve.stores.folders.layout import Layout
from varve.stores.lake.store import LakeStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from varve.cdc.capture.batch_writer import EventBatch
    from varve.services.settings import Settings

PARTS = 4
SCHEMA = Schema(
    (
        Column("w", ColumnType.INT),
        Column("id", ColumnType.INT),
        Column("note", ColumnType.STRING),
        Column("amount", ColumnType.STRING),
        Column("at", ColumnType.TIMESTAMP),
        Column("flag", ColumnType.BOOLEAN),
        Column("x", ColumnType.DOUBLE),
        Column("big", ColumnType.STRING),
    )
)
COLUMNS = (
    "w int not null, id int not null, note text, amount numeric(12,2), at timestamptz, flag boolean, x float8, big text"
)
# By whose tables the same events can be told apart: the key alone, the whole row, and rows without a key.
DEFAULT, FULL, UNKEYED = "default", "full", "unkeyed"
# As the first, and every version is kept.
HISTORY = "history"


class Killed(BaseException):
    """Stands for the end of the process."""


@dataclass
class Follower:
    """A captured table, and what is done with it step by step."""

    settings: Settings
    spark: Callable[[], SparkSession]
    url: str
    captured: CapturedTable

    @property
    def table(self) -> str:
        return self.captured.source

    @contextmanager
    def source(self) -> Iterator[psycopg.Connection]:
        with closing(psycopg.connect(self.url, autocommit=True)) as connection:
            yield connection

    def sql(self, text: str) -> None:
        """Run one statement, `{t}` being the table."""
        with self.source() as source:
            source.execute(text.format(t=self.table))

    @contextmanager
    def catalog(self) -> Iterator[Catalog]:
        with closing(connect(self.settings, application="varve test")) as connection:
            catalog = Catalog(connection)
            catalog.ensure_schema()
            Positions(connection).ensure_schema()
            yield catalog

    def bootstrap(
        self, *, resnapshot: bool = False, leave_out: bool = False, step: Callable[[str], None] = lambda _: None,
        seconds: float = 60, say: Callable[[str], None] = lambda _: None,
    ) -> EventBatch:  # fmt: skip
        with self.catalog() as catalog:
            positions = Positions(catalog.connection)
            bootstrap = Bootstrap(self.captured, SourceDatabase(self.url), positions, self.log(), step, seconds, say)
            return bootstrap.bootstrap(resnapshot=resnapshot, leave_out=leave_out)

    def capture(self, step: Callable[[str], None] = lambda _: None, most: int = 500_000) -> EventBatch | None:
        with self.catalog() as catalog:
            positions = Positions(catalog.connection)
            return Capture(self.captured, SourceDatabase(self.url), positions, self.log(), step, most).capture()

    def die_in_capture(self, step: str, most: int = 500_000) -> None:
        """A process that dies at a step of bootstrap or capture."""
        self._die(step, str(most))

    def die_in_resnapshot(self, step: str) -> None:
        """A process that dies at a step of a new snapshot."""
        self._die(step, "again")

    def _die(self, step: str, what: str) -> None:
        dying = [sys.executable, "-m", "tests.cdc.dying", step, what]
        done = subprocess.run(dying, input=pickle.dumps((self.captured, self.url)), check=False)
        assert done.returncode == 9

    def apply(self, die_at: str | None = None) -> Applied | None:
        with self.catalog() as catalog:

            def step(name: str) -> None:
                if name == die_at:
                    # Nothing that would tidy up reaches the catalog any more.
                    catalog.connection.close()
                    raise Killed(name)

            store = LakeStore(Layout(self.settings.lake), catalog, self.spark)
            log = EventLog(self.settings.lake, self.captured.dataset)
            positions = Positions(catalog.connection)
            return Apply(self.captured, positions, log, catalog, store, self.spark(), step).apply()

    def log(self) -> EventLog:
        return EventLog(self.settings.lake, self.captured.dataset)

    @contextmanager
    def lake(self) -> Iterator[DataFrame]:
        """What is current in the lake."""
        with self.catalog() as catalog:
            store = LakeStore(Layout(self.settings.lake), catalog, self.spark)
            dataset = self.captured.dataset
            yield store.read(dataset, list(catalog.current(dataset.name).values()))


class Lab(Follower):
    """A source table of its own, and its capture."""

    def __init__(self, settings: Settings, spark: Callable[[], SparkSession], url: str, kind: str = DEFAULT) -> None:
        table = f"t{uuid.uuid4().hex[:8]}"
        dataset = Dataset(
            name=f"{table}.copy",
            comment="What the source holds.",
            partitioning=Partitioning((StaticDimension("part", tuple(str(part) for part in range(PARTS))),)),
            schema=Schema((*SCHEMA.columns, *VALIDITY)) if kind == HISTORY else SCHEMA,
            store=StoreKind.LAKE,
        )
        captured = CapturedTable(
            dataset, f"public.{table}", {"part": f"cast(pmod(id, {PARTS}) as string)"}, history=kind == HISTORY
        )
        super().__init__(settings, spark, url, captured)
        self.kind = kind
        key = "" if kind == UNKEYED else ", primary key (w, id)"
        with self.source() as source:
            source.execute(f"create table public.{table} ({COLUMNS}{key})")
            source.execute(f"alter table public.{table} alter column big set storage external")
            if kind in (FULL, UNKEYED):
                source.execute(f"alter table public.{table} replica identity full")

    def in_source(self) -> list[str]:
        """Each row as text: NaN is not equal to itself."""
        with self.source() as source:
            rows = source.execute(
                f"select w, id, note, amount::text, (extract(epoch from at) * 1000000)::bigint, flag, x, md5(big), "
                f"mod(mod(id, {PARTS}) + {PARTS}, {PARTS})::text from {self.table}"
            ).fetchall()
        return sorted(map(repr, rows))

    def in_lake(self, where: str = "true") -> list[str]:
        from pyspark.sql import functions as F  # noqa: N812

        with self.lake() as frame:
            shown = frame.where(where).select(
                "w", "id", "note", "amount", F.unix_micros("at"), "flag", "x", F.md5("big"), "part"
            )
            return sorted(repr(tuple(row)) for row in shown.collect())


class Application(threading.Thread):
    """One session of the application: random transactions on the rows of its workload, until it has changed enough."""

    def __init__(self, lab: Lab, workload: int, seed: int, changes: int, *, truncates: bool = False) -> None:
        super().__init__(daemon=True)
        self.lab, self.workload, self.random, self.changes = lab, workload, random.Random(seed), changes
        self.truncates = truncates
        self.done = 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with psycopg.connect(self.lab.url, autocommit=True) as connection:
                connection.execute("set lock_timeout = '300ms'; set deadlock_timeout = '100ms'")
                while self.done < self.changes:
                    try:
                        with connection.transaction():
                            self._transaction(connection)
                    except (psycopg.errors.Error, _ChangedMind):
                        # A lock that was not given, a key that was taken, a rollback: the transaction never was.
                        continue
        except Exception as error:  # noqa: BLE001 - the test raises it
            self.error = error

    def _transaction(self, connection: psycopg.Connection) -> None:
        if self.truncates and self.random.random() < 0.01:
            connection.execute(f"truncate {self.lab.table}")
        for _ in range(self.random.randint(1, 8)):
            if self.random.random() < 0.2:
                try:
                    with connection.transaction():
                        self._change(connection)
                        if self.random.random() < 0.5:
                            raise _ChangedMind
                except _ChangedMind:
                    continue
            else:
                self._change(connection)
        if self.random.random() < 0.1:
            raise _ChangedMind

    def _change(self, connection: psycopg.Connection) -> None:
        table, pick = self.lab.table, self.random
        a, b = pick.randint(0, 39), pick.randint(0, 39)
        mine = {"w": self.workload, "a": a, "b": b, "t": 1_000 + pick.randint(0, 9), "note": self._text(),
                "big": self._big(), "amount": pick.randint(-10_000, 10_000) / 100,
                "flag": pick.choice([True, False, None]),
                "x": pick.choice([0.1, 1e300, float("nan"), float("inf"), None, -1.5])}  # fmt: skip
        where = f"{table} where w = %(w)s and id"
        choice = pick.random()
        if choice < 0.35:
            conflict = "" if self.lab.kind == UNKEYED else "on conflict do nothing"
            query = (f"insert into {table} values (%(w)s, %(a)s, %(note)s, %(amount)s, clock_timestamp(), %(flag)s, "
                     f"%(x)s, %(big)s) {conflict}")  # fmt: skip
        elif choice < 0.5:
            query = f"update {table} set note = %(note)s, x = %(x)s where w = %(w)s and id = %(a)s"
        elif choice < 0.6:
            query = f"update {table} set big = %(big)s, flag = %(flag)s where w = %(w)s and id = %(a)s"
        elif choice < 0.8:
            query = f"update {table} set id = %(b)s, note = %(note)s where w = %(w)s and id = %(a)s"
            if self.lab.kind != UNKEYED:
                query += f" and not exists (select from {where} = %(b)s)"
        elif choice < 0.87:
            for old, new in (("a", "t"), ("b", "a"), ("t", "b")):
                self.done += connection.execute(
                    f"update {table} set id = %({new})s where w = %(w)s and id = %({old})s", mine
                ).rowcount
            return
        else:
            query = f"delete from {where} = %(a)s"
        self.done += connection.execute(query, mine).rowcount

    def _text(self) -> str | None:
        return self.random.choice([None, "", "plain", "q'\"\\{},", "ünïcode ☃", "\t\n", "NULL"])

    def _big(self) -> str | None:
        return "".join(self.random.choices("abcdefgh", k=40)) * 75 if self.random.random() < 0.8 else None


class _ChangedMind(Exception):
    """The application rolls back."""
