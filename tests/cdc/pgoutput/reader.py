"""A read of a slot one message at a time: what a look says, and the events that are committed in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.cdc.pgoutput.decoder import Decoder
from tests.cdc.pgoutput.stream import End, Start, Stream
from varve.cdc.capture.slot_reader import SlotLook
from varve.cdc.event import ChangeEvent, ChangeType, format_lsn
from varve.cdc.protocol.messages import RelationMessage

if TYPE_CHECKING:
    import psycopg

    from varve.cdc.table_changes import Fit

_PEEK = """
    select data from pg_logical_slot_peek_binary_changes(
        %s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', %s)
"""


@dataclass
class PlainReader:
    """Reads the slot of one captured table, one message after the other."""

    connection: psycopg.Connection
    fit: Fit
    limit: int | None

    def look(self, done: int, upto: int) -> tuple[SlotLook, list[ChangeEvent]]:
        """The look, and the events of the transactions that end after `done`, before the first that does not fit."""
        captured, table = self.fit.captured, self.fit.before
        names = frozenset(captured.source_columns)
        missing = {column.name: column.missing for column in self.fit.now.columns if column.since is not None}
        rows = self.connection.execute(
            _PEEK, (captured.slot, format_lsn(upto), self.limit, captured.slot), binary=True
        ).fetchall()
        decoder, stream = Decoder(), Stream({table.oid: table.key})
        sent: RelationMessage | None = None
        layout, version, last, ended, is_durable, misfit = table.layout, table.version, done, 0, False, ""
        truncated_by, truncates, refilled_by, refills = set[int](), set[int](), set[int](), set[int]()
        names_are_theirs, last_at, started_at = True, "", ""
        committed, in_progress = list[ChangeEvent](), list[ChangeEvent]()
        for item in stream.read(decoder.decode(data) for (data,) in rows):
            match item:
                case Start():
                    is_durable, started_at = item.lsn < done, item.timestamp
                case RelationMessage() if item.oid == table.oid:
                    sent = item
                case ChangeEvent() if is_durable and stream.oid == table.oid:
                    assert sent is not None
                    if item.change_type is not ChangeType.TRUNCATE:
                        names_are_theirs &= self.fit.names_are_theirs(sent)
                case ChangeEvent() if stream.oid == table.oid:
                    assert sent is not None
                    if misfit := self.fit.misfit(sent):
                        break
                    sent_layout = tuple((column.name, column.typmod) for column in sent.columns)
                    layout, version = sent_layout, version + (sent_layout != layout)
                    change = replace(item, schema_version=version)
                    if item.change_type is ChangeType.INSERT:
                        absent = sorted(names - {column.name for column in sent.columns})
                        change = replace(
                            change,
                            column_names=(*change.column_names, *absent),
                            column_values=(*change.column_values, *[missing.get(name) for name in absent]),
                        )
                    elif item.change_type is ChangeType.TRUNCATE:
                        truncates.add(item.xid)
                    if item.change_type is not ChangeType.TRUNCATE:
                        names_are_theirs &= self.fit.names_are_theirs(sent)
                        refills |= truncates & {item.xid}
                    in_progress.append(change)
                case End():
                    ended = item.end_lsn
                    last_at = started_at if ended == done else last_at
                    if not is_durable:
                        committed += [replace(change, commit_lsn=item.end_lsn) for change in in_progress]
                        in_progress = []
                        truncated_by |= truncates
                        refilled_by |= refills
                        last = max(last, item.end_lsn)
        cut = not misfit and self.limit is not None and len(rows) >= self.limit
        behind = cut and 0 < ended < done
        whole_until = (ended if behind else max(ended, done)) if cut or self.fit.stop or misfit else upto
        look = SlotLook(
            last, whole_until, cut, version, frozenset(truncated_by), frozenset(refilled_by),
            None if behind else last_at, names_are_theirs, misfit,
        )  # fmt: skip
        return look, committed
