"""The catalog: PostgreSQL tables that say which batch of every partition is current (docs/decisions/0002).

A run holds *builds* in it: one for each dataset that it computes, begun before the first input is read, with a lease on
its partitions, and ended by the publish. The IO managers, the landing folder and the assets share them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.dagster.runs.builds_resource import builds_resource

if TYPE_CHECKING:
    import dagster as dg

    from varve.dagster.discovery import LoadedProject


def builds(loaded: LoadedProject) -> dg.ResourceDefinition:
    """The builds of each run, over a connection to the catalog of this project."""
    return builds_resource(loaded.graph, loaded.project)
