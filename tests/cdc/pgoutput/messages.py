"""The messages of `pgoutput` as values; those that describe tables are the product's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from varve.cdc.protocol.messages import RelationMessage

if TYPE_CHECKING:
    from varve.cdc.event import Text


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


@dataclass(frozen=True, slots=True)
class Truncate:
    """`T`: these tables were emptied."""

    relations: tuple[RelationMessage, ...]


@dataclass(frozen=True, slots=True)
class Other:
    """A message that changes no row: a type, an origin, a message of an application."""

    kind: str


Decoded: TypeAlias = Begin | Commit | RelationMessage | RowChange | Truncate | Other
