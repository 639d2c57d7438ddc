"""Looks at the slot that their limit cuts off: the slot is told only what was read whole, and nothing is lost.

PostgreSQL's own final table is the oracle: the durable events are replayed by a dozen lines of plain Python.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pyarrow.parquet as pq
import pytest

from tests.cdc.lab import DEFAULT, FULL, UNKEYED, Application, Killed, Lab, _ChangedMind
from varve.cdc.capture.source_database import SourceDatabase
from varve.cdc.event import parse_lsn

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(300)

Row = tuple[tuple[str, str | None], ...]
STEPS = ("peek", "write", "durable", "confirm", "confirmed")


def replayed(lab: Lab) -> Counter[Row]:
    """The rows that the durable events make, each as often as it is there, of the columns that are declared."""
    rows: Counter[Row] = Counter()
    by_key: dict[tuple[str | None, ...], Row] = {}
    keyed = lab.kind != UNKEYED
    for batch in lab.log().batches(1):
        for event in pq.read_table(batch.data).to_pylist():
            new = dict(zip(event["columnNames"], event["columnValues"], strict=True))
            old_key = dict(zip(event["oldKeyNames"], event["oldKeyValues"], strict=True))
            old = dict(zip(event["oldNames"], event["oldValues"], strict=True))
            new, old = ({name: row[name] for name in row if name in lab.captured.names} for row in (new, old))
            if event["changeType"] == "truncate":
                rows.clear()
                by_key.clear()
            before: Row = tuple(sorted(old.items()))
            if event["changeType"] in ("update", "delete"):
                before = by_key.pop((old_key["w"], old_key["id"])) if keyed else before
                rows[before] -= 1
                assert rows[before] >= 0
            if event["changeType"] in ("insert", "update"):
                # What an update does not send is as it was.
                after = tuple(sorted({**(dict(before) if event["changeType"] == "update" else {}), **new}.items()))
                rows[after] += 1
                if keyed:
                    assert (new["w"], new["id"]) not in by_key
                    by_key[new["w"], new["id"]] = after
    return +rows


def in_source(lab: Lab) -> Counter[Row]:
    names = sorted(column.name for column in lab.captured.columns)
    with closing(SourceDatabase(lab.url).connect()) as source:
        query = f"copy (select {', '.join(names)} from {lab.table}) to stdout"
        with source.cursor().copy(query) as copy:
            return Counter(tuple(zip(names, row, strict=True)) for row in copy.rows())


def put(lab: Lab, number: int, count: int = 1) -> None:
    lab.sql(f"insert into {{t}} (w, id) select 1, i from generate_series({number}, {number + count - 1}) i")


def published_beside(lab: Lab) -> str:
    """Another table of the same publication."""
    lab.sql("create table {t}_other (a int primary key, b text)")
    lab.sql(f"alter publication {lab.captured.slot} add table {{t}}_other")
    return f"{lab.table}_other"


def confirmed(lab: Lab) -> int:
    with lab.source() as source:
        row = source.execute(
            "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = %s", (lab.captured.slot,)
        ).fetchone()
    assert row is not None
    return parse_lsn(row[0])


@pytest.mark.parametrize("limit", [1, 52, 53, 54, 55, 70])
def test_changes_of_others_that_fill_a_look_do_not_hide_ours_behind_them(lab: Lab, limit: int) -> None:
    lab.bootstrap()
    lab.sql(f"insert into {published_beside(lab)} select i from generate_series(1, 52) i")
    put(lab, 1, 10)
    batch = lab.capture(most=limit)
    assert batch is not None
    assert batch.counts.inserts == 10
    assert replayed(lab) == in_source(lab)
    assert lab.capture(most=limit) is None


def test_many_transactions_of_others_are_looked_at_to_their_end(lab: Lab) -> None:
    lab.bootstrap()
    other = published_beside(lab)
    before = confirmed(lab)
    with lab.source() as source:
        for number in range(40):
            source.execute(f"insert into {other} values ({number})")
        source.execute(f"truncate {other}")
        looks: list[str] = []
        assert lab.capture(looks.append, most=7) is None
        assert looks.count("peek") > 10
        row = source.execute("select pg_current_wal_lsn()::text").fetchone()
    assert row is not None
    assert before < confirmed(lab) <= parse_lsn(row[0])
    put(lab, 1)
    assert lab.capture(most=7) is not None
    assert replayed(lab) == in_source(lab)


@pytest.mark.parametrize(("step", "limit"), [("durable", 1), ("durable", 40), ("confirmed", 500)])
def test_what_a_dead_process_made_durable_and_did_not_tell_hides_nothing_behind_it(
    lab: Lab, step: str, limit: int
) -> None:
    lab.bootstrap()
    put(lab, 1, 52)
    lab.die_in_capture(step, most=limit)
    put(lab, 100, 10)
    while lab.capture(most=limit) is not None:
        pass
    assert replayed(lab) == in_source(lab)
    assert sum(in_source(lab).values()) == 62


def test_the_slot_is_never_told_more_than_is_durable_or_not_ours(lab: Lab) -> None:
    lab.bootstrap()
    other = published_beside(lab)
    ends: list[int] = []
    with lab.source() as source:
        for number in range(8):
            source.execute(f"insert into {other} select i from generate_series({number * 10}, {number * 10 + 9}) i")
            put(lab, number)
            row = source.execute("select pg_current_wal_insert_lsn()::text").fetchone()
            assert row is not None
            ends.append(parse_lsn(row[0]))
    confirmations: list[tuple[int, int]] = []

    def step(name: str) -> None:
        if name == "confirmed":
            durable = sum(batch.counts.inserts for batch in lab.log().batches(1))
            confirmations.append((durable, sum(end <= confirmed(lab) for end in ends)))

    while lab.capture(step, most=13) is not None:
        pass
    # As many of our transactions as lie before the slot's place are durable by then.
    assert all(durable >= passed for durable, passed in confirmations)
    assert replayed(lab) == in_source(lab)


class History:
    """A random history of a captured table, one beside it in the same publication, and one that is not published."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self.lab, self.pick, self.number = lab, random.Random(seed), 0
        self.application = Application(lab, 0, seed, 0, truncates=True)

    def run(self) -> None:
        lab, pick = self.lab, self.pick
        lab.sql("create table {t}_private (a int)")
        put(lab, 0, pick.randint(0, 30))
        lab.bootstrap()
        published_beside(lab)
        with lab.source() as source:
            for _ in range(pick.randint(2, 5)):
                for _ in range(pick.randint(1, 12)):
                    with contextlib.suppress(psycopg.Error, _ChangedMind), source.transaction():
                        self._transaction(source)
                self._capture()
        limit = pick.randint(1, 400)
        while lab.capture(most=limit) is not None:
            pass

    def _transaction(self, source: psycopg.Connection) -> None:
        pick, table = self.pick, self.lab.table
        for choice in pick.choices(("ours", "many", "other", "private", "undone", "nothing"), k=pick.randint(1, 3)):
            self.number += 1_000
            rows = f"select i from generate_series({self.number}, {self.number + pick.randint(0, 300)}) i"
            match choice:
                case "ours":
                    self.application._transaction(source)
                case "many":
                    source.execute(f"insert into {table} (w, id) select 9, i from ({rows}) r")
                case "other":
                    source.execute(f"insert into {table}_other {rows}")
                case "private":
                    source.execute(f"insert into {table}_private {rows}")
                case "undone":
                    with contextlib.suppress(_ChangedMind), source.transaction():
                        source.execute(f"insert into {table} (w, id) select 8, i from ({rows}) r")
                        raise _ChangedMind
                case _:
                    source.execute("select pg_current_xact_id()")

    def _capture(self) -> None:
        """As often as it likes, with any limit; and killed at any step of any look."""
        pick = self.pick
        for _ in range(pick.randint(0, 3)):
            limit, dies_at, dies_in = pick.randint(1, 400), pick.choice((*STEPS, None, None)), pick.randint(1, 3)
            seen: Counter[str] = Counter()

            def step(
                name: str, seen: Counter[str] = seen, dies_at: str | None = dies_at, dies_in: int = dies_in
            ) -> None:
                seen[name] += 1
                if name == dies_at and seen[name] == dies_in:
                    raise Killed(name)

            with contextlib.suppress(Killed):
                self.lab.capture(step, most=limit)


def equal_in_the_end(make_lab: Callable[..., Lab], seed: int) -> None:
    lab = make_lab((DEFAULT, FULL, UNKEYED)[seed % 3])
    History(lab, seed).run()
    places = [
        (row["commitLsn"], row["seq"])
        for batch in lab.log().batches(1)
        for row in pq.read_table(batch.data).to_pylist()
    ]
    assert places == sorted(set(places)), seed
    assert replayed(lab) == in_source(lab), seed
    lab.sql(f"select pg_drop_replication_slot('{lab.captured.slot}')")


def test_random_histories_in_looks_of_any_size_end_in_the_table_that_postgresql_has(
    make_lab: Callable[..., Lab],
) -> None:
    for seed in range(4):
        equal_in_the_end(make_lab, seed)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_200_random_histories_in_looks_of_any_size_end_in_the_table_that_postgresql_has(
    make_lab: Callable[..., Lab],
) -> None:
    for seed in range(4, 204):
        equal_in_the_end(make_lab, seed)
