"""The edge cases of change data capture, a test for each, named by its case.

Cases of one table's shape are resolved together, each under a key of its own: a Spark job for each way to resolve.
"""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from varve.cdc.captured_table import NeedsResnapshot
from varve.cdc.event import ChangeEvent, ChangeType, Counts, event
from varve.cdc.protocol.order import by_timestamp, in_order
from varve.cdc.resolve.event_frame import event_frame
from varve.cdc.resolve.resolve import resolve
from varve.cdc.resolve.shape import NO_KEY, TableShape
from varve.model.errors import BadInput
from varve.model.schema import Column, ColumnType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = (
    Column("id", ColumnType.STRING),
    Column("name", ColumnType.STRING),
    Column("notes", ColumnType.STRING),
)
PEOPLE = TableShape("t.people", COLUMNS, ("id",))
UNKEYED = TableShape("t.people", COLUMNS, ())
NAMED = Column("case", ColumnType.STRING)
Row = tuple[object, ...]


@dataclass(frozen=True)
class Outcome:
    rows: list[Row]
    quarantined: list[tuple[int, str]]


@dataclass(frozen=True)
class Case:
    """What events make of a table: the rows, and the events (by LSN) that are quarantined, with their reasons."""

    base: list[Row]
    events: list[ChangeEvent]
    rows: list[Row]
    quarantined: tuple[tuple[int, str], ...] = ()


def resolved(
    spark: SparkSession,
    base: Sequence[Row],
    events: Sequence[ChangeEvent],
    shape: TableShape,
    counts: Counts | None = None,
) -> Outcome:
    ddl = ", ".join(f"`{column.name}` {column.type}" for column in shape.columns)
    lake = spark.createDataFrame(list(base), ddl)
    counts = counts or Counts.of(events, [shape.source(name) for name in shape.names])
    resolution = resolve(lake, event_frame(spark, events), shape, counts)
    table = resolution.replaced(lake).select(*shape.names).unionByName(resolution.after)
    held = [] if resolution.quarantined is None else resolution.quarantined.select("commitLsn", "reason").collect()
    rows = sorted((tuple(row) for row in table.collect()), key=repr)
    return Outcome(rows, sorted(tuple(row) for row in held))


@pytest.fixture
def run(spark: SparkSession) -> Callable[..., Outcome]:
    def run(base: Sequence[Row], events: Sequence[ChangeEvent], shape: TableShape = PEOPLE) -> Outcome:
        return resolved(spark, base, events, shape)

    return run


def together(
    spark: SparkSession, cases: Mapping[str, Case], shape: TableShape, counts: Counts | None, *, again: bool = False
) -> dict[str, Outcome]:
    """The outcome of each case, all resolved in one table; `again`: every event twice, the last one first."""
    apart = replace(shape, columns=(NAMED, *shape.columns), key=("case", *shape.key) if shape.key else ())
    place, base, events, named = 0, [], [], {}
    for name, case in cases.items():
        base += [(name, *row) for row in case.base]
        # Cases do not share transactions: the LSNs of each come after those of the one before.
        events += [_named(change, name, place, keyed=bool(shape.key)) for change in case.events]
        named |= {place + change.commit_lsn: (name, change.commit_lsn) for change in case.events}
        place += 1_000
    resolution = resolved(spark, base, events[::-1] * 2 if again else events, apart, counts)
    outcomes = {name: Outcome([], []) for name in cases}
    for name, *row in resolution.rows:
        outcomes[str(name)].rows.append(tuple(row))
    for lsn, reason in resolution.quarantined:
        name, own = named[lsn]
        outcomes[name].quarantined.append((own, reason))
    return outcomes


