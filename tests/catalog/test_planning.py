"""The planner's facts on real PostgreSQL: nothing that changes is missed, and marks stay until they are worked off."""

from __future__ import annotations

import datetime as dt
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pendulum
import psycopg
import pytest

from tests.support.sales import COLUMNS
from varve.catalog.backfills import Backfills
from varve.catalog.catalog import Catalog
from varve.catalog.code.generations import Generations
from varve.catalog.environments.environments import Environments
from varve.catalog.environments.facts import EnvironmentFacts
from varve.catalog.environments.overlay import EnvironmentCatalog
from varve.catalog.history.drops import Drops
from varve.catalog.living.killed_builds import KilledBuilds
from varve.catalog.planning import facts, statements
from varve.catalog.planning.acceptances import Acceptances, AcceptedInput
from varve.catalog.planning.facts import CatalogFacts, Changes, living
from varve.model.batch import Input, StagedBatch
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import VarveError
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.model.reads import Reads
from varve.planning.graph import Graph
from varve.planning.judgement.judgement import State
from varve.planning.judgement.judging import RetryLimits
from varve.planning.reconcile import Limits, Planner, reconcile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.model.build import Build

DAY = TimeDimension("day", "@daily", pendulum.datetime(2024, 1, 1))
WEEK = TimeDimension("week", "0 0 * * 1", pendulum.datetime(2024, 1, 1))
DAILY = Dataset("p.daily", Partitioning((DAY,)), COLUMNS, StoreKind.LAKE, "One row.", landing=True)
WEEKLY = Dataset("p.weekly", Partitioning((WEEK,)), COLUMNS, StoreKind.LAKE, "One row.")
GRAPH = Graph({"p.daily": DAILY, "p.weekly": WEEKLY}, {"p.daily": (), "p.weekly": (Reads(DAILY),)}, {})
# Later than anything that happens here, so that no back-off is left.
NOW = pendulum.now("UTC").add(hours=12)
LIMITS = Limits(RetryLimits(attempts=3, first=0.0))
# Of the transaction that asks, and of those just before it.
_ROWS_READ = """
    select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_xact_user_tables
    where schemaname = 'varve' and relname = 'batch'
"""


@pytest.fixture
def opened(fresh_database: str) -> Iterator[Catalog]:
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        catalog = Catalog(connection)
        catalog.ensure_schema()
        yield catalog


def day(number: int) -> PartitionKey:
    return PartitionKey.of(day=dt.date(2024, 1, number))


def begin(catalog: Catalog, dataset: Dataset, *keys: PartitionKey) -> Build:
    return catalog.begin(dataset, keys, run_id="run", code_version="")


def finish(catalog: Catalog, build: Build, *, content: str | None = None) -> None:
    """Stage and publish, as a run does that read what is current."""
    for key in build.partitions:
        if build.dataset.landing:
            arrived = catalog.arrivals(build.dataset.name).get(key.path, "")
            build.reads(key, Input(f"landing:{build.dataset.name}", key.path, arrived))
        for edge in GRAPH.edges[build.dataset.name]:
            wanted = edge.dependency.upstream_of(key).keys
            for path, batch in catalog.current(edge.upstream.name, wanted).items():
                build.reads(key, Input(edge.upstream.name, path, str(batch.batch_id)))
    catalog.staged(build, [StagedBatch(key, "/nowhere", 1, 1, 1, content) for key in build.partitions])
    catalog.publish(build)
    catalog.release(build)


def arrive(catalog: Catalog, key: PartitionKey, fingerprint: str) -> None:
    catalog.arrived("p.daily", key, uri="/file", size=1, fingerprint=fingerprint)


def states(catalog: Catalog) -> dict[str, State]:
    facts = CatalogFacts(catalog.connection, living(catalog.connection))
    plan = reconcile(GRAPH, facts, now=NOW, limits=LIMITS)
    return {path: judgement.state for judged in plan.judgements.values() for path, judgement in judged.items()}


