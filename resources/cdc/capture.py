"""Capture: the source's log into durable batches of events, exactly once.

The order is: a batch is durable, then the slot is told. After a crash in between, or a source that forgot what it was
told (slot positions are written at checkpoints only), the same transactions come again and are passed over.

Not here: the snapshot that a table begins with (bootstrap.py); what the events make of a dataset (apply.py).
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pipeline_defs.cdc.event import ChangeEvent, ChangeType, format_lsn, parse_lsn
from pipeline_defs.cdc.pgoutput import Decoder
from pipeline_defs.cdc.stream import Described, End, Start, Stream
from pipeline_defs.cdc.table import NeedsResnapshot, compare, refuse_other_declaration
from pipeline_defs.model.errors import ServiceUnavailable
from resources.cdc import source as sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

    from pipeline_defs.cdc.messages import Relation
    from pipeline_defs.cdc.table import CapturedTable, SourceTable
    from resources.cdc.batch_writer import BatchWriter, EventBatch
    from resources.cdc.event_log import EventLog
    from resources.cdc.positions import Position, Positions
    from resources.cdc.source import Source

_PEEK = """
    select data from pg_logical_slot_peek_binary_changes(
        %s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', %s)
"""
_ADVANCE = "select pg_replication_slot_advance(%s, %s::pg_lsn)"
_FLUSH_SECONDS = 30
_ROWS_AT_ONCE = 5_000
# So long a capture looks for a moment at which the table is not being altered or truncated.
_QUIET_SECONDS = 30


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read: the end of the last transaction, the version of the table there, and who truncated it."""

    last: int
    version: int
    truncated_by: frozenset[int]


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

    def capture(self) -> EventBatch | None:
        """Make what has been committed at the source since the last time durable; None where there was nothing.

        Raises NeedsResnapshot, which is also noted, where the stream cannot say what the table holds.
        """
        position = self.positions.of(self.captured.dataset.name)
        if position.state != "running":
            unfinished = f"{position.dataset}: its snapshot was not finished: varve cdc resnapshot {position.dataset}"
            raise NeedsResnapshot(position.reason or unfinished)
        refuse_other_declaration(self.captured, position.declared)
        try:
            with closing(self.source.connect()) as connection:
                deadline = time.monotonic() + _QUIET_SECONDS
                while time.monotonic() < deadline:
                    done, batch = self._capture_once(connection, position)
                    if done:
                        return batch
        except NeedsResnapshot as error:
            self.positions.stop(position.dataset, str(error))
            raise
        raise ServiceUnavailable(
            f"{position.dataset}: {self.captured.source} was altered again and again for {_QUIET_SECONDS} s. Nothing "
            "of that was captured yet, and nothing is lost. Run it again."
        )

    def end(self) -> int:
        """Where the source's log ends now."""
        with closing(self.source.connect()) as connection, sources.asked(self.captured):
            return sources.end_of_log(connection)

    def slot(self) -> sources.Slot | None:
        """What keeps the source's log for us; None where it has no slot of ours."""
        with closing(self.source.connect()) as connection, sources.asked(self.captured):
            return sources.slot_of(connection, self.captured.slot)

    def _capture_once(self, connection: psycopg.Connection, position: Position) -> tuple[bool, EventBatch | None]:
        with sources.asked(self.captured):
            slot = self._checked_slot(connection, position)
            # What it is before and after `upto` it was at `upto`, if both are the same.
            table = sources.described(connection, self.captured)
            upto = self._flushed(connection)
            if sources.described(connection, self.captured) != table:
                return False, None
        notes = compare(self.captured, position.table, table)
        # A batch may be durable whose table the position does not know yet: a crash in between.
        known = table.filenode in {position.table.filenode, self.log.filenode(position.generation)}
        done = self.log.captured(position.generation) or 0
        self.step("peek")
        writer = self.log.writer(position.generation, "stream", self.captured.source_columns)
        try:
            # Whether rows were written anew can be said only of all that happened until they were.
            with sources.asked(self.captured):
                read = self._read(connection, writer, position.table, done, upto, self.most if known else None)
            if not known:
                self._refuse_rewritten(table, read.truncated_by)
        except BaseException:
            writer.abandon()
            raise
        batch = None
        if writer.counts.events:
            self.step("write")
            batch = writer.finish(read.last, notes=notes, filenode=table.filenode)
        else:
            writer.abandon()
        self.step("durable")
        self.positions.captured(position.dataset, replace(table, version=read.version))
        # Without a batch everything up to `upto` was looked at and is not ours; else the slot may keep what follows.
        target = read.last if batch else max(upto, slot.confirmed)
        self.positions.tell(position.dataset, target)
        self.step("tell")
        if target > slot.confirmed:
            with sources.asked(self.captured):
                connection.execute(_ADVANCE, (self.captured.slot, format_lsn(target)))
        self.step("told")
        return True, batch

    def _refuse_rewritten(self, table: SourceTable, truncated_by: frozenset[int]) -> None:
        """Raise NeedsResnapshot unless a TRUNCATE of the stream was the last to give the table's rows a new place."""
        if table.changed_by in truncated_by:
            return
        what = (
            "was truncated and then altered, or truncated within a savepoint: whether its rows were written anew since "
            "(ALTER TABLE, VACUUM FULL or CLUSTER), the stream does not say"
            if truncated_by
            else "had every row written anew (ALTER TABLE, VACUUM FULL or CLUSTER), and the stream does not say with "
            "which values"
        )
        dataset = self.captured.dataset
        raise NeedsResnapshot(
            f"{dataset}: {self.captured.source} {what}. Nothing of it was captured; the dataset serves its last exact "
            f"state. Take a new snapshot: varve cdc resnapshot {dataset}"
        )

    def _read(  # noqa: PLR0917 - from where to where, and how much
        self, connection: psycopg.Connection, writer: BatchWriter, table: SourceTable, done: int, upto: int,
        most: int | None,
    ) -> _Read:  # fmt: skip
        """Write the transactions that end after `done`; `table` is as it was captured last."""
        decoder, stream = Decoder(), Stream({self.captured.source: table.key})
        names = frozenset(self.captured.source_columns)
        sent: Relation | None = None
        layout, version, last, known = table.layout, table.version, done, False
        truncated_by: set[int] = set()
        for item in stream.read(decoder.decode(data) for data in self._peek(connection, upto, most)):
            match item:
                case Start():
                    known = item.lsn < done
                case Described() if item.relation.full_name == self.captured.source:
                    sent = item.relation
                # Somebody may have published other tables there too.
                case ChangeEvent() if not known and item.relation == self.captured.source:
                    found = tuple((column.name, column.typmod) for column in sent.columns) if sent else layout
                    layout, version = found, version + (found != layout)
                    writer.add(replace(_completed(item, sent, names), schema_version=version))
                    if item.change_type is ChangeType.TRUNCATE:
                        truncated_by.add(item.xid)
                case End() if not known:
                    writer.commit(item.end_lsn)
                    last = max(last, item.end_lsn)
        return _Read(last, version, frozenset(truncated_by))

    def _peek(self, connection: psycopg.Connection, upto: int, most: int | None) -> Iterator[bytes]:
        # A cursor at the server: one transaction may be larger than our memory.
        with connection.transaction(), connection.cursor("varve_cdc", binary=True) as cursor:
            cursor.itersize = _ROWS_AT_ONCE
            cursor.execute(_PEEK, (self.captured.slot, format_lsn(upto), most, self.captured.slot))
            for (data,) in cursor:
                yield bytes(data)

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
        end = sources.end_of_log(connection)
        while True:
            row = connection.execute("select pg_current_wal_flush_lsn()::text").fetchone()
            if row is not None and parse_lsn(row[0]) >= end:
                return end
            if time.monotonic() > deadline:
                raise ServiceUnavailable(
                    f"{self.captured.dataset}: the source has not flushed its log up to {format_lsn(end)} for "
                    f"{_FLUSH_SECONDS} s. Nothing was captured; run it again."
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
