"""From decoded messages to events, in commit order; the commit LSN of events is known only at the `End`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tests.cdc.pgoutput import messages
from varve.cdc.event import ChangeEvent, ChangeType, event
from varve.cdc.protocol.messages import RelationMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_KINDS = {"I": ChangeType.INSERT, "U": ChangeType.UPDATE, "D": ChangeType.DELETE}


@dataclass(frozen=True, slots=True)
class Start:
    """A transaction begins; `lsn` is where its commit record begins, and `timestamp` when it commits."""

    xid: int
    lsn: int
    timestamp: str


@dataclass(frozen=True, slots=True)
class End:
    """A transaction has committed; the events since its `Start` have this commit LSN."""

    end_lsn: int


Item: TypeAlias = Start | End | RelationMessage | ChangeEvent


class Stream:
    """Turns the messages of one session into events.

    Attributes:
        keys: the key columns by `schema.table`, or by the OID of a table; needed where the source marks every column as
            key (FULL).
        oid: the table of the last event.
    """

    def __init__(self, keys: Mapping[str | int, tuple[str, ...]]) -> None:
        self._keys = dict(keys)
        self.oid = 0
        self._xid = 0
        self._timestamp = ""
        self._seq = 0

    def read(self, decoded: Iterable[messages.Decoded]) -> Iterator[Item]:
        """The items of the messages, in order."""
        for message in decoded:
            match message:
                case messages.Begin():
                    self._xid, self._timestamp, self._seq = message.xid, message.timestamp, 0
                    yield Start(message.xid, message.final_lsn, message.timestamp)
                case messages.Commit():
                    yield End(message.end_lsn)
                case RelationMessage():
                    yield message
                case messages.RowChange():
                    yield self._event(message)
                case messages.Truncate():
                    for relation in message.relations:
                        yield self._numbered_event(ChangeType.TRUNCATE, relation)

    def _event(self, change: messages.RowChange) -> ChangeEvent:
        relation, new = change.relation, change.new or {}
        key = self._keys.get(relation.oid, self._keys.get(relation.full_name, ()))
        before = {} if change.kind == "I" else (change.old if change.old is not None else new)
        old_key = {name: before[name] for name in key if name in before}
        old = change.old if change.old_full else None
        return self._numbered_event(_KINDS[change.kind], relation, new=new, old_key=old_key, old=old)

    def _numbered_event(
        self,
        kind: ChangeType,
        relation: RelationMessage,
        new: Mapping[str, str | None] | None = None,
        old_key: Mapping[str, str | None] | None = None,
        old: Mapping[str, str | None] | None = None,
    ) -> ChangeEvent:
        self._seq, self.oid = self._seq + 1, relation.oid
        return event(
            kind, new=new, old_key=old_key, old=old, timestamp=self._timestamp, relation=relation.full_name,
            seq=self._seq, xid=self._xid,
        )  # fmt: skip
