"""The candidate keys of partition dimensions, as the columns over which conditions are evaluated.

Not here: the evaluation (scan_reads.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from varve.model.partitions.dimension import TimeDimension
from varve.planning.mapping.partition_subset import TimeSpans
from varve.sql.evaluate.vector import Array, Vector

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from varve.model.partitions.dimension import Dimension, Members
    from varve.model.partitions.key import Value
    from varve.model.partitions.partitioning import Partitioning
    from varve.planning.mapping.partition_subset import KeySelection
    from varve.sql.evaluate.asked import SparkValues


@dataclass(frozen=True)
class Upstream:
    """The theoretical partitions of a dataset that a query reads.

    Attributes:
        partitioning: its dimensions; their keys are the values of its partition columns. None: the dataset has no
            partitions.
        types: the Spark type of each partition column.
        members: the members of the dynamic sets, where the dataset has any.
        any_member: whether a dynamic set whose members are not given stands for one key of which nothing is known, so
            that every condition on it may hold.
    """

    name: str
    partitioning: Partitioning | None
    types: Mapping[str, str] = field(default_factory=dict)
    members: Members | None = None
    any_member: bool = False


@dataclass(frozen=True)
class Bindings:
    """The variables of several scopes, as columns of equal length.

    Attributes:
        columns: one vector for each variable name; each vector has one dimension, with one element for each scope.
        timezone: the time zone of the Spark session in which the query runs.
        spark_values: what Spark said of calls that are not evaluated here.
    """

    columns: Mapping[str, Vector]
    count: int
    timezone: str = "UTC"
    spark_values: SparkValues | None = None

    @classmethod
    def of(cls, types: Mapping[str, str], rows: Sequence[Mapping[str, object]], timezone: str = "UTC") -> Bindings:
        """Build the bindings from one row of values for each scope: str, int, date, or datetime with a time zone."""
        columns = {name.lower(): Vector.of(kind.lower(), [row[name] for row in rows]) for name, kind in types.items()}
        return cls(columns, len(rows), timezone)

    def part(self, start: int, end: int) -> Bindings:
        """Return the bindings of the scopes at positions `start` (included) to `end` (excluded)."""
        places = np.arange(start, min(end, self.count))
        return Bindings(
            {name: column.taken(places) for name, column in self.columns.items()},
            len(places),
            self.timezone,
            self.spark_values,
        )


@dataclass(frozen=True)
class Axis:
    """The candidate keys of one dimension, in order, as its partition columns.

    Attributes:
        starts: the start of each window of a time dimension, in seconds since 1970; empty for other dimensions.
        columns: the values of each partition column of the dimension, one for each key.
    """

    dimension: Dimension
    keys: Sequence[Value]
    starts: Sequence[int]
    columns: Mapping[str, Vector]


@dataclass
class Group:
    """Dimensions that conditions of a scan relate, with the truth for each (scope, combination of keys)."""

    axes: list[Axis]
    mask: Array

    @property
    def size(self) -> int:
        """The number of combinations of keys."""
        return int(np.prod([len(axis.keys) for axis in self.axes], dtype=np.int64))

    def columns(self, alias: str, shape: tuple[int, int]) -> dict[tuple[str, str], Vector]:
        """The partition columns over all combinations of keys, in row-major order (the last dimension fastest)."""
        places = np.indices([len(axis.keys) for axis in self.axes]).reshape(len(self.axes), -1)
        return {
            (alias, name): column.taken(places[at]).reshaped(*shape)
            for at, axis in enumerate(self.axes)
            for name, column in axis.columns.items()
        }


def joint_group(groups: Sequence[Group]) -> Group:
    """All dimensions of several groups as one: it holds where each of them does."""
    mask = groups[0].mask
    for group in groups[1:]:
        mask = (mask[:, :, None] & group.mask[:, None, :]).reshape(len(mask), -1)
    return groups[0] if len(groups) == 1 else Group([axis for group in groups for axis in group.axes], mask)


def key_selections(group: Group, mask: Array) -> Iterator[dict[str, KeySelection]]:
    """Yield the selected combinations of keys as products of key selections.

    Every product selects exactly one key of each dimension except one: the time dimension, or the last dimension where
    there is no time dimension.
    """
    time = next((at for at, axis in enumerate(group.axes) if isinstance(axis.dimension, TimeDimension)), None)
    shaped = mask.reshape([len(axis.keys) for axis in group.axes])
    if len(group.axes) == 1:
        axis = group.axes[0]
        places = np.flatnonzero(shaped).tolist()
        if places:
            yield {axis.dimension.name: _choice(axis, places)}
        return
    last = len(group.axes) - 1 if time is None else time
    rest = [axis for at, axis in enumerate(group.axes) if at != last]
    moved = np.moveaxis(shaped, last, -1)
    for place in np.argwhere(moved.any(axis=-1)).tolist():
        selection: dict[str, KeySelection] = {
            axis.dimension.name: _choice(axis, [at]) for axis, at in zip(rest, place, strict=True)
        }
        selection[group.axes[last].dimension.name] = _choice(
            group.axes[last], np.flatnonzero(moved[tuple(place)]).tolist()
        )
        yield selection


def _choice(axis: Axis, places: Sequence[int]) -> KeySelection:
    if isinstance(axis.dimension, TimeDimension):
        following = axis.dimension.calendar.following
        ends = [*axis.starts[1:], following(axis.starts[-1])]
        # Only some windows may be listed, so the next start in the list is not always the end of the window before it.
        return TimeSpans.of((axis.starts[at], min(ends[at], following(axis.starts[at]))) for at in places)
    return tuple(axis.keys[at] for at in places)


@lru_cache(maxsize=64)
def windows_of(dimension: TimeDimension, spans: TimeSpans) -> tuple[list[int], tuple[Value, ...]]:
    """Return the starts (seconds since 1970) and the keys of the windows in these spans.

    Cached, because many datasets share the same calendar.
    """
    starts = list(spans.starts(dimension))
    return starts, tuple([dimension.value_at(start) for start in starts])


@lru_cache(maxsize=64)
def window_columns(
    dimension: TimeDimension, spans: TimeSpans, types: tuple[tuple[str, str], ...]
) -> Mapping[str, Vector]:
    """Return the partition columns of the windows in these spans, with these Spark types by name; cached as above."""
    rows = [dimension.column_values_at(start) for start in spans.starts(dimension)]
    return {name: Vector.of(kind, [row[place] for row in rows]) for place, (name, kind) in enumerate(types)}
