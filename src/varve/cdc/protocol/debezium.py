"""Debezium's envelopes of a PostgreSQL table (JSON, with or without schema) as events.

Events are ordered by (LSN of the last commit before the transaction, place in the transaction). The LSN comes from
`source.sequence`, because the LSNs of records are not in the order of commits; within a transaction they are. So the
place is `transaction.total_order` where the connector provides it, else the LSN of the record: a transaction may be cut
into files, and come from several partitions of a topic. Lines of one record are numbered in their order.

A changed key arrives as a delete and an insert. Where the record headers `__debezium.newkey` and `__debezium.oldkey`
are present, the two become one update again, so that the row keeps values that were not sent.

Not here: Kafka; a line is a record's value, or an object with `key`, `value` and `headers`.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import uuid
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from varve.cdc.event import ChangeEvent, ChangeType, Text, event
from varve.cdc.protocol.json_lines import parse, text, whole
from varve.model.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

# What Debezium writes for a large value that an update did not change: by the type of the column the placeholder, its
# bytes (in base64 or hexadecimal), a list of it or of the numbers of its bytes, or a map (docs.debezium.io, "toasted").
UNAVAILABLE = "__debezium_unavailable_value"
_BYTES = UNAVAILABLE.encode()
_UNAVAILABLE_TEXTS = frozenset({
    UNAVAILABLE, base64.b64encode(_BYTES).decode(), base64.urlsafe_b64encode(_BYTES).decode(), _BYTES.hex(),
    json.dumps({UNAVAILABLE: UNAVAILABLE}, separators=(",", ":")),
})  # fmt: skip
_UNAVAILABLE_LISTS: tuple[Any, ...] = (
    [UNAVAILABLE], [*_BYTES], {UNAVAILABLE: UNAVAILABLE},
    [str(uuid.UUID(bytes=hashlib.md5(_BYTES, usedforsecurity=False).digest(), version=3))],
)  # fmt: skip
NEW_KEY, OLD_KEY = "__debezium.newkey", "__debezium.oldkey"
_CONNECTOR = "postgresql"
_KINDS = {
    "c": ChangeType.INSERT, "r": ChangeType.INSERT, "u": ChangeType.UPDATE, "d": ChangeType.DELETE,
    "t": ChangeType.TRUNCATE,
}  # fmt: skip
# What an object has beside the value of a record, or its payload. Any other one is a row, of which each is a column.
_OF_RECORD = frozenset({"key", "value", "headers", "topic", "partition", "offset", "timestamp", "schema", "payload"})
_HEARTBEAT, _OF_TRANSACTION = {"ts_ms"}, {"status", "id", "event_count", "data_collections"}


# The places that a byte of the log has; records begin at each eighth at most. What a row became comes after its end.
_PLACES, _AFTER_END = 2**15, 2**12
_RECORD_BYTES = 8
_FARTHEST = 2**45
# The rows of the first snapshot, of which there may be any number, come before all changes at its LSN.
_OF_SNAPSHOT = -(2**61)


@dataclass(frozen=True, slots=True)
class _Place:
    """`is_first`: no commit came before it: what a first snapshot reads, and the first transaction after it."""

    commit_lsn: int
    record_lsn: int
    xid: int
    timestamp: str
    is_first: bool = False
    total_order: int | None = None
    seq: int = 0


@dataclass(frozen=True, slots=True)
class _Change:
    """What a record says of a row."""

    operation: str
    place: _Place
    before: dict[str, Text]
    after: dict[str, Text]
    key: dict[str, Text]
    headers: Collection[str]

    @property
    def first_seq(self) -> int:
        """The sequence number of the first line that its record, or the first snapshot, has made."""
        if self.operation == "r" and self.place.is_first:
            return _OF_SNAPSHOT
        of_record = (self.place.record_lsn - self.place.commit_lsn) * _PLACES
        return of_record + (_AFTER_END if self.operation in "cr" else 0)


@dataclass(slots=True)
class SnapshotEnd:
    """The place of the last row that a snapshot has read, (0, 0) before there is one; reading moves it on."""

    commit_lsn: int = 0
    seq: int = 0

    def placed(self, change: _Change) -> tuple[int, int]:
        """The commit LSN of a change, and the sequence number that the first line of its record has in these lines."""
        place, first_seq = change.place, change.first_seq
        if change.operation == "r":
            is_next = place.commit_lsn == self.commit_lsn and first_seq <= self.seq
            is_next &= place.is_first or self.seq < first_seq + _RECORD_BYTES * _PLACES
            return place.commit_lsn, self.seq + 1 if is_next else first_seq
        if place.is_first and place.commit_lsn < self.commit_lsn:
            # Written before the snapshot by a transaction that was committed after it, and is not in it.
            return self.commit_lsn, first_seq + (place.record_lsn - self.commit_lsn) * _PLACES
        return place.commit_lsn, first_seq


def read(
    lines: Iterable[str],
    *,
    relation: str,
    key: Sequence[str],
    others: Counter[str] | None = None,
    snapshot: SnapshotEnd | None = None,
) -> Iterator[ChangeEvent]:
    """The events of one table; tombstones, messages, heartbeats and the bounds of transactions are skipped.

    Changes of other tables are counted in `others`. `snapshot` is the last one in the lines before these, and
    afterwards in these.

    Raises BadInput that names the line where it is no envelope, is of another database, or has no order.
    """
    other_tables = Counter() if others is None else others
    snapshot = snapshot or SnapshotEnd()
    lines_of_records: Counter[tuple[int, int]] = Counter()
    # The delete by which a key was changed, until its insert comes.
    left_key: ChangeEvent | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.strip() == "null":
            continue
        record = parse(line, number, "Debezium line")
        try:
            change = _change(record, relation, key, other_tables)
        except (TypeError, ValueError) as error:
            raise BadInput(f"{relation}: Debezium line {number} {error}. Nothing was taken from it on.") from error
        if change is None:
            continue
        commit_lsn, first_seq = snapshot.placed(change)
        seq = first_seq + lines_of_records[commit_lsn, first_seq]
        lines_of_records[commit_lsn, first_seq] += 1
        if change.place.total_order is not None and commit_lsn == change.place.commit_lsn:
            seq = change.place.total_order
        if change.operation == "r":
            snapshot.commit_lsn, snapshot.seq = commit_lsn, seq
        changed = replace(change, place=replace(change.place, commit_lsn=commit_lsn, seq=seq))
        if change.operation in "cr" and OLD_KEY in change.headers and left_key is not None:
            yield _event(changed, relation, key, left_key)
            left_key = None
            continue
        if left_key is not None:
            yield left_key
        row_event = _event(changed, relation, key)
        left_key = row_event if change.operation == "d" and NEW_KEY in change.headers else None
        if left_key is None:
            yield row_event
    if left_key is not None:
        # Its insert is in another file: the row ends here, and begins there.
        yield left_key


def _event(change: _Change, relation: str, key: Sequence[str], left_key: ChangeEvent | None = None) -> ChangeEvent:
    """The event of a change; an insert is an update where `left_key` is the delete by which its key was changed."""
    kind, before, after, place = _KINDS[change.operation], change.before, change.after, change.place
    old_key = {name: before[name] if name in before else after.get(name) for name in key}
    if kind is ChangeType.DELETE and NEW_KEY in change.headers:
        old_key = {name: before.get(name, change.key.get(name)) for name in key}
    if kind in {ChangeType.INSERT, ChangeType.TRUNCATE}:
        old_key = {}
    if left_key is not None:
        kind, old_key = ChangeType.UPDATE, left_key.old_key
    # `before` is the key alone unless the table is REPLICA IDENTITY FULL.
    full = change.operation in "ud" and not set(before) <= set(key)
    if full and after:
        after = {**{name: old_value for name, old_value in before.items() if name not in after}, **after}
    return event(
        kind, new=after, old_key=old_key, old=before if full else None, timestamp=place.timestamp,
        relation=relation, commit_lsn=place.commit_lsn, seq=place.seq, xid=place.xid,
    )  # fmt: skip


def _change(record: dict[str, Any], relation: str, key: Sequence[str], other_tables: Counter[str]) -> _Change | None:
    """The change that a record tells of; None where it tells of none of this table. Raises TypeError or ValueError."""
    value = _inner(record, "value", key)
    value = None if value is None else _inner(_object(value, "value"), "payload", key)
    if value is None or _is_of_no_row(value := _object(value, "payload"), key):
        return None
    if "source" not in value:
        raise ValueError(
            f"has {', '.join(sorted(value))[:200]}, and neither op nor source: it is no envelope. The transform "
            "ExtractNewRecordState writes such rows, which do not say where in the order of commits their change is, "
            "nor of a TRUNCATE. Take it out of the connector, so that lines have before, after, op and source, or "
            "write plain events, ChangeFormat.EVENTS"
        )
    source = _object(value["source"], "source")
    if (connector := source.get("connector", _CONNECTOR)) != _CONNECTOR:
        raise ValueError(
            f"is of the connector {connector}, and only the order of PostgreSQL's log is known here (source.sequence). "
            "Write plain events of it, ChangeFormat.EVENTS, with a commitLsn that grows from commit to commit"
        )
    operation = value.get("op")
    if not isinstance(operation, str) or operation not in _KINDS:
        raise ValueError(f"has the unknown op {repr(operation)[:80]}")
    if (table := f"{source.get('schema')}.{source.get('table')}") != relation:
        other_tables[table] += 1
        return None
    headers = record.get("headers") or ()
    if not isinstance(headers, dict | list | tuple):
        raise TypeError(f"has headers that are none: {str(headers)[:80]!r}")
    record_key = record.get("key")
    return _Change(
        operation, _place(source, _object_or_none(value, "transaction")), _row(_object_or_none(value, "before")),
        _row(_object_or_none(value, "after")), _row(record_key) if isinstance(record_key, dict) else {}, headers,
    )  # fmt: skip


def _inner(fields: dict[str, Any], name: str, key: Sequence[str]) -> Any:
    """What an object holds under a name, None: it is a tombstone; the object itself where it holds nothing there.

    A row may have a column of that name which is NULL; then it has the columns of its key as well, which are not.
    """
    if name not in fields or fields[name] is not None:
        return fields.get(name, fields)
    is_row = all(fields.get(column) is not None for column in key) if key else not set(fields) <= _OF_RECORD
    return fields if is_row and not isinstance(fields.get("key"), dict) else None


def _is_of_no_row(value: dict[str, Any], key: Sequence[str]) -> bool:
    """Whether a value is a heartbeat, a message of an application, a bound of a transaction, or nothing at all."""
    if value.get("op") == "m" and "message" in value:
        return True
    names = set(value)
    return (
        not names
        or (names == _HEARTBEAT and key != ("ts_ms",))
        or (names >= _OF_TRANSACTION and names <= _OF_TRANSACTION | {"ts_ms"})
    )


def _object(value: Any, name: str) -> dict[str, Any]:
    """The object. Raises TypeError where a value is none."""
    if not isinstance(value, dict):
        raise TypeError(f"has {str(value)[:80]!r} as its {name}, which is no object")
    return value


def _object_or_none(fields: dict[str, Any], name: str) -> dict[str, Any]:
    """The object of a field; an empty one where it is null or left out. Raises TypeError where it is no object."""
    return {} if fields.get(name) is None else _object(fields[name], name)


def _row(image: dict[str, Any]) -> dict[str, Text]:
    """A row, without the columns whose values were not sent. Raises ValueError."""
    return {name: text(value) for name, value in image.items() if not _is_unavailable(value)}


def _is_unavailable(value: Any) -> bool:
    """Whether the value was not sent, as it is large and was not changed."""
    if isinstance(value, str):
        return value in _UNAVAILABLE_TEXTS
    return isinstance(value, list | dict) and value in _UNAVAILABLE_LISTS


def _place(source: dict[str, Any], transaction: dict[str, Any]) -> _Place:
    """The place of a record in the order of changes. Raises ValueError where it has none."""
    sequence = source.get("sequence")
    try:
        # [LSN of the last commit before this transaction, LSN of the record]; the first is null right after a snapshot.
        last_commit_lsn, record_lsn = (
            json.loads(sequence or "") if sequence is None or isinstance(sequence, str) else sequence
        )
        record_lsn = whole(record_lsn, "source.sequence")
        commit_lsn = record_lsn if last_commit_lsn is None else whole(last_commit_lsn, "source.sequence")
        if abs(record_lsn - commit_lsn) >= _FARTHEST:
            raise ValueError("no transaction is as long")  # noqa: TRY301 - told below
        moment = dt.datetime.fromtimestamp(int(source["ts_ms"]) / 1000, tz=dt.UTC)
    except (TypeError, ValueError, KeyError, OverflowError, OSError, RecursionError) as error:
        raise ValueError(
            f"has no source.sequence or source.ts_ms ({str(source)[:400]}), without which events have no order. Use "
            "Debezium 1.5 or newer"
        ) from error
    order = transaction.get("total_order")
    total_order = None if order is None else whole(order, "transaction.total_order")
    xid = whole(source.get("txId") or 0, "source.txId")
    moment_text = moment.isoformat(timespec="microseconds")
    return _Place(commit_lsn, record_lsn, xid, moment_text, last_commit_lsn is None, total_order)
