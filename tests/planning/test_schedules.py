"""Datasets with a schedule, with CATCHUP OFF, and with changes that rebuild only recent windows. No server needed."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from tests.planning.test_reconcile import DAY, HOUR, START, STORE, TENANT, dataset, world
from varve.model.errors import VarveError
from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.model.partitions.schedule import Schedule
from varve.model.policy import Policy
from varve.model.reads import Latest, Reads
from varve.planning.judgement.code import CodeState
from varve.planning.judgement.judgement import State
from varve.planning.reconcile import Limits

if TYPE_CHECKING:
    from tests.planning.world import World
    from varve.model.dataset import Dataset

DAILY = Schedule("@daily")
STORES = ("store=Detroit", "store=Paris")
HOURS, NOON = 3_600.0, 43_200.0
ONE_RUN = Limits(partitions_per_run=10_000)


def built(simulation: World, name: str) -> dict[str, int]:
    return {path: count for (dataset_name, path), count in simulation.builds.items() if dataset_name == f"t.{name}"}


def seen_at(simulation: World, name: str, since: float) -> None:
    """The dataset was first deployed then."""
    simulation.codes = {f"t.{name}": CodeState("1", "1", since=since)}


def by_day(simulation: World, days: int) -> None:
    for _ in range(days):
        simulation.advance(24 * HOURS)
        simulation.until_quiet()


def test_each_member_of_a_list_runs_once_a_day_and_the_first_time_at_the_first_tick() -> None:
    spend = dataset("spend", STORE, policy=Policy(schedule=DAILY))
    simulation = world({spend: []}, days=3.5)
    seen_at(simulation, "spend", simulation.now)
    simulation.until_quiet()
    assert not built(simulation, "spend")
    assert simulation.reason("t.spend", STORES[0]) == (
        "first batch, and waits for its schedule until 2024-01-05T00:00:00+00:00"
    )
    by_day(simulation, 3)
    assert built(simulation, "spend") == dict.fromkeys(STORES, 3)
    assert len(simulation.launched) == 3, "both members of one tick are one run"


def test_a_member_that_reads_nothing_runs_once_a_day_like_the_others() -> None:
    upstream = dataset("upstream", StaticDimension("store", ("Detroit",)), landing=True)
    spend = dataset("spend", STORE, policy=Policy(schedule=DAILY))
    simulation = world({upstream: [], spend: [upstream]}, days=3.5)
    simulation.until_quiet()
    assert built(simulation, "spend") == {"store=Paris": 1}
    simulation.arrive("t.upstream", "store=Detroit", "a1")
    simulation.until_quiet()
    assert built(simulation, "spend") == dict.fromkeys(STORES, 1)
    by_day(simulation, 2)
    assert built(simulation, "spend") == dict.fromkeys(STORES, 3)


def test_a_window_that_reads_nothing_has_nothing_to_run_for_at_a_tick() -> None:
    upstream = dataset("upstream", TimeDimension.of("day", "@daily", "2024-01-03"), landing=True)
    daily = dataset("daily", DAY, policy=Policy(schedule=DAILY))
    simulation = world({upstream: [], daily: [upstream]}, days=4.5)
    simulation.arrive("t.upstream", "day=2024-01-03", "a1")
    by_day(simulation, 1)
    assert built(simulation, "daily") == {"day=2024-01-03": 1}


def test_each_member_of_a_set_runs_once_a_day_also_one_that_was_added_in_between() -> None:
    models = dataset("models", TENANT, policy=Policy(schedule=DAILY))
    simulation = world({models: []}, days=3.5, members={"tenants": ("ann",)})
    by_day(simulation, 2)
    simulation.members = {"tenants": ("ann", "bob")}
    simulation.until_quiet()
    assert built(simulation, "models") == {"tenant=ann": 2, "tenant=bob": 1}, "a new member need not wait"
    by_day(simulation, 2)
    assert built(simulation, "models") == {"tenant=ann": 4, "tenant=bob": 3}


def test_ticks_that_nobody_was_there_for_are_made_good_by_one_run() -> None:
    spend = dataset("spend", STORE, policy=Policy(schedule=DAILY))
    simulation = world({spend: []}, days=3.5)
    simulation.until_quiet()
    simulation.advance(10 * 24 * HOURS)
    simulation.reload()
    simulation.until_quiet()
    assert built(simulation, "spend") == dict.fromkeys(STORES, 2)


def test_a_dataset_without_partitions_is_computed_at_each_tick() -> None:
    rates = dataset("rates", policy=Policy(schedule=Schedule("0 6 * * *", "Europe/Paris")))
    simulation = world({rates: []}, days=3.5)
    simulation.until_quiet()
    simulation.advance(16 * HOURS)  # 2024-01-05 04:00 UTC: 05:00 in Paris
    simulation.until_quiet()
    assert built(simulation, "rates") == {"all": 1}
    simulation.advance(HOURS)
    simulation.until_quiet()
    assert built(simulation, "rates") == {"all": 2}


def test_a_daily_schedule_over_hours_computes_the_hours_of_the_day_in_one_run() -> None:
    hours = dataset("hours", HOUR, policy=Policy(schedule=DAILY))
    simulation = world({hours: []}, days=1.5, limits=ONE_RUN)
    simulation.until_quiet()
    assert [len(run.partitions) for run in simulation.launched] == [24]
    simulation.advance(11 * HOURS)
    simulation.until_quiet()
    assert len(simulation.launched) == 1
    simulation.advance(HOURS)
    simulation.until_quiet()
    assert [len(run.partitions) for run in simulation.launched] == [24, 24]


def test_a_change_of_an_input_waits_for_the_schedule_and_an_input_that_is_late_does_not() -> None:
    landed, daily = dataset("landed", DAY, landing=True), dataset("daily", DAY, policy=Policy(schedule=DAILY))
    simulation = world({landed: [], daily: [landed]}, days=1.5)
    first = "day=2024-01-01"
    simulation.arrive("t.landed", first, "a1")
    simulation.until_quiet()
    assert built(simulation, "daily") == {first: 1}, "its window was complete at the last tick"
    simulation.arrive("t.landed", first, "b1")
    simulation.until_quiet()
    assert simulation.states("t.daily") == {first: State.WAITING}
    simulation.advance(NOON)
    simulation.until_quiet()
    assert built(simulation, "daily") == {first: 2}
    assert simulation.contents == simulation.clean()


def test_a_person_need_not_wait_for_the_schedule() -> None:
    spend = dataset("spend", STORE, policy=Policy(schedule=DAILY))
    simulation = world({spend: []}, days=3.5)
    simulation.until_quiet()
    simulation.mark("t.spend", STORES[0])
    simulation.until_quiet()
    assert built(simulation, "spend") == {STORES[0]: 2, STORES[1]: 1}


@pytest.mark.needs_seconds
def test_an_update_of_the_upstream_rebuilds_48_partitions_and_not_8_784() -> None:
    """The document's example: a list of two that is updated each day, read by each hour of 183 days for each."""
    spend = dataset("spend", STORE, landing=True)
    analysis = dataset("analysis", HOUR, STORE, policy=Policy(rebuild_within=dt.timedelta(days=1)))
    simulation = world({spend: [], analysis: [spend]}, days=183)
    keys = [*analysis.partitioning.keys(now=START.add(days=183))]
    assert len(keys) == 8_784
    now, before = int(simulation.now * 1_000), START.timestamp()
    for path in STORES:
        simulation.set("t.spend", path, batch=1, published=before, trace=(("landing:t.spend", path, "a"),), arrival="a")
    for key in keys:
        own = next(path for path in STORES if path in key.path)
        simulation.set("t.analysis", key.path, batch=2, published=before, trace=(("t.spend", own, "1"),))
    assert not simulation.tick(launches=False).runs
    for path in STORES:
        simulation.set("t.spend", path, batch=now, published=simulation.now)
    paths = {key.path for run in simulation.tick(launches=False).runs for key in run.partitions}
    assert paths == {key.path for key in keys if key.path.startswith("hour=2024-07-01T")}
    assert len(paths) == 48
    assert simulation.reason("t.analysis", "hour=2024-01-01T00/store=Paris") == (
        "kept as it is: t.spend store=Paris changed longer after its window than 1 DAY"
    )


