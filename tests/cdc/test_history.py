"""History: every version of a row, true from one LSN to the next; late events in their place.

All cases are resolved together, each under a key of its own; what is current must always be what the state would be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from tests.cdc.lab import HISTORY, Application, Follower, Lab
from varve.cdc.captured_table import VALIDITY, CapturedTable, NeedsResnapshot, SourceRefused
from varve.cdc.event import ChangeEvent, ChangeType, Counts, event
from varve.cdc.resolve.event_frame import event_frame
from varve.cdc.resolve.resolve import resolve
from varve.cdc.resolve.shape import TableShape
from varve.model.errors import VarveError
from varve.model.schema import Column, ColumnType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

COLUMNS = tuple(Column(name, ColumnType.STRING) for name in ("case", "id", "name", "notes"))
SHAPE = TableShape("t.people", COLUMNS, ("case", "id"), history=True)
# id, name, notes, true from, true until
Version = tuple[str, str | None, str | None, int, int | None]


@dataclass(frozen=True)
class Case:
    stored: list[Version]
    events: list[ChangeEvent]
    versions: list[Version]
    quarantined: tuple[int, ...] = ()


def insert(lsn: int, key: str, name: str, seq: int = 1) -> ChangeEvent:
    return event(ChangeType.INSERT, new={"id": key, "name": name, "notes": "n"}, commit_lsn=lsn, seq=seq)


def update(lsn: int, key: str, seq: int = 1, **new: str | None) -> ChangeEvent:
    return event(ChangeType.UPDATE, new={"id": key, **new}, old_key={"id": key}, commit_lsn=lsn, seq=seq)


def delete(lsn: int, key: str, seq: int = 1) -> ChangeEvent:
    return event(ChangeType.DELETE, old_key={"id": key}, commit_lsn=lsn, seq=seq)


ANN: Version = ("A", "ann", "n", 10, None)
WAS: list[Version] = [("A", "ann", "n", 10, 20), ("A", "bea", "n", 20, 30)]
CASES = {
    "a change ends one version and begins the next": Case(
        [ANN], [update(20, "A", name="bea")], [("A", "ann", "n", 10, 20), ("A", "bea", "n", 20, None)]
    ),
    "a delete ends the last version": Case([ANN], [delete(20, "A")], [("A", "ann", "n", 10, 20)]),
    "what a transaction made and unmade was never true": Case(
        [ANN], [update(20, "A", name="bea"), update(20, "A", 2, name="cy"), insert(21, "B", "b"), delete(21, "B", 2)],
        [("A", "ann", "n", 10, 20), ("A", "cy", "n", 20, None)],
    ),
    "an update that changes nothing begins no version": Case([ANN], [update(20, "A", name="ann")], [ANN]),
    "a row that was deleted and inserted again has a gap": Case(
        WAS, [insert(40, "A", "cy")], [*WAS, ("A", "cy", "n", 40, None)]
    ),
    "a changed key ends a version here and begins one there": Case(
        [ANN], [event(ChangeType.UPDATE, new={"id": "B", "name": "bea"}, old_key={"id": "A"}, commit_lsn=20, seq=1)],
        [("A", "ann", "n", 10, 20), ("B", "bea", "n", 20, None)],
    ),
    "03 a late update finds its place and leaves the present alone": Case(
        [*WAS, ("A", "cy", "n", 30, None)], [update(25, "A", name="late")],
        [("A", "ann", "n", 10, 20), ("A", "bea", "n", 20, 25), ("A", "late", "n", 25, 30), ("A", "cy", "n", 30, None)],
    ),
    "03 a late update after all that is known is the present": Case(
        [ANN], [update(25, "A", name="late")], [("A", "ann", "n", 10, 25), ("A", "late", "n", 25, None)]
    ),
    "03 a late insert was true until what is known began": Case(
        [ANN], [insert(5, "A", "early")], [("A", "early", "n", 5, 10), ANN]
    ),
    "03 a late delete leaves a gap": Case(
        [*WAS, ("A", "cy", "n", 30, None)], [delete(25, "A")],
        [("A", "ann", "n", 10, 20), ("A", "bea", "n", 20, 25), ("A", "cy", "n", 30, None)],
    ),
    "11 a row that was deleted stays deleted when an older update arrives": Case(
        WAS, [update(25, "A", name="late")],
        [("A", "ann", "n", 10, 20), ("A", "bea", "n", 20, 25), ("A", "late", "n", 25, 30)],
    ),
    "01 events that are applied already change nothing": Case(
        [*WAS, ("A", "cy", "n", 40, None)],
        [insert(10, "A", "ann"), update(20, "A", name="bea"), delete(30, "A"), insert(40, "A", "cy")],
        [*WAS, ("A", "cy", "n", 40, None)],
    ),
    "02 events out of order are as sorted": Case(
        [], [delete(30, "A"), update(20, "A", name="bea"), insert(10, "A", "ann")], WAS
    ),
    "what is not known whole is quarantined": Case([ANN], [update(20, "C", name="c")], [ANN], (20,)),
    "what was not known whole for a while is left out": Case(
        [], [update(20, "C", name="c"), update(30, "C", notes="now")], [("C", "c", "now", 30, None)]
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(spark: SparkSession) -> dict[str, Case]:
    from pyspark.sql import functions as F  # noqa: N812

    ddl = "`case` string, id string, name string, notes string, valid_from_lsn bigint, valid_to_lsn bigint"
    base = spark.createDataFrame([(name, *row) for name, case in CASES.items() for row in case.stored], ddl)
    # Moments follow LSNs, so that both can be looked at by one.
    base = base.withColumns({f"valid_{side}": F.timestamp_seconds(f"valid_{side}_lsn") for side in ("from", "to")})
    events, named = [], {}
    for number, (name, case) in enumerate(CASES.items()):
        for change in case.events:
            new = {"case": name, **change.new} if change.new else {}
            at = f"1970-01-01T00:00:{change.commit_lsn:02}+00:00"
            # Cases do not share places: the sequence tells their events apart.
            seq = 100 * number + change.seq
            named[change.commit_lsn, seq] = name
            key = {"case": name, **change.old_key} if change.old_key else {}
            events.append(
                event(change.change_type, new=new, old_key=key, timestamp=at, commit_lsn=change.commit_lsn, seq=seq)
            )
    resolution = resolve(base, event_frame(spark, events[::-1]), SHAPE, Counts(masked=1))
    table = resolution.replaced(base).select(*SHAPE.stored).unionByName(resolution.after)
    assert table.where("valid_from <> timestamp_seconds(valid_from_lsn) or "
                       "not valid_to <=> timestamp_seconds(valid_to_lsn)").isEmpty()  # fmt: skip
    rows = [tuple(row)[:6] for row in table.collect()]
    held = [] if resolution.quarantined is None else resolution.quarantined.select("commitLsn", "seq").collect()
    return {
        name: Case([], [], sorted((row[1:] for row in rows if row[0] == name), key=lambda row: (row[0], row[3])),
                   tuple(row[0] for row in held if named[tuple(row)] == name))
        for name in CASES
    }  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_case(outcomes: dict[str, Case], name: str) -> None:
    outcome, wanted = outcomes[name], CASES[name]
    assert (outcome.versions, outcome.quarantined) == (wanted.versions, wanted.quarantined)


def test_a_truncate_ends_what_was_undecided_before_it_and_holds_nothing_up_behind_it(spark: SparkSession) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    ddl = "id string, name string, notes string, valid_from_lsn bigint, valid_to_lsn bigint"
    shape = replace(SHAPE, columns=COLUMNS[1:], key=("id",))

    def resolved(stored: list[Version], events: DataFrame) -> tuple[list[Version], DataFrame]:
        base = spark.createDataFrame(stored, ddl)
        base = base.withColumns({f"valid_{side}": F.timestamp_seconds(f"valid_{side}_lsn") for side in ("from", "to")})
        resolution = resolve(base, events, shape, Counts(events=9, masked=9, truncates=1))
        table = resolution.replaced(base).select(*shape.stored).unionByName(resolution.after)
        rows = sorted((tuple(row)[:5] for row in table.collect()), key=lambda row: (row[0], row[3]))
        return rows, resolution.quarantined or events.limit(0)

    def moved(lsn: int, old: str, new: str) -> ChangeEvent:
        return event(ChangeType.UPDATE, new={"id": new}, old_key={"id": old}, commit_lsn=lsn, seq=2)

    bob: Version = ("B", "bob", "n", 10, None)
    truncate = event(ChangeType.TRUNCATE, commit_lsn=20, seq=2)
    # A moves to the key of B, and both to others, before everything is truncated.
    first = [moved(15, "A", "B"), moved(17, "B", "C"), insert(18, "D", "dan"), truncate, insert(20, "A", "anew", 3)]
    known, aside = resolved([ANN, bob, ("E", "eve", "n", 30, None)], event_frame(spark, first))
    ended: list[Version] = [("A", "ann", "n", 10, 20), ("A", "anew", "n", 20, None), ("B", "bob", "n", 10, 20)]
    assert known == [*ended, ("D", "dan", "n", 18, 20), ("E", "eve", "n", 30, None)]
    assert sorted(row.commitLsn for row in aside.collect()) == [15, 17, 20]
    aside = aside.drop("reason")
    # It is tried again, and comes to the same; what comes now is not held up.
    more, again = resolved(known, aside.unionByName(event_frame(spark, [insert(40, "B", "bill")])))
    assert sorted(set(more) - set(known)) == [("B", "bill", "n", 40, None)]
    assert again.count() == 3
    # That B was deleted before comes late: now all is known, and C was truncated with the others.
    late, none = resolved(more, aside.unionByName(event_frame(spark, [delete(14, "B")])))
    assert late == [
        ("A", "ann", "n", 10, 15), ("A", "anew", "n", 20, None), ("B", "bob", "n", 10, 14), ("B", "ann", "n", 15, 17),
        ("B", "bill", "n", 40, None), ("C", "ann", "n", 17, 20), ("D", "dan", "n", 18, 20), ("E", "eve", "n", 30, None),
    ]  # fmt: skip
    assert none.isEmpty()


def versions(lab: Follower) -> list[tuple[object, ...]]:
    with lab.lake() as frame:
        chosen = frame.select("w", "id", "note", "valid_from_lsn", "valid_to_lsn", "valid_from", "valid_to")
        return [tuple(row) for row in chosen.collect()]


def test_at_every_moment_the_history_is_the_table_that_was(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(HISTORY)
    lab.bootstrap()
    tables: dict[int, list[tuple[object, ...]]] = {}
    for round_ in range(4):
        session = Application(lab, 0, round_, 60, truncates=round_ == 1)
        session.run()
        assert session.error is None
        with lab.source() as source:
            row = source.execute("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
            assert row is not None
            rows = source.execute(f"select w, id, note from {lab.table}").fetchall()
        tables[int(row[0])] = sorted(rows, key=repr)
        lab.capture()
        if round_ % 2:
            lab.apply()
    assert lab.in_lake("valid_to_lsn is null") == lab.in_source()
    versions_found = versions(lab)
    for lsn, rows in tables.items():
        then = [row[:3] for row in versions_found if row[3] <= lsn and (row[4] is None or row[4] > lsn)]  # type: ignore[operator]
        assert sorted(then, key=repr) == rows
    assert all(row[5] < row[6] for row in versions_found if row[6] is not None)  # type: ignore[operator]
    lab.bootstrap(resnapshot=True)
    lab.apply()
    # The same rows again begin no new versions.
    assert sorted(map(repr, versions(lab))) == sorted(map(repr, versions_found))


def test_what_is_in_quarantine_holds_up_no_row_that_was_inserted_after_a_truncate(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(HISTORY)
    lab.sql("insert into {t} (w, id, note) values (1, 1, 'one'), (1, 2, 'two')")
    lab.bootstrap()
    lab.apply()
    for change in (
        "update {t} set at = 'infinity', note = 'not known' where id = 1",
        "truncate {t}",
        "insert into {t} (w, id, note) values (1, 1, 'anew')",
        "update {t} set note = 'changed'",
    ):
        lab.sql(change)
        lab.capture()
        done = lab.apply()
        assert done is not None
        assert done.quarantined == 1
    assert lab.in_lake("valid_to_lsn is null") == lab.in_source()
    assert sorted(str(row[2]) for row in versions(lab)) == ["anew", "changed", "one", "two"]


def test_a_value_without_a_place_in_the_lake_holds_up_its_key_until_a_new_snapshot(
    make_lab: Callable[..., Lab],
) -> None:
    """The version that it made would be missing from the history without a word."""
    lab = make_lab(HISTORY)
    lab.sql("insert into {t} (w, id, note) values (1, 1, 'one'), (1, 2, 'two')")
    lab.bootstrap()
    lab.apply()
    for number, change in enumerate((
        "update {t} set at = 'infinity', note = 'endless' where id = 1",
        "update {t} set at = now(), note = 'whole' where id = 1",
    )):  # fmt: skip
        lab.sql(change)
        lab.capture()
        done = lab.apply()
        assert done is not None
        assert done.quarantined == number + 1
    assert sorted(str(row[2]) for row in versions(lab)) == ["one", "two"]
    assert lab.bootstrap(resnapshot=True, leave_out=True).generation == 2
    done = lab.apply()
    assert done is not None
    assert done.quarantined == 0
    assert lab.in_lake("valid_to_lsn is null") == lab.in_source()
    assert sorted(str(row[2]) for row in versions(lab)) == ["one", "two", "whole"]


def test_a_new_snapshot_loses_no_version_that_is_captured_and_not_applied(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(HISTORY)
    lab.sql("insert into {t} (w, id, note) values (1, 1, 'one')")
    lab.bootstrap()
    lab.apply()
    for note in ("two", "three"):
        lab.sql(f"update {{t}} set note = '{note}'")
    lab.capture()
    with pytest.raises(VarveError, match=r"2 events of its history are captured and not applied.*varve cdc capture"):
        lab.bootstrap(resnapshot=True)
    lab.apply()
    lab.bootstrap(resnapshot=True)
    lab.apply()
    assert sorted(str(row[2]) for row in versions(lab)) == ["one", "three", "two"]
    # Where they cannot be applied there is a way on, which has to be asked for.
    for note in ("four", "five"):
        lab.sql(f"update {{t}} set note = '{note}'")
    lab.capture()
    assert lab.bootstrap(resnapshot=True, leave_out=True).generation == 3
    lab.apply()
    assert sorted(str(row[2]) for row in versions(lab)) == ["five", "one", "three", "two"]


def test_a_new_snapshot_loses_no_version_that_is_committed_and_not_captured(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(HISTORY)
    lab.sql("insert into {t} (w, id, note) values (1, 1, 'one')")
    lab.bootstrap()
    lab.apply()
    for note in ("two", "three"):
        lab.sql(f"update {{t}} set note = '{note}'")
    lab.captured = replace(lab.captured, partition_by={"part": "'0'"})
    with pytest.raises(NeedsResnapshot, match="its declaration has changed"):
        lab.capture()

    def meanwhile(step: str) -> None:
        if step == "start":
            lab.sql("truncate {t}")
            lab.sql("insert into {t} (w, id, note) values (1, 1, 'four')")
        if step == "fence":
            lab.sql("update {t} set note = 'five'")

    assert lab.bootstrap(resnapshot=True, step=meanwhile).generation == 2
    lab.apply()
    assert sorted(str(row[2]) for row in versions(lab)) == ["four", "one", "three", "two"]
    lab.capture()
    lab.apply()
    assert sorted(str(row[2]) for row in versions(lab)) == ["five", "four", "one", "three", "two"]
    assert [row[2] for row in versions(lab) if row[4] is None] == ["five"]


def test_new_snapshots_of_a_busy_history_neither_begin_nor_end_a_version(
    make_lab: Callable[..., Lab], follow: Callable[[CapturedTable], Follower]
) -> None:
    lab = make_lab(HISTORY)
    name = f"{lab.captured.dataset.name}_undisturbed"
    undisturbed = follow(replace(lab.captured, dataset=replace(lab.captured.dataset, name=name)))
    # Of the empty table, so that both know each row from its commit.
    for each in (lab, undisturbed):
        each.bootstrap()
        each.apply()
    session = Application(lab, 0, 7, 600, truncates=True)
    session.start()
    snapshots = 0
    while session.is_alive() or snapshots < 2:
        lab.bootstrap(resnapshot=True)
        lab.apply()
        snapshots += 1
    session.join()
    assert session.error is None
    for each in (lab, undisturbed):
        each.capture()
        each.apply()
    found = sorted(map(repr, versions(lab)))
    assert found == sorted(map(repr, versions(undisturbed)))
    assert len(found) > 100


def test_a_new_snapshot_of_a_history_that_dies_is_as_if_it_had_never_begun(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(HISTORY)
    lab.sql("insert into {t} (w, id, note) values (1, 1, '0')")
    lab.bootstrap()
    lab.apply()
    for number, step in enumerate(("fence", "changes", "snapshot", "begin"), 1):
        lab.sql(f"update {{t}} set note = '{number}'")
        lab.die_in_resnapshot(step)
        if step == "changes":
            batch = lab.capture()
            assert batch is not None
            assert (batch.generation, batch.counts.events) == (1, 2)
            lab.apply()
    assert lab.bootstrap(resnapshot=True).generation == 2
    lab.apply()
    assert sorted(str(row[2]) for row in versions(lab)) == ["0", "1", "2", "3", "4"]


def test_a_history_whose_table_was_altered_keeps_what_was_before(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(HISTORY)
    lab.sql("insert into {t} (w, id, note) values (1, 1, 'one')")
    lab.bootstrap()
    lab.apply()
    lab.sql("update {t} set note = 'two'")
    lab.sql("alter table {t} alter column amount type text")
    assert lab.bootstrap(resnapshot=True).generation == 2
    lab.apply()
    assert sorted(str(row[2]) for row in versions(lab)) == ["one", "two"]
    # Where rows were changed since then, what they were in between is not known under the new declaration.
    lab.sql("update {t} set note = 'three'")
    lab.sql("alter table {t} drop column flag, add column flag boolean")
    lab.sql("update {t} set note = 'four'")
    wanted = "column flag was dropped and added again"
    with pytest.raises(VarveError, match=rf"{wanted}.*Capture them first: varve cdc capture"):
        lab.bootstrap(resnapshot=True)
    with pytest.raises(NeedsResnapshot, match=wanted):
        lab.capture()
    lab.apply()
    lab.bootstrap(resnapshot=True)
    lab.apply()
    assert sorted(str(row[2]) for row in versions(lab)) == ["four", "one", "three", "two"]


@pytest.mark.parametrize(
    ("altered", "renames"),
    [
        ("rename column note to remark", {"remark": "note"}),
        ("drop constraint {n}_pkey, add primary key (id, w, flag)", {}),
        ("alter column note type text using upper(note)", {}),
    ],
    ids=["another name", "another key", "values written anew"],
)
def test_versions_that_a_snapshot_of_another_table_would_make_otherwise_are_captured_first(
    make_lab: Callable[..., Lab], altered: str, renames: dict[str, str]
) -> None:
    lab = make_lab(HISTORY)
    lab.sql("insert into {t} (w, id, note, flag) values (1, 1, 'one', true)")
    lab.bootstrap()
    lab.apply()
    lab.sql("update {t} set note = 'two'")
    lab.sql(f"alter table {{t}} {altered.format(n=lab.table.partition('.')[2])}")
    before = lab.captured
    lab.captured = replace(lab.captured, renames=renames)
    with pytest.raises(VarveError, match=r"1 change of public\.t.* committed and not captured.*Capture them first"):
        lab.bootstrap(resnapshot=True)
    lab.captured = before
    with pytest.raises(NeedsResnapshot):
        lab.capture()
    lab.apply()
    lab.captured = replace(lab.captured, renames=renames)
    lab.bootstrap(resnapshot=True)
    lab.apply()
    notes = sorted(str(row[2]) for row in versions(lab))
    # Where in the stream values were written anew, nothing there says.
    assert notes == (["TWO", "one"] if "upper" in altered else ["one", "two"])


def test_a_new_snapshot_of_a_history_whose_slot_is_gone_is_taken(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(HISTORY)
    lab.bootstrap()
    lab.apply()
    lab.sql("insert into {t} (w, id, note) values (1, 1, 'one')")
    lab.sql(f"select pg_drop_replication_slot('{lab.captured.slot}')")
    assert lab.bootstrap(resnapshot=True).counts.inserts == 1


def test_a_history_needs_its_columns(make_lab: Callable[..., Lab]) -> None:
    captured = make_lab().captured
    with pytest.raises(VarveError, match="its history needs the columns valid_from_lsn BIGINT, valid_to_lsn BIGINT"):
        CapturedTable(captured.dataset, captured.source, captured.partition_by, history=True)


@pytest.mark.parametrize("asked", ["history", "ignore_null_updates"])
def test_what_follows_rows_needs_a_key(make_lab: Callable[..., Lab], asked: str) -> None:
    lab = make_lab(HISTORY)
    lab.captured = replace(lab.captured, **{"history": False, asked: True})
    name = lab.table.partition(".")[2]
    lab.sql(f"alter table {{t}} replica identity full, drop constraint {name}_pkey")
    with pytest.raises(SourceRefused, match="follows rows by their key, and the table has none"):
        lab.bootstrap()


def names(columns: Sequence[Column]) -> list[str]:
    return [column.name for column in columns]


def test_columns_of_the_history_are_not_of_the_source(make_lab: Callable[..., Lab]) -> None:
    captured = make_lab(HISTORY).captured
    assert names(captured.dataset.schema.columns) == [*names(captured.columns), *names(VALIDITY)]
