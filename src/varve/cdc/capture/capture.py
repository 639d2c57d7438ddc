"""Capture: from the log of the source to durable batches of events, exactly once.

First a batch becomes durable, then its LSN is confirmed to the slot. After a crash in between, or where the source has
forgotten the confirmation (it stores slot positions only at checkpoints), the same transactions come again and are
skipped. Only an LSN up to which everything was read is confirmed. Where the limit ends a read of the slot before it
found a change of this table, another read follows.

Where the table was altered so that the stream does not say which rows it has, the transactions before that are captured
as any others, and then the capture stops.

The steps (`step`) are those of the machine in docs/decisions/0018-models.md, of which every state was explored.

Not here: one read of the slot (slot_reader.py), the first snapshot of a table (bootstrap.py), and applying the events
(varve/cdc/apply.py).
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from varve.cdc.added_columns import check_added, named_otherwise, newly_declared, refused, since_then
from varve.cdc.capture import source_database
from varve.cdc.capture.decoding import Undecodable, decoding
from varve.cdc.capture.slot_reader import SlotReader
from varve.cdc.captured_table import NeedsResnapshot, SourceRefused
from varve.cdc.event import format_lsn, parse_lsn
from varve.cdc.table_changes import Fit, altered_with, changes, stopped, stopping
from varve.model.errors import ServiceUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from varve.cdc.capture.batch_writer import EventBatch
    from varve.cdc.capture.event_log import EventLog
    from varve.cdc.capture.positions import Position, Positions
    from varve.cdc.capture.slot_reader import SlotLook
    from varve.cdc.capture.source_database import SourceDatabase
    from varve.cdc.captured_table import CapturedTable, SourceTable

_ADVANCE = "select pg_replication_slot_advance(%s, %s::pg_lsn)"
_FLUSH_SECONDS = 30
# The log of PostgreSQL is written by pages, of which the first of a file has the longest header.
_PAGE, _PAGE_HEADER = 8192, 40
# How long a capture tries to find a moment at which the table is not being altered or truncated.
_QUIET_SECONDS = 30
# The pauses, in seconds, before a source that could not decode its log is asked again.
_PAUSES = (0.2, 1.0)


@dataclass(frozen=True, slots=True)
class Moment:
    """The description of the table at one LSN (`upto`) of the source's log."""

    upto: int
    table: SourceTable


