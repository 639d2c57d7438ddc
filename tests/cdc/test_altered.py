"""A table that is altered so that capture stops: what was committed before is captured, and nothing after it.

The rows that PostgreSQL had just before the ALTER are the oracle. Not here: what stops a capture (test_capture.py).
"""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING

import psycopg
import pyarrow.parquet as pq
import pytest

from tests.cdc.lab import DEFAULT, FULL, UNKEYED, Application, Killed, Lab, _ChangedMind
from tests.cdc.test_looks import STEPS, Row, confirmed, in_source, published_beside, put, replayed
from varve.cdc.captured_table import NeedsResnapshot
from varve.cdc.event import parse_lsn

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(300)

RENAMED = "alter table {t} rename note to remark"
AGAIN = "alter table {t} drop note, add note text"
TYPED = "alter table {t} alter big type varchar"
REKEYED = "alter table {t} drop constraint {n}_pkey, add primary key (id)"


def altered(lab: Lab, alter: str) -> str:
    return alter.replace("{n}", lab.table.partition(".")[2])


def ids(lab: Lab) -> list[int]:
    rows = [row for batch in lab.log().batches(1) for row in pq.read_table(batch.data).to_pylist()]
    return [int(row["columnValues"][1]) for row in rows if row["changeType"] == "insert"]


def end_of_log(lab: Lab) -> int:
    with lab.source() as source:
        (end,) = source.execute("select pg_current_wal_insert_lsn()::text").fetchone() or ("0/0",)
    return parse_lsn(end)


def state(lab: Lab) -> str:
    from varve.cdc.capture.positions import Positions

    with lab.catalog() as catalog:
        return Positions(catalog.connection).of(lab.captured.dataset.name).state


def stops(lab: Lab, message: str, most: int = 500) -> None:
    """Captures until it stops with this message."""

    def capture() -> None:
        while lab.capture(most=most) is not None:
            pass

    with pytest.raises(NeedsResnapshot, match=f"(?s){message}.*varve cdc resnapshot"):
        capture()


@pytest.mark.parametrize("rows_after", [True, False])
@pytest.mark.parametrize(
    ("kind", "alter", "message"),
    [
        (DEFAULT, RENAMED, "note is now called remark"),
        (FULL, AGAIN, "dropped and added again"),
        (UNKEYED, TYPED, "big was text and is character varying"),
        (DEFAULT, REKEYED, "its key was"),
    ],
)
def test_what_was_committed_before_an_alter_is_captured_and_nothing_after_it(
    make_lab: Callable[..., Lab], kind: str, alter: str, message: str, *, rows_after: bool
) -> None:
    lab = make_lab(kind)
    lab.bootstrap()
    put(lab, 1, 2)
    # A column that the dataset does not declare stops nothing.
    lab.sql("alter table {t} add extra int default 7")
    put(lab, 3)
    before, end = in_source(lab), end_of_log(lab)
    lab.sql(altered(lab, alter))
    if rows_after:
        put(lab, 4)
    for _ in range(2):
        stops(lab, f"{message}.*until then is captured")
        assert replayed(lab) == before
        assert confirmed(lab) <= end
    assert state(lab) == "stopped"


@pytest.mark.parametrize(
    ("kind", "alter", "message"),
    [
        (DEFAULT, "alter table {t} drop big, add big text", "dropped and added again"),
        (DEFAULT, "alter table {t} alter id type bigint", "was integer and is bigint"),
        (DEFAULT, RENAMED + "; vacuum full {t}", "note is now called remark"),
        (FULL, REKEYED, "its key was"),
    ],
)
def test_where_the_stream_does_not_show_the_place_of_the_alter_nothing_is_taken(
    make_lab: Callable[..., Lab], kind: str, alter: str, message: str
) -> None:
    lab = make_lab(kind)
    lab.bootstrap()
    start = confirmed(lab)
    put(lab, 1)
    for statement in altered(lab, alter).split("; "):
        lab.sql(statement)
    put(lab, 2)
    stops(lab, f"{message}.*nothing there says")
    assert (ids(lab), confirmed(lab)) == ([], start)


