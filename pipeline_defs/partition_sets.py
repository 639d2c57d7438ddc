"""Dagster's sets of partitions, kept in step: windows that Dagster cannot tile, and products with dynamic dimensions.

Not here: the members of dynamic sets (resources/partition_sets.py).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import dagster as dg

from pipeline_defs.model.partitioning import dagster_text, set_of, time_set
from pipeline_defs.partitions import tiled_alike
from pipeline_defs.planning.region import Spans
from resources.partition_sets import PartitionSets

if TYPE_CHECKING:
    from pipeline_defs.planning.graph import Graph


def partition_sets_sensor(graph: Graph) -> dg.SensorDefinition:
    """Keeps Dagster's sets of partitions in step: windows that have come to pass, and folds of dynamic dimensions."""

    @dg.sensor(
        name="partition_sets",
        minimum_interval_seconds=30,
        description="Adds windows as they come to pass, and what new keys of dynamic sets mean for their products.",
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        grown = grow(context.instance, graph)
        return dg.SkipReason(", ".join(grown) or "Every set is in step.")

    return evaluate


def grow(instance: dg.DagsterInstance, graph: Graph, *, limit: int = 2_000) -> list[str]:
    """Bring the sets in step; what was added, in words. At most `limit` windows of a set: the next call goes on."""
    sets_of(instance, graph).follow()
    grown = []
    for dataset in graph.in_order():
        time = dataset.partitioning.time
        if time is None or tiled_alike(time):
            continue
        name = time_set(time)
        there = instance.get_dynamic_partitions(name)
        start = time.calendar.following(time.start_of(time.parse(there[-1]))) if there else time.first
        windows = Spans.of([(start, time.known_until())]).starts(time)
        # In order, always after the last: so ranges of the set are ranges of time.
        new = [dagster_text(time.text_at(at)) for at in islice(windows, limit)]
        if new:
            instance.add_dynamic_partitions(name, new)
            grown.append(f"{dataset}: {len(new)} windows, {new[0]} to {new[-1]}")
    return grown


def sets_of(instance: dg.DagsterInstance, graph: Graph) -> PartitionSets:
    """The dynamic sets of all datasets of a graph."""
    return PartitionSets(instance, [dataset.partitioning for dataset in graph.datasets.values()])


def has_sets(graph: Graph) -> bool:
    """Whether Dagster has any dimension of the graph as a set that grows."""
    return any(
        set_of(dataset.partitioning.dimensions)
        or (dataset.partitioning.time is not None and not tiled_alike(dataset.partitioning.time))
        for dataset in graph.datasets.values()
    )
