"""Creating a replication slot together with a snapshot of exactly the moment from which the slot streams.

PostgreSQL (to 18 at least) forgets changes of its catalog that were committed while a slot was being made, as often as
it reads the log from the slot's beginning: rows that a transaction wrote meanwhile into a table that was just truncated
can then never be decoded ("could not map filenumber ... to relation OID"), and values of a column that was just added
are left out without a word. Therefore a forerunner, a temporary slot that is complete before the slot is begun, reads
over the slot's beginning once: that leaves what it knows of the catalog in a file of the server, with which every later
reader of the slot begins.

Not here: waiting for the transactions of others (open_transactions.py).
"""

from __future__ import annotations

import contextlib
import select
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import pq

from varve.cdc.event import format_lsn, parse_lsn
from varve.model.errors import ServiceUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg.pq.abc import PGconn, PGresult

    from varve.cdc.capture.open_transactions import WaitLimits
    from varve.cdc.capture.source_database import SourceDatabase

_LOOK_SECONDS = 0.25
_CANCEL_SECONDS = 10
# serialization_failure: "initial slot snapshot too large".
_TOO_MANY_TRANSACTIONS = b"40001"


@dataclass(frozen=True, slots=True)
class Forerunner:
    """A temporary slot, which the server drops when its connection ends."""

    connection: PGconn
    name: str

    def read_until(self, lsn: int) -> None:
        """Read the log up to this LSN. Raises ServiceUnavailable."""
        query = f"select pg_replication_slot_advance('{self.name}', '{format_lsn(lsn)}')"
        _checked(self.connection.exec_(query.encode()), self.name)


@contextlib.contextmanager
def forerunner(source: SourceDatabase, patience: WaitLimits) -> Iterator[Forerunner]:
    """Create the temporary slot, after all transactions that are open now. Raises ServiceUnavailable."""
    name = f"varve_begins_{uuid.uuid4().hex[:16]}"
    connection = source.connect_for_slot()
    try:
        _run_slot_command(
            connection, f'CREATE_REPLICATION_SLOT "{name}" TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT', patience
        )
        try:
            yield Forerunner(connection, name)
        finally:
            # Dropped at once, not when the server notices the closed connection: its number of slots is small.
            connection.exec_(f'DROP_REPLICATION_SLOT "{name}"'.encode())
    finally:
        connection.finish()


@contextlib.contextmanager
def snapshot_at_lsn(source: SourceDatabase, patience: WaitLimits) -> Iterator[tuple[int, str]]:
    """Export a snapshot; yields its LSN and its name: it shows exactly what was committed up to that LSN.

    Other sessions can import it until the context ends; the temporary slot that it comes with is dropped then. Raises
    ServiceUnavailable.
    """
    name = f"varve_fence_{uuid.uuid4().hex[:16]}"
    connection = source.connect_for_slot()
    try:
        slot_row = _run_slot_command(
            connection, f'CREATE_REPLICATION_SLOT "{name}" TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT', patience
        )
        lsn, snapshot = slot_row.get_value(0, 1), slot_row.get_value(0, 2)
        assert lsn is not None
        assert snapshot is not None
        try:
            yield parse_lsn(lsn.decode()), snapshot.decode()
        finally:
            connection.exec_(f'DROP_REPLICATION_SLOT "{name}"'.encode())
    finally:
        connection.finish()


@contextlib.contextmanager
def slot_with_snapshot(source: SourceDatabase, slot: str, patience: WaitLimits) -> Iterator[tuple[int, str]]:
    """Create a slot; yields the LSN from which it streams, and the name of the snapshot of exactly that moment.

    Other sessions can import the snapshot until the context ends. Raises ServiceUnavailable.
    """
    connection = source.connect_for_slot()
    try:
        # Versions before 15 understand only this syntax, and newer ones still do.
        slot_row = _run_slot_command(
            connection, f'CREATE_REPLICATION_SLOT "{slot}" LOGICAL pgoutput EXPORT_SNAPSHOT', patience
        )
        streams_from, snapshot = slot_row.get_value(0, 1), slot_row.get_value(0, 2)
        assert streams_from is not None
        assert snapshot is not None
        yield parse_lsn(streams_from.decode()), snapshot.decode()
    finally:
        connection.finish()


def _run_slot_command(connection: PGconn, command: str, patience: WaitLimits) -> PGresult:
    """Run a command that waits for all transactions that are open at the source. Raises ServiceUnavailable."""
    patience.start()
    while True:
        connection.send_query(command.encode())
        while not _done(connection, _LOOK_SECONDS):
            if patience.over:
                error = patience.transactions_error(connection.backend_pid)
                # A backend that waits for a lock does not notice that its client has gone.
                connection.get_cancel().cancel()
                _drain(connection)
                raise error
            patience.mention_transactions(connection.backend_pid)
        result = connection.get_result()
        assert result is not None
        _drain(connection)
        if patience.over or not _had_too_many_transactions(result):
            return _checked(result, command.split('"')[1])


def _had_too_many_transactions(result: PGresult) -> bool:
    """Whether the server could not note all that had rolled back or gone on while it made the slot; it dropped that.

    An application that rolls much back, or has many savepoints, brings this about; at another moment there are fewer.
    """
    return result.error_field(pq.DiagnosticField.SQLSTATE) == _TOO_MANY_TRANSACTIONS


def _done(connection: PGconn, seconds: float) -> bool:
    """Whether an answer arrives within so many seconds."""
    if connection.is_busy():
        select.select([connection.socket], [], [], seconds)
        connection.consume_input()
    return not connection.is_busy()


def _drain(connection: PGconn) -> None:
    """Wait until the server has ended the command and removed what the command had created."""
    deadline = time.monotonic() + _CANCEL_SECONDS
    while time.monotonic() < deadline:
        if _done(connection, _LOOK_SECONDS) and connection.get_result() is None:
            return


def _checked(result: PGresult, slot: str) -> PGresult:
    if result.status == pq.ExecStatus.TUPLES_OK:
        return result
    needs = (
        "Too many transactions and savepoints were open or rolled back meanwhile, however often it was tried: run it "
        "again when the source does less, or let it have a higher max_connections."
        if _had_too_many_transactions(result) else
        "It needs wal_level = logical and, while a snapshot is begun, two free slots (max_replication_slots)."
    )  # fmt: skip
    raise ServiceUnavailable(
        f"the source made no replication slot {slot}: {result.error_message.decode().strip()}. Nothing was published "
        f"to the lake. {needs}"
    )
