"""The facts of all partitions and the members of all sets, for whoever plans and launches nothing.

Dagster is imported only where one of its runs is unfinished, or its storage is not Varve's own.

Not here: a tick (reconciling.py).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from varve.catalog.catalog import Catalog
from varve.dagster.automation.planner_facts import catalog_facts
from varve.dagster.partitions.dynamic_sets import members_of
from varve.dagster.runs.storage_tables import opened_tables

if TYPE_CHECKING:
    import psycopg

    from varve.catalog.planning.facts import CatalogFacts
    from varve.model.partitions.dimension import Members
    from varve.planning.graph import Graph
    from varve.services.settings import Settings


def facts_and_members(graph: Graph, connection: psycopg.Connection, settings: Settings) -> tuple[CatalogFacts, Members]:
    """Return the facts of all partitions and the members of all dynamic sets; nothing is launched or ended.

    Raises NoProject without a dagster.yaml.
    """
    with opened_tables(settings) as tables:
        if tables is not None and not tables.has_unfinished_runs():
            Catalog(connection).ensure_schema()
            partitionings = [dataset.partitioning for dataset in graph.datasets.values()]
            members = members_of(partitionings, tables.keys_of_set)
            return catalog_facts(graph, connection, defaultdict(dict)), members
    from varve.dagster.automation.reconciling import looked_up
    from varve.dagster.instance import open_instance

    with open_instance(settings) as instance:
        return looked_up(graph, connection, instance, settings)
