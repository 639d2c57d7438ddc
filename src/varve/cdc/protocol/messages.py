"""The messages of `pgoutput` as values.

Source: PostgreSQL documentation, "Logical Replication Message Formats". Not here: decoding their bytes (pgoutput.py),
and making events of them (stream.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from varve.cdc.event import Text


@dataclass(frozen=True, slots=True)
class StreamedColumn:
    """A column of a Relation message; `key` says whether it is part of the replica identity (all are under FULL)."""

    name: str
    type_oid: int
    typmod: int
    key: bool


@dataclass(frozen=True, slots=True)
class RelationMessage:
    """`R`: the columns of a table from here on; sent before its first change in a session and after they change.

    Attributes:
        identity: the replica identity: `d`efault, `n`othing, `f`ull or `i`ndex.
    """

    oid: int
    namespace: str
    name: str
    identity: str
    columns: tuple[StreamedColumn, ...]
    xid: int | None = None

    @property
    def full_name(self) -> str:
        """`schema.table`."""
        return f"{self.namespace}.{self.name}"


@dataclass(frozen=True, slots=True)
class Begin:
    """`B`: a transaction begins; `final_lsn` is where its commit record begins."""

    final_lsn: int
    timestamp: str
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """`C`: a transaction is committed; `end_lsn` is where its commit record ends."""

    lsn: int
    end_lsn: int
    timestamp: str


@dataclass(frozen=True, slots=True)
class RowChange:
    """`I`, `U` or `D`. A column that was not sent (unchanged TOAST) is absent from `new`.

    Attributes:
        old: the key (`old_full` false) or the whole row before the change; None where the key did not change.
    """

    kind: str
    relation: RelationMessage
    new: dict[str, Text] | None
    old: dict[str, Text] | None
    old_full: bool
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    """`T`: these tables were emptied."""

    relations: tuple[RelationMessage, ...]
    cascade: bool
    restart_identity: bool
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Type:
    """`Y`: the name of a type that is not built in."""

    oid: int
    namespace: str
    name: str
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """`O`: the server from which a transaction came, in a chain of replicas."""

    lsn: int
    name: str


@dataclass(frozen=True, slots=True)
class Message:
    """`M`: a message that an application wrote by pg_logical_emit_message."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class StreamStart:
    """`S`: a block of a transaction in progress begins; `first` says whether it is the first block of it."""

    xid: int
    first: bool


@dataclass(frozen=True, slots=True)
class StreamStop:
    """`E`: a block of a transaction in progress ends."""


@dataclass(frozen=True, slots=True)
class StreamCommit:
    """`c`: a transaction that was streamed has committed."""

    xid: int
    lsn: int
    end_lsn: int
    timestamp: str


@dataclass(frozen=True, slots=True)
class StreamAbort:
    """`A`: a streamed transaction, or its subtransaction `subxid`, was rolled back."""

    xid: int
    subxid: int


Decoded: TypeAlias = (
    Begin | Commit | RelationMessage | Type | Origin | RowChange | Truncate | Message | StreamStart | StreamStop
    | StreamCommit | StreamAbort
)  # fmt: skip
