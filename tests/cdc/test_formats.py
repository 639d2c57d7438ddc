"""The same history in every format is the same events; what cannot be read is said by its line.

The embedded server has no wal2json: its lines, and Debezium's, are made here from the decoded stream, in the shapes
that both document.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.cdc.formats import KEY, as_debezium, as_events, as_wal2json, as_wal2json_v1, decoded
from tests.cdc.lab import DEFAULT, FULL, Application, Lab
from varve.cdc.event import ChangeType
from varve.cdc.protocol import change_events, debezium, wal2json
from varve.cdc.protocol.order import in_order
from varve.model.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from varve.cdc.event import ChangeEvent


@pytest.fixture(params=[DEFAULT, FULL])
def history(request: pytest.FixtureRequest, make_lab: Callable[..., Lab]) -> tuple[Lab, list[ChangeEvent]]:
    lab = make_lab(request.param)
    lab.bootstrap()
    sessions = [Application(lab, 0, seed, 150, truncates=True) for seed in (1, 2)]
    for session in sessions:
        session.start()
    for session in sessions:
        session.join(timeout=120)
    # Those of the sessions may all have been rolled back.
    lab.sql("truncate {t}")
    lab.sql("insert into {t} (w, id, big) values (7, 1, 'after it')")
    return lab, decoded(lab)


def test_wal2json_tells_the_same_history(history: tuple[Lab, list[ChangeEvent]]) -> None:
    lab, events = history
    lines = list(as_wal2json(lab.table, events))
    assert list(map(told, wal2json.read(lines, relation=lab.table, key=KEY))) == list(map(told, events))
    # 25: nothing of a transaction is taken before its commit.
    assert len(list(wal2json.read(lines[:-1], relation=lab.table, key=KEY))) < len(events)


def test_wal2json_of_version_1_tells_the_same_history_but_its_truncates(history: tuple[Lab, list[ChangeEvent]]) -> None:
    lab, events = history
    lines = list(as_wal2json_v1(lab.table, events))
    expected = [told_without_old_nulls(event) for event in events if event.change_type is not ChangeType.TRUNCATE]
    assert 0 < len(expected) < len(events)
    assert list(map(told_without_old_nulls, wal2json.read_v1(lines, relation=lab.table, key=KEY))) == expected


def told_without_old_nulls(event: ChangeEvent) -> tuple[Any, ...]:
    *others, old = told(event)
    return (*others, [(name, value) for name, value in old if value is not None])


def test_what_version_1_of_wal2json_leaves_out_of_an_old_row_is_null_where_there_is_no_key() -> None:
    def changes(key: tuple[str, ...], **changed: Any) -> dict[str, Any]:
        change = {"kind": "delete", "schema": "public", "table": "t", **changed}
        line = json.dumps({"nextlsn": "0/10", "timestamp": "2013-01-05", "change": [change]})
        (event,) = wal2json.read_v1([line], relation="public.t", key=key, columns=("id", "name"))
        return event.old

    old = {"keynames": ["id"], "keytypes": ["integer"], "keyvalues": [1]}
    assert changes((), oldkeys=old) == {"id": "1", "name": None}
    assert changes((), oldkeys={"keynames": [], "keytypes": [], "keyvalues": []}) == {"id": None, "name": None}
    # Nothing was sent of the row, or the key alone.
    assert changes(()) == changes(("id",), oldkeys=old) == {}


def test_plain_events_tell_the_same_history(history: tuple[Lab, list[ChangeEvent]]) -> None:
    lab, events = history
    lines = list(as_events(lab.table, events))
    assert list(map(told, change_events.read(lines, relation=lab.table, key=KEY))) == list(map(told, events))


def test_debezium_tells_the_same_history(history: tuple[Lab, list[ChangeEvent]]) -> None:
    lab, events = history
    lines = list(as_debezium(lab.table, events))
    assert list(map(told, debezium.read(lines, relation=lab.table, key=KEY))) == list(map(told, events))


def told(event: ChangeEvent) -> tuple[Any, ...]:
    """What an event says, but for its number in formats that count otherwise."""
    return (event.change_type, event.commit_lsn, sorted(event.new.items()), sorted(event.old_key.items()),
            sorted(event.old.items()))  # fmt: skip


def test_24_a_tombstone_and_25_a_message_change_nothing() -> None:
    lines = ["null", '{"key": {"id": 1}, "value": null}', '{"op": "m", "source": {}, "message": {}}', "{}"]
    assert list(debezium.read(lines, relation="public.t", key=("id",))) == []


NO_CHANGES = [
    {"ts_ms": 1},
    {"schema": {}, "payload": {"ts_ms": 1}},
    {"key": {"serverName": "shop"}, "value": {"ts_ms": 1}},
    {"status": "BEGIN", "id": "571:53", "ts_ms": 1, "event_count": None, "data_collections": None},
    {"status": "END", "id": "571:53", "event_count": 1, "data_collections": [{"data_collection": "public.t"}]},
    {"op": "m", "ts_ms": 1, "source": {}, "message": {"prefix": "p", "content": "aGk="}},
    {"value": None},
    {"key": None, "value": None, "offset": 5},
    {"key": {"id": 1}, "value": None, "headers": [], "kept_by": "a writer of files"},
    {"schema": None, "payload": None},
]


@pytest.mark.parametrize("key", [("id",), ("key",), ()], ids=str)
@pytest.mark.parametrize("record", NO_CHANGES, ids=str)
def test_what_debezium_sends_beside_changes_is_skipped(record: dict[str, Any], key: tuple[str, ...]) -> None:
    assert list(debezium.read([json.dumps(record)], relation="public.t", key=key)) == []


FLATTENED = [
    {"id": 1, "name": "bea"},
    {"id": 1, "name": "bea", "__op": "u", "__deleted": "false", "__source_ts_ms": 0, "__lsn": 10},
    {"id": 1, "name": None, "__deleted": "true"},
    {"id": 1, "value": None},
    {"id": 1, "payload": None},
    {"id": 1, "op": "m"},
    {"id": 1, "ts_ms": 1},
    {"key": {"id": 1}, "value": {"id": 1, "name": "bea"}},
    {"schema": {}, "payload": {"id": 1}},
]


@pytest.mark.parametrize("key", [("id",), ()], ids=str)
@pytest.mark.parametrize("row", FLATTENED, ids=str)
def test_a_flattened_row_is_refused_by_its_line(row: dict[str, Any], key: tuple[str, ...]) -> None:
    message = r"public\.t: Debezium line 2 has .*id.*, and neither op nor source.*ExtractNewRecordState.*EVENTS"
    with pytest.raises(BadInput, match=message):
        list(debezium.read([envelope(), json.dumps(row)], relation="public.t", key=key))


def test_columns_that_are_called_as_the_parts_of_a_record_are_columns() -> None:
    key, row = {"key": "a"}, {"key": "a", "value": None}
    lines = [envelope(after=row), json.dumps({"key": key, "value": json.loads(envelope(after=row))})]
    changes = list(debezium.read(lines, relation="public.t", key=("key",)))
    assert [change.new for change in changes] == [row, row]
    with pytest.raises(BadInput, match="line 1 has key, value, and neither op nor source"):
        list(debezium.read([json.dumps(row)], relation="public.t", key=("key",)))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1 is no JSON"),
        ("[1]", "no JSON object"),
        ('{"change": []}', "has no action.*format version 1"),
        ('{"action": "Z"}', "unknown action 'Z'"),
        ('{"action": "C"}', "has no nextlsn or timestamp"),
        (
            '{"action": "C", "nextlsn": null, "timestamp": "2026-11-01"}',
            "line 1 has the nextlsn None and the timestamp",
        ),
        ('{"action": "C", "nextlsn": "0/10", "timestamp": 5}', "line 1 has the nextlsn '0/10' and the timestamp 5"),
        ('{"action": "I", "schema": "public", "table": "t", "columns": [5]}', "line 1: .5. is no list of columns"),
        ('{"action": ["I"]}', "unknown action ..I.."),
        ('{"action": "C", "nextlsn": "FFFFFFFF/0", "timestamp": "2026-11-01"}', "has the nextlsn 'FFFFFFFF/0'"),
        ('{"action": "C", "nextlsn": "0/10", "timestamp": "2026-11-01", "xid": "a"}', "line 1 has the xid 'a'"),
        ('{"action": "M", "content": "\\ud800"}', "line 1 is no JSON .*surrogates not allowed"),
        pytest.param(f'{{"action": {"9" * 5_000}}}', "unknown action .9{79}\\. Nothing was taken", id="many digits"),
        pytest.param('{"action": ' + "[" * 100_000, "line 1 is no JSON .*recursion", id="deep"),
    ],
)
def test_what_is_no_wal2json_is_refused_by_its_line(line: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        list(wal2json.read([line], relation="public.t", key=("id",)))


def envelope(source: dict[str, Any] | None = None, **changed: Any) -> str:
    """A line of Debezium of which something is another way."""
    usual = {"connector": "postgresql", "schema": "public", "table": "t", "sequence": '["10", "20"]', "ts_ms": 0}
    return json.dumps({"op": "c", "before": None, "after": {"id": 1}, "source": {**usual, **(source or {})}, **changed})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "line 1 is no JSON"),
        ('{"op": "x", "source": {}}', "unknown op 'x'"),
        ('{"op": "c", "after": {}, "source": {"schema": "public", "table": "t"}}', "no source.sequence"),
        ('{"value": "abc"}', "line 1 has .* as its value, which is no object"),
        ('{"payload": [1]}', "line 1 has .* as its payload, which is no object"),
        ('{"op": "c", "source": "pg"}', "line 1 has .* as its source, which is no object"),
        ('{"op": ["c"], "source": {}}', "line 1 has the unknown op"),
        (envelope(before=[1]), "line 1 has .* as its before, which is no object"),
        (envelope(after="x"), "line 1 has .* as its after, which is no object"),
        (envelope(transaction="t1"), "line 1 has .* as its transaction, which is no object"),
        (envelope(transaction={"total_order": "x"}), "line 1 has the transaction.total_order 'x'"),
        (envelope(headers=5), "line 1 has headers that are none: '5'"),
        (envelope({"txId": "a"}), "line 1 has the source.txId 'a'"),
        (envelope({"txId": 2**63}), "line 1 has the source.txId '9223372036854775808'"),
        (envelope({"ts_ms": 10**30}), "line 1 has no source.sequence or source.ts_ms"),
        (envelope({"sequence": '["9223372036854775808", "1"]'}), "line 1 has no source.sequence"),
        (envelope({"sequence": [[]]}), "line 1 has no source.sequence"),
        (envelope({"sequence": '["1", "9223372036854775807"]'}), "line 1 has no source.sequence"),
    ],
)
def test_what_is_no_envelope_is_refused_by_its_line(line: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        list(debezium.read([line], relation="public.t", key=("id",)))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1 is no JSON"),
        ('{"action": "B"}', "has no list of changes.*format version 2"),
        ('{"change": [{"kind": "truncate"}]}', "unknown kind 'truncate'"),
        ('{"change": [{"kind": "delete", "schema": "public", "table": "t"}]}', "has no nextlsn or timestamp"),
        ('{"change": [5]}', "line 1 has a change of no form: 5"),
        ('{"change": [{"kind": "delete", "oldkeys": [1]}]}', "line 1 has a change of no form"),
        (
            '{"change": [{"kind": "insert", "schema": "public", "table": "t", "columnnames": ["id"]}]}',
            "has 1 columnnames, 0 columnvalues",
        ),
        (
            '{"change": [{"kind": "insert", "schema": "public", "table": "t", "columnnames": 5}]}',
            "line 1 has columnnames that are no list: 5",
        ),
        ('{"change": [{"kind": ["insert"]}]}', "unknown kind ..insert.."),
    ],
)
def test_what_is_no_wal2json_of_version_1_is_refused_by_its_line(line: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        list(wal2json.read_v1([line], relation="public.t", key=("id",)))


def test_a_bytea_of_wal2json_is_the_text_that_postgresql_writes() -> None:
    """wal2json leaves `\\x` out; only the type tells a bytea from a text."""
    columns = '[{"name":"id","type":"bytea","value":"00ff"},{"name":"n","type":"text","value":"00ff"}]'
    line = f'{{"action":"I","schema":"public","table":"t","columns":{columns}}}'
    end = '{"action":"C","nextlsn":"0/10","timestamp":"2013-01-05"}'
    (event,) = wal2json.read([line, end], relation="public.t", key=("id",))
    assert event.new == {"id": "\\x00ff", "n": "00ff"}
    change = (
        '{"kind":"insert","schema":"public","table":"t","columnnames":["id","n"],"columntypes":["bytea","text"],'
        '"columnvalues":["00ff","00ff"]}'
    )
    (event,) = wal2json.read_v1(
        [f'{{"nextlsn":"0/10","timestamp":"2013-01-05","change":[{change}]}}'], relation="public.t", key=("id",)
    )
    assert event.new == {"id": "\\x00ff", "n": "00ff"}


UPDATE = {
    "changeType": "update", "timestamp": "1", "columnNames": ["id", "name"], "columnValues": ["1", "a"],
    "oldKeyNames": ["id"], "oldKeyValues": ["1"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"changeType": "merge"}, "has the changeType 'merge': write insert, update, delete, truncate"),
        ({"changetype": "update"}, "has the unknown field 'changetype'"),
        ({"timestamp": None}, "has the timestamp None: write ISO 8601"),
        ({"timestamp": "yesterday"}, "has the timestamp 'yesterday'"),
        ({"timestamp": -1}, "has the timestamp -1"),
        ({"timestamp": "NaN"}, "has the timestamp 'NaN'"),
        ({"columnValues": ["1"]}, "has not as many columnValues as columnNames"),
        ({"columnNames": ["id", "id"]}, "names a column twice"),
        ({"columnNames": None, "columnValues": None}, "is an update without columnNames"),
        ({"oldKeyNames": None, "oldKeyValues": None}, "is of the old key nothing, and the key is id"),
        ({"oldKeyNames": ["name"]}, "is of the old key name, and the key is id"),
        ({"changeType": "insert", "columnNames": ["n", "name"]}, "is an insert without the key column id"),
        ({"commitLsn": "x"}, "has the commitLsn 'x'"),
        ({"commitLsn": ["0"]}, "has the commitLsn"),
        ({"columnNames": [["id"], "name"]}, "in columnNames, which is no name of a column"),
        ({"seq": "first"}, "has the seq 'first'"),
        ({"seq": 2**63}, "has the seq 9223372036854775808: write a whole number"),
        ({"xid": 2**63}, "has the xid 9223372036854775808"),
        ({"commitLsn": 2**63}, "has the commitLsn 9223372036854775808"),
        ({"commitLsn": "FFFFFFFF/0"}, "has the commitLsn 'FFFFFFFF/0'"),
        ({"timestamp": "1e999999"}, "has the timestamp '1e999999'"),
    ],
)
def test_what_is_no_event_is_refused_by_its_line(changed: dict[str, Any], message: str) -> None:
    lines = [json.dumps(UPDATE), json.dumps({**UPDATE, **changed})]
    with pytest.raises(BadInput, match=rf"public\.t: event line 2.* {message}"):
        list(change_events.read(lines, relation="public.t", key=("id",)))


@pytest.mark.parametrize(
    ("timestamp", "instant"),
    [
        (10, "1970-01-01T00:00:10.000000+00:00"),
        ("10.5", "1970-01-01T00:00:10.500000+00:00"),
        (1_793_527_200_000, "2026-11-01T10:00:00.000000+00:00"),
        (1_793_527_200_000_001, "2026-11-01T10:00:00.000001+00:00"),
        ("2026-11-01T10:00:00", "2026-11-01T10:00:00.000000+00:00"),
        ("2026-11-01T10:00:00+05:30", "2026-11-01T04:30:00.000000+00:00"),
    ],
)
def test_a_timestamp_is_an_instant_and_the_place_of_its_event(timestamp: object, instant: str) -> None:
    line = json.dumps({**UPDATE, "timestamp": timestamp})
    first, second = change_events.read([line, line], relation="public.t", key=("id",))
    assert first.timestamp == second.timestamp == instant
    assert first.commit_lsn == dt.datetime.fromisoformat(instant).timestamp() * 1_000_000
    assert second.order == (first.commit_lsn, 2)


def test_changes_of_other_tables_are_counted() -> None:
    others: Counter[str] = Counter()
    change = '{"action":"I","schema":"public","table":"s","columns":[]}'
    end = '{"action":"C","nextlsn":"0/10","timestamp":"2013-01-05"}'
    envelope = '{"op": "c", "after": {}, "source": {"schema": "public", "table": "s"}}'
    assert list(wal2json.read([change, end], relation="public.t", key=("id",), others=others)) == []
    assert list(debezium.read([envelope], relation="public.t", key=("id",), others=others)) == []
    of_v1 = '{"nextlsn":"0/10","timestamp":"2013-01-05","change":[{"kind":"delete","schema":"public","table":"s"}]}'
    assert list(wal2json.read_v1([of_v1], relation="public.t", key=("id",), others=others)) == []
    plain = json.dumps({**UPDATE, "relation": "public.s"})
    assert list(change_events.read([plain], relation="public.t", key=("id",), others=others)) == []
    assert others == {"public.s": 4}


@pytest.mark.parametrize(
    "source",
    [
        {"connector": "mysql", "db": "shop", "table": "t", "file": "mysql-bin.000003", "pos": 154, "row": 0},
        {"connector": "mongodb", "db": "inventory", "collection": "customers", "ord": 1},
        {"connector": "sqlserver", "db": "inventory", "schema": "public", "table": "t", "commit_lsn": "1:2:3"},
    ],
    ids=lambda source: source["connector"],
)
def test_an_envelope_of_another_database_is_refused_by_its_line(source: dict[str, Any]) -> None:
    line = json.dumps({"op": "c", "before": None, "after": {"id": 1}, "source": {**source, "ts_ms": 0}})
    message = rf"public\.t: Debezium line 1 is of the connector {source['connector']}.*EVENTS"
    with pytest.raises(BadInput, match=message):
        list(debezium.read([line], relation="public.t", key=("id",)))


def test_values_within_a_value_are_as_the_json_has_them() -> None:
    value = {"price": 9.99, "n": 3, "name": "été", "of": [1.50, "1.5", True, None, {"large": 1e300}]}
    written = json.dumps(value, ensure_ascii=False).replace("1.5,", "1.50,")
    columns = f'"columnNames": ["id", "attrs"], "columnValues": ["1", {written}]'
    (plain,) = change_events.read(
        [f'{{"changeType": "insert", "timestamp": 1, {columns}}}'], relation="public.t", key=("id",)
    )
    assert plain.new["attrs"] == written
    assert json.loads(written) == value
    (of_debezium,) = debezium.read(
        [envelope(after={"id": 1, "numbers": [1.5, 2.5], "words": ["é", "\U0001f600"]})],
        relation="public.t",
        key=("id",),
    )
    assert of_debezium.new == {"id": "1", "numbers": "[1.5, 2.5]", "words": '["é", "\U0001f600"]'}


def test_rows_that_a_snapshot_of_debezium_has_read_at_several_moments_are_one_after_the_other() -> None:
    # Of an incremental snapshot each row has the time at which it was sent; they come at the end of a transaction.
    lines = [
        envelope({"ts_ms": 1_000, "txId": 5}),
        *[envelope({"ts_ms": 2_000 + number, "txId": 6}, op="r", after={"id": number}) for number in (2, 3)],
        envelope({"sequence": '["30", "40"]', "ts_ms": 3_000, "txId": 7}, op="u", after={"id": 2}),
    ]
    events = list(debezium.read(lines, relation="public.t", key=("id",)))
    assert in_order(events) == events
    assert [event.commit_lsn for event in events] == [10, 10, 10, 30]


@pytest.mark.parametrize("numbered", [False, True])
def test_what_was_written_before_a_snapshot_of_debezium_and_committed_after_it_comes_after_its_rows(
    numbered: bool,  # noqa: FBT001
) -> None:
    lines = [
        *[envelope({"sequence": '[null, "100"]', "txId": 5}, op="r", after={"id": number}) for number in (1, 2)],
        # The first transaction has no commit before it either; at 90 it had begun, and at 110 it went on.
        *[
            envelope(
                {"sequence": f'[null, "{lsn}"]', "txId": 6},
                op="u",
                after={"id": number},
                transaction={"total_order": order} if numbered else None,
            )
            for order, (lsn, number) in enumerate(((90, 1), (95, 2), (110, 1)), 1)
        ],
        envelope({"sequence": '["120", "115"]', "txId": 7}, op="d", before={"id": 1}, after=None),
    ]
    events = list(debezium.read(lines, relation="public.t", key=("id",)))
    assert in_order(events) == events
    assert [event.commit_lsn for event in events] == [100, 100, 100, 100, 110, 120]


def test_a_change_of_debezium_has_its_place_in_whichever_lines_it_comes() -> None:
    lines = [
        *[envelope({"sequence": f'["10", "{lsn}"]'}, after={"id": lsn}) for lsn in (8, 16, 24)],
        envelope({"sequence": '["10", "32"]'}, op="d", before={"id": 8}, after=None),
        envelope({"sequence": '["10", "32"]'}, after={"id": 9}),
        *[envelope({"sequence": '["40", "48"]'}, after={"id": number}) for number in (50, 51)],
    ]
    together = list(debezium.read(lines, relation="public.t", key=("id",)))
    assert in_order(together) == together
    apart = [event for line in lines[:-2] for event in debezium.read([line], relation="public.t", key=("id",))]
    apart += debezium.read(lines[-2:], relation="public.t", key=("id",))
    assert apart == together


@pytest.mark.parametrize("sequence", ['[null, "100"]', '["100", "108"]'])
def test_a_snapshot_of_debezium_of_any_size_goes_on_in_the_next_lines_behind_what_came_before_and_before_changes(
    sequence: str,
) -> None:
    snapshot, lines = debezium.SnapshotEnd(), [envelope({"sequence": sequence}, op="r")] * 40_000
    parts = [
        [event.order for event in debezium.read(lines, relation="public.t", key=("id",), snapshot=snapshot)]
        for _ in range(3)
    ]
    assert parts[0] + parts[1] + parts[2] == sorted({*parts[0], *parts[1], *parts[2]})
    (change,) = debezium.read([envelope({"sequence": '["100", "116"]'})], relation="public.t", key=("id",))
    assert parts[2][-1] < change.order


def test_a_changed_key_of_debezium_whose_parts_are_in_two_files_ends_one_row_and_begins_another() -> None:
    gone = envelope(op="d", before={"id": 1}, after=None, headers={debezium.NEW_KEY: {"id": 2}})
    new = envelope(op="c", after={"id": 2}, headers={debezium.OLD_KEY: {"id": 1}})

    def read(*lines: str) -> list[tuple[str, dict[str, str | None], dict[str, str | None]]]:
        events = debezium.read(lines, relation="public.t", key=("id",))
        return [(event.change_type, event.old_key, event.new) for event in events]

    assert read(gone, "null", new) == [("update", {"id": "1"}, {"id": "2"})]
    assert read(gone, "null") == [("delete", {"id": "1"}, {})]
    assert read(new) == [("insert", {}, {"id": "2"})]
    # Nor is it lost before another change.
    assert read(gone, envelope(op="c", after={"id": 3})) == [("delete", {"id": "1"}, {}), ("insert", {}, {"id": "3"})]


def test_numbers_keep_their_text() -> None:
    columns = '[{"name":"id","value":12345678901234567890},{"name":"n","value":1.50},{"name":"b","value":true},'
    line = f'{{"action":"I","schema":"public","table":"t","columns":{columns}{{"name":"z","value":null}}]}}'
    end = '{"action":"C","nextlsn":"0/10","timestamp":"2013-01-05"}'
    (event,) = wal2json.read([line, end], relation="public.t", key=("id",))
    assert event.new == {"id": "12345678901234567890", "n": "1.50", "b": "t", "z": None}


def test_a_number_of_thousands_of_digits_is_one() -> None:
    digits = "-" + "7" * 5_000
    row = f'{{"changeType": "insert", "timestamp": 1, "columnNames": ["id", "n"], "columnValues": [1, {digits}]}}'
    (event,) = change_events.read([row], relation="public.t", key=("id",))
    assert event.new == {"id": "1", "n": digits}
    with pytest.raises(BadInput, match=r"event line 1 has the seq .*: write a whole number"):
        list(change_events.read([f'{row[:-1]}, "seq": {digits}}}'], relation="public.t", key=("id",)))


@pytest.mark.parametrize(
    "sent",
    [
        "__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
        "5f5f646562657a69756d5f756e617661696c61626c655f76616c7565", ["__debezium_unavailable_value"],
        [*b"__debezium_unavailable_value"], {"__debezium_unavailable_value": "__debezium_unavailable_value"},
    ],
)  # fmt: skip
def test_a_large_value_that_debezium_has_not_sent_is_none_whatever_its_type(sent: object) -> None:
    envelope = {
        "op": "u", "before": None, "after": {"id": 1, "name": "bea", "large": sent},
        "source": {"schema": "public", "table": "t", "sequence": '["10", "20"]', "ts_ms": 0, "txId": 5},
    }  # fmt: skip
    (change,) = debezium.read([json.dumps(envelope)], relation="public.t", key=("id",))
    assert change.new == {"id": "1", "name": "bea"}