def _named(change: ChangeEvent, name: str, place: int, *, keyed: bool) -> ChangeEvent:
    def images(
        names: tuple[str, ...], values: tuple[str | None, ...]
    ) -> tuple[tuple[str, ...], tuple[str | None, ...]]:
        return (("case", *names), (name, *values)) if names else (names, values)

    new, old = images(change.column_names, change.column_values), images(change.old_names, change.old_values)
    key = images(change.old_key_names, change.old_key_values) if keyed else ((), ())
    return replace(
        change, commit_lsn=place + change.commit_lsn, column_names=new[0], column_values=new[1], old_names=old[0],
        old_values=old[1], old_key_names=key[0], old_key_values=key[1],
    )  # fmt: skip


def insert(lsn: int, seq: int = 1, **new: str | None) -> ChangeEvent:
    return event(ChangeType.INSERT, new=new, commit_lsn=lsn, seq=seq)


def update(lsn: int, old_id: str | None, seq: int = 1, **new: str | None) -> ChangeEvent:
    return event(ChangeType.UPDATE, new=new, old_key={"id": old_id}, commit_lsn=lsn, seq=seq)


def delete(lsn: int, old_id: str | None, seq: int = 1) -> ChangeEvent:
    return event(ChangeType.DELETE, old_key={"id": old_id}, commit_lsn=lsn, seq=seq)


def truncate(lsn: int, seq: int = 1) -> ChangeEvent:
    return event(ChangeType.TRUNCATE, commit_lsn=lsn, seq=seq)


def full(lsn: int, old: Mapping[str, str | None] | None, new: Mapping[str, str | None] | None) -> ChangeEvent:
    kind = ChangeType.INSERT if old is None else ChangeType.DELETE if new is None else ChangeType.UPDATE
    return event(kind, new=new, old=old, commit_lsn=lsn, seq=1)


def person(name: str, notes: str | None = "n") -> dict[str, str | None]:
    return {"name": name, "notes": notes}


A, B = ("A", "ann", "long a"), ("B", "bob", "long b")


