"""Dagster's sets of partitions, kept in step: windows that Dagster cannot tile, and products with dynamic dimensions.

Not here: the members of dynamic sets (dynamic_sets.py).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import unquote

import dagster as dg
import pendulum

from varve.dagster.partitions.definitions import tiled_alike
from varve.dagster.partitions.dynamic_sets import PartitionSets
from varve.model.errors import UnknownPartition
from varve.model.partitions.partitioning import dagster_text, set_of, time_set
from varve.model.partitions.windows import kept_from
from varve.planning.mapping.partition_subset import TimeSpans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import TimeDimension
    from varve.planning.graph import Graph


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
    followed = sets_of(instance, graph).follow()
    grown = [(dataset, fill(instance, dataset, limit=limit)) for dataset in graph.in_order()]
    return followed + [f"{dataset}: {len(new)} windows, {new[0]} to {new[-1]}" for dataset, new in grown if new]


def fill(instance: dg.DagsterInstance, dataset: Dataset, *, limit: int | None = None) -> list[str]:
    """Add the windows of one dataset that have come to pass to Dagster's set of them, if it has one; the new ones.

    Windows whose retention is over leave the set.
    """
    time, retention = dataset.partitioning.time, dataset.policy.retention
    if time is None or tiled_alike(time):
        return []
    name = time_set(time, retention)
    there = instance.get_dynamic_partitions(name)
    last = _last(time, there)
    start = time.first if last is None else time.calendar.following(last)
    if retention is not None:
        kept = kept_from(time, retention, pendulum.now("UTC").timestamp())
        start = max(start, kept)
        for text in there:
            if (begins := _start(time, text)) is None or begins >= kept:
                break
            instance.delete_dynamic_partition(name, text)
    windows = TimeSpans.of([(start, time.known_until())]).starts(time)
    # In order, always after the last: so ranges of the set are ranges of time.
    new = [dagster_text(time.text_at(at)) for at in islice(windows, limit)]
    if new:
        instance.add_dynamic_partitions(name, new)
    return new


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


def _last(time: TimeDimension, texts: Sequence[str]) -> int | None:
    """Where the last window of a set begins; what somebody has added to it by hand may be none."""
    return next((start for text in reversed(texts) if (start := _start(time, text)) is not None), None)


def _start(time: TimeDimension, text: str) -> int | None:
    try:
        return time.start_of(time.parse(unquote(text)))
    except UnknownPartition:
        return None
