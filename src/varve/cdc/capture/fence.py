"""A fence: a snapshot of the source, and the LSN at which the source is exactly that snapshot.

A snapshot that a session takes by itself has no such LSN: a transaction whose commit is in the log already may not be
visible yet, and one whose commit is later in the log may be. Only the snapshot that PostgreSQL exports with a new
logical slot is exactly what was committed up to an LSN of the log. The slot is temporary, is dropped at once, and is
read by nobody; applications go on. Like a first snapshot it begins when every transaction that was open then has ended.

Not here: the capture up to it (capture.py, resnapshot.py), and the slot of a first snapshot (new_slot.py).
"""

from __future__ import annotations

import contextlib
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from psycopg import sql

from varve.cdc.capture import source_database
from varve.cdc.capture.capture import Moment
from varve.cdc.capture.new_slot import snapshot_at_lsn
from varve.cdc.capture.open_transactions import WaitLimits
from varve.model.errors import ServiceUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

    from varve.cdc.capture.source_database import SourceDatabase
    from varve.cdc.captured_table import CapturedTable

# How often a snapshot is tried again because the table was truncated or rewritten at that moment.
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Fence:
    """The open snapshot of the source: a connection within its transaction, its LSN, and the table at that LSN."""

    connection: psycopg.Connection
    moment: Moment


@contextlib.contextmanager
def fence(
    captured: CapturedTable, source: SourceDatabase, seconds: float, say: Callable[[str], None]
) -> Iterator[Fence]:
    """Open a snapshot with its LSN; it is held, with a lock that stops only TRUNCATE and rewrites, until the end.

    `seconds` is how long it waits for the transactions that are open, and `say` is called with whose they are. Raises
    ServiceUnavailable; NeedsResnapshot where the table is gone.
    """
    for _ in range(_TRIES):
        with contextlib.ExitStack() as stack, source_database.asked(captured):
            connection = stack.enter_context(closing(source.connect()))
            patience = WaitLimits(captured, connection, seconds, say)
            with snapshot_at_lsn(source, patience) as (lsn, snapshot):
                stack.enter_context(connection.transaction())
                connection.execute("set transaction isolation level repeatable read, read only")
                connection.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(snapshot)))
                table = source_database.described(connection, captured)
                patience.with_lock(table.oid, partial(source_database.hold_still, connection, captured.source))
            if source_database.lies_still(connection, table):
                yield Fence(connection, Moment(lsn, table))
                return
    raise ServiceUnavailable(
        f"{captured.dataset}: {captured.source} was truncated or rewritten each of the {_TRIES} times that a snapshot "
        "of it was begun. Nothing was changed. Run it again."
    )
