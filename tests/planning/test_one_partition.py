"""One partition judged with its inputs alone: the judgement that a look at everything comes to."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from tests.planning.test_reconcile import CHAIN, DAY, LANDED, SMALL, START, STORE, TENANT, dataset, world
from varve.model.partitions.partitioning import Partitioning
from varve.model.partitions.schedule import Schedule
from varve.model.policy import Policy
from varve.model.reads import All, Reads
from varve.planning.judgement.judgement import State
from varve.planning.operations.one_partition import judged_with_inputs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tests.planning.world import World
    from varve.planning.judgement.facts import Fact


def compare_all(simulation: World, *, every: int = 1) -> None:
    """Compare the partitions of each dataset, those of which nothing is known too, with a plan from nothing."""
    fresh = simulation.from_nothing()
    for name, listed in fresh.judgements.items():
        keys = simulation.graph.datasets[name].partitioning.keys(simulation.members)
        paths = sorted({*listed, *simulation.facts[name], *(key.path for key in [*keys][-12:])})
        for path in paths[::every]:
            simulation.compare_alone(name, path, fresh)


def test_it_is_what_a_plan_of_everything_says_of_it_whatever_has_happened() -> None:
    broken = {("t.daily", "day=2024-01-01")}
    simulation = world(SMALL, days=3.3, broken=lambda name, path: (name, path) in broken)
    for place, (name, path) in enumerate(LANDED):
        simulation.arrive(name, path, "a1")
        if place % 5 == 0:
            simulation.tick()
            simulation.advance(45)
    compare_all(simulation)
    simulation.until_quiet(every=600)
    compare_all(simulation)
    broken.clear()
    simulation.arrive(*LANDED[1], "b1")
    simulation.mark("t.daily", "day=2024-01-02")
    simulation.withdraw(*LANDED[9])
    simulation.tick()
    compare_all(simulation)


@pytest.mark.parametrize("catchup", [True, False])
def test_so_it_is_of_what_is_computed_by_itself(*, catchup: bool) -> None:
    simulation = world({dataset("days", DAY, policy=Policy(by_itself=True, catchup=catchup)): []}, days=10.5)
    compare_all(simulation)
    simulation.until_quiet()
    compare_all(simulation)


def test_so_it_is_of_what_a_schedule_computes_though_nothing_that_it_reads_is_there_yet() -> None:
    sales, scheduled = dataset("sales", TENANT, landing=True), Policy(schedule=Schedule("@daily"))
    total = dataset("total", STORE, policy=scheduled)
    simulation = world({sales: [], total: [Reads(sales, {"tenant": All()})]}, days=10.5, members={"tenants": ()})
    assert simulation.states("t.total") == {"store=Detroit": State.DUE, "store=Paris": State.DUE}
    compare_all(simulation)


def test_only_the_facts_of_what_it_is_made_from_are_asked_for() -> None:
    @dataclasses.dataclass
    class Counted:
        facts: World
        asked: int = 0

        def of(self, name: str, paths: Collection[str] | None) -> Mapping[str, Fact]:
            assert paths is not None
            self.asked += len(paths)
            return self.facts.of(name, paths)

    simulation = world(CHAIN)
    counted = Counted(simulation)
    daily = simulation.graph.datasets["t.daily"]
    judged_with_inputs(simulation.graph, counted, daily, "day=2024-01-01", now=START.add(days=60))
    assert counted.asked == 1 + 24


def test_no_other_partition_is_listed_of_what_is_computed_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = world({dataset("days", DAY, policy=Policy(by_itself=True)): []}, days=10.5)
    days = simulation.graph.datasets["t.days"]
    monkeypatch.setattr(Partitioning, "keys", lambda *_: pytest.fail("all partitions were listed"))
    paths = ("day=2024-01-01", "day=2030-01-01", "day=1999-01-01")
    judged = [
        judged_with_inputs(simulation.graph, simulation, days, path, now=START.add(days=10))["t.days"].get(path)
        for path in paths
    ]
    assert [judgement and judgement.state for judgement in judged] == [State.DUE, None, None]
