"""What a planner is given: the limits of the settings, and the facts of the catalog. Dagster is not imported here.

Not here: which of Dagster's runs are unfinished (reconciling.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.catalog.code.code_states import CodeStates
from varve.catalog.planning.facts import CatalogFacts, living
from varve.planning.judgement.judging import RetryLimits
from varve.planning.reconcile import Limits

if TYPE_CHECKING:
    import psycopg

    from varve.catalog.planning.facts import InFlight
    from varve.planning.graph import Graph
    from varve.services.settings import Settings


def limits_of(settings: Settings) -> Limits:
    """Return the limits of the settings: how failed partitions are retried, and how many partitions a run has."""
    retry_limits = RetryLimits(settings.attempts, settings.backoff_seconds, settings.backoff_most_seconds)
    return Limits(retry_limits, settings.partitions_per_run)


def catalog_facts(graph: Graph, connection: psycopg.Connection, in_flight: InFlight) -> CatalogFacts:
    """Return the facts of the catalog, given what Dagster's runs are on; builds outside of Dagster's runs are added."""
    for dataset, paths in living(connection).items():
        in_flight[dataset] |= paths
    return CatalogFacts(connection, in_flight, CodeStates(connection).of(graph))