def test_a_change_can_rebuild_recent_windows_for_one_upstream_and_all_for_another() -> None:
    prices, receipts = dataset("prices", STORE, landing=True), dataset("receipts", DAY, STORE, landing=True)
    within = Policy(rebuild_within=dt.timedelta(days=1), rebuild_within_of=("t.prices",))
    sales = dataset("sales", DAY, STORE, policy=within)
    simulation = world({prices: [], receipts: [], sales: [prices, receipts]}, days=5)
    paths = [f"day=2024-01-0{day}/store=Paris" for day in range(1, 6)]
    for path in paths:
        simulation.arrive("t.receipts", path, "a1")
    simulation.arrive("t.prices", "store=Paris", "a1")
    simulation.until_quiet()
    simulation.arrive("t.prices", "store=Paris", "b1")
    simulation.arrive("t.receipts", paths[1], "b1")
    simulation.until_quiet()
    assert built(simulation, "sales") == dict.fromkeys(paths, 1) | {paths[1]: 2, paths[4]: 2}


def test_a_list_that_reads_the_latest_window_is_made_due_by_the_newest_alone() -> None:
    hourly, latest = dataset("hourly", HOUR, landing=True), dataset("latest", STORE)
    simulation = world({hourly: [], latest: [Reads(hourly, {"hour": Latest()})]}, days=1)

    def publish(path: str, batch: int) -> None:
        trace = (("landing:t.hourly", path, "a"),)
        simulation.set("t.hourly", path, batch=batch, published=START.timestamp(), trace=trace, arrival="a")

    for hour in range(24):
        publish(f"hour=2024-01-01T{hour:02}", 1)
    for path in STORES:
        simulation.set("t.latest", path, batch=2, trace=(("t.hourly", "hour=2024-01-01T23", "1"),))
    publish("hour=2024-01-01T04", 3)
    assert set(simulation.states("t.latest").values()) == {State.CURRENT}
    publish("hour=2024-01-01T23", 3)
    assert set(simulation.states("t.latest").values()) == {State.DUE}


