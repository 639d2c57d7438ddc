"""Capture from a real PostgreSQL: exactly once, whatever dies; and refused where it would break the application."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from tests.cdc.lab import DEFAULT, FULL, UNKEYED, Application, Lab
from varve.cdc.capture import batch_writer
from varve.cdc.captured_table import NeedsResnapshot, SourceRefused
from varve.cdc.event import format_lsn
from varve.model.errors import VarveError

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg


def events(lab: Lab, generation: int = 1) -> list[dict[str, object]]:
    """Every durable event, in order."""
    rows = []
    for batch in lab.log().batches(generation):
        rows += pq.read_table(batch.data).to_pylist()
    return rows


def places(lab: Lab) -> list[tuple[object, object]]:
    return [(row["commitLsn"], row["seq"]) for row in events(lab)]


def put(lab: Lab, number: int, count: int = 1) -> None:
    lab.sql(f"insert into {{t}} (w, id) select 1, i from generate_series({number}, {number + count - 1}) i")


def test_every_change_is_captured_once_whichever_step_a_process_dies_at(lab: Lab) -> None:
    put(lab, 0, 3)
    lab.bootstrap()
    for number, step in enumerate(["peek", "write", "durable", "confirm", "confirmed"], 10):
        put(lab, number)
        lab.die_in_capture(step)
    put(lab, 20)
    assert lab.capture() is not None
    assert lab.capture() is None
    inserted = [row["columnValues"][1] for row in events(lab) if row["changeType"] == "insert"]  # type: ignore[index]
    assert inserted == ["0", "1", "2", "10", "11", "12", "13", "14", "20"]
    assert places(lab) == sorted(set(places(lab)))


@pytest.mark.parametrize("step", ["start", "publish", "slot", "snapshot", "begin"])
def test_a_bootstrap_that_died_is_taken_again(lab: Lab, step: str) -> None:
    put(lab, 0, 3)
    lab.die_in_capture(step)
    with pytest.raises(VarveError, match="not captured yet"):
        lab.capture()
    lab.bootstrap()
    put(lab, 10)
    lab.capture()
    inserted = [row["columnValues"][1] for row in events(lab) if row["changeType"] == "insert"]  # type: ignore[index]
    assert inserted[-4:] == ["0", "1", "2", "10"]


def test_a_snapshot_under_writers_meets_the_stream_without_gap_or_double(lab: Lab) -> None:
    sessions = [Application(lab, workload, workload, 150) for workload in range(4)]
    for session in sessions:
        session.start()
    lab.bootstrap()
    for session in sessions:
        session.join(timeout=120)
    lab.capture()
    table: dict[tuple[str, str], object] = {}
    for row in events(lab):
        new = dict(zip(row["columnNames"], row["columnValues"], strict=True))  # type: ignore[call-overload]
        old = dict(zip(row["oldKeyNames"], row["oldKeyValues"], strict=True))  # type: ignore[call-overload]
        if row["changeType"] in ("update", "delete"):
            del table[old["w"], old["id"]]
        if row["changeType"] in ("insert", "update"):
            # A gap would leave the key of an update missing above, a double would find it here.
            assert (new["w"], new["id"]) not in table
            table[new["w"], new["id"]] = new["note"]
    with lab.source() as source:
        there = {(w, i): note for w, i, note in source.execute(f"select w::text, id::text, note from {lab.table}")}
    assert table == there


def test_a_transaction_larger_than_memory_is_captured_whole(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_writer, "CHUNK", 100)
    lab.bootstrap()
    put(lab, 0, 950)
    put(lab, 1_000, 10)
    batch = lab.capture()
    assert batch is not None
    assert (batch.counts.events, batch.counts.inserts, batch.counts.masked) == (960, 960, 0)
    assert len({lsn for lsn, _ in places(lab)}) == 3
    assert places(lab) == sorted(set(places(lab)))


def test_a_snapshot_of_long_rows_is_written_in_parts_of_so_many_bytes(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_writer, "CHUNK_BYTES", 10_000)
    lab.sql("insert into {t} (w, id, big) select 1, i, repeat('x', 1000) from generate_series(1, 100) i")
    metadata = pq.read_metadata(lab.bootstrap().data)
    parts = [metadata.row_group(place).num_rows for place in range(metadata.num_row_groups)]
    assert sum(parts) == 101
    assert max(parts) <= 11


def test_the_slot_is_told_also_when_only_others_have_written(lab: Lab) -> None:
    lab.bootstrap()
    with lab.source() as source:
        before = slot(lab, source)
        source.execute("create table if not exists public.other (a int)")
        source.execute("insert into public.other select generate_series(1, 1000)")
        assert lab.capture() is None
        assert slot(lab, source) > before


def slot(lab: Lab, source: psycopg.Connection) -> int:
    row = source.execute(
        "select pg_wal_lsn_diff(confirmed_flush_lsn, '0/0')::bigint from pg_replication_slots where slot_name = %s",
        (lab.captured.slot,),
    ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize(
    ("alter", "message"),
    [
        ("drop constraint {n}_pkey", "no primary key"),
        ("drop constraint {n}_pkey, add primary key (w, id) deferrable", "primary key is deferrable"),
        ("replica identity nothing", "replica identity is NOTHING"),
        ("alter amount type float8", None),
        ("alter x type numeric", "x is numeric at the source and declared DOUBLE"),
        ("rename big to huge", "has no column big"),
    ],
)
def test_a_table_is_refused_before_its_application_could_break(lab: Lab, alter: str, message: str | None) -> None:
    lab.sql(f"alter table {{t}} {alter.format(n=lab.table.partition('.')[2])}")
    if message is None:
        lab.bootstrap()
        return
    with pytest.raises(SourceRefused, match=message):
        lab.bootstrap()
    with lab.source() as source:
        assert source.execute("select from pg_publication where pubname = %s", (lab.captured.slot,)).fetchone() is None


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        pytest.param(DEFAULT, "alter table {t} rename note to remark", "note is now called remark", id="30 renamed"),
        pytest.param(DEFAULT, "alter table {t} drop note, add note text", "dropped and added again", id="29 and again"),
        pytest.param(DEFAULT, "alter table {t} alter id type bigint", "was integer and is bigint", id="31 rewritten"),
        pytest.param(
            DEFAULT,
            "alter table {t} drop constraint {n}_pkey, add primary key (id)",
            "its key was",
            id="32 another key",
        ),
        (DEFAULT, "alter table {t} alter x type float8 using x * 2", "every row written anew"),
        pytest.param(UNKEYED, "alter table {t} add primary key (w, id)", "its key was", id="32 a key at last"),
        (DEFAULT, "drop table {t}", "has no table"),
    ],
)
def test_what_the_stream_cannot_say_asks_for_a_snapshot(
    make_lab: Callable[..., Lab], kind: str, change: str, message: str
) -> None:
    lab = make_lab(kind)
    lab.bootstrap()
    put(lab, 1)
    lab.sql(change.replace("{n}", lab.table.partition(".")[2]))
    for _ in range(2):
        with pytest.raises(NeedsResnapshot, match=f"(?s){message}.*varve cdc resnapshot"):
            lab.capture()
    if not change.startswith("drop table") and "rename" not in change and "alter id" not in change:
        assert lab.bootstrap(resnapshot=True).generation == 2
        put(lab, 2)
        assert lab.capture() is not None


def test_28_and_29_columns_that_come_and_go_are_taken_as_they_are(lab: Lab) -> None:
    lab.bootstrap()
    lab.sql("alter table {t} add extra int default 7")
    put(lab, 1)
    assert lab.capture() is not None
    lab.sql("alter table {t} drop flag")
    put(lab, 2)
    assert lab.capture() is not None
    last = events(lab)[-1]
    new = dict(zip(last["columnNames"], last["columnValues"], strict=True))  # type: ignore[call-overload]
    assert (new["extra"], new["flag"]) == ("7", None)
    assert [row["schemaVersion"] for row in events(lab)] == [1, 2, 3]


def test_31_a_type_that_only_widens_is_taken(lab: Lab) -> None:
    lab.bootstrap()
    lab.sql("alter table {t} alter amount type numeric(14, 2)")
    lab.sql("insert into {t} (w, id, amount) values (1, 1, 123456789012.34)")
    assert lab.capture() is not None
    last = events(lab)[-1]
    assert "123456789012.34" in last["columnValues"]  # type: ignore[operator]


def test_26_a_truncate_cascades_to_the_table(lab: Lab) -> None:
    lab.sql("create table {t}_parent (id int primary key)")
    lab.sql("alter table {t} add foreign key (id) references {t}_parent")
    lab.bootstrap()
    lab.sql("insert into {t}_parent values (1)")
    put(lab, 1)
    lab.sql("truncate {t}_parent cascade")
    batch = lab.capture()
    assert batch is not None
    assert (batch.counts.inserts, batch.counts.truncates) == (1, 1)


def test_a_giant_value_is_captured_whole(lab: Lab) -> None:
    lab.bootstrap()
    lab.sql("insert into {t} (w, id, big) values (1, 1, repeat('x', 30000000))")
    assert lab.capture() is not None
    values = events(lab)[-1]["columnValues"]
    assert max(len(value) for value in values if value is not None) == 30_000_000  # type: ignore[attr-defined]


def test_truncate_is_no_rewrite_wherever_a_batch_ends(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(FULL)
    lab.bootstrap()
    put(lab, 1, 5)
    lab.sql("truncate {t}")
    put(lab, 6)
    # The batch may not end before the TRUNCATE: only from there on it is known which rows there are.
    batch = lab.capture(most=2)
    assert batch is not None
    assert (batch.counts.truncates, batch.counts.inserts) == (1, 6)
    lab.sql("truncate {t}")
    lab.sql("truncate {t}")
    batch = lab.capture()
    assert batch is not None
    assert batch.counts.truncates == 2
    put(lab, 7)
    assert lab.capture() is not None


@pytest.mark.parametrize(
    "hidden", ["alter table {t} alter x type float8 using x * 2", "savepoint", "alter table {t} set (fillfactor = 50)"]
)
def test_a_rewrite_cannot_hide_behind_a_truncate(lab: Lab, hidden: str) -> None:
    lab.bootstrap()
    with lab.source() as source, source.transaction():
        if hidden == "savepoint":
            with source.transaction():
                source.execute(f"truncate {lab.table}")
        else:
            source.execute(f"truncate {lab.table}")
    put(lab, 1, 5)
    if hidden != "savepoint":
        lab.sql(hidden)
    with pytest.raises(NeedsResnapshot, match=r"(?s)truncated and altered.*varve cdc resnapshot"):
        lab.capture()


@pytest.mark.parametrize("later", ["select 1", "alter table {t} alter x set statistics 10"])
@pytest.mark.parametrize(
    "alter", ["alter x type float8 using x * 2", "add extra uuid default gen_random_uuid()", "alter x set default 1"]
)
def test_a_rewrite_cannot_hide_in_the_transaction_of_a_truncate(lab: Lab, alter: str, later: str) -> None:
    lab.bootstrap()
    put(lab, 1, 5)
    with lab.source() as source, source.transaction():
        source.execute(f"truncate {lab.table}")
        source.execute(f"insert into {lab.table} (w, id, x) values (1, 1, 1)")
        source.execute(f"alter table {lab.table} {alter}")
    lab.sql(later)
    with pytest.raises(NeedsResnapshot, match=r"(?s)truncated and altered.*varve cdc resnapshot"):
        lab.capture()


def test_a_truncate_with_new_rows_is_taken_also_where_the_table_was_altered_before(lab: Lab) -> None:
    lab.bootstrap()
    lab.sql("alter table {t} add extra uuid default gen_random_uuid()")
    for _ in range(2):
        with lab.source() as source, source.transaction():
            source.execute(f"truncate {lab.table}")
            source.execute(f"insert into {lab.table} (w, id, x) values (1, 1, 1)")
        batch = lab.capture()
        assert batch is not None
        assert (batch.counts.truncates, batch.counts.inserts) == (1, 1)


def test_a_truncate_after_a_rewrite_makes_it_known_again(lab: Lab) -> None:
    lab.bootstrap()
    put(lab, 1, 5)
    lab.sql("alter table {t} alter x type float8 using x * 2")
    lab.sql("truncate {t}")
    put(lab, 6)
    batch = lab.capture()
    assert batch is not None
    assert batch.counts.truncates == 1
    assert lab.capture() is None


def test_a_snapshot_is_begun_anew_where_a_truncate_came_between(lab: Lab) -> None:
    put(lab, 1, 5)
    truncated = []

    def step(name: str) -> None:
        # To the snapshot the table would look empty, at a moment at which it was not.
        if name == "slot" and not truncated:
            truncated.append(name)
            lab.sql("truncate {t}")
            put(lab, 6)

    assert lab.bootstrap(step=step).counts.inserts == 1
    assert truncated
    put(lab, 7)
    batch = lab.capture()
    assert batch is not None
    assert (batch.counts.events, batch.counts.inserts) == (1, 1)


def test_a_lost_slot_or_one_that_others_have_moved_asks_for_a_snapshot(lab: Lab) -> None:
    lab.bootstrap()
    put(lab, 1)
    with lab.source() as source:
        source.execute("select pg_replication_slot_advance(%s, pg_current_wal_lsn())", (lab.captured.slot,))
    with pytest.raises(NeedsResnapshot, match=r"moved to .* by somebody else"):
        lab.capture()
    lab.bootstrap(resnapshot=True)
    lab.sql(f"select pg_drop_replication_slot('{lab.captured.slot}')")
    with pytest.raises(NeedsResnapshot, match=r"slot .* is gone, so changes were missed"):
        lab.capture()


def test_lsns_are_written_as_postgresql_writes_them(lab: Lab) -> None:
    with lab.source() as source:
        row = source.execute("select pg_lsn('16/B374D848')::text").fetchone()
    assert row == (format_lsn(0x16_B374D848),)
