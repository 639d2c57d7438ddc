"""What changes by the mere passing of time, or by what others are about to do: a planner looks at it when it does.

`World.tick` compares each plan with one from nothing.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.planning.test_past_retention import DAYS as SALES_DAYS
from tests.planning.test_past_retention import SALES
from tests.planning.test_reconcile import DAY, HOUR, TENANT, WEEK, dataset, world
from tests.planning.test_schedules import DAILY
from varve.model.policy import OnUpstreamChange, Policy
from varve.model.reads import All, Reads, Wait
from varve.planning.judgement.judgement import State

if TYPE_CHECKING:
    from varve.model.dataset import Dataset

FIRST = "day=2024-01-01"


def opened(of: Dataset) -> Dataset:
    """The dataset with OPEN WINDOWS."""
    return replace(of, partitioning=of.partitioning.reaching(1))


def test_a_backfill_waits_for_no_schedule_whatever_else_is_a_cause() -> None:
    landed = dataset("landed", DAY, landing=True)
    daily = dataset("daily", DAY, policy=Policy(schedule=DAILY))
    simulation = world({landed: [], daily: [landed]}, days=1.5)
    for content in ("a1", "b1"):
        simulation.arrive("t.landed", FIRST, content)
        simulation.until_quiet()
    before = simulation.builds["t.daily", FIRST]
    simulation.mark("t.daily", FIRST)
    simulation.until_quiet()
    assert simulation.builds["t.daily", FIRST] == before + 1


def test_what_has_an_open_window_waits_for_an_input_that_is_about_to_come() -> None:
    days, week, both = opened(dataset("days", DAY, landing=True)), opened(dataset("week", WEEK)), dataset("both", WEEK)
    both = opened(both)
    simulation = world({days: [], week: [days], both: [days, week]}, days=0.5)
    simulation.arrive("t.days", FIRST, "a1")
    simulation.until_quiet()
    assert simulation.builds["t.both", "week=2024-01-01"] == 1


def test_what_has_no_window_waits_for_an_input_that_is_on_its_way() -> None:
    days, other = opened(dataset("days", DAY, landing=True)), dataset("other", landing=True)
    total = dataset("total")
    simulation = world({days: [], other: [], total: [Reads(days, {"day": All()}), Reads(other)]}, days=1.5)
    simulation.arrive("t.other", "all", "a1")
    simulation.arrive("t.days", FIRST, "a1")
    simulation.until_quiet()
    simulation.lasts = lambda run: 3_000.0 if run.dataset.table == "days" else 30.0
    simulation.arrive("t.days", "day=2024-01-02", "a1")
    simulation.tick()
    simulation.arrive("t.other", "all", "b1")
    before = simulation.builds["t.total", "all"]
    simulation.until_quiet()
    assert simulation.builds["t.total", "all"] == before + 1


def test_an_input_that_is_gone_is_followed_no_longer_than_one_that_changes() -> None:
    prices = dataset("prices", TENANT, landing=True)
    analysis = dataset("analysis", DAY, policy=Policy(rebuild_within=dt.timedelta(days=1)))
    simulation = world(
        {prices: [], analysis: [Reads(prices, {"tenant": All()})]}, days=40, members={"tenants": ("a", "b")}
    )
    for name in "ab":
        simulation.arrive("t.prices", f"tenant={name}", "a1")
    simulation.until_quiet(check=False)
    before = simulation.builds.total()
    simulation._wanted.clear()
    simulation.members = {"tenants": ("a",)}
    simulation.until_quiet(check=False)
    assert simulation.builds.total() - before == 1


def test_what_is_followed_no_more_keeps_nobody_waiting() -> None:
    first, other = (dataset(name, DAY, landing=True) for name in ("first", "other"))
    middle = dataset("middle", DAY, policy=Policy(rebuild_within=dt.timedelta(hours=6)))
    last = dataset("last", DAY)
    simulation = world({first: [], other: [], middle: [first], last: [middle, other]}, days=1)
    slow = [30.0]
    simulation.lasts = lambda run: slow[0] if run.dataset.table == "first" else 30.0
    for name in ("t.first", "t.other"):
        simulation.arrive(name, FIRST, "a1")
    simulation.until_quiet()
    slow[0] = 100_000.0
    simulation.advance(3_600)
    simulation.arrive("t.first", FIRST, "b1")
    simulation.tick()
    simulation.arrive("t.other", FIRST, "b1")
    for _ in range(10):
        simulation.advance(3_600)
        simulation.tick()
    assert simulation.builds["t.last", FIRST] == 2


def test_what_has_left_the_graph_with_its_last_key_is_retired_once() -> None:
    of_tenants = dataset("of_tenants", HOUR.reaching(1), TENANT, landing=True)
    simulation = world({of_tenants: []}, days=1, members={"tenants": ("a",)})
    path = "hour=2024-01-01T05/tenant=a"
    simulation.arrive("t.of_tenants", path, "a1")
    simulation.until_quiet()
    simulation.members = {"tenants": ()}
    assert simulation.tick().retire == {"t.of_tenants": (path,)}
    simulation.set("t.of_tenants", path, arrival="", arrived=0.0)
    for _ in range(3):
        simulation.advance(4_000)
        assert simulation.tick().retire == {}


def test_what_is_held_is_looked_at_when_what_it_misses_is_past_its_retention() -> None:
    weekly = dataset("weekly", WEEK, policy=Policy(OnUpstreamChange.HOLD))
    simulation = world({SALES: [], weekly: [Reads(SALES, wait=Wait(missing=1))]}, days=7.5)
    for day in SALES_DAYS:
        simulation.arrive("t.sales", day, "a1")
    simulation.until_quiet()
    simulation.set("t.sales", SALES_DAYS[0], arrival="", arrived=0.0)
    simulation.withdraw("t.sales", SALES_DAYS[0])
    simulation.until_quiet()
    assert set(simulation.states("t.weekly").values()) == {State.ON_HOLD}
    for _ in range(30):
        simulation.advance(86_400)
        simulation.until_quiet()
    assert set(simulation.states("t.weekly").values()) <= {State.CURRENT}
