"""The edge cases of change data capture, a test for each, named by its case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from pipeline_defs.cdc.event import ChangeEvent, ChangeType, Counts, event
from pipeline_defs.cdc.order import by_timestamp, in_order
from pipeline_defs.cdc.table import NeedsResnapshot
from pipeline_defs.model.errors import BadInput
from pipeline_defs.model.schema import Column, ColumnType
from resources.cdc.frame import event_frame
from resources.cdc.resolve import Shape, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = (
    Column("id", ColumnType.STRING),
    Column("name", ColumnType.STRING),
    Column("notes", ColumnType.STRING),
)
PEOPLE = Shape("t.people", COLUMNS, ("id",))
UNKEYED = Shape("t.people", COLUMNS, ())
Row = tuple[object, ...]


@dataclass
class Outcome:
    rows: list[Row]
    quarantined: list[tuple[int, str]]


@pytest.fixture
def run(spark: SparkSession):  # type: ignore[no-untyped-def]
    def run(base: Sequence[Row], events: Sequence[ChangeEvent], shape: Shape = PEOPLE) -> Outcome:
        ddl = ", ".join(f"{column.name} {column.type}" for column in shape.columns)
        lake = spark.createDataFrame(list(base), ddl)
        counts = Counts.of(events, [shape.source(name) for name in shape.names])
        found = resolve(lake, event_frame(spark, events), shape, counts)
        table = found.replaced(lake).select(*shape.names).unionByName(found.after)
        held = [] if found.quarantined is None else found.quarantined.select("commitLsn", "reason").collect()
        rows = sorted((tuple(row) for row in table.collect()), key=repr)
        return Outcome(rows, sorted(tuple(row) for row in held))

    return run


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


def test_01_the_same_event_twice_is_applied_once(run) -> None:
    events = [update(1, "A", id="C", name="cy"), delete(2, "B")]
    once = run([A, B], events)
    assert run([A, B], [*events, *events]) == once == Outcome([("C", "cy", "long a")], [])
    assert in_order([*events, *events]) == events
    with pytest.raises(BadInput, match="two different events at LSN 1, sequence 1"):
        in_order([events[0], delete(1, "A")])


def test_02_events_out_of_order_are_as_sorted(run) -> None:
    events = [insert(1, id="C", **person("1")), update(2, "C", id="C", **person("2")), delete(3, "A"),
              insert(4, id="A", **person("4")), update(5, "A", id="D", name="5")]  # fmt: skip
    assert run([A], events).rows == run([A], events[::-1]).rows == [("C", "2", "n"), ("D", "5", "n")]


def test_04_of_one_timestamp_the_higher_sequence_wins(run) -> None:
    events = [insert(1, 1, id="C", **person("1")), update(1, "C", 3, id="C", **person("3")),
              update(1, "C", 2, id="C", **person("2"))]  # fmt: skip
    assert run([], events).rows == [("C", "3", "n")]


def test_05_one_key_at_one_instant_without_a_sequence_is_counted_or_refused() -> None:
    def at(kind: ChangeType, name: str) -> ChangeEvent:
        return event(kind, new={"id": "A", "name": name}, old_key={"id": "A"}, timestamp="2013-01-05T10:00:00Z")

    events = [at(ChangeType.UPDATE, "x"), at(ChangeType.UPDATE, "y")]
    ordered, ambiguous = by_timestamp(events)
    assert [found.new["name"] for found in ordered] == ["x", "y"]
    assert ambiguous == 2
    with pytest.raises(BadInput, match="2 events change one key at one instant"):
        by_timestamp(events, strict=True)


def test_06_an_insert_of_an_existing_key_replaces_its_row(run) -> None:
    assert run([A], [insert(1, id="A", **person("new"))]).rows == [("A", "new", "n")]
    moved = [insert(1, id="A", **person("new")), update(2, "A", id="C", name="c")]
    assert run([A], moved) == Outcome([("C", "c", "n")], [])


def test_07_an_update_of_a_missing_key_needs_its_whole_row(run) -> None:
    assert run([A], [update(1, "C", id="C", **person("c"))]).rows == [A, ("C", "c", "n")]
    found = run([A], [update(1, "C", id="C", name="c"), update(2, "A", id="A", name="a2")])
    assert found == Outcome([("A", "a2", "long a")], [(1, "nothing is known of notes")])


def test_08_a_delete_of_a_missing_key_does_nothing(run) -> None:
    assert run([A], [delete(1, "C")]) == Outcome([A], [])
    assert run([A], [delete(1, "C"), update(2, "A", id="A", name="a2")]) == Outcome([("A", "a2", "long a")], [])


def test_09_delete_then_insert_is_the_insert(run) -> None:
    assert run([A], [delete(1, "A"), insert(2, id="A", **person("again", None))]).rows == [("A", "again", None)]


def test_10_insert_then_delete_is_nothing(run) -> None:
    assert run([A], [insert(1, id="C", **person("c")), delete(2, "C")]).rows == [A]


def test_12_a_changed_key_takes_what_was_not_sent_along(run) -> None:
    assert run([A], [update(1, "A", id="C", name="cy")]) == Outcome([("C", "cy", "long a")], [])


def test_13_a_chain_of_keys_ends_in_the_last_with_the_values_merged(run) -> None:
    events = [update(lsn, chr(64 + lsn), id=chr(65 + lsn), name=f"n{lsn}") for lsn in range(1, 12)]
    events.insert(5, update(5, "F", 2, id="F", notes="five"))
    assert run([A], events) == Outcome([("L", "n11", "five")], [])


def test_14_a_key_that_was_left_can_be_inserted_again(run) -> None:
    events = [update(1, "A", id="C", name="cy"), insert(2, id="A", **person("second"))]
    assert run([A], events).rows == [("A", "second", "n"), ("C", "cy", "long a")]


def test_15_a_move_onto_a_living_key_is_quarantined_with_what_it_is_connected_to(run) -> None:
    events = [update(1, "A", id="B", name="clash"), update(2, "B", id="D", name="on"), insert(3, id="E", **person("e"))]
    found = run([A, B], events)
    assert found.rows == [A, B, ("E", "e", "n")]
    assert [lsn for lsn, _ in found.quarantined] == [1, 2]
    assert found.quarantined[0][1] == "its new key belongs to another row"


def test_16_a_swap_leaves_both_rows_with_each_others_keys(run) -> None:
    events = [update(1, "A", 1, id="T"), update(1, "B", 2, id="A"), update(1, "T", 3, id="B")]
    assert run([A, B], events) == Outcome([("A", "bob", "long b"), ("B", "ann", "long a")], [])
    a, b = dict(zip(("id", "name", "notes"), A, strict=True)), dict(zip(("id", "name", "notes"), B, strict=True))
    deferred = [full(1, a, {**a, "id": "B"}), full(2, b, {**b, "id": "A"})]
    assert run([A, B], deferred, UNKEYED).rows == [("A", "bob", "long b"), ("B", "ann", "long a")]


def test_17_a_row_that_moved_and_was_deleted_is_gone(run) -> None:
    assert run([A, B], [update(1, "A", id="C"), delete(2, "C")]).rows == [B]


def test_18_a_key_that_moved_and_came_back_is_one_row(run) -> None:
    assert run([A], [update(1, "A", id="B"), update(2, "B", id="A", name="back")]).rows == [("A", "back", "long a")]


def test_19_one_part_of_a_compound_key_changes(run) -> None:
    shape = Shape("t.people", COLUMNS, ("id", "name"))
    move = event(ChangeType.UPDATE, new={"id": "A", "name": "zoe"}, old_key={"id": "A", "name": "ann"}, commit_lsn=1)
    assert run([A, B], [move], shape).rows == [("A", "zoe", "long a"), B]


def test_20_a_delete_and_an_insert_cannot_carry_what_was_not_sent(run) -> None:
    found = run([A], [delete(1, "A", 1), insert(1, 2, id="C", name="c")])
    assert found == Outcome([], [(1, "nothing is known of notes")])


def test_21_an_unchanged_large_value_is_kept(run) -> None:
    assert run([A], [update(1, "A", id="A", name="a2")]).rows == [("A", "a2", "long a")]
    both = [update(1, "A", id="A", notes="new"), update(2, "A", id="A", name="a2")]
    assert run([A], both).rows == [("A", "a2", "new")]


def test_22_an_explicit_null_is_written(run) -> None:
    assert run([A], [update(1, "A", id="A", notes=None)]).rows == [("A", "ann", None)]


def test_23_rows_of_a_snapshot_are_older_than_the_stream(run) -> None:
    events = [update(20, "C", id="C", **person("stream")), insert(10, id="C", **person("snapshot")),
              insert(10, 2, id="D", **person("d"))]  # fmt: skip
    assert run([], events).rows == [("C", "stream", "n"), ("D", "d", "n")]


def test_26_truncate_removes_all_before_it_and_keeps_all_after_it(run) -> None:
    events = [insert(1, id="C", **person("c")), truncate(2), insert(3, id="D", **person("d"))]
    assert run([A, B], events).rows == [("D", "d", "n")]
    assert run([A, B], [truncate(2)]).rows == []


def test_27_an_insert_before_the_truncate_of_its_transaction_is_removed(run) -> None:
    events = [insert(1, 1, id="C", **person("c")), truncate(1, 2), insert(1, 3, id="D", **person("d"))]
    assert run([A], events).rows == [("D", "d", "n")]


def test_33_without_a_key_one_matching_row_is_deleted(run) -> None:
    row = dict(zip(("id", "name", "notes"), A, strict=True))
    assert run([A, A, A, B], [full(1, row, None)], UNKEYED).rows == [A, A, B]
    with pytest.raises(NeedsResnapshot, match="take away 1 rows that the dataset does not have"):
        run([B], [full(1, row, None)], UNKEYED)
    with pytest.raises(NeedsResnapshot, match="lack a column"):
        run([A], [delete(1, "A")], UNKEYED)


def test_34_duplicates_without_a_key_are_kept(run) -> None:
    row = dict(zip(("id", "name", "notes"), A, strict=True))
    assert run([A, A], [full(1, None, row), full(2, None, row)], UNKEYED).rows == [A, A, A, A]


def test_35_null_in_a_key_part_equals_null(run) -> None:
    nobody = (None, "nobody", "x")
    assert run([A, nobody], [update(1, None, id=None, name="someone")]).rows == [A, (None, "someone", "x")]
    assert run([A, nobody], [delete(1, None)]).rows == [A]


def test_36_values_are_compared_by_type_not_as_text(run) -> None:
    shape = Shape(
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
    found = run(base[:1], endless, shape)
    assert found == Outcome(base[:1], [(1, "no such value in the lake: at")])


def test_a_key_that_is_not_sent_whole_is_quarantined(run) -> None:
    for broken in (update(1, "A", name="x"), insert(1, name="x")):
        stray = event(broken.change_type, new=broken.new, commit_lsn=1, seq=1)
        assert run([A], [stray]).rows == [A]
        assert len(run([A], [stray]).quarantined) == 1


def test_what_was_quarantined_is_decided_by_what_comes_later(run) -> None:
    partial = update(1, "C", id="C", name="c")
    assert run([A], [partial]).quarantined == [(1, "nothing is known of notes")]
    assert run([A], [partial, update(2, "C", id="C", notes="now")]) == Outcome([A, ("C", "c", "now")], [])
    assert run([A], [partial, delete(2, "C")]) == Outcome([A], [])


def test_the_example_of_the_seed_gives_the_result_of_the_seed(run) -> None:
    names = ("id", "name")
    ordered, _ = by_timestamp([
        ChangeEvent(ChangeType.UPDATE, "1", names, ("id1", "Angela"), ("id",), ("id1",)),
        ChangeEvent(ChangeType.DELETE, "2", (), (), ("id",), ("id2",)),
        ChangeEvent(ChangeType.INSERT, "3", names, ("id2", "Carol")),
    ])  # fmt: skip
    customers = Shape("t.customers", COLUMNS[:2], ("id",))
    assert run([("id1", "Alice"), ("id2", "Bob")], ordered, customers).rows == [("id1", "Angela"), ("id2", "Carol")]


def test_timestamps_are_numbers_not_text() -> None:
    late, early = (event(ChangeType.INSERT, new={"id": "A"}, timestamp=at) for at in ("10", "9"))
    assert [found.timestamp for found in by_timestamp([late, early])[0]] == ["9", "10"]
