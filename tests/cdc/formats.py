"""One history in every format: as pgoutput tells it, and in the shapes that wal2json and Debezium document."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.cdc.pgoutput.decoder import Decoder
from tests.cdc.pgoutput.stream import End, Stream
from varve.cdc.event import ChangeEvent, ChangeType, format_lsn
from varve.cdc.protocol import debezium

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.cdc.lab import Lab

KEY = ("w", "id")


def decoded(lab: Lab) -> list[ChangeEvent]:
    """The history of the table by pgoutput, each transaction's events with its commit LSN."""
    with lab.source() as source:
        rows = source.execute(
            "select data from pg_logical_slot_peek_binary_changes("
            "    %s, null, null, 'proto_version', '1', 'publication_names', %s)",
            (lab.captured.slot, lab.captured.slot),
        ).fetchall()
    decoder, messages, held = Decoder(), [], []
    for item in Stream({lab.table: KEY}).read(decoder.decode(bytes(data)) for (data,) in rows):
        if isinstance(item, ChangeEvent):
            held.append(item)
        elif isinstance(item, End):
            messages += [replace(event, commit_lsn=item.end_lsn) for event in held]
            held = []
    return messages


def as_wal2json(relation: str, events: Sequence[ChangeEvent]) -> Iterator[str]:
    """Format version 2, with include-transaction, include-lsn, include-timestamp and include-xids."""
    schema, _, table = relation.partition(".")
    kinds = {ChangeType.INSERT: "I", ChangeType.UPDATE: "U", ChangeType.DELETE: "D", ChangeType.TRUNCATE: "T"}
    for lsn in sorted({event.commit_lsn for event in events}):
        mine = [event for event in events if event.commit_lsn == lsn]
        end = {"xid": mine[0].xid, "nextlsn": format_lsn(lsn), "timestamp": mine[0].timestamp}
        yield json.dumps({"action": "B", **end})
        for event in mine:
            line: dict[str, Any] = {"action": kinds[event.change_type], "schema": schema, "table": table}
            if event.column_names:
                line["columns"] = [{"name": name, "type": "text", "value": value} for name, value in event.new.items()]
            if identity := event.old or event.old_key:
                line["identity"] = [{"name": name, "type": "text", "value": value} for name, value in identity.items()]
            yield json.dumps(line)
        yield json.dumps({"action": "M", "transactional": False, "prefix": "p", "content": "c"})
        yield json.dumps({"action": "C", **end})


def as_wal2json_v1(relation: str, events: Sequence[ChangeEvent]) -> Iterator[str]:
    """Format version 1, with include-lsn, include-timestamp and include-xids.

    It leaves TRUNCATE out, and the NULLs of old rows.
    """
    schema, _, table = relation.partition(".")
    for lsn in sorted({event.commit_lsn for event in events}):
        mine = [event for event in events if event.commit_lsn == lsn]
        changes: list[dict[str, Any]] = [{"kind": "message", "transactional": False, "prefix": "p", "content": "c"}]
        for event in mine:
            if event.change_type is ChangeType.TRUNCATE:
                continue
            change: dict[str, Any] = {"kind": str(event.change_type), "schema": schema, "table": table}
            if event.column_names:
                change["columnnames"] = list(event.column_names)
                change["columntypes"] = ["text"] * len(event.column_names)
                change["columnvalues"] = list(event.column_values)
            if whole := event.old or event.old_key:
                identity = {name: value for name, value in whole.items() if value is not None}
                change["oldkeys"] = {
                    "keynames": list(identity), "keytypes": ["text"] * len(identity),
                    "keyvalues": list(identity.values()),
                }  # fmt: skip
            changes.append(change)
        end = {"xid": mine[0].xid, "nextlsn": format_lsn(lsn), "timestamp": mine[0].timestamp}
        yield json.dumps({**end, "change": changes})


def as_events(relation: str, events: Sequence[ChangeEvent]) -> Iterator[str]:
    """Plain events, with the places that the source has given them."""
    for event in events:
        yield json.dumps({
            "changeType": str(event.change_type), "timestamp": event.timestamp, "relation": relation,
            "columnNames": event.column_names or None, "columnValues": event.column_values or None,
            "oldKeyNames": event.old_key_names or None, "oldKeyValues": event.old_key_values or None,
            "oldNames": event.old_names, "oldValues": event.old_values, "commitLsn": format_lsn(event.commit_lsn),
            "seq": event.seq, "xid": event.xid,
        })  # fmt: skip


def record(source: dict[str, Any], op: str, before: Any, after: Any, **headers: Any) -> str:
    return json.dumps({"headers": headers, "value": {"op": op, "before": before, "after": after, "source": source}})


def as_debezium(relation: str, events: Sequence[ChangeEvent]) -> Iterator[str]:
    """Records with headers, keys that change as a delete, a tombstone and an insert."""
    schema, _, table = relation.partition(".")
    columns = ("w", "id", "note", "amount", "at", "flag", "x", "big")
    for event in events:
        source = {"schema": schema, "table": table, "ts_ms": 1_357_000_000_000, "txId": event.xid,
                  "sequence": json.dumps([str(event.commit_lsn), str(event.commit_lsn + event.seq)])}  # fmt: skip
        after = {name: event.new.get(name, debezium.UNAVAILABLE) for name in columns} if event.column_names else None
        before = event.old or (event.old_key if event.change_type is ChangeType.DELETE else None) or None

        if event.moves and not event.old:
            new_key = {name: event.new[name] for name in KEY}
            yield record(source, "d", event.old_key, None, **{debezium.NEW_KEY: new_key})
            yield "null"
            yield record(source, "c", None, after, **{debezium.OLD_KEY: event.old_key})
        else:
            op = {"insert": "c", "update": "u", "delete": "d", "truncate": "t"}[event.change_type]
            yield record(source, op, before, after)
