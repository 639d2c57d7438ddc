"""What the body of an asset may ask about its partitions: `partitions_of(context)`.

Dagster's own context has folded keys as text, and the keys of a range in no order. Here the keys are complete, typed
and sorted.

Not here: what the partitions read (the inputs are the arguments of the function).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

import pendulum

from varve.model.errors import VarveError, some
from varve.model.partitions.dimension import DynamicDimension, StaticDimension, TimeDimension
from varve.stores.frames import in_partitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import dagster as dg
    from pyspark.sql import Column

    from varve.dagster.partitions.dynamic_sets import PartitionSets
    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Dimension
    from varve.model.partitions.key import PartitionKey, Value


@dataclass(frozen=True)
class RunPartitions:
    """The partitions of one dataset that a run computes.

    Attributes:
        keys: all partition keys, in the order of their windows, then of their other dimensions.
        sets: the dynamic sets, to add keys to.
    """

    dataset: Dataset
    keys: tuple[PartitionKey, ...]
    sets: PartitionSets

    @property
    def key(self) -> PartitionKey:
        """The partition of a run that computes just one. Raises VarveError for a run of several."""
        if len(self.keys) != 1:
            raise VarveError(
                f"{self.dataset}: the run computes {len(self.keys)} partitions, {some(self.keys, limit=3)}; "
                "use `keys`, or give the asset one partition for each run."
            )
        return self.keys[0]

    @property
    def window(self) -> pendulum.Interval[pendulum.DateTime]:
        """The half-open window of the run: from the start of its first partition to the end of its last one."""
        time = self._time()
        starts = sorted(time.start_of(time.value_in(key)) for key in self.keys)
        first, last = (time.window(time.value_at(start)) for start in (starts[0], starts[-1]))
        return pendulum.interval(first.start, last.end)

    @property
    def where(self) -> Column:
        """A Spark condition on the partition columns: the rows that belong to the run's partitions."""
        return in_partitions(self.keys)

    def past(self) -> Iterator[PartitionKey]:
        """Yield the partitions before the run's first one, with the same other keys, the newest first.

        Those of a dataset without a time dimension are the ones before it in the order of its first dimension: as a
        static one declares them, and of a dynamic set as they sort.
        """
        partitioning = self.dataset.partitioning
        values = list(partitioning.values(self.keys[0]))
        lead = partitioning.time or next(iter(partitioning.dimensions), None)
        if lead is None:
            return
        place = partitioning.dimensions.index(lead)
        for value in self._before(lead, values[place]):
            yield partitioning.key([*values[:place], value, *values[place + 1 :]])

    @property
    def previous(self) -> PartitionKey | None:
        """The partition before the run's first one, in the order of `past`; None where it is the first of all.

        Of a dynamic set whose keys are high watermarks, it is the low watermark.
        """
        return next(self.past(), None)

    def _before(self, dimension: Dimension, value: Value) -> Iterator[Value]:
        """The keys of a dimension before one of them, the last one first."""
        if isinstance(dimension, TimeDimension):
            window_start = dimension.start_of(value)
            while (window_start := dimension.calendar.previous_start(window_start)) >= dimension.first:
                yield dimension.value_at(window_start)
            return
        members = self.sets.using(dimension).members() if isinstance(dimension, DynamicDimension) else None
        keys = list(dimension.keys(members))
        yield from reversed(list(takewhile(lambda key: key != value, keys)))

    def add(self, dimension: DynamicDimension, keys: Iterable[Value]) -> list[Value]:
        """Add keys to the dimension's set, and return those that were new.

        Datasets with this dimension get the new partitions at the next tick of the sensors.
        """
        return self.sets.add(dimension, keys)

    def remove(self, dimension: DynamicDimension, keys: Iterable[Value]) -> None:
        """Take keys out of the dimension's set."""
        self.sets.remove(dimension, keys)

    def _time(self) -> TimeDimension:
        time = self.dataset.partitioning.time
        if time is None:
            raise VarveError(f"{self.dataset} has no time dimension, so that its partitions have no window.")
        return time


def partitions_of(context: dg.AssetExecutionContext) -> RunPartitions:
    """Return the partitions that this run of a `dataset_asset` computes."""
    builds = context.resources.builds
    build = builds.of(context).build
    return RunPartitions(build.dataset, in_order(build.dataset, build.partitions), builds.sets(context.instance))


def in_order(dataset: Dataset, keys: Iterable[PartitionKey]) -> tuple[PartitionKey, ...]:
    """Return the keys in the order of their windows, which may differ from the order of their texts.

    For example, where clocks go back, 01:30 comes before 01:00-0500.
    """
    time = dataset.partitioning.time
    if time is None:
        return tuple(sorted(keys, key=lambda key: _places(dataset, key)))
    return tuple(sorted(keys, key=lambda key: (time.start_of(time.value_in(key)), key)))


def _places(dataset: Dataset, key: PartitionKey) -> tuple[Value, ...]:
    """The place of each value in the order that its static dimension declares; of a dynamic one the value itself."""
    dimensions, values = dataset.partitioning.dimensions, dataset.partitioning.values(key)
    return tuple(
        dimension.places.get(value, len(dimension.places)) if isinstance(dimension, StaticDimension) else value
        for dimension, value in zip(dimensions, values, strict=True)
    )
