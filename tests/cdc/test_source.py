"""A source that is not as it was: killed, promoted, restored, changed by others. What is durable stays.

Nothing is passed over as if it had not been. Not here: a source that only changes its table (test_capture.py).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pyarrow.parquet as pq
import pytest

from tests.cdc.lab import UNKEYED, Application, Lab
from tests.killing import kill_all
from varve.cdc.capture.positions import Positions
from varve.cdc.capture.source_database import SourceDatabase
from varve.cdc.captured_table import NeedsResnapshot
from varve.cdc.captures import opened
from varve.model.errors import AlreadyBuilding, ServiceUnavailable
from varve.services.postgres_server import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from varve.services.settings import Settings

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def make_server() -> Iterator[Callable[[], PostgresServer]]:
    """Servers of their own, which a test may kill."""
    made = []

    def make() -> PostgresServer:
        home = Path(tempfile.mkdtemp(prefix="varve-src-"))
        home.chmod(0o755)
        made.append(PostgresServer(home))
        made[-1].ensure_up()
        return made[-1]

    yield make
    for server in made:
        with contextlib.suppress(ServiceUnavailable):
            server.stop()
        shutil.rmtree(server.home, ignore_errors=True)


def lab_on(server: PostgresServer, settings: Settings) -> Lab:
    def no_spark() -> object:
        raise AssertionError("capture needs no Spark")

    return Lab(settings, no_spark, server.url("postgres"))  # type: ignore[arg-type]


def put(lab: Lab, number: int, count: int = 1) -> None:
    lab.sql(f"insert into {{t}} (w, id) select 1, i from generate_series({number}, {number + count - 1}) i")


def inserted(lab: Lab, generation: int = 1) -> list[int]:
    """The ids of all inserts that are durable, in order."""
    rows = [row for batch in lab.log().batches(generation) for row in pq.read_table(batch.data).to_pylist()]
    assert {row["relation"] for row in rows} <= {lab.table}
    return [int(row["columnValues"][1]) for row in rows if row["changeType"] == "insert"]


def killed(server: PostgresServer) -> None:
    pid = server.pid()
    assert pid is not None
    kill_all(pid)


def test_what_the_url_of_a_source_asks_of_its_sessions_is_asked_but_for_what_captures_need(fresh_database: str) -> None:
    source = SourceDatabase(f"{fresh_database}&options=-c%20role%3Dpg_monitor%20-c%20datestyle%3DGerman")
    wanted = [("pg_monitor", "ISO, YMD")]
    query = "select current_setting('role'), current_setting('datestyle')"
    with contextlib.closing(source.connect()) as connection:
        assert connection.execute(query).fetchall() == wanted
    for_slot = source.connect_for_slot()
    result = for_slot.exec_(query.encode())
    assert [tuple((result.get_value(0, place) or b"").decode() for place in (0, 1))] == wanted
    for_slot.finish()


@pytest.mark.parametrize("step", ["peek", "write", "confirm"])
def test_a_source_that_is_killed_while_it_is_captured_repeats_nothing_and_loses_nothing(
    make_server: Callable[[], PostgresServer], settings: Settings, step: str
) -> None:
    server = make_server()
    lab = lab_on(server, settings)
    lab.bootstrap()
    put(lab, 1, 500)

    def kill(name: str) -> None:
        if name == step:
            killed(server)

    with pytest.raises(ServiceUnavailable, match=r"(?s)the source of public.* broke off.*nothing is lost"):
        lab.capture(step=kill)
    with pytest.raises(ServiceUnavailable, match="cannot be reached"):
        lab.capture()
    server.ensure_up()
    put(lab, 501, 10)
    while lab.capture() is not None:
        pass
    assert inserted(lab) == list(range(1, 511))


def test_an_idle_source_that_has_begun_a_new_file_of_its_log_is_captured_at_once(
    make_server: Callable[[], PostgresServer], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where it waits for what is never written, it gives up.
    monkeypatch.setattr("varve.cdc.capture.capture._FLUSH_SECONDS", 3)
    lab = lab_on(make_server(), settings)
    lab.bootstrap()
    for number in (1, 2):
        put(lab, number)
        lab.sql("checkpoint")
        lab.sql("select pg_switch_wal()")
        batch = lab.capture()
        assert batch is not None
        assert batch.counts.inserts == 1
        assert lab.capture() is None
    assert inserted(lab) == [1, 2]


@pytest.mark.parametrize("heals", [True, False])
def test_a_part_of_the_log_that_is_missing_is_asked_for_again_and_then_asks_for_a_snapshot(
    make_server: Callable[[], PostgresServer], settings: Settings, *, heals: bool
) -> None:
    server = make_server()
    lab = lab_on(server, settings)
    lab.bootstrap()
    put(lab, 1, 3)
    with lab.source() as source:
        (name,) = source.execute("select pg_walfile_name(pg_current_wal_lsn())").fetchone() or ("",)
        source.execute("select pg_switch_wal()")
    put(lab, 4)
    segment, hidden = server.data / "pg_wal" / name, server.data / "hidden"
    segment.rename(hidden)
    asked: list[str] = []

    def step(name: str) -> None:
        asked.append(name)
        if heals and asked == ["peek", "peek"]:
            hidden.rename(segment)

    if heals:
        assert lab.capture(step) is not None
        assert inserted(lab) == [1, 2, 3, 4]
        return
    with pytest.raises(NeedsResnapshot, match=r"(?s)cannot be decoded .*58P01.*varve cdc resnapshot"):
        lab.capture(step)
    assert asked == ["peek"] * 3
    hidden.rename(segment)
    lab.bootstrap(resnapshot=True)
    assert inserted(lab, 2) == [1, 2, 3, 4]


def test_a_slot_that_nears_its_limit_is_reported_and_one_that_is_lost_asks_for_a_snapshot(
    make_server: Callable[[], PostgresServer], settings: Settings
) -> None:
    server = make_server()
    lab = lab_on(server, settings)
    lab.bootstrap()
    lab.sql("alter system set max_slot_wal_keep_size = '96MB'")
    lab.sql("select pg_reload_conf()")

    def written(times: int) -> None:
        for _ in range(times):
            lab.sql("insert into {t} (w, id) select 1, coalesce(max(id), 0) + 1 from {t}")
            lab.sql("select pg_switch_wal()")
        lab.sql("checkpoint")

    def warning() -> str | None:
        with opened(lab.captured, lab.settings.model_copy(update={"source_url": None}), lock=False) as capture:
            open_capture = replace(capture, capturing=replace(capture.capturing, source=source_of(lab)))  # type: ignore[type-var]
            return open_capture.kept().warning

    assert warning() is None
    written(4)
    assert "gives up after" in (warning() or "")
    assert lab.capture() is not None
    lab.capture()
    lab.sql("checkpoint")
    assert warning() is None
    written(9)
    with pytest.raises(NeedsResnapshot, match=r"has lost its place \(max_slot_wal_keep_size\).*varve cdc resnapshot"):
        lab.capture()
    lab.bootstrap(resnapshot=True)
    put(lab, 1_000)
    assert lab.capture() is not None
    assert inserted(lab, 2) == [*range(1, 14), 1_000]


def source_of(lab: Lab) -> object:
    from varve.cdc.capture.source_database import SourceDatabase

    return SourceDatabase(lab.url)


def test_a_server_that_was_promoted_or_is_another_asks_for_a_snapshot(
    make_server: Callable[[], PostgresServer], settings: Settings
) -> None:
    server = make_server()
    lab = lab_on(server, settings)
    lab.bootstrap()
    server.stop()
    signal_file = server.data / "standby.signal"
    signal_file.touch()
    shutil.chown(signal_file, (server.data / "PG_VERSION").owner())
    server.ensure_up()
    with pytest.raises(ServiceUnavailable, match="recovery is in progress"):
        lab.capture()
    lab.sql("select pg_promote()")
    put(lab, 1)
    with pytest.raises(NeedsResnapshot, match=r"is on timeline 2, was on 1 \(a standby was promoted\?\)"):
        lab.capture()
    lab.bootstrap(resnapshot=True)
    put(lab, 2)
    assert lab.capture() is not None
    other = make_server()
    lab.url = other.url("postgres")
    with pytest.raises(NeedsResnapshot, match="is another server"):
        lab.capture()


@pytest.mark.parametrize("most", [1, 500_000])
@pytest.mark.parametrize(("lost", "later"), [(2, 1), (2, 30), (0, 1), (0, 0)])
def test_a_source_whose_disk_was_put_back_asks_for_a_snapshot_where_it_wrote_what_is_captured_anew(
    make_server: Callable[[], PostgresServer], settings: Settings, lost: int, later: int, most: int
) -> None:
    server = make_server()
    lab = lab_on(server, settings)
    lab.bootstrap()
    put(lab, 1, 3)
    assert lab.capture() is not None
    server.stop()
    kept = server.home / "kept"
    subprocess.run(["cp", "-a", server.data, kept], check=True)
    server.ensure_up()
    for number in range(lost):
        put(lab, 100 + number * 100, 100)
        assert lab.capture() is not None
    server.stop()
    shutil.rmtree(server.data)
    subprocess.run(["cp", "-a", kept, server.data], check=True)
    server.ensure_up()
    for number in range(later):
        put(lab, 1_000 + number * 100, 100)

    def capture() -> None:
        while lab.capture(most=most) is not None:
            pass

    if lost:
        with pytest.raises(NeedsResnapshot, match=r"(?s)has another log.*restored from a copy of its disk.*resnapshot"):
            capture()
    else:
        # Nothing that was captured is gone.
        capture()
        assert len(inserted(lab)) == 3 + later * 100


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        ("drop publication {p}", "is gone, or has lost the table"),
        ("alter publication {p} drop table {t}", "is gone, or has lost the table"),
        ("alter publication {p} set (publish = 'insert')", "was changed"),
        ("alter publication {p} set table {t} where (id > 5)", "was changed"),
        ("alter publication {p} set table {t} (w, id)", "was changed"),
        ("alter publication {p} set (publish_generated_columns = none)", "was changed"),
    ],
)
def test_a_publication_that_was_changed_asks_for_a_snapshot(lab: Lab, tamper: str, message: str) -> None:
    lab.bootstrap()
    lab.sql(tamper.replace("{p}", lab.captured.slot))
    put(lab, 1)
    with pytest.raises(NeedsResnapshot, match=rf"its publication .* {message}"):
        lab.capture()
    # Nothing was told to the slot, and nothing was passed over as not ours.
    lab.bootstrap(resnapshot=True)
    put(lab, 2)
    assert lab.capture() is not None
    assert inserted(lab, 2) == [1, 2]


def test_a_publication_that_was_changed_and_changed_back_is_no_secret(lab: Lab) -> None:
    lab.bootstrap()
    lab.sql(f"alter publication {lab.captured.slot} drop table {{t}}")
    put(lab, 1)
    lab.sql(f"alter publication {lab.captured.slot} add table {{t}}")
    with pytest.raises(NeedsResnapshot, match=r"its publication .* was changed"):
        lab.capture()


def test_events_of_a_table_that_others_published_are_not_taken(make_lab: Callable[..., Lab]) -> None:
    lab, stranger = make_lab(), make_lab()
    lab.bootstrap()
    lab.sql(f"alter publication {lab.captured.slot} add table {stranger.table}")
    put(lab, 1)
    put(stranger, 100)
    stranger.sql("truncate {t}")
    put(lab, 2)
    assert lab.capture() is not None
    assert inserted(lab) == [1, 2]


def test_a_slot_that_another_session_reads_is_said(lab: Lab) -> None:
    lab.bootstrap()
    put(lab, 1)
    from psycopg import pq as libpq

    reader = libpq.PGconn.connect(f"{lab.url}&replication=database".encode())
    begun = reader.exec_(
        f"START_REPLICATION SLOT {lab.captured.slot} LOGICAL 0/0 (proto_version '1', publication_names "
        f"'{lab.captured.slot}')".encode()
    )
    assert begun.status == libpq.ExecStatus.COPY_BOTH
    with pytest.raises(ServiceUnavailable, match="is read by another session"):
        lab.capture()
    with pytest.raises(ServiceUnavailable, match="is read by another session"):
        lab.bootstrap(resnapshot=True)
    reader.finish()


def test_two_captures_at_once_are_one_and_looking_needs_no_lock(lab: Lab) -> None:
    with opened(lab.captured, lab.settings):
        with (
            pytest.raises(AlreadyBuilding, match="another process captures or applies"),
            opened(lab.captured, lab.settings),
        ):
            pass
        with opened(lab.captured, lab.settings, lock=False) as looking:
            assert looking.capturing.positions.find(lab.captured.dataset.name) is None


def test_a_capture_ends_while_the_application_does_not(lab: Lab) -> None:
    lab.bootstrap()
    begun, stop = threading.Event(), threading.Event()

    def write() -> None:
        with closing(psycopg.connect(lab.url, autocommit=True)) as connection:
            number = 0
            while not stop.is_set():
                number += 1
                connection.execute(f"insert into {lab.table} (w, id) values (2, %s)", (number,))
                begun.set()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        # What capture takes is what was committed when it began to look: there has to be a first row.
        assert begun.wait(60)
        with opened(lab.captured, lab.settings) as capture:
            open_capture = replace(capture, capturing=replace(capture.capturing, source=source_of(lab)))  # type: ignore[type-var]
            deadline = threading.Timer(60, stop.set)
            deadline.start()
            assert open_capture.capture() > 0
            deadline.cancel()
            assert not stop.is_set()
    finally:
        stop.set()
        writer.join()


def test_a_text_of_another_encoding_is_captured(settings: Settings, source_url: str) -> None:
    name = f"latin_{os.getpid()}"
    with closing(psycopg.connect(source_url, autocommit=True)) as admin:
        admin.execute(f"create database {name} encoding latin1 locale 'C' template template0")
    base = re.sub(r"@/\w+", f"@/{name}", source_url)
    lab = Lab(settings, lambda: None, base)  # type: ignore[arg-type, return-value]
    with closing(psycopg.connect(base, autocommit=True, client_encoding="utf8")) as source:
        source.execute(f"insert into {lab.table} (w, id, note) values (1, 1, 'Zürich')")
        lab.bootstrap()
        source.execute(f"insert into {lab.table} (w, id, note) values (1, 2, 'Málaga')")
    assert lab.capture() is not None
    rows = [row for batch in lab.log().batches(1) for row in pq.read_table(batch.data).to_pylist()]
    assert [row["columnValues"][2] for row in rows if row["changeType"] == "insert"] == ["Zürich", "Málaga"]
    lab.sql(f"select pg_drop_replication_slot('{lab.captured.slot}')")


def test_a_policy_that_hides_rows_is_an_error_not_a_smaller_table(lab: Lab) -> None:
    role = f"app_{lab.captured.dataset.db}"
    put(lab, 1, 3)
    lab.sql(f"create role {role} login replication")
    try:
        lab.sql(f"grant create, usage on schema public to {role}")
        lab.sql(f"alter table {{t}} owner to {role}")
        with lab.source() as source:
            (database,) = source.execute("select current_database()").fetchone() or ("",)
        lab.sql(f"grant create on database {database} to {role}")
        lab.sql("alter table {t} enable row level security, force row level security")
        lab.sql("create policy few on {t} using (id > 2)")
        owner, lab.url = lab.url, lab.url.replace("postgres@", f"{role}@")
        with pytest.raises(ServiceUnavailable, match=r"row-level security policy"):
            lab.bootstrap()
        lab.url = owner
        assert lab.log().batches(1) == []
    finally:
        lab.sql(f"drop table {{t}}; drop publication if exists {lab.captured.slot}")
        lab.sql(f"drop owned by {role}; drop role {role}")


@pytest.mark.parametrize(
    ("made", "used", "value"),
    [
        ("select 1", "{mood}", "low"),
        ("select 1", "{mood}[]", "{{low}}"),
        ("create domain {mood}_any as {mood}", "{mood}_any", "low"),
        ("create type {mood}_pair as (one int, two {mood})", "{mood}_pair", "(1,low)"),
        ("create type {mood}_span as range (subtype = {mood})", "{mood}_span", "[low,high]"),
        ("create type {mood}_span as range (subtype = {mood}, multirange_type_name = {mood}_spans)",
         "{mood}_spans", "{{[low,high]}}"),
        ("create type {mood}_pair as (one {mood}[]); create domain {mood}_pairs as {mood}_pair[]",
         "{mood}_pairs", '{{"({{low}})"}}'),
    ],
)  # fmt: skip
def test_values_of_an_enum_may_be_added_and_not_renamed_however_a_column_holds_them(
    lab: Lab, made: str, used: str, value: str
) -> None:
    mood = f"public.mood_{lab.captured.dataset.db}"
    lab.sql(f"create type {mood} as enum ('low', 'high')")
    lab.sql(made.replace("{mood}", mood))
    lab.sql(f"alter table {{t}} alter note type {used.replace('{mood}', mood)} using null")
    lab.sql(f"insert into {{t}} (w, id, note) values (1, 1, '{value}')")
    lab.bootstrap()
    lab.sql(f"alter type {mood} add value 'lower' before 'low'")
    lab.sql(f"insert into {{t}} (w, id, note) values (1, 2, '{value.replace('low', 'lower', 1)}')")
    assert lab.capture() is not None
    lab.sql(f"alter type {mood} rename value 'low' to 'bad'")
    with pytest.raises(NeedsResnapshot, match=r"values of public\.mood_.* those of column note, are written otherwise"):
        lab.capture()


@pytest.mark.parametrize("alter", ["add attribute three int", "drop attribute one"])
def test_a_composite_type_with_other_parts_asks_for_a_snapshot(lab: Lab, alter: str) -> None:
    pair = f"public.pair_{lab.captured.dataset.db}"
    lab.sql(f"create type {pair} as (one int, two int)")
    lab.sql(f"alter table {{t}} alter note type {pair}[] using null")
    lab.sql("insert into {t} (w, id, note) values (1, 1, array[(1, 2)::" + pair + "])")
    lab.bootstrap()
    lab.sql("update {t} set x = 1")
    assert lab.capture() is not None
    lab.sql(f"alter type {pair} {alter}")
    with pytest.raises(NeedsResnapshot, match=r"values of public\.pair_.* those of column note, are written otherwise"):
        lab.capture()


def test_memory_does_not_grow_with_a_transaction(lab: Lab) -> None:
    import pickle

    lab.bootstrap()

    def most(rows: int, first: int) -> int:
        """Megabytes that a process needed for a transaction of so many rows."""
        lab.sql(f"insert into {{t}} (w, id, note) select 1, i, repeat('x', 100) "
                f"from generate_series({first}, {first + rows - 1}) i")  # fmt: skip
        measured = [sys.executable, "-m", "tests.cdc.dying", "never"]
        done = subprocess.run(measured, input=pickle.dumps((lab.captured, lab.url)), check=True, stdout=subprocess.PIPE)
        return int(done.stdout)

    small = most(25_000, 0)
    assert most(100_000, 1_000_000) < small + 40
    assert sum(batch.counts.events for batch in lab.log().batches(1)) == 125_001


def test_a_table_without_a_key_is_captured_from_a_source_that_was_killed(
    make_server: Callable[[], PostgresServer], settings: Settings
) -> None:
    server = make_server()
    lab = Lab(settings, lambda: None, server.url("postgres"), UNKEYED)  # type: ignore[arg-type, return-value]
    lab.bootstrap()
    session = Application(lab, 0, 1, 300)
    session.run()
    lab.capture()
    before = sum(batch.counts.events for batch in lab.log().batches(1))
    # What the slot was told is on disk at a checkpoint only: the same transactions come again.
    killed(server)
    server.ensure_up()
    put(lab, 1)
    assert lab.capture() is not None
    assert sum(batch.counts.events for batch in lab.log().batches(1)) == before + 1


def test_a_run_waits_for_a_tick_that_captures_and_not_for_ever(lab: Lab) -> None:
    """The sensor holds the lock for a moment; a run that meets it applies afterwards, in place of failing."""
    lab.bootstrap()
    name = lab.captured.dataset.name
    with lab.catalog() as of_holder, lab.catalog() as of_waiter:
        holder, waiter = of_holder.connection, of_waiter.connection
        Positions(holder).lock(name)
        with pytest.raises(AlreadyBuilding, match="whoever comes next goes on from there"):
            Positions(waiter).lock(name)
        began = time.monotonic()
        with pytest.raises(AlreadyBuilding):
            Positions(waiter).lock(name, patience=0.3)
        assert time.monotonic() - began >= 0.3
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(Positions(waiter).lock, name, 60)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.5)
            Positions(holder).unlock(name)
            waiting.result(timeout=60)
        # It is held beyond the transaction in which it was waited for, whose limit is over with it.
        with pytest.raises(AlreadyBuilding):
            Positions(holder).lock(name)
        assert waiter.execute("show lock_timeout").fetchone() == holder.execute("show lock_timeout").fetchone()
