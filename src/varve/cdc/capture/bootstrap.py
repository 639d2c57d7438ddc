"""Bootstrap: the first snapshot of a captured table, while applications write, without missing or doubled changes.

Making the slot exports the snapshot of exactly the moment from which the slot streams. A bootstrap that fails leaves
neither slot nor publication at the source.

Not here: how a slot is made (new_slot.py), the batch of the rows (snapshot.py), a new snapshot of a history whose
capture is sound (resnapshot.py), and the stream that follows (capture.py).
"""

from __future__ import annotations

import time
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from varve.cdc.capture import source_database
from varve.cdc.capture.decoding import Undecodable, decoding
from varve.cdc.capture.new_slot import forerunner, slot_with_snapshot
from varve.cdc.capture.open_transactions import WaitLimits
from varve.cdc.capture.resnapshot import Resnapshot, would_lose
from varve.cdc.capture.slot_reader import changes_in_slot
from varve.cdc.capture.snapshot import position_after, write_snapshot
from varve.cdc.captured_table import SLOT_LETTERS, slot_name
from varve.cdc.declaration_checks import check
from varve.model.errors import ServiceUnavailable, VarveError, counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from varve.cdc.capture.batch_writer import EventBatch
    from varve.cdc.capture.event_log import EventLog
    from varve.cdc.capture.positions import Position, Positions
    from varve.cdc.capture.source_database import SourceDatabase
    from varve.cdc.captured_table import CapturedTable, SourceTable

# How often a snapshot is tried again because the table was truncated or rewritten at that moment.
_TRIES = 5


@dataclass
class _Attempt:
    """What a bootstrap has done at the source; `cleared`: it has dropped the slot and publication of an earlier one."""

    cleared: bool = False


