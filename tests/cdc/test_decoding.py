"""Many messages at once are decoded as one message after the other: random histories on PostgreSQL, event for event.

The oracle (tests/cdc/pgoutput) reads the same slot in plain Python. Of the histories, each read is cut anywhere, and
begins anywhere.
"""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cdc.pgoutput.reader import PlainReader
from varve.cdc.added_columns import since_then
from varve.cdc.capture import batch_writer, slot_reader, source_database
from varve.cdc.capture.batch_writer import BatchWriter
from varve.cdc.capture.slot_reader import SlotReader
from varve.cdc.capture.source_database import SourceDatabase
from varve.cdc.captured_table import CapturedTable, SourceTable
from varve.cdc.event import Counts
from varve.cdc.protocol.pgoutput import Messages
from varve.cdc.protocol.row_images import row_images
from varve.cdc.resolve.event_frame import arrow_schema, arrow_table
from varve.cdc.table_changes import Fit, changes, stopping
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import BadInput
from varve.model.partitions.dimension import StaticDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.timeout(600)

# The identities of rows: the key, an index, the whole row with a key, the whole row without one.
IDENTITIES = {
    "default": ", primary key (id, w)",
    "index": ", unique (w, id)",
    "full": ", primary key (w, id)",
    "unkeyed": "",
}
TEXTS = st.sampled_from([None, "", "plain", "NULL", "q'\"\\{},\t\n", "ünïcode ☃ 𝄞", "x" * 300])
# Larger than what a row keeps in its page: an update that does not change it does not send it.
BIG = st.sampled_from([None, "", "ß" * 3_000, "abcdefgh" * 900])
IDS, KEYS = st.integers(0, 5), st.sampled_from(["", "a", "é"])
# Statements on our table {t}, one beside it in the same publication {o}, and one of the same name elsewhere {s}.
TABLES = st.sampled_from(["{t}", "{t}", "{t}", "{o}", "{s}"])
_NEW_ONLY = " on conflict do nothing"
_FILL = "insert into {} (id, w, big) select generate_series(0, 4), 'a', repeat('b', 3000)"
# A statement that is rolled back to the savepoint before it.
_UNDONE = "/* undone */"
CHANGES = st.one_of(
    st.tuples(
        TABLES.map(lambda t: f"insert into {t} (id, w, note, big, mood) values (%s, %s, %s, %s, %s)" + _NEW_ONLY),
        st.tuples(IDS, KEYS, TEXTS, BIG, st.sampled_from([None, "calm", "wild"])),
    ),
    st.tuples(TABLES.map(lambda t: f"update {t} set note = %s where id = %s"), st.tuples(TEXTS, IDS)),
    st.tuples(TABLES.map(lambda t: f"update {t} set big = %s where id <= %s"), st.tuples(BIG, IDS)),
    st.tuples(
        TABLES.map(lambda t: f"update {t} set id = %s, w = %s where id = %s"),
        st.tuples(st.integers(0, 9), KEYS, IDS),
    ),
    st.tuples(TABLES.map(lambda t: f"delete from {t} where id = %s"), st.tuples(IDS)),
    st.tuples(
        TABLES.map(lambda t: f"insert into {t} (id, w) select generate_series(%s::int, %s::int), 'n'" + _NEW_ONLY),
        st.tuples(st.integers(100, 130), st.integers(131, 160)),
    ),
    st.tuples(st.sampled_from(["truncate {t}", "truncate {o}", "truncate {o}, {t}", "delete from {t}"]), st.just(())),
    st.tuples(TABLES.map(lambda t: f"{_UNDONE} update {t} set note = 'never'"), st.just(())),
)  # fmt: skip
DDL = st.sampled_from([
    "alter table {t} add column more int default 7", "alter table {t} drop column more",
    "alter table {t} drop column note", "alter table {t} add column note text",
    "alter table {t} rename column note to other", "alter table {t} rename column other to note",
    "alter table {t} add column later text default 'as it was'", "alter table {t} add column later text",
    "alter table {t} replica identity full", "alter table {t} replica identity default",
    "alter table {t} alter column note type varchar(400)", "alter table {t} alter column note type text",
    "alter table {o} add column more int", "alter table {t} rename to aside", "alter table aside rename to {n}",
])  # fmt: skip
TRANSACTIONS = st.one_of(
    *[st.lists(CHANGES, min_size=1, max_size=8)] * 4,
    st.tuples(DDL, st.just(())).map(lambda statement: [statement]),
)  # fmt: skip