@pytest.mark.parametrize("kind", [DEFAULT, FULL])
def test_a_transaction_with_rows_on_both_sides_of_its_alter_is_held_back_whole(
    make_lab: Callable[..., Lab], kind: str
) -> None:
    lab = make_lab(kind)
    lab.bootstrap()
    put(lab, 1)
    with lab.source() as source, source.transaction():
        source.execute(f"insert into {lab.table} (w, id) values (1, 2)")
        source.execute(f"alter table {lab.table} rename note to remark")
        source.execute(f"insert into {lab.table} (w, id) values (1, 3)")
    stops(lab, "remark")
    assert ids(lab) == [1]


def test_a_truncate_before_the_alter_is_taken_and_one_after_it_may_hide_a_rewrite(
    make_lab: Callable[..., Lab],
) -> None:
    for after in (False, True):
        lab = make_lab()
        lab.bootstrap()
        put(lab, 1)
        for statement in (RENAMED, "truncate {t}") if after else ("truncate {t}", RENAMED):
            lab.sql(statement)
            put(lab, 2)
            lab.sql("delete from {t} where id = 2")
        stops(lab, "remark")
        assert ids(lab) == ([] if after else [1, 2])


def test_a_column_that_had_another_name_for_a_while_is_not_taken_for_null(lab: Lab) -> None:
    lab.bootstrap()
    lab.sql("insert into {t} (w, id, note) values (1, 1, 'a')")
    before = in_source(lab)
    lab.sql(RENAMED)
    lab.sql("insert into {t} (w, id, remark) values (1, 2, 'b')")
    lab.sql("alter table {t} rename remark to note")
    lab.sql("insert into {t} (w, id, note) values (1, 3, 'c')")
    for most in (1, 500):
        stops(lab, "column note had another name for a while", most)
    assert replayed(lab) == before


BY_INDEX = ("alter table {t} replica identity using index {n}_w",)
REKEYED_BY_W = ("alter table {t} drop constraint {n}_pkey", "alter table {t} add constraint {n}_pkey primary key (w)")
KEYED_AS_BEFORE = ("alter table {t} drop constraint {n}_pkey", "alter table {t} add primary key (w, id)")


@pytest.mark.parametrize(
    ("kind", "away", "back"),
    [
        (DEFAULT, BY_INDEX, ("alter table {t} replica identity default",)),
        (DEFAULT, REKEYED_BY_W, KEYED_AS_BEFORE),
        (FULL, BY_INDEX, ("alter table {t} replica identity full",)),
        (UNKEYED, BY_INDEX, ("alter table {t} replica identity full",)),
    ],
)
def test_a_row_that_was_told_apart_by_other_columns_for_a_while_is_not_taken_for_two(
    make_lab: Callable[..., Lab], kind: str, away: tuple[str, ...], back: tuple[str, ...]
) -> None:
    lab = make_lab(kind)
    lab.sql(altered(lab, "create unique index {n}_w on {t} (w)"))
    lab.sql("insert into {t} (w, id) values (1, 1)")
    lab.bootstrap()
    lab.sql("insert into {t} (w, id) values (2, 2)")
    before = in_source(lab)
    for statement in away:
        lab.sql(altered(lab, statement))
    # No old row is sent, as w stays.
    lab.sql("update {t} set id = 9 where w = 1")
    for statement in back:
        lab.sql(altered(lab, statement))
    for most in (1, 500):
        stops(lab, r"for a while its rows were told apart by \(w\)", most)
    assert replayed(lab) == before


@pytest.mark.parametrize("away", ["full", "nothing"])
def test_another_identity_for_a_while_that_still_tells_rows_apart_stops_nothing(lab: Lab, away: str) -> None:
    lab.bootstrap()
    lab.sql(f"alter table {{t}} replica identity {away}")
    put(lab, 1, 2)
    if away == "full":
        lab.sql("update {t} set id = 9 where id = 1")
    lab.sql("alter table {t} replica identity default")
    lab.sql("update {t} set id = 8 where id = 2")
    assert lab.capture() is not None
    assert replayed(lab) == in_source(lab)


