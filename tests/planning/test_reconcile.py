"""A scheduler whose only state is the data: it converges to a clean rebuild, in few runs, whatever happens."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING
from unittest import mock

import pendulum
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planning.world import LIMITS, World
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import VarveError
from varve.model.partitions.dimension import Dimension, DynamicDimension, StaticDimension, TimeDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.policy import OnUpstreamChange, Policy
from varve.model.reads import All, Reads, Wait, trailing
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.graph import Graph
from varve.planning.judgement.code import CodeState
from varve.planning.judgement.judgement import State
from varve.planning.reconcile import Limits, Planner, reconcile
from varve.planning.tick import Tick

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.planning.run_requests import Run

START = pendulum.datetime(2024, 1, 1)
HOUR = TimeDimension("hour", "@hourly", START)
SHIFTED = TimeDimension("hour", "30 * * * *", START.add(minutes=30))
DAY = TimeDimension("day", "@daily", START)
WEEK = TimeDimension("week", "0 0 * * 1", START)
MONTH = TimeDimension("month", "@monthly", START)
YEAR = TimeDimension("year", "@yearly", START)
STORE = StaticDimension("store", ("Detroit", "Paris"))
TENANT = DynamicDimension("tenant", "tenants")


def dataset(name: str, *dimensions: Dimension, landing: bool = False, policy: Policy | None = None) -> Dataset:
    return Dataset(
        f"t.{name}", Partitioning(dimensions), Schema((Column("n", ColumnType.BIGINT),)), StoreKind.LAKE, "One row.",
        landing=landing, policy=policy or Policy(),
    )  # fmt: skip


def graph(reads: dict[Dataset, Sequence[Dataset | Reads]]) -> Graph:
    wrapped = {
        dataset.name: tuple(read if isinstance(read, Reads) else Reads(read) for read in above)
        for dataset, above in reads.items()
    }
    return Graph({dataset.name: dataset for dataset in reads}, wrapped, {dataset.name: "1" for dataset in reads})


def world(reads: dict[Dataset, Sequence[Dataset | Reads]], *, days: float = 60, **settings: object) -> World:
    return World(graph(reads), START.add(days=days).timestamp(), **settings)  # type: ignore[arg-type]


def hours(day: int) -> list[str]:
    return [f"hour=2024-01-{day:02}T{hour:02}" for hour in range(24)]


def texts(runs: Sequence[Run]) -> list[str]:
    return [f"{run.dataset.table} {run.first} ... {run.last}" for run in runs]


HOURLY, DAILY, WEEKLY = dataset("hourly", HOUR, landing=True), dataset("daily", DAY), dataset("weekly", WEEK)
CHAIN: dict[Dataset, Sequence[Dataset | Reads]] = {HOURLY: [], DAILY: [HOURLY], WEEKLY: [DAILY]}


def test_24_hours_are_one_day_and_a_day_that_misses_one_waits_for_it() -> None:
    simulation = world(CHAIN)
    for path in hours(1)[:-1]:
        simulation.arrive("t.hourly", path, "a1")
    simulation.until_quiet()
    assert set(simulation.builds) == {("t.hourly", path) for path in hours(1)[:-1]}
    assert simulation.states("t.daily") == {"day=2024-01-01": State.WAITING}
    simulation.arrive("t.hourly", hours(1)[-1], "a1")
    simulation.until_quiet()
    assert simulation.builds["t.daily", "day=2024-01-01"] == 1


def test_a_late_rerun_of_one_hour_rebuilds_exactly_its_day_and_its_week_once() -> None:
    simulation = world(CHAIN)
    for day in range(1, 15):
        for path in hours(day):
            simulation.arrive("t.hourly", path, "a1")
    simulation.until_quiet(check=False)
    assert simulation.contents == simulation.clean()
    before = simulation.builds.copy()
    simulation.arrive("t.hourly", hours(3)[7], "b1")
    simulation.until_quiet()
    assert simulation.builds - before == {
        ("t.hourly", hours(3)[7]): 1, ("t.daily", "day=2024-01-03"): 1, ("t.weekly", "week=2024-01-01"): 1,
    }  # fmt: skip
    assert simulation.contents == simulation.clean()


def test_a_rerun_that_holds_the_same_rows_goes_no_further() -> None:
    simulation = world(CHAIN)
    for path in hours(1):
        simulation.arrive("t.hourly", path, "a1")
    simulation.until_quiet()
    before = simulation.builds.copy()
    simulation.arrive("t.hourly", hours(1)[7], "a2")
    simulation.until_quiet()
    assert simulation.builds - before == {("t.hourly", hours(1)[7]): 1}
    assert simulation.contents == simulation.clean()


def test_a_year_becomes_its_12_months() -> None:
    yearly, monthly = dataset("yearly", YEAR, landing=True), dataset("monthly", MONTH)
    simulation = world({yearly: [], monthly: [yearly]}, days=800)
    simulation.arrive("t.yearly", "year=2024-01-01", "a1")
    simulation.until_quiet()
    assert simulation.builds == {
        ("t.yearly", "year=2024-01-01"): 1, **{("t.monthly", f"month=2024-{n:02}-01"): 1 for n in range(1, 13)},
    }  # fmt: skip


def test_misaligned_windows_wait_for_both_that_they_overlap() -> None:
    shifted = dataset("shifted", SHIFTED)
    simulation = world({HOURLY: [], shifted: [HOURLY]})
    simulation.arrive("t.hourly", "hour=2024-01-01T14", "a1")
    simulation.until_quiet()
    assert ("t.shifted", "hour=2024-01-01T14%3A30") not in simulation.builds
    simulation.arrive("t.hourly", "hour=2024-01-01T15", "a1")
    simulation.until_quiet()
    assert simulation.builds["t.shifted", "hour=2024-01-01T14%3A30"] == 1


def test_what_was_made_by_hand_from_what_is_current_is_not_run_again() -> None:
    simulation = world(CHAIN)
    simulation.arrive("t.hourly", "hour=2024-01-01T00", "a1")
    simulation.set(
        "t.hourly", "hour=2024-01-01T00", batch=7, published=simulation.now,
        trace=(("landing:t.hourly", "hour=2024-01-01T00", "a1"),),
    )  # fmt: skip
    assert simulation.tick().runs == ()


def test_a_dataset_that_holds_waits_for_a_person() -> None:
    landed = dataset("landed", DAY, landing=True)
    holding = dataset("holding", DAY, policy=Policy(OnUpstreamChange.HOLD))
    simulation = world({landed: [], holding: [landed]})
    day = "day=2024-01-01"
    simulation.arrive("t.landed", day, "a1")
    simulation.until_quiet()
    simulation.arrive("t.landed", day, "b1")
    simulation.until_quiet()
    assert simulation.builds["t.holding", day] == 1
    assert simulation.states("t.holding") == {day: State.ON_HOLD}
    simulation.mark("t.holding", day)
    simulation.until_quiet()
    assert simulation.builds["t.holding", day] == 2
    assert simulation.contents == simulation.clean()


def test_the_newest_windows_are_refreshed_once_for_each_window_that_completes() -> None:
    root = dataset("root", DAY, policy=Policy(by_itself=True, refresh_last=2))
    simulation = world({root: []}, days=3)
    simulation.until_quiet()
    assert simulation.builds == {("t.root", f"day=2024-01-0{day}"): 1 for day in (1, 2, 3)}
    simulation.advance(86_400)
    simulation.until_quiet()
    assert simulation.builds == {
        ("t.root", "day=2024-01-01"): 1, ("t.root", "day=2024-01-02"): 1,
        ("t.root", "day=2024-01-03"): 2, ("t.root", "day=2024-01-04"): 1,
    }  # fmt: skip


def test_a_deadline_lets_a_partition_go_without_what_is_missing_and_catch_up_later() -> None:
    patient = dataset("patient", DAY)
    simulation = world({HOURLY: [], patient: [Reads(HOURLY, wait=Wait(deadline=dt.timedelta(hours=6)))]}, days=1)
    for path in hours(1)[:20]:
        simulation.arrive("t.hourly", path, "a1")
    simulation.until_quiet()
    day = ("t.patient", "day=2024-01-01")
    assert simulation.builds[day] == 0
    simulation.advance(6 * 3_600)
    simulation.until_quiet()
    assert simulation.builds[day] == 1
    simulation.arrive("t.hourly", hours(1)[20], "a1")
    simulation.until_quiet()
    assert simulation.builds[day] == 2


def test_one_bad_partition_of_a_run_of_many_is_isolated_and_then_given_up() -> None:
    landed = dataset("landed", DAY, landing=True)
    bad = "day=2024-01-11"
    simulation = world({landed: []}, broken=lambda _, path: path == bad)
    for day in range(1, 17):
        simulation.arrive("t.landed", f"day=2024-01-{day:02}", "a1")
    simulation.until_quiet()
    assert set(simulation.builds) == {("t.landed", f"day=2024-01-{day:02}") for day in range(1, 17)} - {
        ("t.landed", bad)
    }
    assert simulation.states("t.landed")[bad] is State.FAILED
    # 16, then halves: 8 and 8, 4 and 4, 2 and 2, 1 and 1; the bad one alone has three attempts.
    assert len(simulation.launched) == 1 + 2 + 2 + 2 + 2 + 2
    simulation.arrive("t.landed", bad, "b1")
    simulation.broken = lambda *_: False
    simulation.until_quiet()
    assert simulation.contents == simulation.clean()


def test_failures_back_off_exponentially() -> None:
    landed = dataset("landed", DAY, landing=True)
    simulation = world({landed: []}, broken=lambda *_: True, lasts=lambda _: 0.3)
    simulation.arrive("t.landed", "day=2024-01-01", "a1")
    at = []
    for _ in range(60):
        at += [simulation.now] * len(simulation.tick().runs)
        simulation.advance(10)
    assert [second - first for first, second in pairwise(at)] == [70, 130]


def test_a_service_that_is_away_for_hours_gives_nothing_up_and_halves_no_run() -> None:
    landed = dataset("landed", DAY, landing=True)
    simulation = world({landed: []})
    simulation.away = True
    for day in range(1, 9):
        simulation.arrive("t.landed", f"day=2024-01-{day:02}", "a1")
    launched = []
    for _ in range(360):
        launched += [simulation.now] * len(simulation.tick().runs)
        simulation.advance(30)
    # Three hours: soon at first, then each ten minutes.
    assert 15 <= len(launched) <= 25
    assert max(second - first for first, second in pairwise(launched)) <= 660
    assert {len(run.partitions) for run in simulation.launched} == {8}
    simulation.away = False
    simulation.until_quiet()
    assert simulation.contents == simulation.clean()
    assert set(simulation.states("t.landed").values()) == {State.CURRENT}


def test_failures_of_its_own_count_beside_outages_however_many_there_are() -> None:
    landed = dataset("landed", DAY, landing=True)
    day = "day=2024-01-01"
    simulation = world({landed: []}, broken=lambda *_: True)
    simulation.arrive("t.landed", day, "a1")
    for away in (False, True, True, False, True, False):
        simulation.away, before = away, len(simulation.launched)
        while len(simulation.launched) == before:
            simulation.tick()
            simulation.advance(30)
    simulation.until_quiet()
    assert simulation.states("t.landed")[day] is State.FAILED
    assert len(simulation.launched) == 6


def test_a_mark_set_while_its_partition_is_built_survives_that_build() -> None:
    landed = dataset("landed", DAY, landing=True)
    simulation = world({landed: []})
    day = "day=2024-01-01"
    simulation.arrive("t.landed", day, "a1")
    simulation.tick()
    simulation.advance(15)
    simulation.mark("t.landed", day)
    simulation.until_quiet()
    assert simulation.builds["t.landed", day] == 2


def test_marked_partitions_run_upstream_first_and_after_fresh_data() -> None:
    simulation = world(CHAIN)
    for path in hours(1):
        simulation.arrive("t.hourly", path, "a1")
    simulation.until_quiet()
    for path in hours(1):
        simulation.mark("t.hourly", path)
    simulation.mark("t.daily", "day=2024-01-01")
    simulation.arrive("t.hourly", hours(2)[0], "a1")
    plan = simulation.tick()
    assert texts(plan.runs) == [
        "hourly hour=2024-01-02T00 ... hour=2024-01-02T00",
        "hourly hour=2024-01-01T00 ... hour=2024-01-01T15",
        "hourly hour=2024-01-01T16 ... hour=2024-01-01T23",
    ]
    simulation.until_quiet()
    assert simulation.builds["t.daily", "day=2024-01-01"] == 2


def test_a_paused_backfill_launches_nothing() -> None:
    landed = dataset("landed", DAY, landing=True)
    simulation = world({landed: []})
    simulation.arrive("t.landed", "day=2024-01-01", "a1")
    simulation.until_quiet()
    simulation.mark("t.landed", "day=2024-01-01", paused=True)
    assert simulation.tick().runs == ()
    assert simulation.states("t.landed") == {"day=2024-01-01": State.ON_HOLD}


def test_a_paused_backfill_gives_no_other_cause_a_reason_to_launch_anything() -> None:
    landed, daily = dataset("landed", DAY, landing=True), dataset("daily", DAY)
    simulation = world({landed: [], daily: [landed]})
    simulation.arrive("t.landed", "day=2024-01-01", "a1")
    simulation.until_quiet()
    simulation.arrive("t.landed", "day=2024-01-01", "a2")
    simulation.until_quiet()
    simulation.advance(60)
    # A person goes back to the first batch, of which an input has changed since.
    first = simulation.fact("t.daily", "day=2024-01-01").trace
    trace = tuple((source, path, "1") for source, path, _ in first)
    simulation.set("t.daily", "day=2024-01-01", trace=trace, rolled_back=simulation.now)
    simulation.advance(60)
    assert simulation.states("t.daily") == {"day=2024-01-01": State.ON_HOLD}
    simulation.mark("t.daily", "day=2024-01-01", paused=True)
    simulation.advance(60)
    assert simulation.tick().runs == ()
    assert simulation.states("t.daily") == {"day=2024-01-01": State.ON_HOLD}


def test_what_left_the_graph_is_retired_and_what_reads_it_does_not_miss_it() -> None:
    keeps = dataset("keeps", DAY, landing=True, policy=Policy(retention=dt.timedelta(days=3)))
    simulation = world({keeps: []}, days=2)
    for day in (1, 2):
        simulation.arrive("t.keeps", f"day=2024-01-0{day}", "a1")
    simulation.until_quiet()
    simulation.advance(2 * 86_400)
    assert simulation.tick().retire == {"t.keeps": ("day=2024-01-01",)}
    simulation.advance(86_400)
    assert simulation.tick().retire == {"t.keeps": ("day=2024-01-02",)}
    assert simulation.until_quiet() == 0


def test_a_mark_of_what_was_never_computed_ends_with_its_retention() -> None:
    keeps = dataset("keeps", DAY, policy=Policy(retention=dt.timedelta(days=2)))
    source = dataset("source", DAY, landing=True)
    simulation = world({source: [], keeps: [Reads(source)]}, days=2)
    for path in ("day=2024-01-01", "day=2024-01-02"):
        simulation.mark("t.keeps", path)
    # It waits for its input, and may still be computed.
    assert simulation.tick().unmark == {}
    simulation.advance(86_400)
    plan = simulation.tick()
    assert (plan.unmark, plan.retire) == ({"t.keeps": ("day=2024-01-01",)}, {})
    assert plan.judgements["t.keeps"]["day=2024-01-01"].state is State.UNWANTED
    assert simulation.tick().unmark == {}
    simulation.advance(86_400)
    assert simulation.tick().unmark == {"t.keeps": ("day=2024-01-02",)}
    # So it is where it was past its retention when it was marked.
    simulation.mark("t.keeps", "day=2024-01-01")
    assert simulation.tick().unmark == {"t.keeps": ("day=2024-01-01",)}
    assert simulation.until_quiet() == 0


def test_a_key_that_was_removed_is_retired() -> None:
    tenants = dataset("tenants", DAY, TENANT, landing=True)
    simulation = world({tenants: []}, members={"tenants": ("a", "b")})
    for tenant in ("a", "b"):
        simulation.arrive("t.tenants", f"day=2024-01-01/tenant={tenant}", "a1")
    simulation.until_quiet()
    simulation.members = {"tenants": ("a",)}
    assert simulation.tick().retire == {"t.tenants": ("day=2024-01-01/tenant=b",)}


def test_a_clock_that_jumps_back_and_forth_builds_nothing_twice() -> None:
    simulation = world(CHAIN)
    for path in hours(1):
        simulation.arrive("t.hourly", path, "a1")
    simulation.until_quiet()
    before = simulation.builds.copy()
    for jump in (-10 * 86_400, 20 * 86_400, -3_600, 60):
        simulation.now += jump
        assert simulation.tick().runs == ()
    assert simulation.builds == before


@pytest.mark.parametrize("ahead", [0.4, 3_600.0])
def test_a_file_that_was_sent_again_by_a_clock_that_is_ahead_of_ours_is_taken_when_ours_is_as_far(ahead: float) -> None:
    simulation = world({HOURLY: []})
    simulation.broken = lambda *_: True
    hour = hours(1)[0]
    simulation.arrive("t.hourly", hour, "a1")
    simulation.until_quiet()
    assert simulation.states("t.hourly") == {hour: State.FAILED}
    simulation.broken = lambda *_: False
    simulation.set("t.hourly", hour, arrival="b1", arrived=simulation.now + ahead)
    # Which failures were of the new file is not known yet, and what was given up must not be tried for ever.
    assert simulation.tick().runs == ()
    simulation.advance(ahead)
    simulation.until_quiet()
    assert simulation.states("t.hourly") == {hour: State.CURRENT}


def test_code_that_was_deployed_by_a_clock_that_is_ahead_of_ours_is_tried_when_ours_is_as_far() -> None:
    simulation = world({HOURLY: []})
    simulation.broken = lambda *_: True
    simulation.arrive("t.hourly", hours(1)[0], "a1")
    simulation.until_quiet()
    ahead = simulation.now + 60.0
    simulation.codes = {"t.hourly": CodeState("2", "2", deployed_at=ahead, changed_at=ahead)}
    simulation.broken = lambda *_: False
    assert simulation.tick().runs == ()
    assert simulation.states("t.hourly") == {hours(1)[0]: State.FAILED}
    simulation.advance(60.0)
    assert simulation.until_quiet()
    assert simulation.builds == {("t.hourly", hours(1)[0]): 1}


def test_a_graph_that_explodes_is_refused_by_name_before_anything_is_launched() -> None:
    minutes = dataset("minutes", TimeDimension("minute", "* * * * *", START), policy=Policy(by_itself=True))
    limits = Limits(LIMITS.patience, looked_at=10_000)
    simulation = world({minutes: []}, days=10, limits=limits)
    with pytest.raises(VarveError, match=r"t\.minutes: 14,400 partitions to look at in one tick, above .* 10,000"):
        simulation.tick()


def test_a_tick_that_lost_its_facts_leaves_nothing_half_known() -> None:
    simulation = world(CHAIN)
    simulation.arrive("t.hourly", hours(1)[0], "a1")
    simulation.tick()
    simulation.arrive("t.hourly", hours(1)[1], "a1")

    class Lost:
        def of(self, *_: object) -> dict[str, object]:
            raise VarveError("gone")

    with pytest.raises(VarveError, match="gone"):
        simulation.planner.tick(Lost(), {"t.hourly": {hours(1)[1]}}, now=pendulum.from_timestamp(simulation.now))  # type: ignore[arg-type]
    simulation.until_quiet()
    assert set(simulation.builds) == {("t.hourly", path) for path in hours(1)[:2]}


def test_an_idle_tick_looks_at_nothing_and_one_publish_at_what_reads_it() -> None:
    simulation = world(CHAIN)
    for day in range(1, 15):
        for path in hours(day):
            simulation.arrive("t.hourly", path, "a1")
    simulation.until_quiet(check=False)
    assert simulation.tick(check=False).looked_at == 0
    simulation.arrive("t.hourly", hours(3)[7], "b1")
    # The hour, its day and its week.
    assert simulation.tick(check=False).looked_at == 3


def test_requests_that_died_with_their_tick_are_made_again_and_those_that_did_not_are_not() -> None:
    simulation = world(CHAIN)
    for path in hours(1):
        simulation.arrive("t.hourly", path, "a1")
    asked = simulation.tick(launches=False).runs
    assert asked
    # The code server lives and has seen all changes; only the daemon died, before it took the requests.
    assert [run.identity for run in simulation.tick(launches=False).runs] == [run.identity for run in asked]
    # And now it dies after it took them, before the cursor moved, and the code location with it.
    simulation.tick()
    simulation.reload()
    assert simulation.tick().runs == ()
    simulation.until_quiet()
    assert set(simulation.builds.values()) == {1}
    assert simulation.contents == simulation.clean()


def test_two_schedulers_by_mistake_ask_for_the_same_under_the_same_keys() -> None:
    simulation = world(CHAIN)
    for path in hours(1):
        simulation.arrive("t.hourly", path, "a1")
    asked = simulation.tick(launches=False).runs
    simulation.reload()
    # Dagster starts one run for one key, whoever asks for it.
    assert [run.identity for run in simulation.tick().runs] == [run.identity for run in asked]


# A diamond, a trailing window, a product, one that reads all, and one beside them that shares nothing.
SIDE = dataset("side", DAY, landing=True)
TRAILING = dataset("trailing", DAY)
BOTH = dataset("both", DAY, STORE)
ALONE = dataset("alone", STORE, landing=True)
WHOLE = dataset("whole", STORE)
MIXED: dict[Dataset, Sequence[Dataset | Reads]] = {
    HOURLY: [], DAILY: [HOURLY], WEEKLY: [DAILY], SIDE: [], TRAILING: [Reads(SIDE, {"day": trailing(3)})],
    BOTH: [DAILY, TRAILING], ALONE: [], WHOLE: [Reads(BOTH, {"day": All()}), ALONE],
}  # fmt: skip
LANDED = [
    *(("t.hourly", path) for day in (1, 2) for path in hours(day)[::6]),
    *(("t.side", f"day=2024-01-0{day}") for day in (1, 2, 3)),
    *(("t.alone", f"store={store}") for store in ("Detroit", "Paris")),
]
FEW_HOURS = replace(HOURLY, partitioning=Partitioning((TimeDimension("hour", "0 */6 * * *", START),)))
SMALL = {
    (FEW_HOURS if each is HOURLY else each): [FEW_HOURS if found is HOURLY else found for found in above]
    for each, above in MIXED.items()
}
EVENTS = st.one_of(
    st.tuples(st.just("arrive"), st.sampled_from(LANDED), st.sampled_from(["a1", "a2", "b1", "c1"])),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 10.0, 45.0, 400.0, 4_000.0, -900.0, 90_000.0]), st.just("")),
    st.tuples(st.just("mark"), st.sampled_from([*LANDED, ("t.daily", "day=2024-01-01")]), st.just("")),
    st.tuples(st.just("withdraw"), st.sampled_from([*LANDED, ("t.daily", "day=2024-01-02")]), st.just("")),
    st.tuples(st.just("breaks"), st.sampled_from([*LANDED, ("t.daily", "day=2024-01-01")]), st.just("")),
    st.tuples(st.just("mended"), st.just(("", "")), st.just("")),
    st.tuples(st.sampled_from(["reload", "lost"]), st.just(("", "")), st.just("")),
)


@settings(max_examples=120)
@given(st.lists(EVENTS, max_size=40), st.lists(st.sampled_from([1.0, 30.0, 200.0, 3_000.0]), min_size=1, max_size=5))
def test_whatever_happens_it_converges_to_a_clean_rebuild(  # noqa: PLR0912 - one for each event
    events: list[tuple[str, object, str]], lengths: list[float]
) -> None:
    broken: set[object] = set()
    simulation = world(
        SMALL, days=3, broken=lambda dataset, path: (dataset, path) in broken,
        lasts=lambda run: lengths[run.first.path.__len__() % len(lengths)],
    )  # fmt: skip
    for happening, which, content in events:
        if happening == "wait":
            assert isinstance(which, float)
            if which < 0:
                simulation.now += which
            else:
                simulation.advance(which)
            # Every tick: incremental is fresh, nothing is built twice at once, or before its inputs, or for the same.
            simulation.tick()
            continue
        name, path = which  # type: ignore[misc]
        if happening == "arrive":
            simulation.arrive(name, path, content)
        elif happening == "mark":
            simulation.mark(name, path)
        elif happening == "withdraw" and simulation.fact(name, path).batch and not simulation.fact(name, path).run:
            simulation.withdraw(name, path)
        elif happening == "breaks":
            broken.add((name, path))
        elif happening == "mended":
            broken.clear()
        elif happening == "reload":
            simulation.reload()
        elif happening == "lost":
            simulation.tick(launches=False)
    broken.clear()
    simulation.until_quiet(every=600)
    for dataset, judged in ((name, simulation.states(name)) for name in simulation.graph.datasets):
        for path, state in judged.items():
            if state is State.FAILED:
                # A person says that it is mended.
                simulation.mark(dataset, path)
    simulation.until_quiet(every=600)
    clean = simulation.clean()
    assert {place: simulation.contents.get(place) for place in clean} == clean
    # And once it has converged nothing more is asked for, however much time passes.
    for _ in range(3):
        simulation.advance(4_000)
        assert simulation.tick().runs == ()


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            EVENTS.filter(lambda event: event[0] in {"arrive", "mark", "withdraw", "wait"}),
            st.tuples(st.just("cannot"), st.sampled_from([each.name for each in SMALL]), st.just("")),
            st.tuples(st.just("can"), st.just(("", "")), st.just("")),
        ),
        max_size=30,
    )
)
def test_what_could_not_be_judged_is_judged_whole_at_the_next_tick_and_the_rest_is_not(
    events: list[tuple[str, object, str]],
) -> None:
    failing, judge_dataset = set[str](), Tick.judge_dataset

    def judged(tick: Tick, dataset: Dataset) -> int:
        if dataset.name in failing:
            raise RuntimeError("a defect")
        return judge_dataset(tick, dataset)

    with mock.patch.object(Tick, "judge_dataset", judged):
        simulation = world(SMALL, days=3)
        simulation.planner = Planner(
            simulation.graph, simulation.limits, fatal=(AssertionError, LookupError, VarveError)
        )
        for happening, which, content in [*events, ("can", "", ""), ("wait", 45.0, "")]:
            if happening == "cannot":
                failing.add(str(which))
            elif happening == "can":
                failing.clear()
            elif happening == "wait":
                assert isinstance(which, float)
                simulation.advance(max(which, 0.0))
                plan = simulation.tick(check=not failing, launches=not failing)
                assert plan.failed.keys() == failing
            else:
                name, path = which  # type: ignore[misc]
                if happening == "arrive":
                    simulation.arrive(name, path, content)
                elif happening == "mark":
                    simulation.mark(name, path)
                elif simulation.fact(name, path).batch and not simulation.fact(name, path).run:
                    simulation.withdraw(name, path)
        assert simulation.tick().looked_at < 40, "nothing has changed since"


@pytest.mark.needs_seconds
@settings(max_examples=30)
@given(st.sets(st.sampled_from(LANDED), min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_what_fails_for_ever_starves_nothing_but_what_reads_it(bad: set[tuple[str, str]], random: object) -> None:
    simulation = world(SMALL, days=3, broken=lambda dataset, path: (dataset, path) in bad)
    listed = list(LANDED)
    random.shuffle(listed)  # type: ignore[attr-defined]
    for name, path in listed:
        simulation.arrive(name, path, "a1")
        simulation.tick()
    simulation.until_quiet(every=120)
    healthy = world(SMALL, days=3)
    for name, path in LANDED:
        if (name, path) not in bad:
            healthy.arrive(name, path, "a1")
    healthy.until_quiet(every=120, check=False)
    assert simulation.contents == healthy.contents
    assert {place for place in bad if simulation.states(place[0])[place[1]] is not State.FAILED} == set()


def test_weeks_of_hours_in_another_order_come_to_a_clean_rebuild_in_few_runs() -> None:
    simulation = world(CHAIN, days=30)
    listed = [path for day in range(1, 29) for path in hours(day)]
    shuffled = sorted(listed, key=lambda path: path[::-1])
    for place, path in enumerate(shuffled):
        simulation.arrive("t.hourly", path, "a1")
        if place % 24 == 0:
            simulation.tick(check=False)
            simulation.advance(60)
    simulation.until_quiet(check=False)
    assert simulation.contents == simulation.clean()
    assert max(simulation.builds.values()) == 1


def test_reconcile_is_pure_and_gives_a_reason_for_every_partition_it_looked_at() -> None:
    simulation = world(CHAIN)
    for path in hours(1)[:-1]:
        simulation.arrive("t.hourly", path, "a1")
    now = pendulum.from_timestamp(simulation.now)
    first = reconcile(simulation.graph, simulation, now=now, limits=LIMITS)
    assert first == reconcile(simulation.graph, simulation, now=now, limits=LIMITS)
    assert {judged.reason for judged in first.judgements["t.hourly"].values()} == {"hourly arrived"}
    assert len(first.judgements["t.hourly"]) == 23
    (day,) = first.judgements["t.daily"].values()
    assert (day.state, day.reason) == (State.WAITING, "missing, and waits: t.hourly: 0 of 24 there; waits for 24")
