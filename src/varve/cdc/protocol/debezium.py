"""Debezium's envelopes of a PostgreSQL table (JSON, with or without schema) as events.

Events are ordered by (LSN of the last commit before the transaction, place in the transaction). The LSN comes from
`source.sequence`, because the LSNs of records are not in the order of commits. The place is `transaction.total_order`
where the connector provides it, else the position among the lines, which must then contain whole transactions.

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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from varve.cdc.event import ChangeEvent, ChangeType, Text, event
from varve.cdc.protocol.json_lines import parse, text
from varve.model.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
_KINDS = {
    "c": ChangeType.INSERT, "r": ChangeType.INSERT, "u": ChangeType.UPDATE, "d": ChangeType.DELETE,
    "t": ChangeType.TRUNCATE,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Place:
    commit_lsn: int
    xid: int
    timestamp: str
    total_order: int | None = field(default=None, compare=False)


def read(
    lines: Iterable[str], *, relation: str, key: Sequence[str], others: Counter[str] | None = None
) -> Iterator[ChangeEvent]:
    """The events of one table; tombstones, messages and heartbeats are skipped.

    Changes of other tables are counted in `others`.

    Raises BadInput that names the line where it is no envelope, or has no order.
    """
    other_tables = Counter() if others is None else others
    transaction, seq = None, 0
    key_before_move: dict[str, Text] | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.strip() == "null":
            continue
        record = parse(line, number, "Debezium line")
        headers = record.get("headers") or {}
        value = record.get("value") if "value" in record else record
        if value is None:
            continue
        value = value.get("payload", value)
        if value is None or value.get("op") == "m" or "source" not in value:
            continue
        if (operation := value.get("op")) not in _KINDS:
            raise BadInput(
                f"{relation}: Debezium line {number} has the unknown op {operation!r}. Nothing was taken from it on."
            )
        source = value["source"]
        if (table := f"{source.get('schema')}.{source.get('table')}") != relation:
            other_tables[table] += 1
            continue
        place = _place(source, value.get("transaction"), relation, number)
        seq = seq + 1 if place == transaction else 1
        transaction = place
        if place.total_order is not None:
            seq = place.total_order
        before, after = _row(value.get("before")), _row(value.get("after"))
        kind = _KINDS[operation]
        if kind is ChangeType.DELETE and NEW_KEY in headers:
            key_before_move = {name: before.get(name, _row(record.get("key")).get(name)) for name in key}
            continue
        old_key = {name: before[name] if name in before else after.get(name) for name in key}
        if kind is ChangeType.INSERT:
            old_key = {}
            if key_before_move is not None and OLD_KEY in headers:
                kind, old_key = ChangeType.UPDATE, key_before_move
        key_before_move = None
        if kind is ChangeType.TRUNCATE:
            old_key = {}
        # `before` is the key alone unless the table is REPLICA IDENTITY FULL.
        full = operation in "ud" and not set(before) <= set(key)
        if full:
            after = (
                {**{name: old_value for name, old_value in before.items() if name not in after}, **after}
                if after
                else after
            )
        yield event(
            kind, new=after, old_key=old_key, old=before if full else None, timestamp=place.timestamp,
            relation=relation, commit_lsn=place.commit_lsn, seq=seq, xid=place.xid,
        )  # fmt: skip


def _row(image: dict[str, Any] | None) -> dict[str, Text]:
    """A row, without the columns whose values were not sent."""
    return {name: text(value) for name, value in (image or {}).items() if not _is_unavailable(value)}


def _is_unavailable(value: Any) -> bool:
    """Whether the value was not sent, as it is large and was not changed."""
    if isinstance(value, str):
        return value in _UNAVAILABLE_TEXTS
    return isinstance(value, list | dict) and value in _UNAVAILABLE_LISTS


def _place(source: dict[str, Any], transaction: dict[str, Any] | None, relation: str, number: int) -> _Place:
    sequence = source.get("sequence")
    try:
        # [LSN of the last commit before this transaction, LSN of the record]; the first is null right after a snapshot.
        last_commit_lsn, record_lsn = (
            json.loads(sequence or "") if sequence is None or isinstance(sequence, str) else sequence
        )
        commit_lsn = int(last_commit_lsn if last_commit_lsn is not None else record_lsn)
        moment = dt.datetime.fromtimestamp(int(source["ts_ms"]) / 1000, tz=dt.UTC)
    except (TypeError, ValueError, KeyError) as error:
        raise BadInput(
            f"{relation}: Debezium line {number} has no source.sequence or source.ts_ms ({source}), without which "
            "events have no order. Nothing was taken from it on. Use Debezium 1.5 or newer."
        ) from error
    order = (transaction or {}).get("total_order")
    total_order = None if order is None else int(order)
    return _Place(commit_lsn, int(source.get("txId") or 0), moment.isoformat(timespec="microseconds"), total_order)
