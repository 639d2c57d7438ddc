"""A tick of the planner, with the facts of the catalog and of Dagster's runs: the sensors and `varve why` share it.

Not here: the planner (varve/planning/reconcile.py) and the sensors themselves (sensors.py).
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, TypeVar

import dagster as dg
import pendulum
import psycopg

from varve.catalog.catalog import Catalog
from varve.catalog.code.code_states import CodeStates
from varve.catalog.living.killed_builds import KilledBuilds
from varve.catalog.living.leases import Leases
from varve.catalog.planning.facts import CatalogFacts, Changes, living
from varve.dagster.automation.planner_facts import catalog_facts, limits_of
from varve.dagster.internal.partition_keys import reading_once
from varve.dagster.internal.runs import run_selections
from varve.dagster.leases.leases import dead_runs, end_dead
from varve.dagster.partitions.asked import asked_keys
from varve.dagster.partitions.set_feed import feed
from varve.dagster.partitions.sets_sensor import grow, sets_of
from varve.dagster.runs.builds.telling import tell_killed
from varve.model.errors import UnknownPartition, VarveError
from varve.model.partitions.dimension import DynamicDimension
from varve.planning.reconcile import Limits, Planner
from varve.planning.requested import ENVIRONMENT_TAG
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from varve.catalog.planning.facts import InFlight
    from varve.dagster.internal.partition_keys import DynamicPartitionsStore
    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.planning.graph import Graph
    from varve.planning.reconcile import RunPlan
    from varve.project import Project
    from varve.services.settings import Settings

# Dagster's UI hides the first; runs of earlier versions are stored with the second.
IDENTITY_TAG, FORMER_IDENTITY_TAG = ".dagster/varve_identity", "varve/identity"
# The first words of the skip reason where a tick could not reach its servers; the next tick tries again.
NOT_LOOKED = "Nothing was looked at"
T = TypeVar("T")
R = TypeVar("R")
_IDENTITIES_A_QUERY = 500
_UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.MANAGED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def default_status(*, on: bool) -> dg.DefaultSensorStatus:
    """Sensors are stopped until a person starts them, unless the project asks for running ones (`sensors_on`)."""
    return dg.DefaultSensorStatus.RUNNING if on else dg.DefaultSensorStatus.STOPPED


@dataclass
class Reconciler:
    """A planner with the point up to which it has read the catalog. A new one begins by reading everything."""

    graph: Graph
    project: Project
    _limits: Limits | None = None
    _planner: Planner | None = None
    _changes: Changes = field(default_factory=Changes)

    def tick(self, connection: psycopg.Connection, instance: dg.DagsterInstance, settings: Settings) -> RunPlan:
        """Return the plan of what is due now.

        Raises VarveError where a server cannot be reached or where there is too much to judge.
        """
        limits = limits_of(settings)
        if self._planner is None or limits != self._limits:
            self._planner, self._limits, self._changes = (
                Planner(self.graph, limits, fatal=(psycopg.Error,)),
                limits,
                Changes(),
            )
        runs, dead_reasons = living_runs(self.graph, instance, connection, settings)
        end_dead(instance, dead_reasons)
        in_flight = runs_in_flight(self.graph, instance, runs)
        # A killed run frees its locks and reports nothing. From here on its builds count as failed like any other.
        KilledBuilds(connection).fail()
        tell_killed(self.graph, connection, settings)
        for dataset, paths in living(connection).items():
            in_flight[dataset] |= paths
        try:
            changed_facts = self._changes.since_last(connection, in_flight)
            # Dagster refuses requests for keys that are not in its sets, and the sensor that updates the sets ticks at
            # other times. So the sets are updated here, too.
            fed = feed(connection, instance, self.graph, settings)
            while grow(instance, self.graph):
                pass
            members = sets_of(instance, self.graph).members()
            codes = CodeStates(connection).of(self.graph, deploy=True)
            facts = CatalogFacts(connection, in_flight, codes)
            plan = self._planner.tick(facts, changed_facts, now=pendulum.now("UTC"), members=members, codes=codes)
            return replace(plan, failed={**_of_datasets(self.graph, fed.problems), **plan.failed})
        except BaseException:
            # The planner may have seen half of the changes: the next tick begins with a new one.
            self._planner = None
            raise

    def look(
        self,
        instance: dg.DagsterInstance,
        name: str,
        before_tick: Callable[[Catalog, Settings], T],
        use_plan: Callable[[Catalog, RunPlan, T], R],
    ) -> R | dg.SkipReason:
        """Make a tick over a connection of its own, and return what `use_plan` makes of the plan.

        `before_tick` runs before the planner, and its result is handed to `use_plan`. Returns a reason to skip where
        the servers cannot be reached.
        """
        settings = self.project.settings
        try:
            with connect(settings, application=f"varve {name}") as connection:
                catalog = Catalog(connection)
                catalog.ensure_schema()
                before_tick_result = before_tick(catalog, settings)
                return use_plan(catalog, self.tick(connection, instance, settings), before_tick_result)
        except (VarveError, psycopg.OperationalError) as error:
            return dg.SkipReason(f"{NOT_LOOKED}: {error}")

    def tries_again(self, ended: Ended, *, gives_up: bool = True) -> bool:
        """Return whether runs that ended without any note in the catalog are to be requested again by now.

        What only puts things in order does not give up: nobody would see that it has, and it is asked for later and
        later.
        """
        if ended.unfinished:
            return False
        retry_limits = (self._limits or Limits()).patience
        if not ended.in_vain:
            return True
        if gives_up and ended.in_vain >= retry_limits.attempts:
            return False
        return time.time() >= ended.last + retry_limits.after(ended.in_vain)


def _of_datasets(graph: Graph, problems: Mapping[str, str]) -> dict[str, str]:
    """The problems of sets, by the datasets that have a partition for each key of the set."""
    return {
        dataset.name: problems[dimension.set_name]
        for dataset in graph.datasets.values()
        for dimension in dataset.partitioning.dimensions
        if isinstance(dimension, DynamicDimension) and dimension.set_name in problems
    }


def looked_up(
    graph: Graph, connection: psycopg.Connection, instance: dg.DagsterInstance, settings: Settings
) -> tuple[CatalogFacts, Members]:
    """Return the facts of all partitions and the members of all dynamic sets; nothing is launched or ended."""
    Catalog(connection).ensure_schema()
    runs, _ = living_runs(graph, instance, connection, settings)
    facts = catalog_facts(graph, connection, runs_in_flight(graph, instance, runs))
    return facts, sets_of(instance, graph).members()


def living_runs(
    graph: Graph, instance: dg.DagsterInstance, connection: psycopg.Connection, settings: Settings
) -> tuple[list[dg.DagsterRun], dict[str, str]]:
    """Return Dagster's unfinished runs of our datasets that live, and by run id why the other ones count as dead."""
    unfinished = instance.get_runs(dg.RunsFilter(statuses=_UNFINISHED))
    selected = _selected_datasets(graph, instance, unfinished)
    runs = [run for run in unfinished if selected[run.run_id]]
    dead_reasons = dead_runs(Leases(connection), runs, settings)
    return [run for run in runs if run.run_id not in dead_reasons], dead_reasons


