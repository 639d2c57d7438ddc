"""The operations of a torture, as people, partners, applications and accidents do them.

Not here: which come when (history.py), and what must hold afterwards (rest.py).
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from tests.torture import accidents, serving, upgrading
from tests.torture.facts import DAYS
from tests.torture.project import Ended
from tests.torture.readers import COLUMNS, rows_in
from varve.cdc.captures import source_url
from varve.model.errors import VarveError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.torture.history import Operation, Turn
    from tests.torture.model import Model, Shown
    from tests.torture.project import TorturedProject
    from tests.torture.readers import Readers

KEYS = 40
NOTHING = Ended(0, "")
_ROW_OF = {
    "totals": sql.SQL("select products::bigint, cents::bigint, version::bigint, code::bigint from {table}"),
    "trailing": sql.SQL("select cents::bigint, made_from from {table}"),
}


@dataclass
class Operations:
    """What can be done to one project; each operation returns how its last command ended.

    Attributes:
        note: called with what is worth to be known of the way.
    """

    project: TorturedProject
    model: Model
    readers: Readers
    note: Callable[[str], None]
    turn: Turn | None = None
    unit: threading.Lock = field(default_factory=threading.Lock)

    def carry_out(self, operation: Operation) -> Ended:
        """Do it."""
        method = getattr(self, operation.name)
        given = {"draw": operation.draw, "fate": operation.fate}
        ended = method(**{name: value for name, value in given.items() if value})
        return ended if isinstance(ended, Ended) else NOTHING

    # Partners and people ----------------------------------------------------------------------------------------------

    def send(self, draw: Mapping[str, Any]) -> None:
        for number in draw["days"]:
            day = DAYS[number]
            with self.unit:
                version = self.model.numbered(day)
                self.project.send(day, version)
                self.model.landed[day] = version

    def serve(self, draw: Mapping[str, Any]) -> Ended:
        """A daemon, or two, with what arrives meanwhile; some of its runs are cancelled, and then it ends or dies."""
        try:
            cancelled = serving.serve(draw, self.project, lambda: self.send(draw))
        except TimeoutError as error:
            return Ended(99, str(error))
        self.note(f"{cancelled} runs were cancelled")
        return NOTHING

    def correct(self, draw: Mapping[str, Any], fate: Mapping[str, Any] | None = None) -> Ended:
        """`varve correct` with corrected files of some days: readers see all that follows at once, or nothing."""
        assert self.turn is not None
        days = [DAYS[number] for number in draw["days"]]
        with self.unit:
            files = {day: self.project.corrected(day, self.model.numbered(day)) for day in days}
        words = [str(file) for file, _ in files.values()]
        if len(self.turn.operations) == 1:
            self.readers.one_state_where_it_is_so()
        ended = self.project.run("correct", "shop.sales", *words, fate=fate)
        self.readers.one_state.clear()
        with self.unit:
            lie = {day: self.project.lies(day) for day in days}
            self.model.landed.update(lie)
        replaced = [str(day) for day, (_, version) in files.items() if lie[day] == version]
        if ended.code == 1 and replaced and not self.turn.hurts:
            return Ended(99, f"refused, and yet the files of {replaced} are in the landing folder: {ended.output}")
        return ended

    def due(self, fate: Mapping[str, Any] | None = None) -> Ended:
        return self.project.run("due", fate=fate)

    def edit(self, draw: Mapping[str, Any], fate: Mapping[str, Any] | None = None) -> Ended:
        self.model.edit(draw["code"])
        self.project.write_code(draw["code"])
        return self.deploy(fate)

    def deploy(self, fate: Mapping[str, Any] | None = None) -> Ended:
        """`varve plan` and `varve apply`, where there is something to deploy."""
        planned = self.project.run("plan", "--json")
        if planned.code != 0:
            return planned
        number = json_of(planned)["changes"]["number"]
        if number is None:
            return NOTHING
        return self.project.run("apply", str(number), "--rebuild", fate=fate)

    def promote(self, draw: Mapping[str, Any], fate: Mapping[str, Any] | None = None) -> Ended:
        """Try a code in an environment, and promote it: readers see the totals of all days move at once."""
        assert self.turn is not None
        name = f"e{self.turn.number}"
        ended = self.project.run("env", "create", name)
        if ended.code == 0:
            self.model.edit(draw["code"])
            self.project.write_code(draw["code"])
            ended = self.project.run("env", "run", name)
        if ended.code == 0:
            if len(self.turn.operations) == 1:
                self.readers.one_code_where_it_is_so()
            # One of nine codes, which may have been in force before.
            ended = self.project.run("promote", name, "--earlier-code", fate=fate)
            self.readers.one_code.clear()
        self.project.run("env", "drop", name)
        return ended

    def upgrade(self, draw: Mapping[str, Any]) -> Ended:
        """A newer Varve upgrades the catalog, and nobody of this one ends for it."""
        try:
            version = upgrading.upgrade(self.project.folder / "newer", self.readers.url, draw["which"])
        except VarveError as error:
            return Ended(1, str(error))
        self.note(f"the catalog has version {version}")
        return NOTHING

    def roll_back(self, draw: Mapping[str, Any], fate: Mapping[str, Any] | None = None) -> Ended:
        dataset, day = draw["dataset"], DAYS[draw["day"]]
        name, path = f"shop.{dataset}", f"day={day}"
        with closing(psycopg.connect(self.readers.url, autocommit=True)) as connection:
            batches = connection.execute(
                "select batch_id, location from varve.batch "
                "where dataset = %s and partition = %s and state = 'retired' order by batch_id",
                (name, path),
            ).fetchall()
            if not batches:
                return NOTHING
            batch_id, location = batches[int(draw["which"] * len(batches))]
            with contextlib.suppress(psycopg.Error, OSError, ValueError):
                # Before it may be current: a sweep may take it first, and then nothing is rolled back.
                rows = self._rows_of(connection, dataset, location)
                self.model.rolled_back.setdefault((dataset, day), []).append(rows)
        return self.project.run("rollback", name, path, "--to", str(batch_id), "--reason", "torture", fate=fate)

    def _rows_of(self, connection: psycopg.Connection[Any], dataset: str, location: str) -> Shown:
        if dataset in COLUMNS:
            return rows_in(Path(location), COLUMNS[dataset])
        table = sql.Identifier("shop_periods", location)
        return sorted(connection.execute(_ROW_OF[dataset].format(table=table)).fetchall())

    def pin(self, draw: Mapping[str, Any]) -> Ended:
        name, path = f"shop.{draw['dataset']}", f"day={DAYS[draw['day']]}"
        return self.project.run("pin", name, path, "--reason", "torture", "--for", "60s")

    def sweep(self, draw: Mapping[str, Any], fate: Mapping[str, Any] | None = None) -> Ended:
        # Longer than any reader here reads.
        keep = ("--keep-last", str(draw["keep_last"]))
        return self.project.run("sweep", "--older-than", "45s", "--orphans-older-than", "45s", *keep, fate=fate)

    def compact(self, fate: Mapping[str, Any] | None = None) -> Ended:
        return self.project.run("warehouse", "compact", "shop.totals", fate=fate)

    # The application whose tables are captured ------------------------------------------------------------------------

    def write(self, draw: Mapping[str, Any]) -> None:
        """Transactions that move amounts between rows: they add up to nothing after each."""
        pick = random.Random(draw["seed"])
        with self.source() as source:
            # Two writers at once must not lose an amount between them: PostgreSQL ends the transaction of one, and it
            # lets it be.
            source.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
            for _ in range(draw["transactions"]):
                with contextlib.suppress(*_GIVEN_UP), source.transaction():
                    for _ in range(pick.randint(1, 5)):
                        move(source, draw["table"], pick)
                    if pick.random() < 0.15:
                        raise _ChangedMind

    def alter(self, draw: Mapping[str, Any]) -> None:
        pick, table = random.Random(draw["seed"]), sql.Identifier(draw["table"])
        statement = pick.choice((
            "alter table {table} add column if not exists extra int default 7",
            "alter table {table} drop column if exists extra",
            "truncate {table}",
            "vacuum full {table}",
            "alter table {table} alter column note type text",
        ))  # fmt: skip
        with self.source() as source:
            source.execute(sql.SQL(statement).format(table=table))
        self.write(draw)

    def capture(self, draw: Mapping[str, Any], fate: Mapping[str, Any] | None = None) -> Ended:
        """`varve cdc capture`, and what it says where the stream cannot say what the table holds."""
        name = f"bank.{draw['table']}"
        ended = self.project.run("cdc", "capture", name, fate=fate)
        if ended.code == 1 and "resnapshot" in ended.output:
            return self.project.run("cdc", "resnapshot", name)
        if ended.code == 1 and "bootstrap" in ended.output:
            return self.project.run("cdc", "bootstrap", name)
        return ended

    def verify(self, draw: Mapping[str, Any], fate: Mapping[str, Any] | None = None) -> Ended:
        return self.project.run("cdc", "verify", f"bank.{draw['table']}", fate=fate)

    def source(self) -> psycopg.Connection[Any]:
        """The application's connection."""
        return psycopg.connect(source_url(self.project.settings), autocommit=True)

    # Accidents --------------------------------------------------------------------------------------------------------

    def kill_spark(self, draw: Mapping[str, Any]) -> None:
        accidents.kill(draw["milliseconds"], self.project.spark.pid)

    def kill_postgres(self, draw: Mapping[str, Any]) -> None:
        accidents.kill(draw["milliseconds"], self.project.server.pid)

    def crowd(self, draw: Mapping[str, Any]) -> None:
        accidents.crowd(draw, self.readers.url)

    def fill_disk(self, draw: Mapping[str, Any]) -> None:
        accidents.fill_disk(draw, self.project)

    def exhaust_spark(self, draw: Mapping[str, Any]) -> None:
        accidents.exhaust_spark(draw, self.project)


