"""One read of a replication slot: its transactions are written into a batch in bounded memory.

A read may end early by its limit. PostgreSQL checks the limit after each record of its log, so that a transaction is
never split. But the log between the last transaction that arrived and the planned end has then not been read. It also
ends before the first transaction whose rows are of another table than was captured so far (varve/cdc/table_changes.py).

The messages are fetched some thousands at once and taken together (look.py).

Not here: how far the slot may then be advanced (capture.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.cdc.capture.look import Look
from varve.cdc.event import format_lsn
from varve.cdc.protocol.pgoutput import COMMIT, DELETE, INSERT, TRUNCATE, UPDATE, Messages

if TYPE_CHECKING:
    from collections.abc import Generator

    import psycopg

    from varve.cdc.capture.batch_writer import BatchWriter
    from varve.cdc.captured_table import CapturedTable
    from varve.cdc.table_changes import Fit

_PEEK = """
    select data from pg_logical_slot_peek_binary_changes(
        %s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', %s)
"""
# The server counts: nothing is fetched. Behind the kind of a message is the table of a row; a TRUNCATE has a list.
_COUNT = """
    with message as materialized (
        select lsn, xid, get_byte(data, 0) as kind, data from pg_logical_slot_peek_binary_changes(
            %(slot)s::text::name, null, null, 'proto_version', '1', 'publication_names', %(slot)s::text)
    )
    select count(*) from message
    where (kind = any (%(of_row)s) and substring(data from 2 for 4) = oidsend(%(oid)s::oid)
           or kind = %(truncate)s and position(oidsend(%(oid)s::oid) in substring(data from 7)) > 0)
      and xid in (select xid from message where kind = %(commit)s and lsn > %(done)s::pg_lsn)
"""
# How many messages are fetched at once: as many as probably have so many bytes together, as far as those before tell.
_FEWEST, _MOST, _BYTES = 100, 10_000, 4 * 2**20
# An offset into the buffer of some messages has 32 bits; no message of PostgreSQL is larger than half of that.
_BUFFER_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class SlotLook:
    """The result of one read of the slot.

    Attributes:
        last: the end of the last transaction after the durable ones, whichever tables it changed.
        whole_until: the LSN up to which everything committed has been read: the planned end or, where the limit ended
            the read, the end of the last transaction that arrived.
        cut: whether the limit ended the read.
        version: the version of the table in the last event.
        truncated_by: the transactions that truncated the table.
        refilled_by: those of them that then changed rows of it as well.
        last_at: when the last durable transaction committed, as far as it came again; "": it did not; None: the limit
            ended the read before it could.
        names_are_theirs: whether each column of the rows that came has a name by which the table is described.
        misfit: why the read ended before a transaction whose rows are of another table than was captured last; "": it
            did not.
    """

    last: int
    whole_until: int
    cut: bool
    version: int
    truncated_by: frozenset[int]
    refilled_by: frozenset[int]
    last_at: str | None
    names_are_theirs: bool
    misfit: str = ""


@dataclass
class SlotReader:
    """Reads the slot of one captured table.

    Attributes:
        limit: a read ends after about this many messages, at the end of a transaction; None: only at its planned end.
    """

    connection: psycopg.Connection
    captured: CapturedTable
    limit: int | None

    def look(self, writer: BatchWriter, fit: Fit, done: int, upto: int) -> SlotLook:
        """Write the transactions that end after `done` and before `upto`, before the first one that does not fit."""
        look, count = Look(writer, fit, done), 0
        fetched = self._peek(upto)
        for messages in fetched:
            count += len(messages)
            look.take(messages)
            if look.misfit:
                # A transaction is whole or not at all, whatever it did before its table was altered.
                writer.forget()
                fetched.close()
                break
        cut = not look.misfit and self.limit is not None and count >= self.limit
        # Everything up to `done` was read before. Where the limit ended the read before that, what comes next is to
        # show whether it comes again.
        is_behind = cut and 0 < look.ended < done
        stopped_at = look.ended if is_behind else max(look.ended, done)
        whole_until = stopped_at if cut or fit.stop or look.misfit else upto
        last_at = None if is_behind else look.last_at
        truncated_by, refilled_by = frozenset(look.truncated_by), frozenset(look.refilled_by)
        return SlotLook(
            look.last, whole_until, cut, look.version, truncated_by, refilled_by, last_at, look.names_are_theirs,
            look.misfit,
        )  # fmt: skip

    def _peek(self, upto: int) -> Generator[Messages]:
        # A server-side cursor, because one transaction may be larger than our memory.
        with self.connection.transaction(), self.connection.cursor("varve_cdc", binary=True) as cursor:
            cursor.execute(_PEEK, (self.captured.slot, format_lsn(upto), self.limit, self.captured.slot))
            count = _FEWEST
            while rows := cursor.fetchmany(count):
                messages = [data for (data,) in rows]
                size = sum(map(len, messages))
                count = max(_FEWEST, min(_MOST, 2 * count, _BYTES * len(rows) // size))
                for part in _in_buffers(messages, size):
                    yield Messages.of(part)


def changes_in_slot(connection: psycopg.Connection, slot: str, oid: int, done: int) -> int:
    """How many changes of the table with this OID a slot has in transactions that end after `done`."""
    values = {
        "slot": slot, "oid": oid, "done": format_lsn(done), "of_row": [INSERT, UPDATE, DELETE], "truncate": TRUNCATE,
        "commit": COMMIT,
    }  # fmt: skip
    row = connection.execute(_COUNT, values).fetchone()
    assert row is not None
    return int(row[0])


def _in_buffers(messages: list[bytes], size: int) -> Generator[list[bytes]]:
    """The messages, which have so many bytes together, in parts for each of which one buffer is enough."""
    if size <= _BUFFER_BYTES:
        yield messages
        return
    part: list[bytes] = []
    part_size = 0
    for message in messages:
        if part and part_size + len(message) > _BUFFER_BYTES:
            yield part
            part, part_size = [], 0
        part.append(message)
        part_size += len(message)
    yield part
