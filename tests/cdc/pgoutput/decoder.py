"""Decodes PostgreSQL's `pgoutput` messages, protocol version 1, from bytes to values.

Source: PostgreSQL documentation, "Logical Replication Message Formats".

Not here: the values (messages.py), and transactions and events (stream.py).
"""

from __future__ import annotations

import datetime as dt
import struct
from typing import TYPE_CHECKING

from tests.cdc.pgoutput.messages import Begin, Commit, Other, RowChange, Truncate
from varve.cdc.protocol.messages import RelationMessage, StreamedColumn
from varve.model.errors import BadInput

if TYPE_CHECKING:
    from tests.cdc.pgoutput.messages import Decoded
    from varve.cdc.event import Text

_EPOCH = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)


class Decoder:
    """Decodes the messages of one session in their order, as changes refer to relations that were described before."""

    def __init__(self) -> None:
        self._relations: dict[int, RelationMessage] = {}

    def decode(self, data: bytes) -> Decoded:
        """The message. Raises BadInput where the bytes are no message of protocol version 1."""
        reader = _Reader(data)
        kind = ""
        try:
            kind = reader.char()
            return self._decode(kind, reader)
        except (struct.error, IndexError, ValueError, KeyError) as error:
            raise BadInput(
                f"a pgoutput message {kind!r} of {len(data)} bytes cannot be read ({error!r}): {data[:60]!r}. "
                "Nothing was captured beyond it. Is it protocol version 1?"
            ) from error

    def _decode(self, kind: str, reader: _Reader) -> Decoded:
        match kind:
            case "B":
                return Begin(reader.int64(), reader.moment(), reader.int32())
            case "C":
                reader.int8()
                return Commit(reader.int64(), reader.int64(), reader.moment())
            case "R":
                return self._relation(reader)
            case "I" | "U" | "D":
                return self._change(kind, reader)
            case "T":
                count, _ = reader.int32(), reader.int8()
                return Truncate(tuple(self._relations[reader.int32()] for _ in range(count)))
            case "Y" | "O" | "M":
                return Other(kind)
            case _:
                raise ValueError("unknown kind")

    def _relation(self, reader: _Reader) -> RelationMessage:
        oid, namespace, name, identity = reader.int32(), reader.string(), reader.string(), reader.char()
        columns = []
        for _ in range(reader.int16()):
            flags, column = reader.int8(), reader.string()
            columns.append(StreamedColumn(column, reader.int32(), reader.signed32(), bool(flags & 1)))
        relation = RelationMessage(oid, namespace or "pg_catalog", name, identity, tuple(columns))
        self._relations[oid] = relation
        return relation

    def _change(self, kind: str, reader: _Reader) -> RowChange:
        relation = self._relations[reader.int32()]
        mark, old, new = reader.char(), None, None
        full = mark == "O"
        if mark in "KO":
            old = self._row(reader, relation)
            mark = reader.char() if kind == "U" else ""
        if mark == "N":
            new = self._row(reader, relation)
        if old is not None and not full:
            # Columns outside of the key are sent as NULL whatever their value is.
            old = {column.name: old[column.name] for column in relation.columns if column.key}
        if new is not None and old is not None and full:
            # Under FULL the old row contains the values that the new row leaves out because they are unchanged.
            new = {column.name: new[column.name] if column.name in new else old[column.name]
                   for column in relation.columns}  # fmt: skip
        return RowChange(kind, relation, new, old, full)

    @staticmethod
    def _row(reader: _Reader, relation: RelationMessage) -> dict[str, Text]:
        count = reader.int16()
        if count != len(relation.columns):
            raise ValueError(f"{count} columns, described {len(relation.columns)}")
        row: dict[str, Text] = {}
        for column in relation.columns:
            match reader.char():
                case "n":
                    row[column.name] = None
                case "t":
                    row[column.name] = reader.bytes(reader.int32()).decode()
                case "u":
                    continue
                case other:
                    raise ValueError(f"column {column.name} is sent as {other!r}; ask for text")
        return row


class _Reader:
    """Reads values in network byte order, one after the other."""

    __slots__ = ("_data", "_offset")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0

    def _unpack(self, form: str, size: int) -> int:
        (value,) = struct.unpack_from(form, self._data, self._offset)
        self._offset += size
        return int(value)

    def int8(self) -> int:
        return self._unpack(">B", 1)

    def int16(self) -> int:
        return self._unpack(">H", 2)

    def int32(self) -> int:
        return self._unpack(">I", 4)

    def signed32(self) -> int:
        return self._unpack(">i", 4)

    def int64(self) -> int:
        return self._unpack(">Q", 8)

    def char(self) -> str:
        return chr(self.int8())

    def moment(self) -> str:
        return (_EPOCH + dt.timedelta(microseconds=self._unpack(">q", 8))).isoformat(timespec="microseconds")

    def string(self) -> str:
        end = self._data.index(b"\0", self._offset)
        text = self._data[self._offset : end].decode()
        self._offset = end + 1
        return text

    def bytes(self, size: int) -> bytes:
        data = self._data[self._offset : self._offset + size]
        if len(data) != size:
            raise ValueError(f"{size} bytes announced, {len(data)} there")
        self._offset += size
        return data
