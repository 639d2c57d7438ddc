"""Capture: the source's log into durable batches of events, exactly once; and the snapshot that a table begins with.

The order is: a batch is durable, then the slot is told. After a crash in between, or a source that forgot what it was
told (slot positions are written at checkpoints only), the same transactions come again and are passed over.

Not here: what the events make of a dataset (apply.py).
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from psycopg import sql

from pipeline_defs.cdc.event import ChangeEvent, ChangeType, event, format_lsn, parse_lsn
from pipeline_defs.cdc.pgoutput import Decoder, Relation
from pipeline_defs.cdc.stream import Described, End, Start, Stream
from pipeline_defs.cdc.table import NeedsResnapshot, check, compare
from pipeline_defs.model.errors import ServiceUnavailable, VarveError
from resources.cdc import source as sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

    from pipeline_defs.cdc.table import CapturedTable, SourceTable
    from resources.cdc.event_log import BatchWriter, EventBatch, EventLog
    from resources.cdc.positions import Position, Positions
    from resources.cdc.source import Source

_PEEK = """
    select data from pg_logical_slot_peek_binary_changes(
        %s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', %s)
"""
_ADVANCE = "select pg_replication_slot_advance(%s, %s::pg_lsn)"
_FLUSH_SECONDS = 30
_ROWS_AT_ONCE = 5_000
# How often a capture begins anew because the table was altered right then.
_TRIES = 5


@dataclass(frozen=True)
class Capture:
    """One captured table, its source and where its events go.

    Attributes:
        step: told the name of each step before it is taken.
        most: about so many changes go into one batch; a transaction is never cut.
    """

    captured: CapturedTable
    source: Source
    positions: Positions
    log: EventLog
    step: Callable[[str], None] = lambda _: None
    most: int = 500_000

    def bootstrap(self, *, again: bool = False) -> EventBatch:
        """Take a snapshot of the table under living writers; the stream goes on from exactly there.

        Raises VarveError where the table is captured already, unless `again`; SourceRefused where capturing it would
        break the application or could not be exact. Until the snapshot is durable, nothing of an earlier one changes.
        """
        dataset = self.captured.dataset.name
        before = self.positions.find(dataset)
        if before is not None and before.generation and before.state != "starting" and not again:
            raise VarveError(
                f"{dataset} is captured already; nothing was changed. A new snapshot: varve cdc resnapshot {dataset}"
            )
        with closing(self.source.connect()) as connection:
            check(self.captured, self._described(connection))
            if before is None and sources.slot_of(connection, self.captured.slot) is not None:
                raise VarveError(
                    f"{dataset}: the source has a replication slot {self.captured.slot} that is not ours: another "
                    "deployment captures the same table, or a catalog was lost. Nothing was changed. Drop it there if "
                    f"nobody needs it: select pg_drop_replication_slot('{self.captured.slot}')"
                )
            self.positions.start(dataset, self.captured.source)
            self.step("start")
            sources.unpublish(connection, self.captured)
            sources.publish(connection, self.captured)
            self.step("publish")
            server = sources.server(connection)
            with self.source.slot_with_snapshot(self.captured.slot) as (lsn, snapshot):
                self.step("slot")
                table, batch = self._snapshot(connection, lsn, snapshot, (before.generation if before else 0) + 1)
        self.step("begin")
        self.positions.begin(
            dataset,
            position_after(dataset, self.captured.source, server, table, batch.generation, lsn),
        )
        return batch

    def capture(self) -> EventBatch | None:
        """Make what has been committed at the source since the last time durable; None where there was nothing.

        Raises NeedsResnapshot, which is also noted, where the stream cannot say what the table holds.
        """
        position = self.positions.of(self.captured.dataset.name)
        if position.state != "running":
            unfinished = f"{position.dataset}: its snapshot was not finished: varve cdc resnapshot {position.dataset}"
            raise NeedsResnapshot(position.reason or unfinished)
        try:
            with closing(self.source.connect()) as connection:
                for _ in range(_TRIES):
                    done, batch = self._capture_once(connection, position)
                    if done:
                        return batch
        except NeedsResnapshot as error:
            self.positions.stop(position.dataset, str(error))
            raise
        raise ServiceUnavailable(
            f"{position.dataset}: {self.captured.source} was altered {_TRIES} times while it was captured. Nothing of "
            "that was captured yet, and nothing is lost. Run it again."
        )

    def retained(self) -> int | None:
        """The bytes of log that the source keeps for us; None where it has no slot of ours."""
        with closing(self.source.connect()) as connection:
            slot = sources.slot_of(connection, self.captured.slot)
        return None if slot is None else slot.retained

    def _capture_once(self, connection: psycopg.Connection, position: Position) -> tuple[bool, EventBatch | None]:
        slot = self._checked_slot(connection, position)
        table = self._described(connection)
        notes_of = compare(self.captured, position.table, table)
        upto = self._flushed(connection)
        done = self.log.captured(position.generation) or 0
        self.step("peek")
        writer = self.log.writer(position.generation, "stream", self._columns())
        try:
            last = self._write(connection, writer, table, max(done, 0), upto)
            after = self._described(connection)
            truncated = writer.counts.truncates > 0
            if replace(after, filenode=table.filenode) != table or (after.filenode != table.filenode and not truncated):
                # Altered while we read: what was read may be of either side.
                writer.abandon()
                return False, None
            self._refuse_rewritten(position, table, writer)
        except BaseException:
            writer.abandon()
            raise
        batch = None
        if writer.counts.events:
            self.step("write")
            batch = writer.finish(last, notes=notes_of, filenode=after.filenode)
        else:
            writer.abandon()
        self.step("durable")
        self.positions.captured(position.dataset, table)
        # Without a batch everything up to `upto` was looked at and is not ours; else the slot may keep what follows.
        target = last if batch else max(upto, slot.confirmed)
        self.positions.tell(position.dataset, target)
        self.step("tell")
        if target > slot.confirmed:
            connection.execute(
                "select pg_replication_slot_advance(%s, %s::pg_lsn)", (self.captured.slot, format_lsn(target))
            )
        self.step("told")
        return True, batch

    def _refuse_rewritten(self, position: Position, table: SourceTable, writer: BatchWriter) -> None:
        # A batch may be durable whose table the position does not know yet: a crash in between.
        known = {position.table.filenode, self.log.filenode(position.generation)}
        if table.filenode not in known and not writer.counts.truncates:
            raise NeedsResnapshot(
                f"{position.dataset}: PostgreSQL wrote every row of {self.captured.source} anew (ALTER TABLE, VACUUM "
                "FULL or CLUSTER), and the stream does not say with which values. Nothing of it was captured; the "
                f"dataset serves its last exact state. Take a new snapshot: varve cdc resnapshot {position.dataset}"
            )

    def _write(
        self, connection: psycopg.Connection, writer: BatchWriter, table: SourceTable, done: int, upto: int
    ) -> int:
        """Write the transactions that end after `done`; the end of the last one."""
        decoder, stream = Decoder(), Stream({self.captured.source: table.key})
        names: frozenset[str] = frozenset(self._columns())
        sent: Relation | None = None
        last = done
        for item in stream.read(decoder.decode(data) for data in self._peek(connection, upto)):
            match item:
                case Start():
                    pass
                case Described():
                    sent = item.relation
                case End():
                    if item.end_lsn > done:
                        writer.commit(item.end_lsn)
                        last = max(last, item.end_lsn)
                    else:
                        writer.forget()
                case ChangeEvent():
                    writer.add(_completed(item, sent, names))
        return last

    def _peek(self, connection: psycopg.Connection, upto: int) -> Iterator[bytes]:
        # A cursor at the server: one transaction may be larger than our memory.
        with connection.transaction(), connection.cursor("varve_cdc", binary=True) as cursor:
            cursor.itersize = _ROWS_AT_ONCE
            cursor.execute(_PEEK, (self.captured.slot, format_lsn(upto), self.most, self.captured.slot))
            for (data,) in cursor:
                yield bytes(data)

    def _snapshot(
        self, connection: psycopg.Connection, lsn: int, snapshot: str, generation: int
    ) -> tuple[SourceTable, EventBatch]:
        with connection.transaction():
            connection.execute("set transaction isolation level repeatable read, read only")
            connection.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(snapshot)))
            table = self._described(connection)
            check(self.captured, table)
            writer = self.log.writer(generation, "snapshot", self._columns())
            try:
                # What the dataset held before goes, in the same publish that brings the snapshot.
                writer.add(event(ChangeType.TRUNCATE, relation=self.captured.source))
                for place, row in enumerate(self._rows(connection, table), 1):
                    new = dict(zip(table.names, row, strict=True))
                    writer.add(event(ChangeType.INSERT, new=new, relation=self.captured.source, seq=place))
                writer.commit(lsn)
                self.step("snapshot")
                return table, writer.finish(lsn, filenode=table.filenode)
            except BaseException:
                writer.abandon()
                raise

    def _rows(self, connection: psycopg.Connection, table: SourceTable) -> Iterator[tuple[str | None, ...]]:
        schema, _, name = self.captured.source.partition(".")
        texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(column)) for column in table.names)
        query = sql.SQL("copy (select {} from only {}) to stdout").format(texts, sql.Identifier(schema, name))
        with connection.cursor().copy(query) as copy:
            yield from copy.rows()

    def _columns(self) -> tuple[str, ...]:
        """The source's names of the columns that the dataset declares and the source (still) has."""
        declared = set(self.captured.dataset.schema.names)
        ours = {name for name, column in self.captured.renames.items() if column in declared}
        return tuple(sorted(ours | (declared - set(self.captured.renames.values()))))

    def _described(self, connection: psycopg.Connection) -> SourceTable:
        table = sources.describe(connection, self.captured.source)
        if table is None:
            raise NeedsResnapshot(
                f"{self.captured.dataset}: the source has no table {self.captured.source}: dropped, renamed, or "
                "another database. Nothing was captured; the dataset serves its last exact state. Put it back, or "
                f"declare where it is now and take a new snapshot: varve cdc resnapshot {self.captured.dataset}"
            )
        return table

    def _checked_slot(self, connection: psycopg.Connection, position: Position) -> sources.Slot:
        assert position.system_identifier is not None
        assert position.timeline is not None
        expected = sources.Server(position.system_identifier, position.timeline)
        sources.refuse_other_server(self.captured, expected, sources.server(connection))
        slot = sources.slot_of(connection, self.captured.slot)
        gone = (
            "is gone"
            if slot is None
            else "has lost its place (max_slot_wal_keep_size)"
            if slot.wal_status == "lost"
            else ""
        )
        if slot is not None and slot.confirmed > position.told_lsn:
            gone = (
                f"was moved to {format_lsn(slot.confirmed)} by somebody else; we are at {format_lsn(position.told_lsn)}"
            )
        if slot is None or gone:
            raise NeedsResnapshot(
                f"{position.dataset}: the replication slot {self.captured.slot} {gone}, so changes were missed. The "
                f"dataset serves its last exact state. Take a new snapshot: varve cdc resnapshot {position.dataset}"
            )
        return slot

    def _flushed(self, connection: psycopg.Connection) -> int:
        """Where the log ends, once that is on disk: decoding reads no further, whatever was visible in tables."""
        deadline = time.monotonic() + _FLUSH_SECONDS
        (end,) = connection.execute("select pg_current_wal_insert_lsn()::text").fetchone() or ("0/0",)
        while True:
            row = connection.execute("select pg_current_wal_flush_lsn()::text").fetchone()
            if row is not None and parse_lsn(row[0]) >= parse_lsn(end):
                return parse_lsn(end)
            if time.monotonic() > deadline:
                raise ServiceUnavailable(
                    f"{self.captured.dataset}: the source has not flushed its log up to {end} for {_FLUSH_SECONDS} s. "
                    "Nothing was captured; run it again."
                )
            time.sleep(0.05)


def _completed(found: ChangeEvent, sent: Relation | None, names: frozenset[str]) -> ChangeEvent:
    """A new row lacks nothing: what its table has no column for any more is NULL in it, not unknown."""
    if found.change_type is not ChangeType.INSERT or sent is None:
        return found
    missing = sorted(names - {column.name for column in sent.columns})
    return replace(
        found,
        column_names=(*found.column_names, *missing),
        column_values=(*found.column_values, *[None] * len(missing)),
    )


def position_after(  # noqa: PLR0917 - the fields of a value
    dataset: str, source: str, server: sources.Server, table: SourceTable, generation: int, lsn: int
) -> Position:
    """The position right after a snapshot."""
    from resources.cdc.positions import Position

    return Position(
        dataset, source, "running", None, server.system_identifier, server.timeline, table, generation, lsn, -1,
        None, 0, None, None,
    )  # fmt: skip
