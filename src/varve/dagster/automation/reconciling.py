"""A tick of the planner around Dagster's runs and the catalog: what the sensors and `varve why` share.

Not here: the planner (varve/planning/reconcile.py) and the sensors themselves (sensors.py).
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import dagster as dg
import pendulum
import psycopg

from varve.catalog.catalog import Catalog
from varve.catalog.leases import Leases
from varve.catalog.planning.facts import CatalogFacts, Changes, living
from varve.dagster.leases.leases import dead_runs, end_dead
from varve.dagster.partitions.sets_sensor import grow, sets_of
from varve.model.errors import UnknownPartition, VarveError
from varve.planning.judgement.judging import RetryLimits
from varve.planning.reconcile import Limits, Planner
from varve.planning.requested import asked_partitions
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from varve.catalog.planning.facts import InFlight
    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.planning.graph import Graph
    from varve.planning.reconcile import RunPlan
    from varve.project import Project
    from varve.services.settings import Settings

IDENTITY_TAG = "varve/identity"
# How a tick begins that could not reach its servers; the next one looks again.
NOT_LOOKED = "Nothing was looked at"
T = TypeVar("T")
R = TypeVar("R")
_AT_ONCE = 500
_UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.MANAGED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def limits_of(settings: Settings) -> Limits:
    """How the settings would have failures met, and how large runs are."""
    patience = RetryLimits(settings.attempts, settings.backoff_seconds, settings.backoff_most_seconds)
    return Limits(patience, settings.partitions_per_run)


@dataclass
class Reconciler:
    """A planner with how far it has looked. It may be thrown away: a new one begins with a look at everything."""

    graph: Graph
    project: Project
    _limits: Limits | None = None
    _planner: Planner | None = None
    _changes: Changes = field(default_factory=Changes)

    def tick(self, connection: psycopg.Connection, instance: dg.DagsterInstance, settings: Settings) -> RunPlan:
        """What is due now. Raises VarveError where a server cannot be reached or there is too much to look at."""
        limits = limits_of(settings)
        if self._planner is None or limits != self._limits:
            self._planner, self._limits, self._changes = (
                Planner(self.graph, limits, fatal=(psycopg.Error,)),
                limits,
                Changes(),
            )
        runs, dead = living_runs(self.graph, instance, connection, settings)
        end_dead(instance, dead)
        in_flight = runs_in_flight(self.graph, instance, runs)
        # A killed run frees its locks and says nothing; from here on it is a failure like any other.
        Catalog(connection).bury_dead()
        for dataset, paths in living(connection).items():
            in_flight[dataset] |= paths
        try:
            changed = self._changes.since_last(connection, in_flight)
            # Dagster refuses requests for what is not in its sets, and the sensor that keeps them ticks at other times.
            while grow(instance, self.graph):
                pass
            members = sets_of(instance, self.graph).members()
            facts = CatalogFacts(connection, in_flight)
            return self._planner.tick(facts, changed, now=pendulum.now("UTC"), members=members)
        except BaseException:
            # Half a look is none: the next tick begins anew.
            self._planner = None
            raise

    def look(
        self,
        instance: dg.DagsterInstance,
        name: str,
        also: Callable[[Catalog, Settings], T],
        then: Callable[[Catalog, RunPlan, T], R],
    ) -> R | dg.SkipReason:
        """A tick over a connection of its own: `also` looks before it, and `then` makes of the plan what is asked for.

        A reason to skip where the servers cannot be reached.
        """
        settings = self.project.settings
        try:
            with connect(settings, application=f"varve {name}") as connection:
                catalog = Catalog(connection)
                catalog.ensure_schema()
                seen = also(catalog, settings)
                return then(catalog, self.tick(connection, instance, settings), seen)
        except (VarveError, psycopg.OperationalError) as error:
            return dg.SkipReason(f"{NOT_LOOKED}: {error}")

    def tries_again(self, ended: Ended) -> bool:
        """Whether a run that ended without a word in the catalog is to be asked for again by now."""
        patience = (self._limits or Limits()).patience
        if not ended.in_vain:
            return True
        return ended.in_vain < patience.attempts and time.time() >= ended.last + patience.after(ended.in_vain)


def looked_up(
    graph: Graph, connection: psycopg.Connection, instance: dg.DagsterInstance, settings: Settings
) -> tuple[CatalogFacts, Members]:
    """The facts of all partitions and the members of all dynamic sets, for those who only look."""
    Catalog(connection).ensure_schema()
    runs, _ = living_runs(graph, instance, connection, settings)
    in_flight = runs_in_flight(graph, instance, runs)
    for dataset, paths in living(connection).items():
        in_flight[dataset] |= paths
    return CatalogFacts(connection, in_flight), sets_of(instance, graph).members()


def living_runs(
    graph: Graph, instance: dg.DagsterInstance, connection: psycopg.Connection, settings: Settings
) -> tuple[list[dg.DagsterRun], dict[str, str]]:
    """Dagster's unfinished runs of our datasets; and, apart, those that count as dead, with the reason of each."""
    runs = [
        run
        for run in instance.get_runs(dg.RunsFilter(statuses=_UNFINISHED))
        if any(name in graph.datasets for name in _selected(run))
    ]
    dead = dead_runs(Leases(connection), runs, settings)
    return [run for run in runs if run.run_id not in dead], dead