@dataclass(frozen=True)
class Bootstrap:
    """The first snapshot of one captured table, from its source into the event log.

    Attributes:
        step: called with the name of each step before the step is taken; for tests that stop there.
        seconds: how long each wait for transactions and locks of others at the source may last.
        say: called with a message that names the sessions that it waits for.
    """

    captured: CapturedTable
    source: SourceDatabase
    positions: Positions
    log: EventLog
    step: Callable[[str], None] = lambda _: None
    seconds: float = 60.0
    say: Callable[[str], None] = lambda _: None

    def bootstrap(self, *, resnapshot: bool = False, leave_out: bool = False) -> EventBatch:
        """Take a snapshot of the table while applications write; the stream continues from exactly there.

        A history whose capture is sound keeps its slot, and what was committed since the last capture comes before the
        snapshot.

        Raises VarveError where the table is captured already, unless `resnapshot`, and where a history would lose
        versions that are not captured or not applied, unless `leave_out`; where another captured dataset has a slot of
        the same name; SourceRefused where capturing it would
        break the application or could not be exact. An earlier snapshot stays unchanged until the new one is durable.
        """
        dataset = self.captured.dataset.name
        before = self.positions.find(dataset)
        if before is not None and before.generation and before.state != "starting" and not resnapshot:
            raise VarveError(
                f"{dataset} is captured already; nothing was changed. A new snapshot: varve cdc resnapshot {dataset}"
            )
        if before is not None and before.declared and before.declared["history"] != self.captured.history:
            raise VarveError(
                f"{dataset} was declared {'with' if before.declared['history'] else 'without'} history before, and its "
                "rows lie so. Nothing was changed. Declare a dataset of another name."
            )
        self._refuse_slot_of_another()
        history_before = before if self.captured.history and not leave_out else None
        if history_before is not None:
            self._refuse_to_lose_versions(history_before)
        with closing(self.source.connect()) as connection, source_database.asked(self.captured):
            table = source_database.described(connection, self.captured)
            check(self.captured, table)
            if before is None and source_database.slot_of(connection, self.captured.slot) is not None:
                raise VarveError(
                    f"{dataset}: the source has a replication slot {self.captured.slot} that is not ours: another "
                    "deployment captures the same table, or a catalog was lost. Nothing was changed. Drop it there if "
                    f"nobody needs it: select pg_drop_replication_slot('{self.captured.slot}')"
                )
            if before is not None:
                # What an attempt left that was killed after its batch was durable: the position does not name it yet.
                self.log.remove(before.generation + 1)
            if history_before is not None:
                again = Resnapshot(
                    self.captured, self.source, self.positions, self.log, history_before, self.step, self.seconds,
                    self.say,
                )  # fmt: skip
                if again.is_possible(connection, table):
                    return again.take()
                self._refuse_to_lose_changes(connection, history_before)
            patience = WaitLimits(self.captured, connection, self.seconds, self.say)
            # Wait for the transactions that are open now before anything is changed.
            with forerunner(self.source, patience) as reads_first, self._all_or_nothing(before) as attempt:
                self.step("start")
                if history_before is not None:
                    # The transactions that were waited for may have changed the table.
                    self._refuse_to_lose_changes(connection, history_before)
                server, generation = source_database.server(connection), (before.generation if before else 0) + 1
                snapshot_taken, tries, until = None, 0, time.monotonic() + self.seconds
                # Even between the TRUNCATEs of a busy application there is a moment for a snapshot.
                while snapshot_taken is None and (tries < _TRIES or time.monotonic() < until):
                    tries += 1
                    source_database.unpublish(connection, self.captured)
                    attempt.cleared = True
                    patience.with_lock(table.oid, lambda: source_database.publish(connection, self.captured))
                    self.step("publish")
                    with slot_with_snapshot(self.source, self.captured.slot, patience) as (lsn, snapshot):
                        reads_first.read_until(lsn)
                        self.step("slot")
                        snapshot_taken = self._snapshot(patience, lsn, snapshot, generation)
                if snapshot_taken is None:
                    raise ServiceUnavailable(
                        f"{dataset}: {self.captured.source} was truncated or rewritten each of the {tries} times that "
                        "a snapshot of it was begun. Nothing was published. Run it again."
                    )
                after, batch = snapshot_taken
                self.step("begin")
                self.positions.begin(dataset, position_after(self.captured, server, after, batch))
        return batch

    def _refuse_slot_of_another(self) -> None:
        """Raise VarveError where another captured dataset has the slot of this one: two names may make one of it."""
        name, slot = self.captured.dataset.name, self.captured.slot
        for other in self.positions.all():
            # Captures of files name no server, and have no slot.
            if other.dataset != name and slot_name(other.dataset) == slot and other.system_identifier != "":
                raise VarveError(
                    f"{name}: its replication slot would be {slot}, which is that of {other.dataset}: a slot has the "
                    f"first {SLOT_LETTERS} characters of the dataset's name, with _ for the dot. Nothing was changed. "
                    f"Declare {name} under another name. If {other.dataset} is captured no more: varve drop "
                    f"{other.dataset}"
                )

    def _refuse_to_lose_versions(self, before: Position) -> None:
        """Raise VarveError where events wait to be applied: the new snapshot has no row as it was in between."""
        waiting = self.log.batches(before.generation, after=before.applied_lsn)
        if waiting:
            events = counted(sum(batch.counts.events for batch in waiting), "event")
            raise would_lose(self.captured, f"{events} of its history are captured and not applied", "Apply")
        if before.quarantined:
            dataset = self.captured.dataset.name
            raise VarveError(
                f"{dataset}: {counted(before.quarantined, 'event')} of its history are in quarantine, and a new "
                "snapshot drops them with what they say of the past. Nothing was changed. varve cdc quarantine "
                f"{dataset} shows them. To go on without them: varve cdc resnapshot {dataset} --leave-out"
            )

    def _refuse_to_lose_changes(self, connection: psycopg.Connection, before: Position) -> None:
        """Raise VarveError where the slot has changes of the table that nobody has captured, and capture could."""
        server, slot = source_database.server(connection), source_database.slot_of(connection, self.captured.slot)
        is_other = (server.system_identifier, server.timeline) != (before.system_identifier, before.timeline)
        if before.state != "running" or is_other or slot is None or slot.wal_status == "lost":
            return
        done = max(before.confirmed_lsn, self.log.captured(before.generation) or 0)
        try:
            with decoding():
                changes = changes_in_slot(connection, self.captured.slot, before.table.oid, done)
        except Undecodable as error:
            found = f"the changes of {before.source} since the last capture cannot be decoded ({error})"
            raise would_lose(self.captured, found) from error
        if changes:
            found = f"{counted(changes, 'change')} of {before.source} are committed and not captured"
            raise would_lose(self.captured, found)

    @contextmanager
    def _all_or_nothing(self, before: Position | None) -> Iterator[_Attempt]:
        """Remove our slot and publication from the source where no snapshot is taken."""
        attempt = _Attempt()
        self.positions.start(self.captured.dataset.name, self.captured.source)
        try:
            yield attempt
        except BaseException:
            # The next attempt removes what cannot be undone now: the position says that it is ours.
            with suppress(psycopg.Error, VarveError):
                self._undo(before, attempt)
            raise

    def _undo(self, before: Position | None, attempt: _Attempt) -> None:
        captured_before = before is not None and before.generation > 0
        with closing(self.source.connect()) as connection:
            untouched = not attempt.cleared and source_database.slot_of(connection, self.captured.slot) is not None
            if not (captured_before and untouched):
                source_database.unpublish(connection, self.captured)
        # An earlier capture whose slot is gone cannot continue: it keeps the state of an unfinished snapshot.
        if untouched or not captured_before:
            self.positions.undo_start(self.captured.dataset.name, before)

    def _snapshot(
        self, patience: WaitLimits, lsn: int, snapshot: str, generation: int
    ) -> tuple[SourceTable, EventBatch] | None:
        """The table and a batch of its rows at that moment; None where the rows of that moment are gone."""
        connection = patience.connection
        with connection.transaction():
            connection.execute("set transaction isolation level repeatable read, read only")
            connection.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(snapshot)))
            table = source_database.described(connection, self.captured)
            check(self.captured, table)
            patience.with_lock(table.oid, lambda: source_database.hold_still(connection, self.captured.source))
            if not source_database.lies_still(connection, table):
                return None
            return table, write_snapshot(connection, self.captured, table, self.log, generation, lsn, self.step)
