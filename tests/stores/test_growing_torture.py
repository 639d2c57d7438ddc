"""A growing week under readers who never stop: every read is a complete state of some first files, and never goes back.

Eight files in the suite, 40 with `--slow`. What each load costs: `python -m benchmarks.growing`.
"""

from __future__ import annotations

import collections
import datetime as dt
import logging
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow.parquet as pq
import pytest
from psycopg import sql

from tests.stores.growing import Growing, weekly
from tests.stores.test_growing import lying_there, swept
from varve.catalog.rejected import RejectedArrivals
from varve.dagster.automation.arriving import ArrivalLook
from varve.model.dataset import StoreKind
from varve.model.landing.growth import Incremental
from varve.planning.arrivals.landing_file import RejectionKind
from varve.services.postgres import warehouse_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.workbench import Workbench

pytestmark = pytest.mark.spark
logger = logging.getLogger(__name__)

READERS = 4
ROWS = 50


def sold(hour: int) -> list[int]:
    return [hour * ROWS + number for number in range(ROWS)]


# What a reader must find of each file, or nothing of it: its rows and their sum.
Found = dict[str, tuple[int, int]]


@dataclass
class Readers:
    """Readers of one week; `published` counts the files of its current batch."""

    week: Growing
    published: int = 0
    sent: int = 0
    reads: int = 0
    wrong: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self, look: Callable[[], Found]) -> None:
        before = 0
        while not self.stop.is_set():
            at_least = max(before, self.published)
            try:
                rows = look()
            except Exception as error:  # noqa: BLE001 - whatever a reader meets is what is looked for
                self.wrong.append(f"{type(error).__name__}: {error}")
                return
            before = self._judged(rows, at_least)
            self.reads += 1
            # They share this process with the loads: without a pause these would wait for them, not the other way.
            self.stop.wait(0.03)

    def _judged(self, rows: Found, at_least: int) -> int:
        whole = {f"h{hour:02}": (ROWS, sum(sold(hour))) for hour in range(len(rows))}
        if rows != whole or not at_least <= len(rows) <= self.sent:
            self.wrong.append(f"{at_least} to {self.sent} files were expected, and found {rows}")
        return len(rows)


def of_the_view(week: Growing, *, repeatable: bool) -> Iterator[Callable[[], Found]]:
    """A reader of PostgreSQL that knows nothing of us: twice in one snapshot, or once."""
    name = sql.Identifier(week.dataset.db, week.dataset.table)
    query = sql.SQL("select product, count(*), sum(sold)::bigint from {} group by product").format(name)
    with psycopg.connect(warehouse_url(week.workbench.settings), autocommit=True) as connection:

        def look() -> Found:
            with connection.transaction():
                if repeatable:
                    connection.execute("set transaction isolation level repeatable read")
                first = connection.execute(query).fetchall()
                if repeatable:
                    assert sorted(connection.execute(query).fetchall()) == sorted(first)
            return {product: (rows, total) for product, rows, total in first}

        yield look


def of_the_lake(week: Growing) -> Iterator[Callable[[], Found]]:
    """A reader that asks the catalog for the current folder, and reads its files without code of Varve."""
    with psycopg.connect(warehouse_url(week.workbench.settings), autocommit=True) as connection:

        def look() -> Found:
            row = connection.execute(
                "select location from varve.current join varve.batch using (dataset, partition, batch_id) "
                "where dataset = %s",
                (week.dataset.name,),
            ).fetchone()
            if row is None:
                return {}
            # Files only: a reader of folders would take batch_id of the path for a column.
            counted: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
            for path in Path(row[0]).glob("*.parquet"):
                for line in pq.ParquetFile(path).read().to_pylist():
                    counted[line["product"]][0] += 1
                    counted[line["product"]][1] += line["sold"]
            return {product: (rows, total) for product, (rows, total) in counted.items()}

        yield look


def started(readers: Readers) -> list[threading.Thread]:
    def run(number: int) -> None:
        week = readers.week
        looks = of_the_lake(week) if week.dataset.store == StoreKind.LAKE else of_the_view(week, repeatable=number == 0)
        for look in looks:
            readers.run(look)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(READERS)]
    for thread in threads:
        thread.start()
    return threads


def tortured(week: Growing, files: int) -> None:
    """So many files are taken under readers, then put together."""
    readers = Readers(week)
    week.send("h00", sold(0))
    week.take()
    readers.published = readers.sent = 1
    threads = started(readers)
    try:
        for hour in range(1, files):
            readers.sent = hour + 1
            week.send(f"h{hour:02}", sold(hour))
            week.take()
            readers.published = hour + 1
            # A reader of the lake needs its folder as long as it reads: sweeps leave it the grace that this has not.
            if week.dataset.store == StoreKind.WAREHOUSE and hour % 6 == 0:
                swept(week)
        folded = week.take(reuse_allowed=True)
        # Each has read the folded batch at least once.
        enough, deadline = readers.reads + 3 * READERS, time.monotonic() + 60
        while readers.reads < enough and not readers.wrong and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        readers.stop.set()
        for thread in threads:
            thread.join(60)
    assert readers.wrong == []
    assert readers.reads > 4 * READERS
    assert week.parts(folded) == 1
    logger.info("%s: %d reads by %d readers, none wrong", week.dataset.store, readers.reads, READERS)


def refuses_late_files(week: Growing) -> None:
    """The week is over and closed: a file that comes now is a rejected arrival, and no run takes it."""
    closing = replace(week.dataset, incremental=Incremental(closed_after=dt.timedelta(0)))
    late = replace(week, dataset=closing)

    def look(catalog: Any, store: Any) -> dict[str, RejectionKind]:
        del store
        looking = ArrivalLook(catalog, week.workbench.settings, None, logging.getLogger(__name__))  # type: ignore[arg-type]
        looking.at([closing])
        assert looking.left_out == []
        rejected = RejectedArrivals(catalog.connection).of(closing.name)
        return {uri.rsplit("/", 1)[-1]: arrival.kind for uri, arrival in rejected.items()}

    assert late.with_catalog(look) == {}
    before = late.expected()
    late.send("too_late", [1])
    assert late.with_catalog(look) == {"too_late.csv": RejectionKind.CLOSED}
    late.take()
    assert late.read() == before


@pytest.mark.parametrize("store", list(StoreKind))
def test_readers_of_a_week_that_grows_see_some_first_files_whole_and_nothing_else(
    store: StoreKind, workbench: Workbench
) -> None:
    week = Growing(workbench, weekly(store))
    tortured(week, 8)
    assert week.read() == week.expected()
    swept(week)
    assert len(lying_there(week)) == 1
    refuses_late_files(week)
    assert week.findings() == []


@pytest.mark.slow
@pytest.mark.parametrize("store", list(StoreKind))
def test_readers_of_a_week_that_grows_by_forty_files_see_nothing_else_either(
    store: StoreKind, workbench: Workbench
) -> None:
    week = Growing(workbench, weekly(store))
    tortured(week, 40)
    assert week.read() == week.expected()
    assert week.findings() == []
    swept(week)
    assert len(lying_there(week)) == 1
    refuses_late_files(week)
