"""A partition of which nothing that it was made of is a partition any more: it stays until a person says what it is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.planning.test_reconcile import DAY, WEEK, dataset, graph, world
from tests.planning.world import LIMITS
from varve.model.reads import Reads, Wait
from varve.planning.judgement.code import CodeState, MadeBy
from varve.planning.judgement.judgement import State
from varve.planning.reconcile import Planner

if TYPE_CHECKING:
    from varve.model.dataset import Dataset

SALES, DAILY, WEEKLY = dataset("sales", DAY, landing=True), dataset("daily", DAY), dataset("weekly", WEEK)
DAYS = [f"day=2024-01-0{day}" for day in range(1, 8)]
FIRST = "week=2024-01-01"


def beginning(days: int) -> Dataset:
    """The sales as a series that begins so many days later, as after a change of START or of its zone."""
    later = replace(DAY, start=DAY.start.add(days=days))
    return replace(SALES, partitioning=replace(SALES.partitioning, dimensions=(later,)))


@pytest.mark.parametrize("wait", [Wait(), Wait(at_least=1)])
def test_what_was_made_of_partitions_that_are_none_any_more_is_on_hold(wait: Wait) -> None:
    reads = {DAILY: [Reads(SALES, wait=wait)], WEEKLY: [Reads(DAILY, wait=wait)]}
    simulation = world({SALES: [], **reads}, days=7.5)
    for day in DAYS:
        simulation.arrive("t.sales", day, "a1")
    simulation.until_quiet()
    later = beginning(2)
    simulation.graph = graph({later: [], DAILY: [Reads(later, wait=wait)], WEEKLY: [Reads(DAILY, wait=wait)]})
    simulation.reload()
    assert simulation.tick().runs == ()
    assert simulation.states("t.daily") == dict.fromkeys(DAYS[:2], State.ON_HOLD) | dict.fromkeys(
        DAYS[2:], State.CURRENT
    )
    assert simulation.reason("t.daily", DAYS[0]) == (
        "1 input gone: sales 2024-01-01, and nothing else is read; `varve backfill start` computes it without, "
        "`varve accept` keeps it as it is"
    )
    # Other code that is to compute all of it again decides nothing about that either.
    simulation.codes = {"t.daily": CodeState("2", "2")}
    simulation.set("t.daily", DAYS[0], made_by=MadeBy.OTHER)
    assert simulation.tick().runs == ()
    assert simulation.states("t.daily")[DAYS[0]] is State.ON_HOLD
    simulation.codes = None
    simulation.set("t.daily", DAYS[0], made_by=MadeBy.DEPLOYED)
    # Where the sales are built anew beside those of production, nobody has to.
    simulation.planner = Planner(simulation.graph, replace(LIMITS, may_empty=frozenset({"t.sales"})))
    runs = simulation.tick(check=False, launches=False).runs
    assert [(run.dataset.name, len(run.partitions), run.reason) for run in runs] == [
        ("t.daily", 2, "2 inputs gone: sales 2024-01-01, 2024-01-02")
    ]
    simulation.reload()
    # A person decides: it is computed of nothing, and what reads it follows.
    simulation.mark("t.daily", DAYS[0])
    simulation.until_quiet()
    assert simulation.builds["t.daily", DAYS[0]] == 2
    assert simulation.fact("t.daily", DAYS[0]).trace == ()
    assert simulation.states("t.daily")[DAYS[0]] is State.CURRENT
    assert simulation.states("t.daily")[DAYS[1]] is State.ON_HOLD
    assert simulation.builds["t.weekly", FIRST] == 2
    # What was a slip is taken back: all follows, also what was computed of nothing.
    simulation.graph = graph({SALES: [], **reads})
    simulation.reload()
    simulation.until_quiet()
    assert simulation.states("t.daily") == dict.fromkeys(DAYS, State.CURRENT)
    assert [path for _, path, _ in simulation.fact("t.daily", DAYS[0]).trace] == [DAYS[0]]
