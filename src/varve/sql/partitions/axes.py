"""The keys of dimensions that may matter to some scopes, as columns: what conditions are evaluated over.

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


@dataclass(frozen=True)
class Upstream:
    """The theoretical partitions of a dataset that is read.

    Attributes:
        partitioning: its dimensions; their keys are the values of its partition columns. None: it has no partitions.
        types: the Spark type of each partition column.
        members: the members of dynamic sets, where it has any.
    """

    name: str
    partitioning: Partitioning | None
    types: Mapping[str, str] = field(default_factory=dict)
    members: Members | None = None


@dataclass(frozen=True)
class Bindings:
    """The variables of some scopes, as columns of equal lengths.

    Attributes:
        columns: by name; vectors of one dimension.
        timezone: the session's time zone in which the query runs.
    """

    columns: Mapping[str, Vector]
    count: int
    timezone: str = "UTC"

    @classmethod
    def of(cls, types: Mapping[str, str], rows: Sequence[Mapping[str, object]], timezone: str = "UTC") -> Bindings:
        """The bindings of scopes by their values: str, int, date, datetime with a zone."""
        columns = {name.lower(): Vector.of(kind.lower(), [row[name] for row in rows]) for name, kind in types.items()}
        return cls(columns, len(rows), timezone)

    def part(self, start: int, end: int) -> Bindings:
        """Some of the scopes."""
        places = np.arange(start, min(end, self.count))
        return Bindings({name: each.taken(places) for name, each in self.columns.items()}, len(places), self.timezone)


@dataclass(frozen=True)
class Axis:
    """The keys of one dimension that may matter, in order, as a column.

    Attributes:
        starts: where the windows of a time dimension begin, in seconds since 1970, and the end of the last.
    """

    dimension: Dimension
    keys: Sequence[Value]
    starts: Sequence[int]
    column: Vector


@dataclass
class Group:
    """Dimensions that the conditions of a scan tie together, with the truth for each scope and combination of keys."""

    axes: list[Axis]
    mask: Array

    @property
    def size(self) -> int:
        """How many combinations there are."""
        return int(np.prod([len(axis.keys) for axis in self.axes], dtype=np.int64))

    def columns(self, alias: str, shape: tuple[int, int]) -> dict[tuple[str, str], Vector]:
        """The partition columns over the combinations, the last dimension fastest."""
        places = np.indices([len(axis.keys) for axis in self.axes]).reshape(len(self.axes), -1)
        return {
            (alias, axis.dimension.name): axis.column.taken(places[at]).reshaped(*shape)
            for at, axis in enumerate(self.axes)
        }


def choices(group: Group, mask: Array) -> Iterator[dict[str, KeySelection]]:
    """The combinations of keys as products of choices: one for each key of the other dimensions than the last time."""
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
        found: dict[str, KeySelection] = {
            axis.dimension.name: _choice(axis, [at]) for axis, at in zip(rest, place, strict=True)
        }
        found[group.axes[last].dimension.name] = _choice(group.axes[last], np.flatnonzero(moved[tuple(place)]).tolist())
        yield found


def _choice(axis: Axis, places: Sequence[int]) -> KeySelection:
    if isinstance(axis.dimension, TimeDimension):
        following = axis.dimension.calendar.following
        ends = [*axis.starts[1:], following(axis.starts[-1])]
        # Windows beside each other in the list need not be neighbours where only some were listed.
        return TimeSpans.of((axis.starts[at], min(ends[at], following(axis.starts[at]))) for at in places)
    return tuple(axis.keys[at] for at in places)


@lru_cache(maxsize=64)
def windows_of(dimension: TimeDimension, spans: TimeSpans) -> tuple[list[int], tuple[Value, ...]]:
    """The windows of some spans, by where they begin and by their keys; many datasets have the same ones."""
    starts = list(spans.starts(dimension))
    return starts, tuple([dimension.value_at(start) for start in starts])