def runs_in_flight(graph: Graph, instance: dg.DagsterInstance, runs: Sequence[dg.DagsterRun] | None = None) -> InFlight:
    """Return, by dataset and partition path, the run id of the unfinished run that computes it.

    Queued runs count, whoever has started them. `runs` are the runs to look at; by default all that Dagster calls
    unfinished, even where they count as dead.
    """
    in_flight: InFlight = defaultdict(dict)
    if runs is None:
        runs = instance.get_runs(dg.RunsFilter(statuses=_UNFINISHED))
    selected, sets = _selected_datasets(graph, instance, runs), reading_once(instance)
    for run in runs:
        if run.tags.get(ENVIRONMENT_TAG):
            continue
        for dataset in selected[run.run_id]:
            in_flight[dataset.name] |= dict.fromkeys(_asked_paths(dataset, run.tags, sets), run.run_id)
    return in_flight


def _selected_datasets(
    graph: Graph, instance: dg.DagsterInstance, runs: Sequence[dg.DagsterRun]
) -> dict[str, list[Dataset]]:
    """Return the datasets that runs compute, by run id."""
    return {
        run_id: [graph.datasets[name] for key in assets if (name := ".".join(key.path)) in graph.datasets]
        for run_id, assets in run_selections(instance, runs).items()
    }


def _asked_paths(dataset: Dataset, tags: Mapping[str, str], sets: DynamicPartitionsStore) -> list[str]:
    """Return the paths of the partitions that a run's tags name."""
    try:
        return [key.path for key in asked_keys(dataset, tags, sets)]
    except UnknownPartition:
        return []


@dataclass(frozen=True, slots=True)
class Ended:
    """The ended runs that Dagster has had of one identity.

    Attributes:
        count: the number of all ended runs.
        in_vain: how many of them did not succeed.
        last: when the last run without success ended, in epoch seconds.
        unfinished: whether there is one that waits or works.
        run_id, status: the newest of them, where it did not succeed.
        newest: the run id of the newest of them, "" where there is none.
    """

    count: int = 0
    in_vain: int = 0
    last: float = 0.0
    unfinished: bool = False
    run_id: str = ""
    status: str = ""
    newest: str = ""

    def run_key(self, identity: str) -> str:
        """Return a run key that no run of the identity has, also where some of them were deleted.

        It names the newest one: whichever run has been asked for after that is newer.
        """
        return f"{identity}:{self.newest[:8]}" if self.newest else identity


def ended_runs(identities: Sequence[str], instance: dg.DagsterInstance) -> dict[str, Ended]:
    """Return, by identity, the runs that Dagster has had of these identities and that have ended.

    A run that was cancelled in the queue, or whose process never started, leaves no failure in the catalog. And Dagster
    starts no second run for a run key that it has seen. One that was only created, it launches when asked again.
    """
    ended: dict[str, Ended] = {}
    for tag, start in product((IDENTITY_TAG, FORMER_IDENTITY_TAG), range(0, len(identities), _IDENTITIES_A_QUERY)):
        runs_filter = dg.RunsFilter(tags={tag: identities[start : start + _IDENTITIES_A_QUERY]})
        for record in instance.get_run_records(runs_filter):
            run = record.dagster_run
            if run.status is dg.DagsterRunStatus.NOT_STARTED:
                continue
            previous = ended.get(run.tags[tag], Ended())
            if run.status in _UNFINISHED:
                ended[run.tags[tag]] = replace(previous, unfinished=True)
                continue
            in_vain = run.status is not dg.DagsterRunStatus.SUCCESS
            newest = previous.newest or run.run_id
            last = (record.end_time or record.update_timestamp.timestamp()) if in_vain else 0.0
            # Dagster has the newest first.
            if in_vain and not previous.count:
                previous = replace(previous, run_id=run.run_id, status=run.status.value.lower())
            ended[run.tags[tag]] = replace(
                previous, count=previous.count + 1, in_vain=previous.in_vain + in_vain, last=max(previous.last, last),
                newest=newest,
            )  # fmt: skip
    return ended
