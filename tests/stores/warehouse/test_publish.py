"""Publishing period tables under real readers: none sees a period missing or twice, and none in the way goes unnamed.

No Spark here: the rows that Spark would have spooled are written as parquet by the test.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from varve.catalog.catalog import Catalog
from varve.model.batch import StagedBatch
from varve.model.errors import BadInput, PublishTimeout
from varve.model.partitions.key import PartitionKey
from varve.services.postgres import connect, warehouse_url
from varve.stores.frames import arrow_schema
from varve.stores.warehouse import publish
from varve.stores.warehouse.loading import load
from varve.stores.warehouse.tables import view

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.services.settings import Settings

KEYS = [PartitionKey.of(day=dt.date(2013, 1, 5), store=store) for store in ("Detroit", "Paris", "Zürich")]
DETROIT, PARIS, ZURICH = KEYS
ROWS = 50


@dataclass
class Desk:
    """One publisher: a connection of its own, as a run has."""

    settings: Settings
    dataset: Dataset
    folder: Path
    catalog: Catalog

    def stage(self, partitions: Sequence[PartitionKey], *, product: str = "pen", rows: int = ROWS) -> Build:
        """Rows whose `sold` is the id of their batch, loaded beside what is current."""
        build = self.catalog.begin(self.dataset, partitions, run_id=f"run-{uuid.uuid4()}", code_version="")
        files = []
        for partition in partitions:
            folder = self.folder / uuid.uuid4().hex
            folder.mkdir()
            columns = [[product] * rows, [build.batch_id.millis] * rows, [1.5] * rows, [dt.datetime.now(dt.UTC)] * rows]
            schema = arrow_schema(self.dataset.schema.columns)
            table = pa.Table.from_arrays([*map(pa.array, columns)], schema.names)
            pq.write_table(table.cast(schema), folder / "a.parquet")
            files.append(StagedBatch(partition, str(folder), rows, 1, 1))
        loaded = load.load(self.catalog.connection, load.Route(warehouse_url(self.settings)), build, files)
        load.verify_rows(self.catalog.connection, build, files, loaded)
        self.catalog.staged(build, loaded)
        return build

    def publish(self, partitions: Sequence[PartitionKey], *, seconds: float = 20) -> Build:
        """A complete build."""
        build = self.stage(partitions)
        publish.publish(self.catalog, build, seconds=seconds)
        self.catalog.release(build)
        return build

    def current(self) -> dict[str, int]:
        """The batch of each partition by the catalog."""
        return {path: batch.batch_id.millis for path, batch in self.catalog.current(self.dataset.name).items()}


@pytest.fixture
def desk(settings: Settings, catalog: Catalog, sales: Dataset, tmp_path: Path) -> Desk:
    return Desk(settings, sales, tmp_path, catalog)


@pytest.fixture
def other(settings: Settings, desk: Desk) -> Iterator[Desk]:
    """A second publisher of the same dataset."""
    with connect(settings, application="varve second publisher") as opened:
        yield Desk(settings, desk.dataset, desk.folder, Catalog(opened))


@pytest.fixture
def reader(settings: Settings, desk: Desk) -> Iterator[psycopg.Connection]:
    """A reader with a name, not in autocommit mode: its transactions last until it ends them."""
    with psycopg.connect(warehouse_url(settings), application_name="the slow reader") as opened:
        yield opened


def query(dataset: Dataset) -> bytes:
    """Of each period in the view: its batches and its rows."""
    name = f'"{dataset.db}"."{dataset.table}"'
    return (
        f"select store, array_agg(distinct sold), count(*) from {name} where day = '2013-01-05' "
        "group by store order by store"
    ).encode()


def periods(connection: psycopg.Connection, dataset: Dataset) -> dict[str, int]:
    """The batch of each period as a reader sees it; fails unless a period is exactly one complete batch."""
    batch_by_period = {}
    for store, batches, rows in connection.execute(query(dataset)).fetchall():
        assert len(batches) == 1, f"{store} shows batches {batches}"
        assert rows == ROWS, f"{store} shows {rows} rows"
        batch_by_period[f"day=2013-01-05/store={store}"] = batches[0]
    return batch_by_period


def test_readers_during_concurrent_republishes_see_every_period_exactly_once(
    settings: Settings, desk: Desk, other: Desk
) -> None:
    desk.publish(KEYS)
    done = threading.Event()
    everything = {key.path for key in KEYS}

    def read() -> int:
        reads, last = 0, dict.fromkeys(everything, 0)
        with psycopg.connect(warehouse_url(settings), autocommit=True) as opened:
            while not done.is_set() or reads == 0:
                seen = periods(opened, desk.dataset)
                assert set(seen) == everything
                # A period never goes back to an older batch.
                assert all(seen[path] >= last[path] for path in everything)
                reads, last = reads + 1, seen
        return reads

    def write(publisher: Desk, partition: PartitionKey) -> None:
        for _ in range(8):
            publisher.publish([partition], seconds=60)

    with ThreadPoolExecutor(6) as pool:
        readers = [pool.submit(read) for _ in range(4)]
        try:
            writers = [pool.submit(write, desk, DETROIT), pool.submit(write, other, PARIS)]
            for writer in writers:
                writer.result(timeout=120)
        finally:
            done.set()
        assert all(reader.result(timeout=60) > 10 for reader in readers)
    with connect(settings) as opened:
        assert periods(opened, desk.dataset) == desk.current()
    (batches,) = desk.catalog.connection.execute(
        "select count(*) from varve.batch where dataset = %s and state in ('published', 'retired')",
        (desk.dataset.name,),
    ).fetchone() or (0,)
    assert batches == 3 + 2 * 8


def test_a_group_appears_to_readers_all_at_once(settings: Settings, desk: Desk) -> None:
    desk.publish(KEYS)
    done = threading.Event()

    def read() -> int:
        reads = 0
        with psycopg.connect(warehouse_url(settings), autocommit=True) as opened:
            while not done.is_set() or reads == 0:
                seen = periods(opened, desk.dataset)
                assert len(seen) == 3
                assert len(set(seen.values())) == 1
                reads += 1
        return reads

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        try:
            for _ in range(5):
                desk.publish(KEYS)
        finally:
            done.set()
        assert reading.result(timeout=60) > 0


def test_a_snapshot_older_than_the_load_delays_the_publish_and_never_reads_wrong(
    desk: Desk, reader: psycopg.Connection
) -> None:
    before = desk.publish(KEYS).batch_id.millis
    reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    # A snapshot, but no lock on the view.
    reader.execute("select 1").fetchone()
    build = desk.stage([PARIS])
    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(publish.publish, desk.catalog, build, seconds=30)
        wait_for_query(desk.settings, desk.catalog.connection.info.backend_pid, "backend_xmin")
        assert not publishing.done()
        assert periods(reader, desk.dataset) == {key.path: before for key in KEYS}
        assert not publishing.done()
        reader.commit()
        publishing.result(timeout=30)
    after = {key.path: build.batch_id.millis if key == PARIS else before for key in KEYS}
    assert periods(reader, desk.dataset) == after
    assert desk.current() == after


def test_a_snapshot_that_outlasts_the_deadline_is_named_and_nothing_is_published(
    desk: Desk, reader: psycopg.Connection
) -> None:
    first = desk.publish(KEYS).batch_id.millis
    reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    reader.execute("select 1").fetchone()
    build = desk.stage([PARIS])
    with pytest.raises(PublishTimeout) as refused:
        publish.publish(desk.catalog, build, seconds=0.3)
    assert f"pid {reader.info.backend_pid} (the slow reader)" in str(refused.value)
    assert "Nothing was published" in str(refused.value)
    assert periods(reader, desk.dataset) == desk.current() == {key.path: first for key in KEYS}


def test_a_reader_that_holds_the_view_beyond_the_deadline_is_named_and_the_next_publish_works(
    desk: Desk, reader: psycopg.Connection
) -> None:
    first = desk.publish(KEYS).batch_id.millis
    build = desk.stage([PARIS])
    # A transaction that has read keeps its lock on the view, though no snapshot.
    assert periods(reader, desk.dataset) == {key.path: first for key in KEYS}
    started = time.monotonic()
    with pytest.raises(PublishTimeout) as refused:
        publish.publish(desk.catalog, build, seconds=1)
    assert time.monotonic() - started < 10
    assert f"the view {desk.dataset} was in use for longer than 1 s" in str(refused.value)
    assert f"pid {reader.info.backend_pid}, the slow reader" in str(refused.value)
    assert "the current batch is unchanged" in str(refused.value)
    assert periods(reader, desk.dataset) == desk.current() == {key.path: first for key in KEYS}
    reader.rollback()
    desk.catalog.fail(build, "timeout")
    desk.catalog.release(build)
    second = desk.publish([PARIS]).batch_id.millis
    assert periods(reader, desk.dataset)[PARIS.path] == second


def test_a_timed_out_build_can_itself_be_published_when_the_reader_has_gone(
    desk: Desk, reader: psycopg.Connection
) -> None:
    desk.publish(KEYS)
    build = desk.stage([PARIS])
    periods(reader, desk.dataset)
    with pytest.raises(PublishTimeout):
        publish.publish(desk.catalog, build, seconds=0.5)
    reader.rollback()
    publish.publish(desk.catalog, build, seconds=20)
    assert periods(reader, desk.dataset)[PARIS.path] == build.batch_id.millis


def test_readers_are_not_stalled_behind_a_publish_that_waits_for_a_slow_one(
    settings: Settings, desk: Desk, reader: psycopg.Connection
) -> None:
    desk.publish(KEYS)
    build = desk.stage([PARIS])
    periods(reader, desk.dataset)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(warehouse_url(settings), autocommit=True) as quick:
        publishing = pool.submit(publish.publish, desk.catalog, build, seconds=3)
        slowest = 0.0
        while not publishing.done():
            started = time.monotonic()
            periods(quick, desk.dataset)
            slowest = max(slowest, time.monotonic() - started)
        with pytest.raises(PublishTimeout):
            publishing.result()
    assert slowest < 1.5


def test_readers_without_a_gap_keep_a_publish_out_until_it_may_make_them_wait_for_as_long(
    settings: Settings, desk: Desk
) -> None:
    desk.publish(KEYS)
    done = threading.Event()
    query = f'select count(*) from "{desk.dataset.db}"."sales"'.encode()

    def begun() -> psycopg.Connection:
        """A transaction that reads, as soon as no publish that waits keeps it out."""
        opened = psycopg.connect(warehouse_url(settings))
        opened.execute(query)
        return opened

    def read() -> None:
        """One reader ends when the next has begun, so that the view is never free; but none reads for ever."""
        with ThreadPoolExecutor(1) as beginning:
            reader = begun()
            while not done.is_set():
                following = beginning.submit(begun)
                wait([following], timeout=2.0)
                reader.close()
                reader = following.result(60)
            reader.close()

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        try:
            build = desk.stage([PARIS])
            with pytest.raises(PublishTimeout, match="raise stall_milliseconds of the dataset"):
                publish.publish(desk.catalog, build, seconds=2.5)
            patient = replace(desk.dataset, warehouse=replace(desk.dataset.warehouse, stall_milliseconds=5_000))
            publish.publish(desk.catalog, replace(build, dataset=patient), seconds=60)
        finally:
            done.set()
        reading.result(60)
    assert desk.current()[PARIS.path] == build.batch_id.millis


def test_a_nul_character_is_refused_by_the_name_of_its_partition(desk: Desk) -> None:
    first = desk.publish(KEYS).batch_id.millis
    with pytest.raises(BadInput, match=r"PostgreSQL refused the rows of day=2013-01-05/store=Paris.*0x00"):
        desk.stage([PARIS], product="p\0n")
    assert desk.current() == {key.path: first for key in KEYS}


def test_a_period_without_rows_is_published_as_no_rows(desk: Desk, reader: psycopg.Connection) -> None:
    desk.publish(KEYS)
    build = desk.stage([PARIS], rows=0)
    publish.publish(desk.catalog, build, seconds=20)
    assert set(periods(reader, desk.dataset)) == {DETROIT.path, ZURICH.path}
    assert set(desk.current()) == {key.path for key in KEYS}


def test_the_view_and_its_columns_say_what_they_mean(desk: Desk) -> None:
    desk.publish([PARIS])
    name = view.view_name(desk.dataset).as_string(desk.catalog.connection)
    row = desk.catalog.connection.execute(
        "select obj_description(%s::regclass), col_description(%s::regclass, 4)", (name, name)
    ).fetchone()
    assert row == (desk.dataset.comment, "pieces")


def wait_for_query(settings: Settings, pid: int, text: str, *, seconds: float = 15) -> None:
    """Wait until a session's last query holds `text`."""
    deadline = time.monotonic() + seconds
    with connect(settings) as opened:
        while True:
            row = opened.execute("select query from pg_stat_activity where pid = %s", (pid,)).fetchone()
            if row and text in row[0]:
                return
            assert time.monotonic() < deadline, f"the last query is {row}"