KEYED = {
    "01 the same event twice is applied once": Case(
        [A, B], [update(1, "A", id="C", name="cy"), delete(2, "B")], [("C", "cy", "long a")]
    ),
    "02 events out of order are as sorted": Case(
        [A],
        [insert(1, id="C", **person("1")), update(2, "C", id="C", **person("2")), delete(3, "A"),
         insert(4, id="A", **person("4")), update(5, "A", id="D", name="5")],
        [("C", "2", "n"), ("D", "5", "n")],
    ),
    "04 of one timestamp the higher sequence wins": Case(
        [],
        [insert(1, 1, id="C", **person("1")), update(1, "C", 3, id="C", **person("3")),
         update(1, "C", 2, id="C", **person("2"))],
        [("C", "3", "n")],
    ),
    "06 an insert of an existing key replaces its row": Case([A], [insert(1, id="A", **person("new"))],
                                                             [("A", "new", "n")]),
    "06 a row that was inserted over another moves": Case(
        [A], [insert(1, id="A", **person("new")), update(2, "A", id="C", name="c")], [("C", "c", "n")]
    ),
    "07 an update of a missing key with its whole row is an insert": Case(
        [A], [update(1, "C", id="C", **person("c"))], [A, ("C", "c", "n")]
    ),
    "07 an update of a missing key with a part of its row is quarantined": Case(
        [A], [update(1, "C", id="C", name="c"), update(2, "A", id="A", name="a2")], [("A", "a2", "long a")],
        ((1, "nothing is known of notes"),),
    ),
    "08 a delete of a missing key does nothing": Case([A], [delete(1, "C")], [A]),
    "08 a delete of a missing key beside others does nothing": Case(
        [A], [delete(1, "C"), update(2, "A", id="A", name="a2")], [("A", "a2", "long a")]
    ),
    "09 delete then insert is the insert": Case(
        [A], [delete(1, "A"), insert(2, id="A", **person("again", None))], [("A", "again", None)]
    ),
    "10 insert then delete is nothing": Case([A], [insert(1, id="C", **person("c")), delete(2, "C")], [A]),
    "12 a changed key takes what was not sent along": Case([A], [update(1, "A", id="C", name="cy")],
                                                           [("C", "cy", "long a")]),
    "13 a chain of keys ends in the last with the values merged": Case(
        [A],
        [*[update(lsn, chr(64 + lsn), id=chr(65 + lsn), name=f"n{lsn}") for lsn in range(1, 12)],
         update(5, "F", 2, id="F", notes="five")],
        [("L", "n11", "five")],
    ),
    "14 a key that was left can be inserted again": Case(
        [A], [update(1, "A", id="C", name="cy"), insert(2, id="A", **person("second"))],
        [("A", "second", "n"), ("C", "cy", "long a")],
    ),
    "15 a move onto a living key is quarantined with what it is connected to": Case(
        [A, B],
        [update(1, "A", id="B", name="clash"), update(2, "B", id="D", name="on"), insert(3, id="E", **person("e"))],
        [A, B, ("E", "e", "n")],
        ((1, "its new key belongs to another row"), (2, "its new key belongs to another row")),
    ),
    "16 a swap leaves both rows with each other's keys": Case(
        [A, B], [update(1, "A", 1, id="T"), update(1, "B", 2, id="A"), update(1, "T", 3, id="B")],
        [("A", "bob", "long b"), ("B", "ann", "long a")],
    ),
    "17 a row that moved and was deleted is gone": Case([A, B], [update(1, "A", id="C"), delete(2, "C")], [B]),
    "18 a key that moved and came back is one row": Case(
        [A], [update(1, "A", id="B"), update(2, "B", id="A", name="back")], [("A", "back", "long a")]
    ),
    "20 a delete and an insert cannot carry what was not sent": Case(
        [A], [delete(1, "A", 1), insert(1, 2, id="C", name="c")], [], ((1, "nothing is known of notes"),)
    ),
    "21 an unchanged large value is kept": Case([A], [update(1, "A", id="A", name="a2")], [("A", "a2", "long a")]),
    "21 a large value that was changed before is kept": Case(
        [A], [update(1, "A", id="A", notes="new"), update(2, "A", id="A", name="a2")], [("A", "a2", "new")]
    ),
    "22 an explicit NULL is written": Case([A], [update(1, "A", id="A", notes=None)], [("A", "ann", None)]),
    "23 rows of a snapshot are older than the stream": Case(
        [],
        [update(20, "C", id="C", **person("stream")), insert(10, id="C", **person("snapshot")),
         insert(10, 2, id="D", **person("d"))],
        [("C", "stream", "n"), ("D", "d", "n")],
    ),
    "35 NULL in a key part equals NULL": Case(
        [A, (None, "nobody", "x")], [update(1, None, id=None, name="someone")], [A, (None, "someone", "x")]
    ),
    "35 a row whose key is NULL is deleted": Case([A, (None, "nobody", "x")], [delete(1, None)], [A]),
    "what was quarantined is decided by a later update": Case(
        [A], [update(1, "C", id="C", name="c"), update(2, "C", id="C", notes="now")], [A, ("C", "c", "now")]
    ),
    "what was quarantined is decided by a later delete": Case(
        [A], [update(1, "C", id="C", name="c"), delete(2, "C")], [A]
    ),
}  # fmt: skip


def simple(case: Case) -> bool:
    counts = Counts.of(case.events, PEOPLE.names)
    return not counts.masked and not counts.moves


# The general way decides every case, here with each event twice and the last one first; the simple one what it may.
WAYS = {"general": (True, None), "simple": (False, simple)}


@pytest.fixture(scope="module")
def outcomes(spark: SparkSession) -> dict[str, dict[str, Outcome]]:
    outcome_of_case = {}
    for way, (again, fits) in WAYS.items():
        cases = {name: case for name, case in KEYED.items() if fits is None or fits(case)}
        counts = Counts(masked=0 if fits else 1)
        outcome_of_case[way] = together(spark, cases, PEOPLE, counts, again=again)
    return outcome_of_case


