"""Window completeness, refresh and retention of a dataset at a given instant.

Not here: the decision about a partition (judging.py).
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
    """Window completeness, refresh and retention of a dataset at a given instant; instants are seconds since 1970.

    Attributes:
        needed: whether window ends matter to the dataset at all: for refresh, retention or a deadline.
        boundary: the last boundary between two windows, whether the dimension has these windows or not.
        complete: the end of its last complete window.
        left_alone: the end of the last complete window that is not refreshed any more; None without refresh.
        known_until: the end of the last window that is a partition; see `TimeDimension.known_until`.
        at: the given instant.
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
        """The timing of a dataset that reads through these edges, at an instant."""
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
        """The end of a partition's window; None where it does not matter."""
        time = self.dataset.partitioning.time
        if not self.needed or time is None or key is None:
            return None
        return float(time.calendar.following(time.start_of(time.value_in(key))))

    def there_from(self, key: PartitionKey | None) -> float | None:
        """The instant from which the key is a partition; None where it is one already."""
        time = self.dataset.partitioning.time
        if time is None or key is None or (start := time.start_of(time.value_in(key))) < self.known_until:
            return None
        return float(there_from(time, start))

    def is_open(self, key: PartitionKey | None) -> bool:
        """Whether the window of a partition is not over, so that its inputs need not be complete yet."""
        time = self.dataset.partitioning.time
        if time is None or key is None or not time.end_offset:
            return False
        return time.calendar.following(time.start_of(time.value_in(key))) > self.at

    def is_over(self, window_end: float | None) -> bool:
        """Whether the retention of a window with this end is over."""
        retention = self.dataset.policy.retention
        if retention is None or window_end is None:
            return False
        return window_end + retention.total_seconds() <= self.boundary

    def refreshed_since(self, window_end: float | None) -> float | None:
        """For one of the newest windows, which are refreshed: the end of the last complete window; else None."""
        if self.left_alone is None or window_end is None or not self.left_alone < window_end <= self.complete:
            return None
        return self.complete


def followed_by_time(dataset: Dataset, graph: Graph) -> Iterator[TimeDimension]:
    """The time dimensions whose next boundary can change judgements of the dataset."""
    own, policy = dataset.partitioning.time, dataset.policy
    if own is not None and (own.end_offset or policy.refresh_last or policy.retention is not None or policy.by_itself):
        yield own
    for edge in graph.edges[dataset.name]:
        mappings = edge.dependency.dimension_mappings
        if own is not None and not any(mapping.reader_dimension is own for mapping in mappings):
            yield own
        theirs = edge.upstream.partitioning.time
        if theirs is not None and any(
            mapping.upstream is theirs and isinstance(mapping.rule, All | Latest) for mapping in mappings
        ):
            yield theirs
