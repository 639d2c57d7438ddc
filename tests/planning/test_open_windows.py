"""Windows that are not over: who computes them, from what, and what waits for them."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.planning.known import CatalogReader
from tests.planning.test_reconcile import DAY, HOUR, START, WEEK, dataset, graph, world
from varve.model.batch import Input
from varve.model.partitions.schedule import Schedule
from varve.model.policy import Policy
from varve.model.reads import All, Reads, trailing
from varve.planning.judgement.facts import Fact, Failure
from varve.planning.judgement.judgement import State
from varve.planning.operations.heat import heat
from varve.planning.reconcile import Planner, RunPlan, reconcile
from varve.planning.run_requests import landing_source
from varve.planning.tick import Limits

if TYPE_CHECKING:
    from varve.model.dataset import Dataset
    from varve.planning.graph import Graph

HOURS = dataset("hours", HOUR, landing=True)
DAYS = dataset("days", DAY, landing=True)
# A Wednesday at ten.
NOW = START.add(days=2, hours=10)


def opened(dataset: Dataset, ahead: int = 1) -> Dataset:
    return replace(dataset, partitioning=dataset.partitioning.reaching(ahead))


def published(dataset: Dataset, *paths: str, batch: int = 1) -> dict[str, Fact]:
    source = landing_source(dataset)
    return {path: Fact(batch, 1.0, (), ((source, path, "f"),), "f", 1.0) for path in paths}


def arrived(*paths: str) -> dict[str, Fact]:
    return {path: Fact(arrival="f", arrived=1.0) for path in paths}


def planned(project: Graph, facts: dict[str, dict[str, Fact]], now: dt.datetime = NOW) -> RunPlan:
    return reconcile(project, CatalogReader(facts), now=now)


def asked(plan: RunPlan) -> dict[str, set[str]]:
    return {run.dataset.table: {key.path for key in run.partitions} for run in plan.runs}


def test_what_has_arrived_for_the_open_window_is_due_and_for_an_upcoming_one_is_not() -> None:
    plan = planned(graph({DAYS: ()}), {DAYS.name: arrived("day=2024-01-02", "day=2024-01-03", "day=2024-01-04")})
    assert asked(plan) == {"days": {"day=2024-01-02", "day=2024-01-03"}}
    early = plan.judgements[DAYS.name]["day=2024-01-04"]
    assert early.state is State.UPCOMING
    assert early.until == START.add(days=3).timestamp()


def test_what_is_derived_waits_for_its_window_and_is_then_due_without_any_change() -> None:
    totals = dataset("totals", DAY)
    project = graph({DAYS: (), totals: (DAYS,)})
    facts = {DAYS.name: published(DAYS, "day=2024-01-02", "day=2024-01-03")}
    planner, catalog_facts = Planner(project, Limits()), CatalogReader(facts)
    assert asked(planner.tick(catalog_facts, None, now=NOW)) == {"totals": {"day=2024-01-02"}}
    facts[totals.name] = {"day=2024-01-02": Fact(2, 2.0, (), ((DAYS.name, "day=2024-01-02", "1"),))}
    assert asked(planner.tick(catalog_facts, {totals.name: ["day=2024-01-02"]}, now=NOW.add(minutes=5))) == {}
    assert asked(planner.tick(catalog_facts, {}, now=START.add(days=3))) == {"totals": {"day=2024-01-03"}}


def test_a_partition_that_is_none_yet_counts_nowhere() -> None:
    totals = dataset("totals", DAY)
    plan = planned(graph({DAYS: (), totals: (DAYS,)}), {DAYS.name: published(DAYS, "day=2024-01-03")})
    assert plan.judgements[totals.name] == {}


def test_trailing_days_with_today_among_them_run_when_their_own_window_is_over() -> None:
    week = dataset("trailing", DAY)
    project = graph({DAYS: (), week: (Reads(DAYS, {"day": trailing(3)}),)})
    days = published(DAYS, "day=2024-01-01", "day=2024-01-02", "day=2024-01-03")
    assert asked(planned(project, {DAYS.name: days})) == {"trailing": {"day=2024-01-01", "day=2024-01-02"}}
    assert "day=2024-01-03" in asked(planned(project, {DAYS.name: days}, START.add(days=3)))["trailing"]


def test_an_open_window_is_computed_of_what_is_there_and_again_as_it_grows() -> None:
    so_far = opened(dataset("so_far", WEEK))
    project = graph({DAYS: (), so_far: (DAYS,)})
    days = published(DAYS, "day=2024-01-01", "day=2024-01-02")
    (run,) = planned(project, {DAYS.name: days}).runs
    assert run.inputs == {Input(DAYS.name, path, "1") for path in days}
    made = {"week=2024-01-01": Fact(5, 5.0, (), tuple((DAYS.name, path, "1") for path in days))}
    assert asked(planned(project, {DAYS.name: days, so_far.name: made})) == {}
    days |= published(DAYS, "day=2024-01-03")
    assert asked(planned(project, {DAYS.name: days, so_far.name: made})) == {"so_far": {"week=2024-01-01"}}
    # Of days that are over it waits for the ones that are missing, as everything does.
    del days["day=2024-01-02"]
    assert asked(planned(project, {DAYS.name: days, so_far.name: made})) == {}
    # When the week is over it waits for all of it.
    assert asked(planned(project, {DAYS.name: days}, START.add(days=8))) == {}


def test_what_reads_all_windows_waits_for_none_that_is_not_over() -> None:
    """A partner who delivers a day the next morning would keep it waiting for ever."""
    totals = dataset("totals", DAY)
    project = graph({DAYS: (), totals: (Reads(DAYS, {"day": All()}),)})
    days = published(DAYS, "day=2024-01-01", "day=2024-01-02")
    assert asked(planned(project, {DAYS.name: days})) == {"totals": {"day=2024-01-01", "day=2024-01-02"}}
    # What has come of the open one is read too.
    days |= published(DAYS, "day=2024-01-03")
    (run,) = planned(project, {DAYS.name: days}).runs
    assert {each.partition for each in run.inputs} == set(days)
    # For those that are over it waits.
    del days["day=2024-01-02"]
    assert asked(planned(project, {DAYS.name: days})) == {}


def test_windows_ahead_are_computed_as_far_as_declared() -> None:
    forecast = opened(dataset("forecast", DAY), 3)
    project = graph({DAYS: (), forecast: (Reads(DAYS, {"day": trailing(3)}),)})
    days = published(DAYS, "day=2024-01-01", "day=2024-01-02", "day=2024-01-03")
    assert asked(planned(project, {DAYS.name: days}))["forecast"] == {f"day=2024-01-0{day}" for day in range(1, 6)}


def test_a_dataset_of_nothing_but_its_scope_runs_ahead_by_itself() -> None:
    plans = opened(dataset("plans", DAY, policy=Policy(by_itself=True)), 2)
    assert asked(planned(graph({plans: ()}), {})) == {"plans": {f"day=2024-01-0{day}" for day in range(1, 5)}}


def test_a_batch_of_a_window_that_a_clock_has_opened_again_stays_and_is_not_asked_for() -> None:
    totals = dataset("totals", DAY)
    project = graph({DAYS: (), totals: (DAYS,)})
    made = {"day=2024-01-03": Fact(5, 5.0, (), ((DAYS.name, "day=2024-01-03", "0"),))}
    plan = planned(project, {DAYS.name: published(DAYS, "day=2024-01-03"), totals.name: made})
    assert asked(plan) == {}
    assert plan.retire == {}
    assert plan.judgements[totals.name]["day=2024-01-03"].state is State.UPCOMING


def test_a_partition_whose_retention_is_over_is_not_counted_as_current() -> None:
    kept = dataset("kept", DAY, landing=True, policy=Policy(retention=dt.timedelta(days=1)))
    plan = planned(graph({kept: ()}), {kept.name: arrived("day=2024-01-01", "day=2024-01-08")}, START.add(days=8))
    assert set(plan.judgements[kept.name]) == {"day=2024-01-08"}


def test_a_failed_batch_of_what_left_the_graph_is_counted_as_nothing() -> None:
    """Neither of a partition whose retention is over, nor of a key that the declaration has no more."""
    kept = dataset("kept", DAY, landing=True, policy=Policy(retention=dt.timedelta(days=1)))
    totals = dataset("totals", DAY)
    failed = Fact(failures=[Failure(1.0, 2.0, 1)])
    facts = {
        kept.name: {"day=2024-01-01": failed, "place=Rome": failed, **arrived("day=2024-01-08")},
        totals.name: {"day=2023-12-31": failed, "place=Rome": failed},
    }
    project = graph({kept: (), totals: (kept,)})
    plan = planned(project, facts, START.add(days=8))
    assert {path: judgement.state for path, judgement in plan.judgements[kept.name].items()} == {
        "day=2024-01-08": State.DUE
    }
    assert {path: judgement.state for path, judgement in plan.judgements[totals.name].items()} == {
        "day=2024-01-08": State.WAITING
    }
    assert [picture["states"] for picture in heat(project, plan)["datasets"]] == [{"due": 1}, {"waiting": 1}]
    assert plan.retire == {}


def test_a_defect_of_one_dataset_costs_its_own_runs_only() -> None:
    other = dataset("other", DAY, landing=True)
    facts = {DAYS.name: arrived("day=2024-01-02"), other.name: arrived("day=2024-01-02")}

    class Broken(CatalogReader):
        def of(self, dataset: str, paths: object) -> object:  # type: ignore[override]
            if dataset == DAYS.name:
                raise ZeroDivisionError("a defect")
            return super().of(dataset, paths)  # type: ignore[arg-type]

    planner = Planner(graph({DAYS: (), other: ()}), Limits(), fatal=(OSError,))
    plan = planner.tick(Broken(facts), None, now=NOW)
    assert asked(plan) == {"other": {"day=2024-01-02"}}
    assert plan.failed == {DAYS.name: "a defect"}
    assert asked(planner.tick(CatalogReader(facts), {}, now=NOW)) == {
        "days": {"day=2024-01-02"}, "other": {"day=2024-01-02"},
    }  # fmt: skip


def test_an_open_window_is_not_computed_at_a_tick_from_an_input_that_has_failed() -> None:
    """A planner that goes on is compared with one that judges everything, at each tick."""
    live = opened(dataset("live", DAY, policy=Policy(schedule=Schedule("@hourly"))))
    simulation = world({DAYS: [], live: [DAYS]}, days=2.4, broken=lambda name, _: name == DAYS.name)
    simulation.arrive(DAYS.name, "day=2024-01-03", "a1")
    for _ in range(60):
        simulation.tick()
        simulation.advance(120)
    assert simulation.states(DAYS.name) == {"day=2024-01-03": State.FAILED}
    assert {run.dataset.name for run in simulation.launched} == {DAYS.name}