def ways() -> Iterable[tuple[str, str]]:
    for name, case in KEYED.items():
        yield from ((name, way) for way, (_, fits) in WAYS.items() if fits is None or fits(case))


@pytest.mark.parametrize(("name", "way"), list(ways()))
def test_case(outcomes: dict[str, dict[str, Outcome]], name: str, way: str) -> None:
    case = KEYED[name]
    outcome = outcomes[way][name]
    assert (outcome.rows, set(outcome.quarantined)) == (case.rows, set(case.quarantined))


def test_01_two_different_events_at_one_place_are_refused() -> None:
    events = [update(1, "A", id="C", name="cy"), delete(2, "B")]
    assert in_order([*events, *events]) == events
    with pytest.raises(BadInput, match="two different events at LSN 1, sequence 1"):
        in_order([events[0], delete(1, "A")])


def test_05_one_key_at_one_instant_without_a_sequence_is_counted_or_refused() -> None:
    def at(kind: ChangeType, name: str) -> ChangeEvent:
        return event(kind, new={"id": "A", "name": name}, old_key={"id": "A"}, timestamp="2013-01-05T10:00:00Z")

    events = [at(ChangeType.UPDATE, "x"), at(ChangeType.UPDATE, "y")]
    ordered, ambiguous = by_timestamp(events)
    assert [change.new["name"] for change in ordered] == ["x", "y"]
    assert ambiguous == 2
    with pytest.raises(BadInput, match="2 events change one key at one instant"):
        by_timestamp(events, strict=True)