@dataclass
class Source:
    """A table of a random history, one beside it, and their slot."""

    connection: psycopg.Connection
    names: dict[str, str]
    captured: CapturedTable
    before: SourceTable

    def run(self, history: Sequence[Sequence[tuple[str, tuple[Any, ...]]]]) -> None:
        """Each statement that PostgreSQL takes, in a savepoint of its own."""
        for transaction in history:
            with self.connection.transaction():
                for statement, values in transaction:
                    with contextlib.suppress(psycopg.Error), self.connection.transaction():
                        self.connection.execute(statement.format(**self.names), values or None)
                        if statement.startswith(_UNDONE):
                            raise psycopg.Rollback


@contextlib.contextmanager
def source_of(url: str, identity: str) -> Iterator[Source]:
    name = f"t{uuid.uuid4().hex[:8]}"
    columns = "id int not null, w text not null, note text, big text, mood temper"
    if identity in {"default", "index"}:
        # Rows that are told apart as a whole may have no column that is not sent.
        columns += ", doubled int generated always as (id * 2) stored"
    names = {"t": f"public.{name}", "o": f"public.{name}_other", "s": f"elsewhere.{name}", "n": name}
    dataset = Dataset(
        name=f"{name}.copy", comment="As the source has it.", store=StoreKind.LAKE,
        partitioning=Partitioning((StaticDimension("part", ("0",)),)),
        schema=Schema(tuple(Column(name, ColumnType.STRING) for name in ("id", "w", "note", "big", "mood", "later"))),
    )  # fmt: skip
    captured = CapturedTable(dataset, names["t"], {"part": "'0'"})
    with closing(SourceDatabase(url).connect()) as connection:
        with contextlib.suppress(psycopg.errors.DuplicateObject):
            connection.execute("create type public.temper as enum ('calm', 'wild')")
        connection.execute("create schema if not exists elsewhere; set search_path = public")
        for table in (names["t"], names["o"], names["s"]):
            connection.execute(f"create table {table} ({columns}{IDENTITIES[identity]})".encode())
            connection.execute(f"alter table {table} alter column big set storage external".encode())
            if identity in {"full", "unkeyed"}:
                connection.execute(f"alter table {table} replica identity full".encode())
            elif identity == "index":
                index = f"{table.partition('.')[2]}_w_id_key"
                connection.execute(f"alter table {table} replica identity using index {index}".encode())
        connection.execute(
            f"create publication {captured.slot} for table {', '.join(names[key] for key in 'tos')}".encode()
        )
        connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", (captured.slot,))
        try:
            yield Source(connection, names, captured, source_database.described(connection, captured))
        finally:
            connection.execute("select pg_drop_replication_slot(%s)", (captured.slot,))


