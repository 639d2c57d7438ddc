"""What `pgoutput` says about tables, as values.

Source: PostgreSQL documentation, "Logical Replication Message Formats". Not here: decoding their bytes (pgoutput.py),
and the rows themselves (row_images.py).
"""

from __future__ import annotations

from dataclasses import dataclass


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

    @property
    def full_name(self) -> str:
        """`schema.table`."""
        return f"{self.namespace}.{self.name}"