UNKEYED_ROW = dict(zip(("id", "name", "notes"), A, strict=True))
OTHER_ROW = dict(zip(("id", "name", "notes"), B, strict=True))
COUNTED = {
    "16 a deferred swap leaves both rows with each other's keys": Case(
        [A, B], [full(1, UNKEYED_ROW, {**UNKEYED_ROW, "id": "B"}), full(2, OTHER_ROW, {**OTHER_ROW, "id": "A"})],
        [("A", "bob", "long b"), ("B", "ann", "long a")],
    ),
    "33 without a key one matching row is deleted": Case([A, A, A, B], [full(1, UNKEYED_ROW, None)], [A, A, B]),
    "34 duplicates without a key are kept": Case(
        [A, A], [full(1, None, UNKEYED_ROW), full(2, None, UNKEYED_ROW)], [A, A, A, A]
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def counted(spark: SparkSession) -> dict[str, Outcome]:
    outcome = together(spark, COUNTED, UNKEYED, None)
    assert outcome == together(spark, COUNTED, UNKEYED, None, again=True)
    return outcome


@pytest.mark.parametrize("name", COUNTED)
def test_case_without_a_key(counted: dict[str, Outcome], name: str) -> None:
    assert counted[name] == Outcome(COUNTED[name].rows, [])


def test_33_without_a_key_a_row_that_is_not_there_cannot_be_deleted(run: Callable[..., Outcome]) -> None:
    with pytest.raises(NeedsResnapshot, match="take away 1 rows that the dataset does not have"):
        run([B], [full(1, UNKEYED_ROW, None)], UNKEYED)
    with pytest.raises(NeedsResnapshot, match="lack a column"):
        run([A], [delete(1, "A")], UNKEYED)


def test_a_key_that_is_not_sent_whole_is_quarantined(run: Callable[..., Outcome]) -> None:
    events = [event(ChangeType.UPDATE, new={"id": "A", "name": "x"}, commit_lsn=1, seq=1),
              event(ChangeType.INSERT, new={"name": "x"}, commit_lsn=2, seq=1)]  # fmt: skip
    assert run([A], events) == Outcome([A], [(1, NO_KEY), (2, NO_KEY)])


def test_22_null_updates_are_ignored_where_the_table_says_so(run: Callable[..., Outcome]) -> None:
    patient = replace(PEOPLE, ignore_null_updates=True)
    events = [update(1, "A", id="A", name="a2", notes=None), insert(2, id="C", **person("c", None))]
    assert run([A], events, patient).rows == [("A", "a2", "long a"), ("C", "c", None)]


def test_19_one_part_of_a_compound_key_changes(run: Callable[..., Outcome]) -> None:
    shape = TableShape("t.people", COLUMNS, ("id", "name"))
    move = event(ChangeType.UPDATE, new={"id": "A", "name": "zoe"}, old_key={"id": "A", "name": "ann"}, commit_lsn=1)
    assert run([A, B], [move], shape).rows == [("A", "zoe", "long a"), B]


def test_26_truncate_removes_all_before_it_and_keeps_all_after_it(run: Callable[..., Outcome]) -> None:
    events = [insert(1, id="C", **person("c")), truncate(2), insert(3, id="D", **person("d"))]
    assert run([A, B], events).rows == [("D", "d", "n")]
    assert run([A, B], [truncate(2)]).rows == []


def test_27_an_insert_before_the_truncate_of_its_transaction_is_removed(run: Callable[..., Outcome]) -> None:
    events = [insert(1, 1, id="C", **person("c")), truncate(1, 2), insert(1, 3, id="D", **person("d"))]
    assert run([A], events).rows == [("D", "d", "n")]


def test_36_values_are_compared_by_type_not_as_text(run: Callable[..., Outcome]) -> None:
    shape = TableShape(
        "t.typed",
        (Column("id", ColumnType.DOUBLE), Column("on", ColumnType.BOOLEAN), Column("at", ColumnType.TIMESTAMP)),
        ("id",),
    )
    base = [(1.5, True, None), (float("nan"), True, None)]
    events = [
        event(ChangeType.UPDATE, new={"id": "1.50", "on": "f", "at": "2013-01-05 10:00:00+01"},
              old_key={"id": "1.5e0"}, commit_lsn=1),
        event(ChangeType.DELETE, old_key={"id": "NaN"}, commit_lsn=2),
    ]  # fmt: skip
    ((key, on, at),) = run(base, events, shape).rows
    assert (key, on, at.timestamp()) == (1.5, False, 1357376400.0)  # type: ignore[attr-defined]
    endless = [event(ChangeType.UPDATE, new={"id": "1.5", "on": "t", "at": "infinity"}, old_key={"id": "1.5"},
                     commit_lsn=1)]  # fmt: skip
    outcome = run(base[:1], endless, shape)
    assert outcome == Outcome(base[:1], [(1, "no such value in the lake: at")])


def test_a_date_with_the_zone_that_debezium_writes_is_the_date(run: Callable[..., Outcome]) -> None:
    shape = TableShape("t.days", (Column("id", ColumnType.DATE), Column("day", ColumnType.DATE)), ("id",))
    first = dt.date(2013, 1, 5)
    events = [
        event(ChangeType.UPDATE, new={"id": "2013-01-05Z", "day": "2013-01-06Z"}, old_key={"id": "2013-01-05Z"},
              commit_lsn=1),
        event(ChangeType.INSERT, new={"id": "2014-01-01", "day": None}, commit_lsn=2),
        *[event(ChangeType.INSERT, new={"id": f"2015-01-0{lsn}Z", "day": text}, commit_lsn=lsn)
          for lsn, text in enumerate(("2013-02-30Z", "2013-01-06ZZ", "2013-01-06 BC", "15710"), 3)],
    ]  # fmt: skip
    outcome = run([(first, None)], events, shape)
    assert outcome.rows == [(first, dt.date(2013, 1, 6)), (dt.date(2014, 1, 1), None)]
    assert outcome.quarantined == [(lsn, "no such value in the lake: day") for lsn in (3, 4, 5, 6)]


@pytest.mark.parametrize("way", ["complete", "left out", "counted"])
def test_a_number_of_more_digits_than_its_decimal_is_no_value_of_it(run: Callable[..., Outcome], way: str) -> None:
    key = () if way == "counted" else ("id",)
    shape = TableShape(
        "t.prices",
        (Column("id", ColumnType.STRING), Column("price", ColumnType.decimal(10, 2)),
         Column("exact", ColumnType.decimal(38, 20))),
        key,
    )  # fmt: skip
    fit = {"1.23": "1.23", "-1.230": "-1.23", "+.5": "0.50", "7.": "7.00", "1.5E+3": "1500.00", "1.2300e0": "1.23",
           "100e-2": "1.00", "0E-10": "0.00", "-0.000": "0.00", " 1.10 ": "1.10",
           "87654321.9": "87654321.90"}  # fmt: skip
    unfit = ("1.239", "-0.001", "12345678901", "1.005E0", "1E-3", "1.5e-2", "x", "NaN", "1.00" + "0" * 40 + "1")

    def changes(texts: Iterable[str], first: int) -> list[ChangeEvent]:
        kept = {} if way == "left out" else {"exact": "0.00000000000000000001"}
        return [
            event(ChangeType.INSERT if way == "counted" else ChangeType.UPDATE, new={"id": text, "price": text, **kept},
                  old_key={} if way == "counted" else {"id": text}, commit_lsn=lsn, seq=1)
            for lsn, text in enumerate(texts, first)
        ]  # fmt: skip

    tiny = Decimal("0.00000000000000000001")
    base = [] if way == "counted" else [(text, Decimal(0), tiny) for text in (*fit, *unfit)]
    if way == "counted":
        with pytest.raises(NeedsResnapshot, match=f"{len(unfit)} events .* have a value that the lake cannot hold"):
            run(base, changes((*fit, *unfit), 1), shape)
        outcome = run(base, changes(fit, 1), shape)
        assert outcome.rows == sorted(((text, Decimal(value), tiny) for text, value in fit.items()), key=repr)
        return
    outcome = run(base, changes((*fit, *unfit), 1), shape)
    assert {text: str(price) for text, price, _ in outcome.rows} == fit | dict.fromkeys(unfit, "0.00")
    reason = "no such value in the lake: price"
    assert outcome.quarantined == [(lsn, reason) for lsn in range(len(fit) + 1, len(fit) + len(unfit) + 1)]
    # One that has all the digits of Spark's decimals has no wider one to be compared with.
    smaller = event(ChangeType.UPDATE, new={"id": "1.23", "price": "1", "exact": "0.000000000000000000001"},
                    old_key={"id": "1.23"}, commit_lsn=1)  # fmt: skip
    assert run(base[:1], [smaller], shape).quarantined == [(1, "no such value in the lake: exact")]


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ"])
@pytest.mark.parametrize("history", [False, True])
def test_rows_whose_keys_differ_in_a_microsecond_are_two_rows(spark: SparkSession, kind: str, *, history: bool) -> None:
    columns = (Column("at", ColumnType(kind)), *COLUMNS[1:])
    shape = TableShape("t.moments", columns, ("at",), history=history)
    moments = [f"2020-01-01 00:00:00.00000{number}" for number in (1, 2, 3)]
    rows = ", ".join(f"(cast('{moment}' as {kind}), 'n', '{moment[-1]}')" for moment in moments)
    validity = "1l as valid_from_lsn, null::bigint as valid_to_lsn, timestamp_seconds(1) as valid_from"
    base = spark.sql(f"select {validity}, null::timestamp as valid_to, * from values {rows} as t (at, name, notes)")
    # The notes are not sent, as a large value is not that stays as it is; one row is given another key.
    events = [
        event(ChangeType.UPDATE, new={"at": moments[0], "name": "x"}, old_key={"at": moments[0]}, commit_lsn=2),
        event(ChangeType.UPDATE, new={"at": moments[1], "name": "y"}, old_key={"at": moments[1]}, commit_lsn=3),
        event(ChangeType.UPDATE, new={"at": "2021-01-01", "name": "z"}, old_key={"at": moments[2]}, commit_lsn=4),
    ]  # fmt: skip
    resolution = resolve(base, event_frame(spark, events), shape, Counts.of(events, [*shape.names]))
    table = resolution.replaced(base).select(*shape.stored).unionByName(resolution.after)
    table = table.where("valid_to_lsn is null") if history else table
    found = sorted(tuple(row) for row in table.selectExpr("string(at)", "name", "notes").collect())
    assert found == [(moments[0], "x", "1"), (moments[1], "y", "2"), ("2021-01-01 00:00:00", "z", "3")]
    assert resolution.quarantined is None


def _wide_row(key: int, text: str) -> dict[str, str | None]:
    return {"id": str(key), "it's": f"{text} said", "a\\b": None, **{f"c{n}": f"{text} {n}" for n in range(3, 60)}}


def _changed_order(row: Mapping[str, str | None], seed: int) -> dict[str, str | None]:
    return dict(random.Random(seed).sample(list(row.items()), len(row)))


@pytest.mark.parametrize("way", ["complete", "left out", "counted"])
def test_columns_of_a_wide_table_may_be_sent_in_any_order(spark: SparkSession, way: str) -> None:
    base = [_wide_row(key, "old") for key in range(8)]
    names, after, events = tuple(base[0]), [], []

    def changed(lsn: int, old: Mapping[str, str | None], new: Mapping[str, str | None] | None) -> None:
        kind = ChangeType.DELETE if new is None else ChangeType.UPDATE
        # Those of the first two rows are as most events are; the others are all different.
        sent = new if new is None or lsn <= 2 else _changed_order(new, lsn)
        image = {"old": _changed_order(old, -lsn)} if way == "counted" else {"old_key": {"id": old["id"]}}
        events.append(event(kind, new=sent, commit_lsn=lsn, seq=1, **image))

    for place, old in enumerate(base):
        new = _wide_row(place, f"new{place}")
        if way == "left out":
            new = {name: value for name, value in new.items() if name == "id" or random.Random(name).random() < 0.5}
        changed(place + 1, old, new)
        after.append(old | new)
    changed(20, after.pop(), None)
    after.append(_wide_row(9, "in"))
    # A name that is sent twice counts as it is sent first.
    twice = (*names, "c5"), (*after[-1].values(), "second")
    events.append(ChangeEvent(ChangeType.INSERT, "", *twice, commit_lsn=21))

    columns = tuple(Column(name, ColumnType.STRING) for name in names)
    shape = TableShape("t.wide", columns, () if way == "counted" else ("id",))
    found = resolved(spark, [tuple(row.values()) for row in base], events, shape)
    assert found == Outcome(sorted((tuple(row.values()) for row in after), key=repr), [])


def test_the_example_of_the_seed_gives_the_result_of_the_seed(run: Callable[..., Outcome]) -> None:
    names = ("id", "name")
    ordered, _ = by_timestamp([
        ChangeEvent(ChangeType.UPDATE, "1", names, ("id1", "Angela"), ("id",), ("id1",)),
        ChangeEvent(ChangeType.DELETE, "2", (), (), ("id",), ("id2",)),
        ChangeEvent(ChangeType.INSERT, "3", names, ("id2", "Carol")),
    ])  # fmt: skip
    customers = TableShape("t.customers", COLUMNS[:2], ("id",))
    assert run([("id1", "Alice"), ("id2", "Bob")], ordered, customers).rows == [("id1", "Angela"), ("id2", "Carol")]


def test_timestamps_are_numbers_not_text() -> None:
    late, early = (event(ChangeType.INSERT, new={"id": "A"}, timestamp=at) for at in ("10", "9"))
    assert [change.timestamp for change in by_timestamp([late, early])[0]] == ["9", "10"]
