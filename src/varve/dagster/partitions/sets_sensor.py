"""Updates of Dagster's sets of partitions: windows that Dagster cannot express, and products with dynamic dimensions.

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


def partition_sets_sensor(graph: Graph, *, on: bool = False) -> dg.SensorDefinition:
    """Return the sensor that updates Dagster's sets: new windows, and folds of dynamic dimensions."""

    @dg.sensor(
        name="partition_sets",
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING if on else dg.DefaultSensorStatus.STOPPED,
        description="Adds windows as they come to pass, and what new keys of dynamic sets mean for their products.",
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        grown = grow(context.instance, graph)
        return dg.SkipReason(", ".join(grown) or "Every set is in step.")

    return evaluate


def grow(instance: dg.DagsterInstance, graph: Graph, *, limit: int = 2_000) -> list[str]:
    """Update the sets, and return what was changed, as texts.

    At most `limit` windows are added to a set; the next call adds further ones.
    """
    followed = sets_of(instance, graph).follow()
    grown = [(dataset, fill(instance, dataset, limit=limit)) for dataset in graph.in_order()]
    return followed + [f"{dataset}: {len(new)} windows, {new[0]} to {new[-1]}" for dataset, new in grown if new]


def fill(instance: dg.DagsterInstance, dataset: Dataset, *, limit: int | None = None) -> list[str]:
    """Add the new windows of one dataset to Dagster's set of them, if it has one, and return their keys.

    Windows whose retention is over are removed from the set.
    """
    time, retention = dataset.partitioning.time, dataset.policy.retention
    if time is None or tiled_alike(time):
        return []
    name = time_set(time, retention)
    present = instance.get_dynamic_partitions(name)
    last = _last_window_start(time, present)
    start = time.first if last is None else time.calendar.following(last)
    if retention is not None:
        kept_start = kept_from(time, retention, pendulum.now("UTC").timestamp())
        start = max(start, kept_start)
        for text in present:
            if (window_start := _window_start(time, text)) is None or window_start >= kept_start:
                break
            instance.delete_dynamic_partition(name, text)
    windows = TimeSpans.of([(start, time.known_until())]).starts(time)
    # New windows are added in order and after the last one, so that ranges of the set are ranges of time.
    new = [dagster_text(time.text_at(instant)) for instant in islice(windows, limit)]
    if new:
        instance.add_dynamic_partitions(name, new)
    return new


def sets_of(instance: dg.DagsterInstance, graph: Graph) -> PartitionSets:
    """Return the dynamic sets of all datasets of a graph."""
    return PartitionSets(instance, [dataset.partitioning for dataset in graph.datasets.values()])


def has_sets(graph: Graph) -> bool:
    """Return whether any dimension of the graph is a dynamic set in Dagster."""
    return any(
        set_of(dataset.partitioning.dimensions)
        or (dataset.partitioning.time is not None and not tiled_alike(dataset.partitioning.time))
        for dataset in graph.datasets.values()
    )


def _last_window_start(time: TimeDimension, texts: Sequence[str]) -> int | None:
    """Return where the last window of a set begins, in epoch seconds; texts that are no window are skipped."""
    return next((start for text in reversed(texts) if (start := _window_start(time, text)) is not None), None)


def _window_start(time: TimeDimension, text: str) -> int | None:
    try:
        # Also one before the start of the dimension: a series that moves has had earlier ones.
        return time.window_keys.start_of_text(unquote(text))
    except UnknownPartition:
        return None