def test_a_week_follows_its_days_and_not_a_rerun_that_holds_the_same_rows(opened: Catalog) -> None:
    for number in range(1, 8):
        arrive(opened, day(number), "a")
    assert set(states(opened).values()) == {State.DUE, State.WAITING}
    finish(opened, begin(opened, DAILY, *map(day, range(1, 8))), content="same")
    assert states(opened)["week=2024-01-01"] is State.DUE
    finish(opened, begin(opened, WEEKLY, PartitionKey.of(week=dt.date(2024, 1, 1))))
    assert set(states(opened).values()) == {State.CURRENT}
    arrive(opened, day(3), "b")
    finish(opened, begin(opened, DAILY, day(3)), content="same")
    assert set(states(opened).values()) == {State.CURRENT}
    arrive(opened, day(3), "c")
    finish(opened, begin(opened, DAILY, day(3)), content="other")
    assert states(opened)["week=2024-01-01"] is State.DUE


def test_a_rollback_lasts_until_an_input_has_other_rows_or_a_person_computes_the_partition(opened: Catalog) -> None:
    week = PartitionKey.of(week=dt.date(2024, 1, 1))

    def state() -> State:
        plan = reconcile(GRAPH, CatalogFacts(opened.connection), now=dt.datetime.now(dt.UTC), limits=LIMITS)
        return plan.judgements["p.weekly"][week.path].state

    def rerun(number: int, content: str) -> None:
        finish(opened, begin(opened, DAILY, day(number)), content=content)

    def roll_back() -> None:
        build = opened.lock_partitions(WEEKLY, [week], run_id="rollback")
        opened.repoint(build, {week: first}, reason="it was wrong")
        opened.release(build)

    for number in range(1, 8):
        arrive(opened, day(number), "a")
    finish(opened, begin(opened, DAILY, *map(day, range(1, 8))), content="a")
    finish(opened, begin(opened, WEEKLY, week))
    first = opened.current("p.weekly")[week.path].batch_id
    rerun(3, "b")
    finish(opened, begin(opened, WEEKLY, week))
    roll_back()
    assert state() is State.ON_HOLD
    # The first takes the place of the batch that was current at the rollback, the next one that of the first.
    for _ in range(2):
        rerun(3, "b")
        assert state() is State.ON_HOLD
    rerun(4, "b")
    assert state() is State.DUE
    roll_back()
    assert state() is State.ON_HOLD
    # Other rows have been there in between: those of the rollback's time are new then.
    rerun(4, "a")
    assert state() is State.DUE
    roll_back()
    rerun(4, "b")
    rerun(4, "a")
    assert state() is State.DUE
    roll_back()
    # A person who computes it again wants that, whatever rows come out of it.
    finish(opened, begin(opened, WEEKLY, week))
    assert state() is State.CURRENT


def test_what_was_given_up_is_tried_again_where_an_input_is_published_again_with_the_same_rows(opened: Catalog) -> None:
    """Its attempts may have failed because files of the input were lost, which a rerun of the input has mended."""
    week = PartitionKey.of(week=dt.date(2024, 1, 1))

    def state() -> State:
        plan = reconcile(GRAPH, CatalogFacts(opened.connection), now=dt.datetime.now(dt.UTC), limits=LIMITS)
        return plan.judgements["p.weekly"][week.path].state

    for number in range(1, 8):
        arrive(opened, day(number), "a")
    finish(opened, begin(opened, DAILY, *map(day, range(1, 8))), content="a")
    for _ in range(3):
        assert state() is State.DUE
        build = begin(opened, WEEKLY, week)
        opened.fail(build, "a file of its input is gone")
        opened.release(build)
    assert state() is State.FAILED
    finish(opened, begin(opened, DAILY, day(3)), content="a")
    assert state() is State.DUE


def test_what_a_living_run_builds_is_in_flight_and_what_a_dead_one_left_is_not(
    opened: Catalog, fresh_database: str
) -> None:
    arrive(opened, day(1), "a")
    with psycopg.connect(fresh_database, autocommit=True) as other:
        begin(Catalog(other), DAILY, day(1))
        assert states(opened)["day=2024-01-01"] is State.IN_FLIGHT
        other.execute("select pg_advisory_unlock_all()")
        assert KilledBuilds(opened.connection).fail() == 1
    assert states(opened)["day=2024-01-01"] is State.DUE


def test_a_partition_that_failed_with_others_is_asked_for_in_a_smaller_run(opened: Catalog) -> None:
    keys = [day(number) for number in range(1, 5)]
    for key in keys:
        arrive(opened, key, "a")
    build = begin(opened, DAILY, *keys)
    opened.fail(build, "no")
    opened.release(build)
    plan = reconcile(GRAPH, CatalogFacts(opened.connection), now=NOW, limits=LIMITS)
    assert [len(run.partitions) for run in plan.runs] == [2, 2]


