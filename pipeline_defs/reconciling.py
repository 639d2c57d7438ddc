"""A tick of the planner around Dagster's runs and the catalog: what the sensors and `varve why` share.

Not here: the planner (planning/reconcile.py) and the sensors themselves (sensors.py).
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import dagster as dg
import pendulum

from pipeline_defs.model.errors import UnknownPartition
from pipeline_defs.partition_sets import grow, sets_of
from pipeline_defs.planning.judging import Patience
from pipeline_defs.planning.reconcile import Limits, Planner
from pipeline_defs.planning.region import Box
from resources.catalog import Catalog
from resources.dagster_internal import worker_is_gone
from resources.planning import CatalogFacts, Changes, living

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import psycopg

    from pipeline_defs.model.dataset import Dataset
    from pipeline_defs.model.dimension import Members
    from pipeline_defs.planning.graph import Graph
    from pipeline_defs.planning.reconcile import Plan
    from resources.planning import InFlight
    from resources.settings import Settings

RANGE_START_TAG = "dagster/asset_partition_range_start"
RANGE_END_TAG = "dagster/asset_partition_range_end"
PARTITION_TAG = "dagster/partition"
IDENTITY_TAG = "varve/identity"
# "yes": what the same code made of the same inputs before may be put back in the place of a computation.
AGAIN_TAG = "varve/again"
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
    patience = Patience(settings.attempts, settings.backoff_seconds, settings.backoff_most_seconds)
    return Limits(patience, settings.partitions_per_run)


@dataclass
class Reconciler:
    """A planner with how far it has looked. It may be thrown away: a new one begins with a look at everything."""

    graph: Graph
    _limits: Limits | None = None
    _planner: Planner | None = None
    _changes: Changes = field(default_factory=Changes)

    def tick(self, connection: psycopg.Connection, instance: dg.DagsterInstance, settings: Settings) -> Plan:
        """What is due now. Raises VarveError where a server cannot be reached or there is too much to look at."""
        limits = limits_of(settings)
        if self._planner is None or limits != self._limits:
            self._planner, self._limits, self._changes = Planner(self.graph, limits), limits, Changes()
        # A killed run frees its locks and says nothing; from here on it is a failure like any other.
        Catalog(connection).bury_dead()
        in_flight = runs_in_flight(self.graph, instance)
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

    def tries_again(self, ended: Ended) -> bool:
        """Whether a run that ended without a word in the catalog is to be asked for again by now."""
        patience = (self._limits or Limits()).patience
        if not ended.in_vain:
            return True
        return ended.in_vain < patience.attempts and time.time() >= ended.last + patience.after(ended.in_vain)


def looked_up(
    graph: Graph, connection: psycopg.Connection, instance: dg.DagsterInstance
) -> tuple[CatalogFacts, Members]:
    """The facts of all partitions and the members of all dynamic sets, for those who only look."""
    Catalog(connection).ensure_schema()
    in_flight = runs_in_flight(graph, instance)
    for dataset, paths in living(connection).items():
        in_flight[dataset] |= paths
    return CatalogFacts(connection, in_flight), sets_of(instance, graph).members()


def runs_in_flight(graph: Graph, instance: dg.DagsterInstance) -> InFlight:
    """What Dagster's unfinished runs, queued ones too, compute or will: the planner's, backfills and those by hand."""
    found: InFlight = defaultdict(dict)
    for run in instance.get_runs(dg.RunsFilter(statuses=_UNFINISHED)):
        if worker_is_gone(run):
            continue
        for key in run.asset_selection or ():
            dataset = graph.datasets.get(".".join(key.path))
            if dataset is not None:
                found[dataset.name] |= dict.fromkeys(_partitions(dataset, run.tags), run.run_id)
    return found


def _partitions(dataset: Dataset, tags: Mapping[str, str]) -> list[str]:
    """The partitions that a run's tags name: one, or a range of them."""
    partitioning = dataset.partitioning
    first = tags.get(RANGE_START_TAG) or tags.get(PARTITION_TAG)
    last = tags.get(RANGE_END_TAG) or first
    if first is None or last is None:
        return []
    try:
        corners = [partitioning.from_dagster(text) for text in (first, last)]
    except UnknownPartition:
        return []
    return [key.path for key in Box.between(partitioning, *corners).partitions()]


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