@pytest.mark.parametrize("rows_after", [True, False])
def test_a_column_that_takes_the_name_of_one_that_was_dropped_is_not_taken_for_it(
    lab: Lab, *, rows_after: bool
) -> None:
    lab.sql("alter table {t} add other text default 'other'")
    lab.bootstrap()
    lab.sql("insert into {t} (w, id, note) values (1, 1, 'a')")
    lab.sql("alter table {t} drop note")
    put(lab, 2)
    assert lab.capture() is not None
    put(lab, 3)
    lab.sql("alter table {t} rename other to note")
    if rows_after:
        put(lab, 4)
    stops(lab, "column other is now called note, as one was that the dataset declares")
    assert ids(lab) == [1, 2, 3]


@pytest.mark.parametrize("limit", [1, 500])
@pytest.mark.parametrize(
    ("aside", "away", "back"),
    [
        ("public.{n}_aside", "rename to {n}_aside", "rename to {n}"),
        ("elsewhere.{n}", "set schema elsewhere", "set schema public"),
    ],
)
def test_what_is_written_under_another_name_is_captured_and_nothing_of_a_table_that_has_its_name_meanwhile(
    lab: Lab, aside: str, away: str, back: str, limit: int
) -> None:
    aside, away, back = (altered(lab, text) for text in (aside, away, back))
    lab.sql("create schema if not exists elsewhere")
    put(lab, 1, 2)
    lab.bootstrap()
    with lab.source() as source:
        with source.transaction():
            source.execute(f"alter table {lab.table} {away}")
            source.execute(f"update {aside} set note = 'within' where id = 1")
            source.execute(f"alter table {aside} {back}")
        source.execute(f"alter table {lab.table} {away}")
        source.execute(f"insert into {aside} (w, id, note) values (1, 3, 'aside')")
        source.execute(f"create table {lab.table} (like {aside})")
        source.execute(f"alter publication {lab.captured.slot} add table {lab.table}")
        source.execute(f"insert into {lab.table} (w, id, note) values (1, 4, 'of another table')")
        source.execute(f"alter table {lab.table} rename to {lab.table.partition('.')[2]}_other")
        source.execute(f"alter table {aside} {back}")
        source.execute(f"delete from {lab.table} where id = 2")
    while lab.capture(most=limit) is not None:
        pass
    assert replayed(lab) == in_source(lab)


@pytest.mark.parametrize("limit", [1, 4, 500])
def test_another_table_of_the_publication_may_be_altered_and_its_changes_hide_none_of_ours(
    lab: Lab, limit: int
) -> None:
    lab.bootstrap()
    other = published_beside(lab)
    with lab.source() as source:
        for number in range(4):
            source.execute(f"insert into {other} (a) values ({number})")
            source.execute(f"alter table {other} rename b to c" if number == 1 else "select 1")
            put(lab, number)
        before = in_source(lab)
        source.execute(f"alter table {lab.table} rename note to remark")
        source.execute(f"insert into {other} (a) values (10)")
        end = end_of_log(lab)
        put(lab, 4)
        source.execute(f"insert into {other} (a) values (11)")
    stops(lab, "remark", limit)
    assert replayed(lab) == before
    # Of ours, nothing after the ALTER is confirmed, although more of the other table lies behind it.
    assert confirmed(lab) <= end


@pytest.mark.parametrize("limit", [1, 500])
@pytest.mark.parametrize("step", STEPS)
def test_a_capture_that_dies_before_it_stops_repeats_nothing_and_loses_nothing(lab: Lab, step: str, limit: int) -> None:
    lab.bootstrap()
    put(lab, 1, 3)
    put(lab, 10, 2)
    before = in_source(lab)
    lab.sql(RENAMED)
    put(lab, 20)
    lab.die_in_capture(step, most=limit)
    assert state(lab) == "running"
    stops(lab, "remark", limit)
    assert ids(lab) == [1, 2, 3, 10, 11]
    assert replayed(lab) == before