def test_a_look_at_what_failed_together_reads_each_failure_a_few_times(opened: Catalog) -> None:
    days = [PartitionKey.of(day=DAY.start.date() + dt.timedelta(days=number)) for number in range(300)]
    Environments(opened.connection).create("trial", by="me")
    for catalog in (opened, EnvironmentCatalog(opened.connection, "trial")):
        build = begin(catalog, DAILY, *days)
        catalog.fail(build, "one of them is broken")
        catalog.release(build)
    for paths in (None, [days[5].path]):
        for facts_of_all in (CatalogFacts(opened.connection), EnvironmentFacts(opened.connection, "trial", GRAPH)):
            with opened.connection.transaction():
                found = facts_of_all.of("p.daily", paths)
                row = opened.connection.execute(_ROWS_READ).fetchone()
            assert [[failure.together for failure in fact.failures] for fact in found.values()] == [[300]] * len(found)
            assert len(found) == (300 if paths is None else 1)
            # 90,000 and more of all, where each failure counted the others.
            assert row is not None
            assert row[0] < 20_000


def test_outages_however_many_hide_no_failure_that_counts(opened: Catalog) -> None:
    key = PartitionKey.of(day=DAY.start.date())
    Environments(opened.connection).create("trial", by="me")
    for catalog in (opened, EnvironmentCatalog(opened.connection, "trial")):
        for number in range(43):
            build = begin(catalog, DAILY, key)
            catalog.fail(build, "why", outage=number not in (1, 2, 42))
            catalog.release(build)
    for facts_of_all in (CatalogFacts(opened.connection), EnvironmentFacts(opened.connection, "trial", GRAPH)):
        failures = facts_of_all.of("p.daily", [key.path])[key.path].failures
        assert sum(not failure.outage for failure in failures) == 3
        assert not failures[-1].outage
        assert [failure.outage for failure in failures[-4:-1]] == [True] * 3
        assert sorted(failures, key=lambda failure: failure.began) == list(failures)