def equal_looks(source: Source, fit: Fit, done: int, upto: int, limit: int | None) -> int:
    """Both readers say the same; where the last transaction ends."""
    expected, events = PlainReader(source.connection, fit, limit).look(done, upto)
    columns = source.captured.source_columns
    with tempfile.TemporaryDirectory() as folder:
        writer = BatchWriter("of.test", folder, 1, "stream", columns)
        assert SlotReader(source.connection, source.captured, limit).look(writer, fit, done, upto) == expected
        batch = writer.finish(expected.last)
        table = pq.read_table(Path(folder) / batch_writer.EVENTS)
    assert table.schema == arrow_schema()
    assert table.to_pylist() == arrow_table(events).to_pylist()
    assert batch.counts == Counts.of(events, columns)
    assert batch.first_lsn == (events[0].commit_lsn if events else expected.last)
    return expected.last


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    identity=st.sampled_from(list(IDENTITIES)), history=st.lists(TRANSACTIONS, min_size=4, max_size=12),
    limits=st.lists(st.integers(1, 400), min_size=1, max_size=3),
    sizes=st.tuples(st.integers(1, 60), st.integers(1, 40)),
)  # fmt: skip
def test_any_history_in_looks_of_any_size_is_read_as_one_message_after_the_other(
    source_url: str, identity: str, history: list[list[tuple[str, tuple[Any, ...]]]], limits: list[int],
    sizes: tuple[int, int],
) -> None:  # fmt: skip
    fetched, chunk = sizes
    with pytest.MonkeyPatch.context() as patch, source_of(source_url, identity) as source:
        patch.setattr(slot_reader, "_FEWEST", fetched)
        patch.setattr(slot_reader, "_MOST", fetched)
        patch.setattr(batch_writer, "CHUNK", chunk)
        source.run([[(_FILL.format(table), ()) for table in ("{t}", "{o}")], *history])
        upto = source_database.end_of_log(source.connection)
        now = source_database.describe(source.connection, source.captured.source)
        after = replace(now, publication=source.before.publication) if now else source.before
        after = since_then(after, source.before, 0)
        stop, _ = stopping(changes(source.captured, source.before, after))
        fit = Fit(source.captured, source.before, after, stop)
        last = equal_looks(source, fit, 0, upto, None)
        done = 0
        for limit in limits:
            # On from where the last look ended, or again from the beginning.
            done = equal_looks(source, fit, done, upto, limit)
        equal_looks(source, fit, last, upto, None)


def test_a_transaction_larger_than_memory_and_values_larger_than_a_fetch_are_read_alike(
    source_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_writer, "CHUNK_BYTES", 200_000)
    monkeypatch.setattr(slot_reader, "_BYTES", 100_000)
    monkeypatch.setattr(slot_reader, "_BUFFER_BYTES", 50_000)
    with source_of(source_url, "full") as source:
        source.run([
            [("insert into {t} (id, w, big) select i, '', repeat('é', 20000) from generate_series(1, 90) i", ()),
             ("truncate {t}", ()),
             ("insert into {t} (id, w, note) select i, '', i::text from generate_series(1, 30000) i", ())],
            *[[("update {t} set note = '' where id = %s", (number,))] for number in range(1, 300)],
        ])  # fmt: skip
        upto = source_database.end_of_log(source.connection)
        equal_looks(source, Fit(source.captured, source.before, source.before), 0, upto, None)


@pytest.mark.parametrize("identity", list(IDENTITIES))
def test_a_key_that_changes_is_read_alike(source_url: str, identity: str) -> None:
    with source_of(source_url, identity) as source:
        source.run([[(_FILL.format("{t}"), ())], [("update {t} set id = 9 where id = 1", ())]])
        fit = Fit(source.captured, source.before, source.before)
        equal_looks(source, fit, 0, source_database.end_of_log(source.connection), None)