class AlteredHistory:
    """Random transactions, ALTERs that stop nothing, one that does, and captures of any size that die anywhere."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self.lab, self.pick = lab, random.Random(seed)
        self.application = Application(lab, 0, seed, 0)
        self.stopped = False

    def run(self) -> Counter[Row]:
        """The rows that the source had before the ALTER that stops."""
        lab, pick = self.lab, self.pick
        put(lab, 0, pick.randint(0, 20))
        lab.bootstrap()
        published_beside(lab)
        with lab.source() as source:
            for _ in range(pick.randint(1, 3)):
                self._transactions(source, ("extra{i} int", "extra{i} text default 'x'"))
                self._capture()
            self._transactions(source, ("extra{i} int",))
            before = in_source(lab)
            with source.transaction():
                for _ in range(pick.choice((0, 0, 3))):
                    with contextlib.suppress(psycopg.Error, _ChangedMind), source.transaction():
                        self.application._transaction(source)
                source.execute(altered(lab, self._stopping()).replace("{t}", lab.table))
                # What is committed with the ALTER is after it: it has rows of the altered table.
                source.execute(f"insert into {lab.table} (w, id) values (77, 77)")
            for number in range(pick.randint(0, 5)):
                source.execute(f"insert into {lab.table} (w, id) values (78, {number + 100})")
        while not self.stopped:
            self._capture()
        return before

    def _stopping(self) -> str:
        alters = [RENAMED, AGAIN, TYPED, "alter table {t} rename at to moment"]
        return self.pick.choice([*alters, REKEYED] if self.lab.kind == DEFAULT else alters)

    def _transactions(self, source: psycopg.Connection, columns: tuple[str, ...]) -> None:
        for place in range(self.pick.randint(1, 15)):
            with contextlib.suppress(psycopg.Error, _ChangedMind), source.transaction():
                self.application._transaction(source)
            if self.pick.random() < 0.15:
                column = self.pick.choice(columns).replace("{i}", f"{place}_{self.pick.randint(0, 10**9)}")
                source.execute(f"alter table {self.lab.table} add {column}")
            if self.pick.random() < 0.2:
                source.execute(f"insert into {self.lab.table}_other select {self.pick.randint(0, 10**9)}")

    def _capture(self) -> None:
        pick = self.pick
        limit, dies_at = pick.choice((1, 3, 20, 500)), pick.choice((*STEPS, None, None))

        def step(name: str) -> None:
            if name == dies_at:
                raise Killed(name)

        try:
            with contextlib.suppress(Killed):
                self.lab.capture(step, most=limit)
        except NeedsResnapshot:
            self.stopped = True


def ends_before_the_alter(make_lab: Callable[..., Lab], seed: int) -> None:
    lab = make_lab((DEFAULT, FULL, UNKEYED)[seed % 3])
    if lab.kind == DEFAULT:
        # So that it can be the key alone, too.
        lab.sql("alter table {t} add unique (id)")
    before = AlteredHistory(lab, seed).run()
    places = [
        (row["commitLsn"], row["seq"])
        for batch in lab.log().batches(1)
        for row in pq.read_table(batch.data).to_pylist()
    ]
    assert places == sorted(set(places)), seed
    assert replayed(lab) == before, seed
    lab.sql(f"select pg_drop_replication_slot('{lab.captured.slot}')")


def test_random_histories_end_in_the_rows_before_the_alter(make_lab: Callable[..., Lab]) -> None:
    for seed in range(6):
        ends_before_the_alter(make_lab, seed)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_150_random_histories_end_in_the_rows_before_the_alter(make_lab: Callable[..., Lab]) -> None:
    for seed in range(6, 156):
        ends_before_the_alter(make_lab, seed)