@pytest.mark.parametrize("ahead", [-3_600, 3_600])
def test_it_is_tried_again_by_the_clock_of_whoever_waits_where_the_servers_is_another(
    opened: Catalog, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    arrive(opened, day(1), "a")
    build = begin(opened, DAILY, day(1))
    opened.fail(build, "no")
    opened.release(build)
    here = pendulum.now("UTC").add(seconds=ahead)
    monkeypatch.setattr(facts, "time", SimpleNamespace(time=here.timestamp))
    limits = Limits(RetryLimits(attempts=3, first=60.0))

    def state(seconds: int) -> State:
        now = here.add(seconds=seconds)
        (judgement,) = (
            reconcile(GRAPH, CatalogFacts(opened.connection), now=now, limits=limits).judgements["p.daily"].values()
        )
        return judgement.state

    assert state(30) is State.BACKING_OFF
    assert state(90) is State.DUE


def test_a_mark_outlives_the_build_that_began_before_it_and_not_the_next(opened: Catalog) -> None:
    arrive(opened, day(1), "a")
    finish(opened, begin(opened, DAILY, day(1)))
    slow = begin(opened, DAILY, day(1))
    number = Backfills(opened.connection).add({"p.daily": [day(1).path]}, reason="wrong prices", owner="me")
    finish(opened, slow)
    assert states(opened)[day(1).path] is State.DUE
    assert Backfills(opened.connection).listed(number)[0].left == {"p.daily": 1}
    finish(opened, begin(opened, DAILY, day(1)))
    assert states(opened)[day(1).path] is State.CURRENT
    assert Backfills(opened.connection).listed(number)[0].state == "done"


def test_a_backfill_is_paused_resumed_and_cancelled_and_then_over(opened: Catalog) -> None:
    arrive(opened, day(1), "a")
    finish(opened, begin(opened, DAILY, day(1)))
    backfills = Backfills(opened.connection)
    number = backfills.add({"p.daily": [day(1).path]}, reason="wrong", owner="me")
    assert backfills.pause(number).state == "paused"
    assert states(opened)[day(1).path] is State.ON_HOLD
    assert backfills.resume(number).state == "running"
    assert states(opened)[day(1).path] is State.DUE
    assert backfills.cancel(number).state == "cancelled"
    assert backfills.listed(number)[0].left == {"p.daily": 1}
    assert states(opened)[day(1).path] is State.CURRENT
    with pytest.raises(VarveError, match=f"backfill {number} is cancelled. Nothing was changed"):
        backfills.resume(number)
    with pytest.raises(VarveError, match="there is no backfill 99"):
        backfills.pause(99)


def test_a_backfill_that_somebody_cancels_in_this_moment_is_not_paused(opened: Catalog, fresh_database: str) -> None:
    backfills = Backfills(opened.connection)
    number = backfills.add({"p.daily": [day(1).path]}, reason="wrong", owner="me")
    waiting = "select from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'pausing'"

    def pause() -> None:
        with psycopg.connect(fresh_database, autocommit=True, application_name="pausing") as connection:
            Backfills(connection).pause(number)

    with ThreadPoolExecutor(1) as pool:
        with opened.connection.transaction():
            backfills.cancel(number)
            paused = pool.submit(pause)
            with psycopg.connect(fresh_database, autocommit=True) as other:
                deadline = time.monotonic() + 30
                while other.execute(waiting).fetchone() is None:
                    assert time.monotonic() < deadline, "who pauses did not wait for who cancels"
                    other.execute("select pg_sleep(0.02)")
        with pytest.raises(VarveError, match=f"backfill {number} is cancelled. Nothing was changed"):
            paused.result(timeout=30)
    assert backfills.listed(number)[0].state == "cancelled"


def test_a_backfill_does_not_wait_for_what_leaves_the_graph(opened: Catalog) -> None:
    backfills = Backfills(opened.connection)
    number = backfills.add({"p.daily": [day(1).path, day(2).path]}, reason="wrong", owner="me")
    backfills.leave_out("p.daily", [day(1).path])
    assert backfills.listed(number)[0].left == {"p.daily": 1}
    backfills.leave_out("p.daily", [day(2).path])
    assert backfills.listed(number)[0].state == "done"


@pytest.mark.parametrize("ended", ["left out", "dropped", "moved"])
def test_what_comes_after_its_backfill_has_ended_is_not_accepted_for_its_sake(opened: Catalog, ended: str) -> None:
    week = PartitionKey.of(week=dt.date(2024, 1, 1))
    for number in range(1, 8):
        arrive(opened, day(number), "a")
        last = begin(opened, DAILY, day(number))
        finish(opened, last)
    finish(opened, begin(opened, WEEKLY, week))
    backfills = Backfills(opened.connection)
    awaited = AcceptedInput("p.weekly", week.path, "p.daily", day(1).path)
    backfills.add({"p.daily": [day(1).path]}, reason="a typing error", owner="me", accepted=[awaited])
    if ended == "left out":
        backfills.leave_out("p.daily", [day(1).path])
    elif ended == "moved":
        kept = [day(number).path for number in range(2, 8)]
        Generations(opened.connection).move("p.daily", 0, last.batch_id.millis, kept)
    else:
        Drops(opened.connection).drop("p.daily", by="me")
        for number in range(1, 8):
            arrive(opened, day(number), "b")
    finish(opened, begin(opened, DAILY, *(day(number) for number in range(1, 8))))
    assert states(opened)[week.path] is State.DUE
    assert Acceptances(opened.connection).paths("p.weekly") == []


def test_every_kind_of_change_is_seen_by_the_next_look_and_by_no_other(opened: Catalog) -> None:
    changes = Changes()
    connection = opened.connection

    def seen() -> set[str]:
        changed = changes.since_last(connection, living(connection))
        assert changed is not None
        return changed.get("p.daily", set())

    assert changes.since_last(connection, {}) is None
    assert seen() == set()
    arrive(opened, day(1), "a")
    assert seen() == {day(1).path}
    assert seen() == set()
    build = begin(opened, DAILY, day(1))
    assert seen() == {day(1).path}
    finish(opened, build)
    assert seen() == {day(1).path}
    number = Backfills(connection).add({"p.daily": [day(2).path]}, reason="r", owner="me")
    assert seen() == {day(2).path}
    Backfills(connection).pause(number)
    assert seen() == {day(2).path}
    build = begin(opened, DAILY, day(3))
    opened.fail(build, "no")
    opened.release(build)
    assert seen() == {day(3).path}
    taken = opened.lock_partitions(DAILY, [day(1)], run_id="back")
    opened.repoint(taken, {})
    opened.release(taken)
    assert seen() == {day(1).path}
    # What readers of Hive are shown is nothing to the planner.
    connection.execute("update varve.current set projected_batch_id = batch_id")
    assert seen() == set()


def test_a_planner_that_lives_deletes_old_changes_and_one_that_only_looks_does_not(
    opened: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives, looks, connection = Changes(), Changes(only_looks=True), opened.connection

    def kept() -> int:
        for changes in (looks, lives):
            changes.since_last(connection, {})
        (count,) = connection.execute("select count(*) from varve.change").fetchone() or (-1,)
        return int(count)

    arrive(opened, day(1), "a")
    assert kept() == 1
    connection.execute("update varve.change set at = at - interval '25 hours'")
    # It has done so within the hour.
    assert kept() == 1
    monkeypatch.setattr(facts, "_FORGETS", dt.timedelta(0))
    looks.since_last(connection, {})
    assert kept() == 0


def test_a_change_that_commits_after_a_later_one_was_seen_is_not_missed(opened: Catalog, fresh_database: str) -> None:
    changes = Changes()
    changes.since_last(opened.connection, {})
    with psycopg.connect(fresh_database) as slow:
        arrive(Catalog(slow), day(1), "a")
        arrive(opened, day(2), "a")
        assert changes.since_last(opened.connection, {}) == {"p.daily": {day(2).path}}
        slow.commit()
    changed = changes.since_last(opened.connection, {})
    assert changed is not None
    assert day(1).path in changed["p.daily"]


def test_where_the_catalog_is_another_one_than_at_the_look_before_all_is_judged(opened: Catalog) -> None:
    changes = Changes()
    changes.since_last(opened.connection, {})
    assert changes.since_last(opened.connection, {}) == {}
    # As before a dump is restored: its rows are none of the changes that were noted since the look before.
    opened.connection.execute("drop schema varve cascade")
    Catalog(opened.connection).ensure_schema()
    assert changes.since_last(opened.connection, {}) is None
    assert changes.since_last(opened.connection, {}) == {}


def test_where_the_server_is_another_one_than_at_the_look_before_all_is_judged(
    opened: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = Changes()
    changes.since_last(opened.connection, {})
    other_start = statements.HORIZON.replace(
        "pg_postmaster_start_time()", "pg_postmaster_start_time() - '1 day'::interval"
    )
    monkeypatch.setattr(statements, "HORIZON", other_start)
    assert changes.since_last(opened.connection, {}) is None
    assert changes.since_last(opened.connection, {}) == {}


def test_a_planner_that_follows_the_catalog_finds_what_a_fresh_look_finds(opened: Catalog) -> None:
    planner, changes = Planner(GRAPH, LIMITS), Changes()

    def steps() -> Iterator[None]:
        for number in range(1, 15):
            arrive(opened, day(number), "a")
            yield
        finish(opened, begin(opened, DAILY, *map(day, range(1, 9))), content="x")
        yield
        build = begin(opened, DAILY, day(9), day(10))
        yield
        opened.fail(build, "no")
        opened.release(build)
        yield
        finish(opened, begin(opened, WEEKLY, PartitionKey.of(week=dt.date(2024, 1, 1))))
        yield
        Backfills(opened.connection).add(
            {"p.daily": [day(2).path], "p.weekly": ["week=2024-01-01"]}, reason="r", owner="o"
        )
        yield
        finish(opened, begin(opened, DAILY, day(2)), content="y")
        yield

    looked_at = []
    for _ in steps():
        in_flight = living(opened.connection)
        changed = changes.since_last(opened.connection, in_flight)
        facts = CatalogFacts(opened.connection, in_flight)
        plan = planner.tick(facts, changed, now=NOW)
        fresh = reconcile(GRAPH, facts, now=NOW, limits=LIMITS)
        assert [run.identity for run in plan.runs] == [run.identity for run in fresh.runs]
        for name, judged in fresh.judgements.items():
            unsettled = {
                path: judgement
                for path, judgement in judged.items()
                if judgement.state is not State.CURRENT or judgement.pending
            }
            assert dict(plan.judgements[name]) == unsettled
        looked_at.append(plan.looked_at)
    assert looked_at[-1] <= 3
