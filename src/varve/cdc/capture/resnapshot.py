"""A new snapshot of a history whose capture is sound: the slot stays, and no version is lost between.

What was committed since the last capture is of a past that a snapshot does not know. The slot has it up to the moment
of the snapshot, and goes on from there, so that the new generation begins with these changes, and the snapshot comes
behind them. Nothing at the source is changed. A process that dies leaves the earlier generation as it was.

Not here: first snapshots, and those of captures that have stopped or lost their slot (bootstrap.py).
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.cdc.added_columns import since_then
from varve.cdc.capture import source_database
from varve.cdc.capture.capture import is_of_other_log
from varve.cdc.capture.decoding import Undecodable, decoding
from varve.cdc.capture.fence import fence
from varve.cdc.capture.slot_reader import SlotReader
from varve.cdc.capture.snapshot import position_after, write_snapshot
from varve.cdc.declaration_checks import check
from varve.cdc.event import format_lsn
from varve.cdc.table_changes import Fit, altered_with, changes, stopping
from varve.model.errors import VarveError

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from varve.cdc.capture.batch_writer import BatchWriter, EventBatch
    from varve.cdc.capture.capture import Moment
    from varve.cdc.capture.event_log import EventLog
    from varve.cdc.capture.positions import Position, Positions
    from varve.cdc.capture.source_database import SourceDatabase
    from varve.cdc.captured_table import CapturedTable, SourceTable


@dataclass(frozen=True)
class Resnapshot:
    """A new snapshot behind the last changes of a history.

    Attributes:
        before: the position, of which everything that is captured is applied.
        step, seconds, say: see `Bootstrap`.
    """

    captured: CapturedTable
    source: SourceDatabase
    positions: Positions
    log: EventLog
    before: Position
    step: Callable[[str], None]
    seconds: float
    say: Callable[[str], None]

    def is_possible(self, connection: psycopg.Connection, table: SourceTable) -> bool:
        """Whether the slot has every change since the last capture, and shows where the table was altered."""
        before, server = self.before, source_database.server(connection)
        slot = source_database.slot_of(connection, self.captured.slot)
        if before.state != "running" or before.source != self.captured.source or slot is None:
            return False
        if (server.system_identifier, server.timeline) != (before.system_identifier, before.timeline):
            return False
        if slot.wal_status == "lost" or slot.confirmed > before.confirmed_lsn:
            return False
        done = max(before.confirmed_lsn, self.log.captured(before.generation) or 0)
        return source_database.end_of_log(connection) >= done and self._fit(table) is not None

    def take(self) -> EventBatch:
        """Take the snapshot; returns its batch.

        Raises VarveError where changes since the last capture cannot be taken with it, ServiceUnavailable where the
        source makes it wait for too long.
        """
        generation = self.before.generation + 1
        self.step("start")
        with fence(self.captured, self.source, self.seconds, self.say) as snapshot:
            connection, moment = snapshot.connection, snapshot.moment
            check(self.captured, moment.table)
            server = source_database.server(connection)
            self.step("fence")
            self._take_changes(moment, generation)
            self.step("changes")
            batch = write_snapshot(
                connection, self.captured, moment.table, self.log, generation, moment.upto, self.step
            )
        self.step("begin")
        self.positions.begin(self.before.dataset, position_after(self.captured, server, moment.table, batch))
        return batch

    def _take_changes(self, moment: Moment, generation: int) -> None:
        """Make what was committed since the last capture durable as the first batch of the generation, if there is any.

        Everything is one read of the slot: a transaction of any size waits for its commit in a file.
        """
        writer = self.log.writer(generation, "stream", self.captured.source_columns)
        try:
            last = self._read_changes(writer, moment)
        except BaseException:
            writer.abandon()
            raise
        if writer.counts.events:
            writer.finish(last, filenode=moment.table.filenode)
        else:
            writer.abandon()

    def _read_changes(self, writer: BatchWriter, moment: Moment) -> int:
        """Write the changes; returns the end of the last transaction that was read. Raises VarveError."""
        fit, last_batch = self._fit(moment.table), self.log.last(self.before.generation)
        if fit is None:
            raise would_lose(self.captured, f"{self.captured.source} was altered at this moment")
        done = last_batch.last_lsn if last_batch else 0
        try:
            with closing(self.source.connect()) as connection, source_database.asked(self.captured), decoding():
                slot = source_database.slot_of(connection, self.captured.slot)
                look = SlotReader(connection, self.captured, None).look(writer, fit, done, moment.upto)
        except Undecodable as error:
            found = f"the changes of {self.captured.source} since the last capture cannot be decoded ({error})"
            raise would_lose(self.captured, found) from error
        if look.misfit:
            raise would_lose(self.captured, f"{look.misfit}, and rows were changed since then")
        if last_batch and slot and is_of_other_log(self.log, last_batch, slot, look.last_at):
            raise would_lose(self.captured, f"the source has another log than up to {format_lsn(done)}")
        return look.last

    def _fit(self, table: SourceTable) -> Fit | None:
        """Which rows of the stream are of the table as it was; None where the stream does not show that.

        What comes before the snapshot is resolved with the table and the declaration of it: of another key, of columns
        under other names, or of values that were written anew without events, it would make other versions.
        """
        before = self.before
        declared = self.captured.declaration if before.declared is None else before.declared
        # What older rows have in a column that is declared since then, the snapshot says.
        added = {name for name in self.captured.source_columns if self.captured.column(name) not in declared["columns"]}
        now = since_then(table, before.table, before.confirmed_lsn)
        stop, visible = stopping(changes(self.captured, before.table, now, frozenset(added)))
        is_other_key = set(before.table.key) != set(now.key) or before.table.keyed != now.keyed
        renamed = set(self.captured.source_columns) - added - set(before.table.names)
        filenodes = {before.table.filenode, self.log.filenode(before.generation)}
        # Where a column has another type since then, the rows of the stream show it.
        rewritten = not stop and now.filenode not in filenodes and altered_with(before.table, now)
        if is_other_key or renamed or rewritten:
            return None
        return None if stop and not visible else Fit(self.captured, before.table, now, stop)


def would_lose(captured: CapturedTable, found: str, remedy: str = "Capture") -> VarveError:
    """The error for a new snapshot of a history that would lose versions; `found` says which, and `remedy` the way."""
    return VarveError(
        f"{captured.dataset}: {found}, and a new snapshot does not contain what was true before it. Nothing was "
        f"changed. {remedy} them first: varve cdc capture {captured.dataset}; where its declaration has changed, with "
        f"the one from before. To go on without them: varve cdc resnapshot {captured.dataset} --leave-out"
    )
