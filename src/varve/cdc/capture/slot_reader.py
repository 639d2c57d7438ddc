"""One look at a replication slot: the transactions that it has for us, written into a batch in bounded memory.

A look may be cut off by its limit. PostgreSQL checks the limit after each record of its log, so a transaction is never
cut, but what lies between the last one that came and where the look was to end has not been read.

Not here: how far the slot may then be advanced (capture.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from varve.cdc.event import ChangeEvent, ChangeType, format_lsn
from varve.cdc.protocol.pgoutput import Decoder
from varve.cdc.protocol.stream import DescribedRelation, End, Start, Stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from varve.cdc.capture.batch_writer import BatchWriter
    from varve.cdc.captured_table import CapturedTable, SourceTable
    from varve.cdc.protocol.messages import RelationMessage

_PEEK = """
    select data from pg_logical_slot_peek_binary_changes(
        %s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', %s)
"""
_ROWS_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True)
class SlotLook:
    """What one look at the slot has read.

    Attributes:
        last: the end of the last transaction beyond what was durable before, whoever's tables it changed.
        whole_until: everything that was committed up to here has been read: where the look was to end or, where its
            limit cut it off, the end of the last transaction that came.
        cut: whether the limit cut it off.
        version: of the table, in the last event.
        truncated_by: the transactions that truncated the table.
    """

    last: int
    whole_until: int
    cut: bool
    version: int
    truncated_by: frozenset[int]


@dataclass
class SlotReader:
    """Looks at the slot of one captured table.

    Attributes:
        limit: a look ends after about so many messages, at the end of a transaction; None: never before its end.
    """

    connection: psycopg.Connection
    captured: CapturedTable
    limit: int | None
    _messages: int = 0

    def look(self, writer: BatchWriter, table: SourceTable, done: int, upto: int) -> SlotLook:
        """Write the transactions that end after `done`; `table` is as it was captured last."""
        decoder, stream = Decoder(), Stream({self.captured.source: table.key})
        names = frozenset(self.captured.source_columns)
        sent: RelationMessage | None = None
        layout, version, last, ended, known = table.layout, table.version, done, 0, False
        truncated_by: set[int] = set()
        self._messages = 0
        for item in stream.read(decoder.decode(data) for data in self._peek(upto)):
            match item:
                case Start():
                    known = item.lsn < done
                case DescribedRelation() if item.relation.full_name == self.captured.source:
                    sent = item.relation
                # Somebody may have published other tables there too.
                case ChangeEvent() if not known and item.relation == self.captured.source:
                    found = tuple((column.name, column.typmod) for column in sent.columns) if sent else layout
                    layout, version = found, version + (found != layout)
                    writer.add(replace(_completed(item, sent, names), schema_version=version))
                    if item.change_type is ChangeType.TRUNCATE:
                        truncated_by.add(item.xid)
                case End():
                    ended = item.end_lsn
                    if not known:
                        writer.commit(item.end_lsn)
                        last = max(last, item.end_lsn)
        cut = self.limit is not None and self._messages >= self.limit
        # What is durable already was read whole once, whether or not it came again.
        return SlotLook(last, max(ended, done) if cut else upto, cut, version, frozenset(truncated_by))

    def _peek(self, upto: int) -> Iterator[bytes]:
        # A cursor at the server: one transaction may be larger than our memory.
        with self.connection.transaction(), self.connection.cursor("varve_cdc", binary=True) as cursor:
            cursor.itersize = _ROWS_AT_ONCE
            cursor.execute(_PEEK, (self.captured.slot, format_lsn(upto), self.limit, self.captured.slot))
            for (data,) in cursor:
                self._messages += 1
                yield bytes(data)


def _completed(found: ChangeEvent, sent: RelationMessage | None, names: frozenset[str]) -> ChangeEvent:
    """A new row lacks nothing: what its table has no column for any more is NULL in it, not unknown."""
    if found.change_type is not ChangeType.INSERT or sent is None:
        return found
    missing = sorted(names - {column.name for column in sent.columns})
    return replace(
        found,
        column_names=(*found.column_names, *missing),
        column_values=(*found.column_values, *[None] * len(missing)),
    )