@dataclass(frozen=True)
class Capture:
    """The capture of one table, from its source into the event log.

    Attributes:
        step: called with the name of each step before the step is taken; for tests that stop there.
        most: about how many changes are read at once into one batch; a transaction is never split.
    """

    captured: CapturedTable
    source: SourceDatabase
    positions: Positions
    log: EventLog
    step: Callable[[str], None] = lambda _: None
    most: int = 500_000

    def capture(self, until: Moment | None = None) -> EventBatch | None:
        """Make the changes that were committed since the last capture durable; None where there are none.

        `until` is the LSN at which to end, with the table there; by default that of the end of the log now.

        Raises NeedsResnapshot where the stream lacks the rows of the table, and SourceRefused where capture goes on by
        itself once the source has what the dataset declares. Both are also recorded in the position.
        """
        position = self.positions.of(self.captured.dataset.name)
        if position.state != "running":
            unfinished = f"{position.dataset}: its snapshot was not finished: varve cdc resnapshot {position.dataset}"
            raise NeedsResnapshot(position.reason or unfinished)
        newly_declared(self.captured, position.table, position.declared)
        try:
            return self._capture_with_retries(position, until)
        except NeedsResnapshot as error:
            self.positions.stop(position.dataset, str(error))
            raise
        except SourceRefused as error:
            self.positions.wait(position.dataset, str(error))
            raise

    def end(self) -> int:
        """The LSN of the end of the source's log now."""
        with closing(self.source.connect()) as connection, source_database.asked(self.captured):
            return source_database.end_of_log(connection)

    def slot(self) -> source_database.Slot | None:
        """The replication slot of this table; None where the source has none."""
        with closing(self.source.connect()) as connection, source_database.asked(self.captured):
            return source_database.slot_of(connection, self.captured.slot)

    def _capture_with_retries(self, position: Position, until: Moment | None) -> EventBatch | None:
        """Capture; where the source cannot decode its log, try again a few times in a new session."""
        for pause in (*_PAUSES, None):
            try:
                with closing(self.source.connect()) as connection:
                    return self._capture_over(connection, position, until)
            except Undecodable as error:
                if pause is None:
                    raise NeedsResnapshot(
                        f"{position.dataset}: the log of {self.captured.source} cannot be decoded from "
                        f"{format_lsn(self.log.captured(position.generation) or 0)} on: {error}. It was asked for "
                        f"{len(_PAUSES) + 1} times. What was captured before stays; the dataset serves its last exact "
                        f"state. Take a new snapshot: varve cdc resnapshot {position.dataset}"
                    ) from error
                time.sleep(pause)
            position = self.positions.of(position.dataset)
        raise AssertionError

    def _capture_over(
        self, connection: psycopg.Connection, position: Position, until: Moment | None
    ) -> EventBatch | None:
        if until is not None:
            return self._capture_until(connection, position, until)
        deadline = time.monotonic() + _QUIET_SECONDS
        while time.monotonic() < deadline:
            moment = self._quiet_moment(connection, position)
            if moment is not None:
                return self._capture_until(connection, position, moment)
        raise ServiceUnavailable(
            f"{position.dataset}: {self.captured.source} was altered again and again for {_QUIET_SECONDS} s. Nothing "
            "of that was captured yet, and nothing is lost. Run it again."
        )

    def _quiet_moment(self, connection: psycopg.Connection, position: Position) -> Moment | None:
        """Up to which LSN to read, and the table there; None where the table was being altered at that moment."""
        with source_database.asked(self.captured):
            self._checked_slot(connection, position)
            # Where its description is the same before and after `upto` was read, it is that of `upto`.
            table = source_database.described(connection, self.captured)
            upto = self._flushed(connection)
            return Moment(upto, table) if source_database.described(connection, self.captured) == table else None

    def _capture_until(self, connection: psycopg.Connection, position: Position, moment: Moment) -> EventBatch | None:
        """The next batch; None where no change of the table was committed until then.

        The end stays the same however many reads it takes, so that an application that keeps writing cannot make this
        run for ever.
        """
        added = newly_declared(self.captured, position.table, position.declared)
        moment = replace(moment, table=since_then(moment.table, position.table, position.confirmed_lsn))
        found = changes(self.captured, position.table, moment.table, added)
        stop, visible = stopping(found)
        if stop and not visible:
            raise stopped(self.captured, stop, visible=False)
        if not stop:
            check_added(self.captured, moment.table, added)
        fit = Fit(self.captured, position.table, moment.table, stop)
        while True:
            look, batch = self._look(connection, position, moment, fit, [change.phrase for change in found])
            if look.misfit or (stop and not look.cut):
                raise stopped(self.captured, look.misfit or stop, visible=True)
            if batch is not None or not look.cut:
                return batch
            position = self.positions.of(position.dataset)

    def _look(
        self, connection: psycopg.Connection, position: Position, moment: Moment, fit: Fit, notes: list[str]
    ) -> tuple[SlotLook, EventBatch | None]:
        """Read the slot once; the batch, if there were changes, is durable and confirmed."""
        # After a crash a batch may be durable whose table is not recorded in the position yet.
        known = {fit.before.filenode, self.log.filenode(position.generation)}
        rewritten = moment.table.filenode not in known
        with source_database.asked(self.captured):
            slot = self._checked_slot(connection, position)
        last_batch = self.log.last(position.generation)
        done = last_batch.last_lsn if last_batch else 0
        # Whether rows were rewritten can be decided only with all changes up to that point, so without a limit.
        reader = SlotReader(connection, self.captured, None if rewritten else self.most)
        self.step("peek")
        writer = self.log.writer(position.generation, "stream", self.captured.source_columns)
        try:
            with source_database.asked(self.captured), decoding():
                look = reader.look(writer, fit, done, moment.upto)
            if rewritten:
                self._refuse_rewritten(fit, look)
            self._refuse_renamed(position, look)
            if last_batch and is_of_other_log(self.log, last_batch, slot, look.last_at):
                self._refuse_other_log(done)
        except BaseException:
            writer.abandon()
            raise
        batch = None
        if writer.counts.events:
            self.step("write")
            batch = writer.finish(look.last, notes=notes, filenode=moment.table.filenode)
        else:
            writer.abandon()
        self.step("durable")
        # Where the capture is about to stop, the rows are still those of the table as it was.
        table = fit.continued() if fit.stop or look.misfit else moment.table
        if not look.names_are_theirs:
            table = named_otherwise(self.captured, table)
        self.positions.captured(position.dataset, replace(table, version=look.version))
        # Without a batch, everything that was read completely is durable or of other tables.
        target = look.last if batch else look.whole_until
        self.positions.confirm(position.dataset, target)
        self.step("confirm")
        if target > slot.confirmed:
            with source_database.asked(self.captured), decoding():
                connection.execute(_ADVANCE, (self.captured.slot, format_lsn(target)))
        self.step("confirmed")
        return look, batch

    def _refuse_rewritten(self, fit: Fit, look: SlotLook) -> None:
        """Raise NeedsResnapshot unless a TRUNCATE that was read was the last rewrite."""
        truncated_by, last = look.truncated_by, fit.now.changed_by
        # Rows that it put there after its TRUNCATE may have been written anew by an ALTER TABLE of its own.
        if last in truncated_by and not (last in look.refilled_by and altered_with(fit.before, fit.now)):
            return
        if fit.stop or look.misfit:
            # Where in the stream rows were written anew, and so whether they fit what came before, nothing says.
            raise stopped(self.captured, look.misfit or fit.stop, visible=False)
        change = (
            "was truncated and altered, or truncated within a savepoint: whether its rows were written anew since "
            "(ALTER TABLE, VACUUM FULL or CLUSTER), the stream does not say"
            if truncated_by
            else "had every row written anew (ALTER TABLE, VACUUM FULL or CLUSTER), and the stream does not say with "
            "which values"
        )
        dataset = self.captured.dataset
        raise NeedsResnapshot(
            f"{dataset}: {self.captured.source} {change}. Nothing of it was captured; the dataset serves its last "
            f"exact state. Take a new snapshot: varve cdc resnapshot {dataset}"
        )

    def _refuse_renamed(self, position: Position, look: SlotLook) -> None:
        """Raise NeedsResnapshot where a column is to be loaded and events may call it otherwise."""
        added = newly_declared(self.captured, position.table, position.declared)
        if added and not look.names_are_theirs:
            reason = "columns were renamed or dropped since it was added"
            raise refused(self.captured, ", ".join(sorted(map(self.captured.column, added))), reason)

    def _checked_slot(self, connection: psycopg.Connection, position: Position) -> source_database.Slot:
        assert position.system_identifier is not None
        assert position.timeline is not None
        expected = source_database.Server(position.system_identifier, position.timeline)
        source_database.refuse_other_server(self.captured, expected, source_database.server(connection))
        done = max(position.confirmed_lsn, self.log.captured(position.generation) or 0)
        if source_database.end_of_log(connection) < done:
            self._refuse_other_log(done)
        slot = source_database.slot_of(connection, self.captured.slot)
        problem = (
            "is gone"
            if slot is None
            else "has lost its place (max_slot_wal_keep_size)"
            if slot.wal_status == "lost"
            else ""
        )
        if slot is not None and slot.confirmed > position.confirmed_lsn:
            problem = (
                f"was moved to {format_lsn(slot.confirmed)} by somebody else; "
                f"we are at {format_lsn(position.confirmed_lsn)}"
            )
        if slot is None or problem:
            raise NeedsResnapshot(
                f"{position.dataset}: the replication slot {self.captured.slot} {problem}, so changes were missed. The "
                f"dataset serves its last exact state. Take a new snapshot: varve cdc resnapshot {position.dataset}"
            )
        return slot

    def _refuse_other_log(self, done: int) -> NoReturn:
        # The identity of the server, its timeline and our slot are all as they were.
        dataset = self.captured.dataset
        raise NeedsResnapshot(
            f"{dataset}: the source of {self.captured.source} has another log than the one that was captured up to "
            f"{format_lsn(done)}: it was restored from a copy of its disk. Positions in its log have lost their "
            "meaning; nothing of it was captured, and the dataset serves its last exact state. "
            f"Take a new snapshot: varve cdc resnapshot {dataset}"
        )

    def _flushed(self, connection: psycopg.Connection) -> int:
        """The LSN of the end of the log, once it is on disk up to there: decoding reads only what is on disk."""
        deadline = time.monotonic() + _FLUSH_SECONDS
        end = source_database.end_of_log(connection)
        while True:
            row = connection.execute("select pg_current_wal_flush_lsn()::text").fetchone()
            flushed = 0 if row is None else parse_lsn(row[0])
            if flushed >= end:
                return end
            if flushed % _PAGE == 0 and end - flushed <= _PAGE_HEADER:
                # Behind a switch of its files, nothing but the header of the next page is still to be written.
                return flushed
            if time.monotonic() > deadline:
                raise ServiceUnavailable(
                    f"{self.captured.dataset}: the source has not flushed its log up to {format_lsn(end)} for "
                    f"{_FLUSH_SECONDS} s. Nothing was captured; run it again."
                )
            time.sleep(0.05)


def is_of_other_log(log: EventLog, last_batch: EventBatch, slot: source_database.Slot, last_at: str | None) -> bool:
    """Whether the last durable transaction is not in the log of the source, or is another one there.

    `last_at` is when it committed, as a read of the slot has it (`SlotLook`).
    """
    # A slot stands before what is durable where it was not told yet, or where its server has forgotten it.
    if last_batch.kind != "stream" or slot.confirmed >= last_batch.last_lsn or last_at is None:
        return False
    last_lsn, durable_at = log.last_event(last_batch)
    return not last_at or (last_lsn == last_batch.last_lsn and durable_at != last_at)