class _ChangedMind(Exception):
    """The application rolls back."""


_GIVEN_UP = (
    _ChangedMind, psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure, psycopg.errors.UniqueViolation,
)  # fmt: skip


def lay(source: psycopg.Connection[Any]) -> None:
    """The application's tables: one with a key, one that sends whole rows."""
    for table in ("accounts", "wallets"):
        name = sql.Identifier(table)
        source.execute(
            sql.SQL("create table {table} (id int primary key, amount bigint not null, note varchar(50))").format(
                table=name
            )
        )
        source.execute(
            sql.SQL("insert into {table} select i, 0, 'new' from generate_series(0, 19) i").format(table=name)
        )
    source.execute("alter table wallets replica identity full")


def move(source: psycopg.Connection[Any], table: str, pick: random.Random) -> None:
    """One change that leaves the sum as it is."""
    first, second, amount = pick.randrange(KEYS), pick.randrange(KEYS), pick.randint(1, 1_000)
    name = sql.Identifier(table)
    choice = pick.random()
    if choice < 0.6:
        statement = sql.SQL(
            "insert into {table} (id, amount, note) values (%s, %s, %s) "
            "on conflict (id) do update set amount = {table}.amount + excluded.amount, note = excluded.note"
        ).format(table=name)
        note = pick.choice((None, "", "paid", "q'\"\\{},", "ünïcode"))
        source.execute(statement, (first, amount, note))
        source.execute(statement, (second, -amount, note))
    elif choice < 0.75:
        # Their amounts go to the row that stays.
        statement = sql.SQL(
            "with gone as (delete from {table} where id = %s returning amount) "
            "update {table} set amount = {table}.amount + gone.amount from gone where id = %s"
        ).format(table=name)
        exists = sql.SQL("select from {table} where id = %s").format(table=name)
        if first != second and source.execute(exists, (second,)).fetchone() is not None:
            source.execute(statement, (first, second))
    elif choice < 0.9:
        statement = sql.SQL(
            "update {table} set id = %(to)s where id = %(old)s and not exists (select from {table} where id = %(to)s)"
        ).format(table=name)
        source.execute(statement, {"old": first, "to": second})
    else:
        source.execute(sql.SQL("update {table} set note = note where id = %s").format(table=name), (first,))


def json_of(ended: Ended) -> Any:
    """The JSON value that a command printed, after whatever it said before."""
    start = min(place for sign in "[{" if (place := ended.output.find(sign)) >= 0)
    return json.JSONDecoder().raw_decode(ended.output[start:])[0]
