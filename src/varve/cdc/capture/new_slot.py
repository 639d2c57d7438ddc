"""Making a replication slot with the snapshot of exactly the moment from which it streams.

PostgreSQL (to 18 at least) forgets changes of its catalog that were committed while a slot was being made, as often as
it reads the log from the slot's beginning: rows that a transaction wrote meanwhile into a table that was just truncated
can then never be decoded ("could not map filenumber ... to relation OID"), and values of a column that was just added
are left out without a word. Therefore a forerunner, a temporary slot that is complete before the slot is begun, reads
over the slot's beginning once: that leaves what it knows of the catalog in a file of the server, with which every later
reader of the slot begins.

Not here: who is waited for (open_transactions.py).
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


@dataclass(frozen=True, slots=True)
class Forerunner:
    """A temporary slot; it goes with its connection, whatever happens."""

    connection: PGconn
    name: str

    def read_until(self, lsn: int) -> None:
        """Read the log up to there. Raises ServiceUnavailable."""
        query = f"select pg_replication_slot_advance('{self.name}', '{format_lsn(lsn)}')"
        _checked(self.connection.exec_(query.encode()), self.name)


@contextlib.contextmanager
def forerunner(source: SourceDatabase, patience: WaitLimits) -> Iterator[Forerunner]:
    """The temporary slot, once all transactions that are open now have ended. Raises ServiceUnavailable."""
    name = f"varve_begins_{uuid.uuid4().hex[:16]}"
    connection = source.connect_for_slot()
    try:
        _made(connection, f'CREATE_REPLICATION_SLOT "{name}" TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT', patience)
        try:
            yield Forerunner(connection, name)
        finally:
            # At once, and not when the server notices that we have gone: it has few places.
            connection.exec_(f'DROP_REPLICATION_SLOT "{name}"'.encode())
    finally:
        connection.finish()


@contextlib.contextmanager
def slot_with_snapshot(source: SourceDatabase, slot: str, patience: WaitLimits) -> Iterator[tuple[int, str]]:
    """Make a slot; the LSN from which it streams, and the name of the snapshot of exactly that moment.

    The snapshot can be taken up by other sessions until the context ends. Raises ServiceUnavailable.
    """
    connection = source.connect_for_slot()
    try:
        # Versions before 15 know only this way to write it, and newer ones know it still.
        made = _made(connection, f'CREATE_REPLICATION_SLOT "{slot}" LOGICAL pgoutput EXPORT_SNAPSHOT', patience)
        at, name = made.get_value(0, 1), made.get_value(0, 2)
        assert at is not None
        assert name is not None
        yield parse_lsn(at.decode()), name.decode()
    finally:
        connection.finish()


def _made(connection: PGconn, command: str, patience: WaitLimits) -> PGresult:
    """Run a command that waits for all transactions that are open at the source."""
    patience.start()
    connection.send_query(command.encode())
    while not _done(connection, _LOOK_SECONDS):
        if patience.over:
            error = patience.transactions_error(connection.backend_pid)
            # A backend that waits for a lock does not notice that its client has gone.
            connection.get_cancel().cancel()
            _drain(connection)
            raise error
        patience.mention_transactions(connection.backend_pid)
    made = connection.get_result()
    assert made is not None
    _drain(connection)
    return _checked(made, command.split('"')[1])


def _done(connection: PGconn, seconds: float) -> bool:
    """Whether an answer has come within so many seconds."""
    if connection.is_busy():
        select.select([connection.socket], [], [], seconds)
        connection.consume_input()
    return not connection.is_busy()


def _drain(connection: PGconn) -> None:
    """Wait until the server has ended the command, with all that it made for it."""
    deadline = time.monotonic() + _CANCEL_SECONDS
    while time.monotonic() < deadline:
        if _done(connection, _LOOK_SECONDS) and connection.get_result() is None:
            return


def _checked(result: PGresult, slot: str) -> PGresult:
    if result.status == pq.ExecStatus.TUPLES_OK:
        return result
    raise ServiceUnavailable(
        f"the source made no replication slot {slot}: {result.error_message.decode().strip()} Nothing was published to "
        "the lake. It needs wal_level = logical and, while a snapshot is begun, two free slots (max_replication_slots)."
    )
