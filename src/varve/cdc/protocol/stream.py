"""From decoded messages to the events of whole transactions, in commit order.

Only committed changes are yielded, without savepoints that were rolled back. The events of a transaction are yielded
one by one, so that a giant transaction need not fit into memory; their commit LSN is known only at its `End`. Where the
source streams transactions before they commit (protocol 2), their messages wait in a file for the commit.

Not here: the bytes of messages (pgoutput.py).
"""

from __future__ import annotations

import pickle
import tempfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Self, TypeAlias

from varve.cdc.event import ChangeEvent, ChangeType, event
from varve.cdc.protocol import messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# How many messages of a transaction in progress are kept in memory; more are written to a file.
MESSAGES_IN_MEMORY = 10_000
_KINDS = {"I": ChangeType.INSERT, "U": ChangeType.UPDATE, "D": ChangeType.DELETE}


@dataclass(frozen=True, slots=True)
class Start:
    """A transaction begins; `lsn` is where its commit record begins."""

    xid: int
    lsn: int = 0


@dataclass(frozen=True, slots=True)
class End:
    """A transaction has committed; the events since its `Start` have this commit LSN."""

    xid: int
    end_lsn: int
    timestamp: str


@dataclass(frozen=True, slots=True)
class DescribedRelation:
    """The source describes the columns of a table; the changes that follow are written with these columns."""

    relation: messages.RelationMessage


Item: TypeAlias = Start | End | DescribedRelation | ChangeEvent


class Stream:
    """Turns the messages of one session into events.

    Attributes:
        keys: the key columns by `schema.table`; needed where the source marks every column as key (FULL).
    """

    def __init__(self, keys: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self._keys = dict(keys or {})
        self._xid = 0
        self._timestamp = ""
        self._seq = 0
        self._block: int | None = None
        # The messages of transactions in progress, by xid (protocol 2 with streaming).
        self._streamed: dict[int, _UncommittedMessages] = {}

    def read(self, decoded: Iterable[messages.Decoded]) -> Iterator[Item]:
        """The items of the messages, in order."""
        for message in decoded:
            yield from self._take(message)

    def _take(self, message: messages.Decoded) -> Iterator[Item]:
        match message:
            case messages.StreamStart():
                self._block = message.xid
                self._streamed.setdefault(message.xid, _UncommittedMessages())
            case messages.StreamStop():
                self._block = None
            case messages.StreamAbort():
                self._abort(message)
            case messages.StreamCommit():
                yield from self._begin(message.xid, message.lsn, message.timestamp)
                with self._streamed.pop(message.xid, _UncommittedMessages()) as uncommitted:
                    for committed_message in uncommitted.read():
                        yield from self._items(committed_message)
                yield End(message.xid, message.end_lsn, message.timestamp)
            case _ if self._block is not None:
                self._streamed[self._block].add(message)
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
        uncommitted = self._streamed.get(message.xid)
        if uncommitted is None:
            return
        if message.xid == message.subxid:
            self._streamed.pop(message.xid).close()
        else:
            uncommitted.forget(message.subxid)

    def _items(self, message: messages.Decoded) -> Iterator[Item]:
        match message:
            case messages.RelationMessage():
                yield DescribedRelation(message)
            case messages.RowChange():
                yield self._event(message)
            case messages.Truncate():
                for relation in message.relations:
                    yield self._numbered_event(ChangeType.TRUNCATE, relation)
            case _:
                # Types, origins and messages of the application change no row.
                return

    def _event(self, change: messages.RowChange) -> ChangeEvent:
        relation, new = change.relation, change.new or {}
        key = self._keys.get(relation.full_name)
        if key is None:
            full = relation.identity == "f"
            key = () if full else tuple(column.name for column in relation.columns if column.key)
        before = {} if change.kind == "I" else (change.old if change.old is not None else new)
        old_key = {name: before[name] for name in key if name in before}
        old = change.old if change.old_full else None
        return self._numbered_event(_KINDS[change.kind], relation, new=new, old_key=old_key, old=old)

    def _numbered_event(
        self,
        kind: ChangeType,
        relation: messages.RelationMessage,
        new: Mapping[str, str | None] | None = None,
        old_key: Mapping[str, str | None] | None = None,
        old: Mapping[str, str | None] | None = None,
    ) -> ChangeEvent:
        self._seq += 1
        return event(
            kind, new=new, old_key=old_key, old=old, timestamp=self._timestamp, relation=relation.full_name,
            seq=self._seq, xid=self._xid,
        )  # fmt: skip


class _UncommittedMessages:
    """The messages that a transaction in progress has sent so far."""

    def __init__(self) -> None:
        self._recent: list[messages.Decoded] = []
        self._file: IO[bytes] | None = None
        self._rolled_back: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, message: messages.Decoded) -> None:
        self._recent.append(message)
        if len(self._recent) >= MESSAGES_IN_MEMORY:
            self._file = self._file or tempfile.TemporaryFile()  # noqa: SIM115 - closed with the transaction
            # Pickled together, so that the description of a table is written once.
            pickle.dump(self._recent, self._file)
            self._recent = []

    def forget(self, subxid: int) -> None:
        """Leave out the messages of this subtransaction, which was rolled back."""
        self._rolled_back.add(subxid)

    def read(self) -> Iterator[messages.Decoded]:
        """The messages that were not rolled back, in order."""
        for message in self._all():
            # A relation stays described even where the subtransaction that first needed it was rolled back.
            if isinstance(message, messages.RelationMessage) or getattr(message, "xid", None) not in self._rolled_back:
                yield message

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _all(self) -> Iterator[messages.Decoded]:
        if self._file is not None:
            end = self._file.tell()
            self._file.seek(0)
            while self._file.tell() < end:
                yield from pickle.load(self._file)  # noqa: S301 - written above
        yield from self._recent