@pytest.mark.parametrize("catchup", [True, False])
def test_without_catchup_only_windows_that_complete_after_the_first_deployment_are_computed(*, catchup: bool) -> None:
    days = dataset("days", DAY, policy=Policy(by_itself=True, catchup=catchup))
    simulation = world({days: []}, days=10.5)
    seen_at(simulation, "days", simulation.now)
    simulation.until_quiet()
    by_day(simulation, 2)
    new = {"day=2024-01-11": 1, "day=2024-01-12": 1}
    old = {f"day=2024-01-{day:02}": 1 for day in range(1, 11)}
    assert built(simulation, "days") == (old | new if catchup else new)
    if not catchup:
        simulation.mark("t.days", "day=2024-01-02", paused=True)
        simulation.until_quiet()
        assert built(simulation, "days") == new
        simulation.mark("t.days", "day=2024-01-03")
        simulation.until_quiet()
        assert built(simulation, "days") == new | {"day=2024-01-03": 1}


@pytest.mark.parametrize(
    ("dimensions", "policy", "message"),
    [
        ((STORE,), Policy(catchup=False), "are about windows, and it has no time dimension"),
        ((STORE,), Policy(rebuild_within=dt.timedelta(days=1)), "are about windows, and it has no time dimension"),
        ((DAY,), Policy(rebuild_within=dt.timedelta(0)), "rebuild_within is a length of time"),
        ((DAY,), Policy(rebuild_within_of=("t.a",)), "rebuild_within says no length of time"),
    ],
)
def test_a_policy_that_cannot_hold_is_refused(dimensions: tuple, policy: Policy, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(VarveError, match=message):
        dataset("wrong", *dimensions, policy=policy)


def test_what_only_arrives_has_no_schedule() -> None:
    def arriving(policy: Policy) -> Dataset:
        return dataset("landed", DAY, landing=True, policy=policy)

    for policy in (Policy(schedule=DAILY), Policy(catchup=False)):
        with pytest.raises(VarveError, match=r"dataset t\.landed: .* arrive from others"):
            arriving(policy)
    with pytest.raises(VarveError, match=r"its schedule: .*'every noon'"):
        Schedule("every noon")
