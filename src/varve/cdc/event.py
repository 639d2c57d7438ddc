"""`ChangeEvent`: one change of one row, and its place in the order of changes (docs/decisions/0010-change-order.md).

Not here: where events come from (varve/cdc/protocol) and how they are applied (varve/cdc).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Text = str | None


class ChangeType(StrEnum):
    """The type of a change. Each row of a snapshot is an insert at the LSN of the snapshot."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    TRUNCATE = "truncate"


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """One change of one row; its total order is (commit_lsn, seq), never the timestamp.

    Values are texts in PostgreSQL's output format, None for NULL. A column that is absent from `column_names` is
    unchanged, not NULL: PostgreSQL does not send large values (TOAST) that an update did not change.

    Attributes:
        timestamp: when the transaction committed, ISO 8601 in UTC; all events of a transaction share it.
        column_names, column_values: the row after the change; empty for delete and truncate.
        old_key_names, old_key_values: the key before the change, for update and delete; empty without a key.
        relation: `schema.table` in the source.
        commit_lsn: where the commit of its transaction ends in the source's log.
        seq: its place among the row changes of the transaction.
        xid: the id of the transaction.
        old_names, old_values: the whole row before the change, where the source sends it (REPLICA IDENTITY FULL).
        schema_version: the version of the table's columns at that time.
    """

    change_type: ChangeType
    timestamp: str
    column_names: tuple[str, ...] = ()
    column_values: tuple[Text, ...] = ()
    old_key_names: tuple[str, ...] = ()
    old_key_values: tuple[Text, ...] = ()
    relation: str = ""
    commit_lsn: int = 0
    seq: int = 0
    xid: int = 0
    old_names: tuple[str, ...] = ()
    old_values: tuple[Text, ...] = ()
    schema_version: int = 1

    @property
    def order(self) -> tuple[int, int]:
        """Its place in the order of all events of the source: (commit LSN, sequence)."""
        return (self.commit_lsn, self.seq)

    @property
    def new(self) -> dict[str, Text]:
        """The row after the change, by column."""
        return dict(zip(self.column_names, self.column_values, strict=True))

    @property
    def old_key(self) -> dict[str, Text]:
        """The old key by column."""
        return dict(zip(self.old_key_names, self.old_key_values, strict=True))

    @property
    def old(self) -> dict[str, Text]:
        """The row before the change, by column; empty where the source does not send it."""
        return dict(zip(self.old_names, self.old_values, strict=True))

    @property
    def moves(self) -> bool:
        """Whether it is an update that changes the key of its row."""
        new = self.new
        return self.change_type is ChangeType.UPDATE and any(
            name in new and new[name] != value for name, value in self.old_key.items()
        )


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of events in a batch by type; the method to resolve the batch is chosen from it.

    Attributes:
        masked: inserts and updates that do not contain every column.
        moves: updates that change the key.
        imageless: updates and deletes without the whole old row.
    """

    events: int = 0
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    truncates: int = 0
    masked: int = 0
    moves: int = 0
    imageless: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    @classmethod
    def of(cls, events: Iterable[ChangeEvent], columns: Iterable[str]) -> Counts:
        """The counts of some events of a table with these columns."""
        all_columns, total = frozenset(columns), dict.fromkeys(cls.__slots__, 0)
        for event in events:
            total["events"] += 1
            total[f"{event.change_type}s"] += 1
            has_new = event.change_type in (ChangeType.INSERT, ChangeType.UPDATE)
            total["masked"] += has_new and not all_columns <= set(event.column_names)
            total["moves"] += event.moves
            has_old = event.change_type in (ChangeType.UPDATE, ChangeType.DELETE)
            total["imageless"] += has_old and not all_columns <= set(event.old_names)
        return cls(**total)


def event(
    change_type: ChangeType,
    *,
    new: Mapping[str, Text] | None = None,
    old_key: Mapping[str, Text] | None = None,
    old: Mapping[str, Text] | None = None,
    timestamp: str = "",
    relation: str = "",
    commit_lsn: int = 0,
    seq: int = 0,
    xid: int = 0,
    schema_version: int = 1,
) -> ChangeEvent:
    """The event with these rows and key, given by column."""
    new, old_key, old = new or {}, old_key or {}, old or {}
    return ChangeEvent(
        change_type, timestamp, tuple(new), tuple(new.values()), tuple(old_key), tuple(old_key.values()), relation,
        commit_lsn, seq, xid, tuple(old), tuple(old.values()), schema_version,
    )  # fmt: skip


def parse_lsn(text: str) -> int:
    """The number of an LSN such as `16/B374D848`. Raises ValueError."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def format_lsn(lsn: int) -> str:
    """An LSN as PostgreSQL writes it: `16/B374D848`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
