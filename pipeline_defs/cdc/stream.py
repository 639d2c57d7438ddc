"""From decoded messages to the events of whole transactions, in commit order.

Only what has committed is yielded; savepoints that were rolled back are not. Events of a transaction in progress are
handed out as they come, so that a giant one need not fit into memory; their commit LSN is known at its `End` alone.

Not here: the bytes of messages (pgoutput.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pipeline_defs.cdc import messages
from pipeline_defs.cdc.event import ChangeEvent, ChangeType, event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_KINDS = {"I": ChangeType.INSERT, "U": ChangeType.UPDATE, "D": ChangeType.DELETE}


@dataclass(frozen=True, slots=True)
class Start:
    """A transaction begins; `lsn` is where its commit record begins."""

    xid: int
    lsn: int = 0


@dataclass(frozen=True, slots=True)
class End:
    """It has committed; the events since its `Start` have this commit LSN."""

    xid: int
    end_lsn: int
    timestamp: str


@dataclass(frozen=True, slots=True)
class Described:
    """The source describes a table, anew or for the first time in the session; what follows is written so."""

    relation: messages.Relation


Item: TypeAlias = Start | End | Described | ChangeEvent


class Stream:
    """Turns the messages of one session into events.

    Attributes:
        keys: the key of a table by `schema.table`; needed where the source marks every column as key (FULL).
    """

    def __init__(self, keys: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self._keys = dict(keys or {})
        self._xid = 0
        self._timestamp = ""
        self._seq = 0
        self._block: int | None = None
        # What transactions in progress have sent so far (protocol 2 with streaming).
        self._streamed: dict[int, list[messages.Decoded]] = {}

    def read(self, decoded: Iterable[messages.Decoded]) -> Iterator[Item]:
        """The items of the messages, in order."""
        for message in decoded:
            yield from self._take(message)

    def _take(self, message: messages.Decoded) -> Iterator[Item]:
        match message:
            case messages.StreamStart():
                self._block = message.xid
                self._streamed.setdefault(message.xid, [])
            case messages.StreamStop():
                self._block = None
            case messages.StreamAbort():
                self._abort(message)
            case messages.StreamCommit():
                yield from self._begin(message.xid, message.lsn, message.timestamp)
                for held in self._streamed.pop(message.xid, []):
                    yield from self._items(held)
                yield End(message.xid, message.end_lsn, message.timestamp)
            case _ if self._block is not None:
                self._streamed[self._block].append(message)
            case messages.Begin():
                yield from self._begin(message.xid, message.final_lsn, message.timestamp)
            case messages.Commit():
                yield End(self._xid, message.end_lsn, message.timestamp)
            case _:
                yield from self._items(message)

    def _begin(self, xid: int, lsn: int, timestamp: str) -> Iterator[Item]:
        self._xid, self._timestamp, self._seq = xid, timestamp, 0
        yield Start(xid, lsn)

    def _abort(self, message: messages.StreamAbort) -> None:
        if message.xid == message.subxid:
            self._streamed.pop(message.xid, None)
            return
        held = self._streamed.get(message.xid, [])
        self._streamed[message.xid] = [
            # A relation stays described even where the subtransaction that first needed it was rolled back.
            found for found in held if isinstance(found, messages.Relation) or _xid(found) != message.subxid
        ]  # fmt: skip

    def _items(self, message: messages.Decoded) -> Iterator[Item]:
        match message:
            case messages.Relation():
                yield Described(message)
            case messages.Change():
                yield self._event(message)
            case messages.Truncate():
                for relation in message.relations:
                    yield self._placed(ChangeType.TRUNCATE, relation)
            case _:
                # Types, origins and messages of the application change no row.
                return

    def _event(self, change: messages.Change) -> ChangeEvent:
        relation, new = change.relation, change.new or {}
        key = self._keys.get(relation.full_name)
        if key is None:
            full = relation.identity == "f"
            key = () if full else tuple(column.name for column in relation.columns if column.key)
        before = {} if change.kind == "I" else (change.old if change.old is not None else new)
        old_key = {name: before[name] for name in key if name in before}
        old = change.old if change.old_full else None
        return self._placed(_KINDS[change.kind], relation, new=new, old_key=old_key, old=old)

    def _placed(
        self,
        kind: ChangeType,
        relation: messages.Relation,
        new: Mapping[str, str | None] | None = None,
        old_key: Mapping[str, str | None] | None = None,
        old: Mapping[str, str | None] | None = None,
    ) -> ChangeEvent:
        self._seq += 1
        return event(
            kind, new=new, old_key=old_key, old=old, timestamp=self._timestamp, relation=relation.full_name,
            seq=self._seq, xid=self._xid,
        )  # fmt: skip


def _xid(message: messages.Decoded) -> int | None:
    return getattr(message, "xid", None)
