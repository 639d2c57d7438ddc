"""What now means for the windows of a dataset: which are complete, refreshed, or over.

Not here: what follows from it for a partition (judging.py).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.model.partitions.windows import there_from
from varve.model.reads import All, Latest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import TimeDimension
    from varve.model.partitions.key import PartitionKey
    from varve.planning.graph import Edge, Graph


@dataclass(frozen=True, slots=True)
class Timing:
    """What now means for the windows of one dataset.

    Attributes:
        boundary: the last one between two windows, whether the dimension has them or not.
        complete: where its last complete window ends.
        left_alone: where the last complete window ends that is not among the newest, which are refreshed.
        known_until: where the last window ends that is there; see `TimeDimension.known_until`.
        at: now.
    """

    dataset: Dataset
    needed: bool = False
    boundary: float = 0.0
    complete: float = 0.0
    left_alone: float | None = None
    known_until: float = float("inf")
    at: float = 0.0

    @classmethod
    def of(cls, dataset: Dataset, edges: Iterable[Edge], at: float) -> Timing:
        """The timing of a dataset that reads by these edges, at seconds since 1970."""
        time, policy = dataset.partitioning.time, dataset.policy
        needed = policy.refresh_last > 0 or policy.retention is not None or any(edge.wait.deadline for edge in edges)
        if time is None:
            return cls(dataset, at=at)
        known_until = float(time.known_until(dt.datetime.fromtimestamp(at, tz=dt.UTC)))
        if not needed:
            return cls(dataset, known_until=known_until, at=at)
        boundary = time.calendar.floor(int(at // 1))
        until = complete = boundary if time.last is None else min(boundary, time.last)
        for _ in range(policy.refresh_last):
            until = time.calendar.floor(until - 1)
        left_alone = float(until) if policy.refresh_last else None
        return cls(
            dataset, needed=True, boundary=boundary, complete=complete, left_alone=left_alone, known_until=known_until,
            at=at,
        )  # fmt: skip

    def window_end(self, key: PartitionKey | None) -> float | None:
        """Where the window of a partition ends, if that matters."""
        time = self.dataset.partitioning.time
        if not self.needed or time is None or key is None:
            return None
        return float(time.calendar.following(time.start_of(key[time.name])))

    def there_from(self, key: PartitionKey | None) -> float | None:
        """From when on the partition is there; None where it is there now."""
        time = self.dataset.partitioning.time
        if time is None or key is None or (start := time.start_of(key[time.name])) < self.known_until:
            return None
        return float(there_from(time, start))

    def is_open(self, key: PartitionKey | None) -> bool:
        """Whether the window of a partition is not over: what it reads is not all there yet, and need not be."""
        time = self.dataset.partitioning.time
        if time is None or key is None or not time.end_offset:
            return False
        return time.calendar.following(time.start_of(key[time.name])) > self.at

    def is_over(self, window_end: float | None) -> bool:
        """Whether the retention of that window is over."""
        retention = self.dataset.policy.retention
        if retention is None or window_end is None:
            return False
        return window_end + retention.total_seconds() <= self.boundary

    def refreshed_since(self, window_end: float | None) -> float | None:
        """When the last window was complete, where this is one of the newest, which are refreshed."""
        if self.left_alone is None or window_end is None or not self.left_alone < window_end <= self.complete:
            return None
        return self.complete


def followed_by_time(dataset: Dataset, graph: Graph) -> Iterator[TimeDimension]:
    """The time dimensions whose next window changes what there is to say about the dataset."""
    own, policy = dataset.partitioning.time, dataset.policy
    if own is not None and (own.end_offset or policy.refresh_last or policy.retention is not None or policy.by_itself):
        yield own
    for edge in graph.edges[dataset.name]:
        ways = edge.dependency.ways
        if own is not None and not any(way.of is own for way in ways):
            yield own
        theirs = edge.upstream.partitioning.time
        if theirs is not None and any(way.upstream is theirs and isinstance(way.rule, All | Latest) for way in ways):
            yield theirs
