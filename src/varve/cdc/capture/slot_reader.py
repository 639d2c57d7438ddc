"""One read of a replication slot: its transactions are written into a batch in bounded memory.

A read may end early by its limit. PostgreSQL checks the limit after each record of its log, so that a transaction is
never split. But the log between the last transaction that arrived and the planned end has then not been read. It also
ends before the first transaction whose rows are of another table than was captured so far (varve/cdc/table_changes.py).

Not here: how far the slot may then be advanced (capture.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from varve.cdc.event import ChangeEvent, ChangeType, format_lsn
from varve.cdc.protocol.pgoutput import Decoder
from varve.cdc.protocol.stream import DescribedRelation, End, Start, Stream

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    import psycopg

    from varve.cdc.capture.batch_writer import BatchWriter
    from varve.cdc.captured_table import CapturedTable
    from varve.cdc.protocol.messages import RelationMessage
    from varve.cdc.table_changes import Fit

_PEEK = """
    select data from pg_logical_slot_peek_binary_changes(
        %s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', %s)
"""
_ROWS_AT_ONCE = 5_000


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
        misfit: why the read ended before a transaction whose rows are of another table than was captured last; "": it
            did not.
    """

    last: int
    whole_until: int
    cut: bool
    version: int
    truncated_by: frozenset[int]
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
    _messages: int = 0

    def look(self, writer: BatchWriter, fit: Fit, done: int, upto: int) -> SlotLook:
        """Write the transactions that end after `done` and before `upto`, before the first one that does not fit."""
        table = fit.before
        decoder, stream = Decoder(), Stream({self.captured.source: table.key})
        names = frozenset(self.captured.source_columns)
        missing = {column.name: column.missing for column in fit.now.columns if column.since is not None}
        sent: RelationMessage | None = None
        layout, version, last, ended, is_durable = table.layout, table.version, done, 0, False
        truncated_by, truncates = set[int](), set[int]()
        misfit = ""
        self._messages = 0
        messages = self._peek(upto)
        for item in stream.read(decoder.decode(data) for data in messages):
            match item:
                case Start():
                    is_durable = item.lsn < done
                case DescribedRelation() if item.relation.full_name == self.captured.source:
                    sent = item.relation
                # Somebody may have added other tables to the publication.
                case ChangeEvent() if not is_durable and item.relation == self.captured.source:
                    if misfit := fit.misfit(sent) if sent else "":
                        # A transaction is whole or not at all, whatever it did before its table was altered.
                        writer.forget()
                        messages.close()
                        break
                    sent_layout = tuple((column.name, column.typmod) for column in sent.columns) if sent else layout
                    layout, version = sent_layout, version + (sent_layout != layout)
                    writer.add(replace(_completed(item, sent, names, missing), schema_version=version))
                    if item.change_type is ChangeType.TRUNCATE:
                        truncates.add(item.xid)
                case End():
                    ended = item.end_lsn
                    if not is_durable:
                        writer.commit(item.end_lsn)
                        truncated_by |= truncates
                        last = max(last, item.end_lsn)
        cut = not misfit and self.limit is not None and self._messages >= self.limit
        # Everything up to `done` was read before, whether it came again or not.
        whole_until = max(ended, done) if cut or fit.stop or misfit else upto
        return SlotLook(last, whole_until, cut, version, frozenset(truncated_by), misfit)

    def _peek(self, upto: int) -> Generator[bytes]:
        # A server-side cursor, because one transaction may be larger than our memory.
        with self.connection.transaction(), self.connection.cursor("varve_cdc", binary=True) as cursor:
            cursor.itersize = _ROWS_AT_ONCE
            cursor.execute(_PEEK, (self.captured.slot, format_lsn(upto), self.limit, self.captured.slot))
            for (data,) in cursor:
                self._messages += 1
                yield bytes(data)


def _completed(
    change: ChangeEvent, sent: RelationMessage | None, names: frozenset[str], missing: Mapping[str, str | None]
) -> ChangeEvent:
    """An inserted row has a value in every column: NULL, not unknown, where its table has lost the column.

    Where its table had not got the column yet, it is the value that the row was given then (`missing`).
    """
    if change.change_type is not ChangeType.INSERT or sent is None:
        return change
    absent = sorted(names - {column.name for column in sent.columns})
    return replace(
        change,
        column_names=(*change.column_names, *absent),
        column_values=(*change.column_values, *[missing.get(name) for name in absent]),
    )