@pytest.mark.parametrize("fetched", [1, 1_000])
def test_changes_under_another_name_are_read_alike(
    source_url: str, fetched: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_reader, "_FEWEST", fetched)
    monkeypatch.setattr(slot_reader, "_MOST", fetched)
    insert = "insert into {} (id, w) values ({}, 'a')"
    with source_of(source_url, "default") as source:
        aside = f"{source.names['n']}_aside"
        source.run([
            [(insert.format("{t}", 1), ())],
            [(f"alter table {{t}} rename to {aside}", ()), (insert.format(f"public.{aside}", 2), ())],
            [(f"update public.{aside} set note = 'x'", ()), (f"truncate public.{aside}", ())],
            [(f"alter table public.{aside} rename to {{n}}", ()), (insert.format("{t}", 3), ())],
        ])  # fmt: skip
        upto, fit = source_database.end_of_log(source.connection), Fit(source.captured, source.before, source.before)
        equal_looks(source, fit, 0, upto, None)
        _, events = PlainReader(source.connection, fit, None).look(0, upto)
    assert "".join(event.change_type[0] for event in events) == "iiuuti"


def test_rows_of_a_table_without_columns_are_read_alike(source_url: str) -> None:
    with source_of(source_url, "unkeyed") as source:
        columns = ("id", "w", "note", "big", "mood")
        source.connection.execute(f"alter table {source.captured.source} drop column {', drop column '.join(columns)}")
        source.connection.execute(f"insert into {source.captured.source} default values")
        source.connection.execute(f"delete from {source.captured.source}")
        fit = Fit(source.captured, replace(source.before, columns=()), replace(source.before, columns=()))
        equal_looks(source, fit, 0, source_database.end_of_log(source.connection), None)


def row(*messages: bytes) -> None:
    row_images(Messages.of(messages), ("id", "note"))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "it is empty"),
        (b"Q", "unknown kind"),
        (b"B\0", "not 21 bytes"),
        (b"C" + b"\0" * 30, "not 26 bytes"),
        (b"I", "it begins with no row that is due"),
        (b"I\0\0\0\1N", "it ends within a row"),
        (b"I\0\0\0\1K\0\2nn", "it begins with no row that is due"),
        (b"D\0\0\0\1N\0\2nn", "it begins with no row that is due"),
        (b"U\0\0\0\1K\0\2nnX\0\2nn", "no new row behind the old one"),
        (b"U\0\0\0\1K\0\2nn", "no new row behind the old one"),
        (b"I\0\0\0\1N\0\3nnn", "not 2 columns"),
        (b"I\0\0\0\1N\0\2n", "it ends within a row"),
        (b"I\0\0\0\1N\0\2nb\0\0\0\1x", "a value that was not sent as text"),
        (b"I\0\0\0\1N\0\2nt\0\0\0\2x", "it ends within a value"),
        (b"I\0\0\0\1N\0\2nt\xff\xff\xff\xff", "it ends within a value"),
        (b"I\0\0\0\1N\0\2nnn", "it goes on behind its last value"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_message_are_refused_and_shown(data: bytes, problem: str) -> None:
    whole = b"I\0\0\0\1N\0\2nt\0\0\0\1x"
    with pytest.raises(BadInput, match=f"pgoutput message .* of {len(data)} bytes cannot be read .{problem}"):
        row(whole, data, whole)


@pytest.mark.parametrize("data", [b"R\0\0\0\1public", b"R\0\0\0\1public\0t\0d\0\2", b"R\0\0\0\1public\0\xff\0d\0\0"])
def test_a_table_that_is_not_described_whole_is_refused(data: bytes) -> None:
    with pytest.raises(BadInput, match="pgoutput message 'R'"):
        Messages.of([data]).relation()


def test_tables_that_are_not_all_named_are_refused() -> None:
    with pytest.raises(BadInput, match="pgoutput message 'T'"):
        Messages.of([b"T\0\0\0\2\0\0\0\0\1"]).truncated()


def test_a_text_that_is_not_utf_8_is_refused_and_shown() -> None:
    images = row_images(Messages.of([b"I\0\0\0\1N\0\2nt\0\0\0\1x", b"I\0\0\0\1N\0\2t\0\0\0\1\xe9n"]), ("id", "note"))
    with pytest.raises(BadInput, match=r"pgoutput message 'I' of 15 bytes cannot be read .a text that is not UTF-8"):
        images.lists(images.new)
