"""Messages of PostgreSQL's `pgoutput`, protocol version 1, thousands at once: one buffer, and arrays of places in it.

What is in every message (begin, commit, the table of a row) is read for all of them at once by NumPy; the few messages
that describe or truncate tables are read one by one.

Source: PostgreSQL documentation, "Logical Replication Message Formats". Not here: the rows in the messages
(row_images.py), and what becomes of them (varve/cdc/capture/slot_reader.py).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from varve.cdc.protocol.messages import RelationMessage, StreamedColumn
from varve.model.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

Integers: TypeAlias = "NDArray[np.int64]"
Mask: TypeAlias = "NDArray[np.bool_]"

BEGIN, COMMIT, RELATION, TRUNCATE, INSERT, UPDATE, DELETE = b"BCRTIUD"
_KINDS = b"BCRTIUDYOM"
# The bytes of the messages whose length is fixed.
_SIZES = {BEGIN: 21, COMMIT: 26}
# The longest number in a message, which may be read where the last message ends.
_MARGIN = 8


@dataclass(frozen=True)
class Messages:
    """Messages one behind the other in a buffer.

    Attributes:
        data: the buffer, which ends with a margin.
        starts: where in the buffer each message begins, in bytes.
        ends: where each ends.
    """

    data: bytes
    starts: Integers
    ends: Integers

    @classmethod
    def of(cls, messages: Sequence[bytes]) -> Messages:
        """The messages in their order. Raises BadInput where one of them has no kind that version 1 knows."""
        ends = np.cumsum(np.fromiter(map(len, messages), np.int64, len(messages)))
        together = cls(b"".join([*messages, bytes(_MARGIN)]), np.concatenate(([0], ends[:-1])), ends)
        together.refuse(together.starts == ends, "it is empty")
        together.refuse(~np.isin(together.kinds, np.frombuffer(_KINDS, np.uint8)), "unknown kind")
        for kind, size in _SIZES.items():
            together.refuse((together.kinds == kind) & (ends - together.starts != size), f"not {size} bytes")
        return together

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, place: slice | Integers) -> Messages:
        return Messages(self.data, self.starts[place], self.ends[place])

    @cached_property
    def kinds(self) -> NDArray[np.uint8]:
        """The first byte of each message."""
        return np.asarray(self.numbers("u1")[self.starts])

    def numbers(self, form: str) -> NDArray[Any]:
        """The numbers of this form that begin at each byte of the buffer; in network byte order."""
        dtype = np.dtype(form).newbyteorder(">")
        return np.ndarray((len(self.data) - dtype.itemsize + 1,), dtype, self.data, strides=(1,))

    def between_tables(self) -> Iterator[Messages]:
        """These messages in parts: each that describes or truncates tables by itself, and those between them."""
        alone = np.flatnonzero((self.kinds == RELATION) | (self.kinds == TRUNCATE))
        done = 0
        for place in alone.tolist():
            if place > done:
                yield self[done:place]
            yield self[place : place + 1]
            done = place + 1
        if done < len(self):
            yield self[done:]

    def refuse(self, is_bad: Mask, problem: str) -> None:
        """Raise BadInput that shows the first message of which `is_bad` is true."""
        if is_bad.any():
            first = int(np.argmax(is_bad))
            raise unreadable(self.data[self.starts[first] : self.ends[first]], problem)

    def relation(self) -> RelationMessage:
        """The first message, which is `R`."""
        return _Reader(self._first()).relation()

    def truncated(self) -> list[int]:
        """The OIDs of the tables that the first message, which is `T`, truncates."""
        return _Reader(self._first()).truncated()

    def _first(self) -> bytes:
        return self.data[self.starts[0] : self.ends[0]]


def unreadable(data: bytes, problem: str) -> BadInput:
    """The error for a message that cannot be read."""
    return BadInput(
        f"a pgoutput message {data[:1].decode('latin-1')!r} of {len(data)} bytes cannot be read ({problem}): "
        f"{data[:60]!r}. Nothing was captured beyond it. Is it protocol version 1?"
    )


class _Reader:
    """Reads the values of one message one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 1

    def relation(self) -> RelationMessage:
        try:
            (oid,) = self._numbers(">I")
            namespace, name = self._string(), self._string()
            identity, count = self._numbers(">cH")
            columns = []
            for _ in range(count):
                (flags,) = self._numbers(">B")
                column = self._string()
                type_oid, typmod = self._numbers(">Ii")
                columns.append(StreamedColumn(column, type_oid, typmod, bool(flags & 1)))
            return RelationMessage(oid, namespace or "pg_catalog", name, identity.decode(), tuple(columns))
        except (struct.error, ValueError) as error:
            raise unreadable(self._data, repr(error)) from error

    def truncated(self) -> list[int]:
        try:
            count, _ = self._numbers(">IB")
            return list(self._numbers(f">{count}I"))
        except struct.error as error:
            raise unreadable(self._data, repr(error)) from error

    def _numbers(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(form, self._data, self._offset)
        self._offset += struct.calcsize(form)
        return values

    def _string(self) -> str:
        end = self._data.index(b"\0", self._offset)
        text = self._data[self._offset : end].decode()
        self._offset = end + 1
        return text