def runs_in_flight(graph: Graph, instance: dg.DagsterInstance, runs: Sequence[dg.DagsterRun] | None = None) -> InFlight:
    """What unfinished runs, queued ones too, compute or will: the planner's, backfills and those by hand.

    `runs` are those to look at; by default all that Dagster calls unfinished, the dead among them too.
    """
    found: InFlight = defaultdict(dict)
    for run in instance.get_runs(dg.RunsFilter(statuses=_UNFINISHED)) if runs is None else runs:
        for dataset in [graph.datasets[name] for name in _selected(run) if name in graph.datasets]:
            found[dataset.name] |= dict.fromkeys(_partitions(dataset, run.tags), run.run_id)
    return found


def _selected(run: dg.DagsterRun) -> list[str]:
    return [".".join(key.path) for key in run.asset_selection or ()]


def _partitions(dataset: Dataset, tags: Mapping[str, str]) -> list[str]:
    """The partitions that a run's tags name: one, or a range of them."""
    try:
        return [key.path for key in asked_partitions(dataset, tags)]
    except UnknownPartition:
        return []


@dataclass(frozen=True, slots=True)
class Ended:
    """Runs that Dagster has had of one identity, and that have ended.

    Attributes:
        count: all of them.
        in_vain: how many did not succeed, the last of them at `last`.
    """

    count: int = 0
    in_vain: int = 0
    last: float = 0.0


def ended_runs(identities: Sequence[str], instance: dg.DagsterInstance) -> dict[str, Ended]:
    """What Dagster has had of each of the runs of these identities, where it has had any.

    A run that was cancelled in the queue, or whose process never came up, leaves no failure in the catalog; and Dagster
    starts no second run for a key that it knows.
    """
    found: dict[str, Ended] = {}
    for start in range(0, len(identities), _AT_ONCE):
        asked = dg.RunsFilter(tags={IDENTITY_TAG: identities[start : start + _AT_ONCE]})
        for record in instance.get_run_records(asked):
            run = record.dagster_run
            before = found.get(run.tags[IDENTITY_TAG], Ended())
            in_vain = run.status is not dg.DagsterRunStatus.SUCCESS
            last = (record.end_time or record.update_timestamp.timestamp()) if in_vain else 0.0
            found[run.tags[IDENTITY_TAG]] = Ended(before.count + 1, before.in_vain + in_vain, max(before.last, last))
    return found
