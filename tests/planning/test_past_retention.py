"""Inputs whose retention is over: what was made of them stays, and what reads all there is goes without."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.planning.test_reconcile import DAY, STORE, WEEK, dataset, world
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.own_calendar import Calendar
from varve.model.policy import Policy
from varve.model.reads import All, Reads, Wait
from varve.planning.judgement.code import CodeState, MadeBy
from varve.planning.judgement.judgement import State

if TYPE_CHECKING:
    from tests.planning.world import World
    from varve.model.dataset import Dataset

SALES = dataset("sales", DAY, landing=True, policy=Policy(retention=dt.timedelta(days=30)))
WEEKLY = dataset("weekly", WEEK)
FIRST = "week=2024-01-01"
DAYS = [f"day=2024-01-0{day}" for day in range(1, 8)]
TOLERANT = [Wait(deadline=dt.timedelta(hours=6)), Wait(missing=1), Wait(at_least=5)]


def a_week(wait: Wait) -> World:
    """A week of all of its days, of which the first has been retired since."""
    simulation = world({SALES: [], WEEKLY: [Reads(SALES, wait=wait)]}, days=7.5)
    for day in DAYS:
        simulation.arrive("t.sales", day, "a1")
    simulation.until_quiet()
    until_retired(simulation, 24)
    assert not simulation.fact("t.sales", DAYS[0]).batch
    assert simulation.fact("t.sales", DAYS[1]).batch
    return simulation


def until_retired(simulation: World, days: int) -> None:
    """Let days pass, each with its retirements and whatever follows from them."""
    for _ in range(days):
        simulation.advance(86_400)
        simulation.until_quiet()


@pytest.mark.parametrize("wait", [Wait(), *TOLERANT])
def test_a_week_keeps_what_was_made_of_days_whose_retention_is_over(wait: Wait) -> None:
    simulation = a_week(wait)
    until_retired(simulation, 8)
    assert simulation.of("t.sales", None).keys() == set(DAYS)
    assert not any(fact.batch for fact in simulation.of("t.sales", None).values())
    assert simulation.builds["t.weekly", FIRST] == 1
    assert [path for _, path, _ in simulation.fact("t.weekly", FIRST).trace] == DAYS
    assert simulation.states("t.weekly") == {FIRST: State.CURRENT}


@pytest.mark.parametrize("wait", TOLERANT)
def test_a_correction_does_not_cost_a_week_the_days_whose_retention_is_over_unless_a_person_asks(wait: Wait) -> None:
    simulation = a_week(wait)
    simulation.arrive("t.sales", DAYS[1], "b1")
    simulation.until_quiet()
    assert simulation.builds["t.weekly", FIRST] == 1
    assert simulation.states("t.weekly") == {FIRST: State.ON_HOLD}
    assert simulation.reason("t.weekly", FIRST) == (
        "1 of 6 inputs new: sales 2024-01-02, but t.sales day=2024-01-01, of which it was made, is past retention; "
        "`varve backfill` computes it without"
    )
    simulation.mark("t.weekly", FIRST, paused=True)
    assert simulation.states("t.weekly") == {FIRST: State.ON_HOLD}
    simulation.mark("t.weekly", FIRST)
    (run,) = simulation.tick().runs
    assert run.reason.endswith("although t.sales day=2024-01-01, of which it was made, is past retention")
    simulation.until_quiet()
    assert [path for _, path, _ in simulation.fact("t.weekly", FIRST).trace] == DAYS[1:]
    assert simulation.states("t.weekly") == {FIRST: State.CURRENT}


def test_other_code_does_not_cost_a_week_its_days_either() -> None:
    simulation = a_week(Wait(missing=1))
    simulation.codes = {"t.weekly": CodeState("2", "2")}
    simulation.set("t.weekly", FIRST, made_by=MadeBy.OTHER)
    assert simulation.tick().runs == ()
    assert simulation.reason("t.weekly", FIRST).startswith("made by other code than is deployed, but t.sales day=2024-")


def test_a_batch_that_waits_for_what_will_not_come_is_on_hold() -> None:
    simulation = a_week(Wait())
    simulation.mark("t.weekly", FIRST, "wrong clocks")
    assert simulation.tick().runs == ()
    assert simulation.states("t.weekly") == {FIRST: State.ON_HOLD}
    assert simulation.reason("t.weekly", FIRST) == (
        "dirty: wrong clocks, but its batch stays: t.sales: 6 of 7 there; waits for 7, though 1 of the others will not "
        "come, past its retention"
    )


@pytest.mark.parametrize("wait", [Wait(), *TOLERANT])
def test_other_code_of_a_week_whose_days_are_all_past_is_on_hold_for_good(wait: Wait) -> None:
    simulation = a_week(wait)
    until_retired(simulation, 8)
    simulation.codes = {"t.weekly": CodeState("2", "2")}
    simulation.set("t.weekly", FIRST, made_by=MadeBy.OTHER)
    assert simulation.tick().runs == ()
    assert simulation.states("t.weekly") == {FIRST: State.ON_HOLD}
    assert "7 of the others will not come, past their retention" in simulation.reason("t.weekly", FIRST)


def test_a_batch_waits_for_days_that_may_still_come() -> None:
    """Of the two that are missing one was taken away by a person, and may be sent again."""
    simulation = world({SALES: [], WEEKLY: [Reads(SALES, wait=Wait(at_least=6))]}, days=7.5)
    for day in DAYS:
        simulation.arrive("t.sales", day, "a1")
    simulation.until_quiet()
    until_retired(simulation, 24)
    simulation.set("t.sales", DAYS[6], arrival="", arrived=0.0)
    simulation.withdraw("t.sales", DAYS[6])
    simulation.mark("t.weekly", FIRST, "wrong clocks")
    assert simulation.states("t.weekly") == {FIRST: State.WAITING}
    until_retired(simulation, 1)
    assert simulation.states("t.weekly") == {FIRST: State.ON_HOLD}


def test_it_says_so_as_soon_as_a_day_that_never_came_is_past_its_retention() -> None:
    """A planner that goes on is compared with one that judges everything, at each tick."""
    simulation = world({SALES: [], WEEKLY: [Reads(SALES)]}, days=7.5)
    for day in DAYS[1:]:
        simulation.arrive("t.sales", day, "a1")
    simulation.until_quiet()
    until_retired(simulation, 23)
    assert simulation.reason("t.weekly", FIRST).endswith("6 of 7 there; waits for 7")
    until_retired(simulation, 1)
    assert simulation.reason("t.weekly", FIRST).endswith("though 1 of the others will not come, past its retention")


def test_an_input_that_was_taken_away_before_its_retention_is_over_is_gone() -> None:
    simulation = world({SALES: [], WEEKLY: [Reads(SALES, wait=Wait(missing=1))]}, days=7.5)
    for day in DAYS:
        simulation.arrive("t.sales", day, "a1")
    simulation.until_quiet()
    simulation.set("t.sales", DAYS[0], arrival="", arrived=0.0)
    simulation.withdraw("t.sales", DAYS[0])
    assert [run.reason for run in simulation.tick().runs] == ["1 input gone: sales 2024-01-01"]


def seven_days() -> Dataset:
    """The sales as a series that has ended after a week."""
    ending = replace(DAY, end=DAY.start.add(days=7))
    return replace(SALES, partitioning=replace(SALES.partitioning, dimensions=(ending,)))


@pytest.mark.parametrize("wait", [Wait(), Wait(at_least=1)])
@pytest.mark.parametrize("by_store", [False, True])
def test_what_reads_every_partition_goes_on_without_those_whose_retention_is_over(wait: Wait, by_store: bool) -> None:  # noqa: FBT001
    sales, best = seven_days(), dataset("best", *([STORE] if by_store else []))
    simulation = world({sales: [], best: [Reads(sales, {"day": All()}, wait=wait)]}, days=7.5)
    for day in DAYS:
        simulation.arrive("t.sales", day, "a1")
    simulation.until_quiet()
    paths = ["store=Detroit", "store=Paris"] if by_store else ["all"]
    built = {path: simulation.builds["t.best", path] for path in paths}
    until_retired(simulation, 24)
    for path in paths:
        assert simulation.builds["t.best", path] == built[path] + 1
        assert [name for _, name, _ in simulation.fact("t.best", path).trace] == DAYS[1:]
    simulation.arrive("t.sales", DAYS[6], "b1")
    simulation.until_quiet()
    assert {path: simulation.builds["t.best", path] - built[path] for path in paths} == dict.fromkeys(paths, 2)
    # What is read of nothing that is there stays as it was made last.
    until_retired(simulation, 8)
    assert simulation.states("t.best") == dict.fromkeys(paths, State.CURRENT)
    assert [name for _, name, _ in simulation.fact("t.best", paths[0]).trace] == DAYS[6:]


def test_a_day_that_never_came_is_waited_for_until_its_retention_is_over() -> None:
    sales, best = seven_days(), dataset("best")
    simulation = world({sales: [], best: [Reads(sales, {"day": All()})]}, days=7.5)
    for day in DAYS[1:]:
        simulation.arrive("t.sales", day, "a1")
    simulation.until_quiet()
    until_retired(simulation, 23)
    assert simulation.states("t.best") == {"all": State.WAITING}
    until_retired(simulation, 1)
    assert simulation.states("t.best") == {"all": State.CURRENT}
    assert [name for _, name, _ in simulation.fact("t.best", "all").trace] == DAYS[1:]


def test_what_reads_all_there_is_does_not_wait_for_a_window_that_is_not_over() -> None:
    """A partner sends each day the next morning, so that the file of today is never there."""
    sales, total = dataset("sales", DAY, landing=True), dataset("total")
    simulation = world({sales: [], total: [Reads(sales, {"day": All()})]}, days=7.5)
    for day in DAYS[:6]:
        simulation.arrive("t.sales", day, "a1")
    simulation.until_quiet()
    # Yesterday's is late: for that it waits.
    assert not simulation.fact("t.total", "all").batch
    simulation.arrive("t.sales", DAYS[6], "a1")
    simulation.until_quiet()
    assert [path for _, path, _ in simulation.fact("t.total", "all").trace] == DAYS
    # What comes before its window is over counts all the same.
    simulation.arrive("t.sales", "day=2024-01-08", "a1")
    simulation.until_quiet()
    assert [path for _, path, _ in simulation.fact("t.total", "all").trace] == [*DAYS, "day=2024-01-08"]


def test_retention_goes_on_when_a_calendar_of_ones_own_has_ended() -> None:
    terms = Calendar.of_weekdays("nyse", dt.date(2024, 1, 1), dt.date(2024, 1, 3))
    sales = dataset(
        "sales",
        TimeDimension.of("day", terms, "2024-01-01"),
        landing=True,
        policy=Policy(retention=dt.timedelta(days=5)),
    )
    total = dataset("total")
    simulation = world({sales: [], total: [Reads(sales, {"day": All()})]}, days=3.5)
    for day in DAYS[:3]:
        simulation.arrive("t.sales", day, "a1")
        simulation.until_quiet()
    until_retired(simulation, 3)
    # Saturday, 7 January, at noon: what ended before Tuesday began is gone.
    assert [path for path, fact in simulation.of("t.sales", None).items() if fact.batch] == DAYS[1:3]
    until_retired(simulation, 3)
    assert not any(fact.batch for fact in simulation.of("t.sales", None).values())
