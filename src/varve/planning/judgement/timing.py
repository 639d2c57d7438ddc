"""Window completeness, refresh and retention of a dataset at a given instant.

Not here: the decision about a partition (judging.py).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.model.partitions.calendar import last_end
from varve.model.partitions.windows import retention_calendars, retired_until, there_from
from varve.model.reads import All, Latest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from varve.model.dataset import Dataset
    from varve.model.partitions.calendar import WindowCalendar
    from varve.model.partitions.key import PartitionKey
    from varve.planning.graph import Edge, Graph


@dataclass(frozen=True, slots=True)
class Timing:
    """Window completeness, refresh and retention of a dataset at a given instant; instants are seconds since 1970.

    Attributes:
        needed: whether window ends matter to the dataset at all: for refresh, retention or a deadline.
        retired_until: the end of the last window whose retention is over; None where all are kept.
        complete: the end of its last complete window.
        left_alone: the end of the last complete window that is not refreshed any more; None without refresh.
        known_until: the end of the last window that is a partition; see `TimeDimension.known_until`.
        at: the given instant.
        tick: the last tick of the dataset's schedule; 0.0 where it has none.
        known_at_tick: `known_until` at that tick.
    """

    dataset: Dataset
    needed: bool = False
    retired_until: float | None = None
    complete: float = 0.0
    left_alone: float | None = None
    known_until: float = float("inf")
    at: float = 0.0
    tick: float = 0.0
    known_at_tick: float = float("inf")

    @classmethod
    def of(cls, dataset: Dataset, edges: Iterable[Edge], at: float) -> Timing:
        """The timing of a dataset that reads through these edges, at an instant."""
        time, policy = dataset.partitioning.time, dataset.policy
        needed = (
            policy.refresh_last > 0
            or policy.retention is not None
            or policy.rebuild_within is not None
            or not policy.catchup
            or any(edge.wait.deadline for edge in edges)
        )
        tick = 0.0 if policy.schedule is None else policy.schedule.last(at)
        if time is None:
            return cls(dataset, at=at, tick=tick)
        known_until = float(time.known_until(_instant(at)))
        known_at_tick = known_until if policy.schedule is None else float(time.known_until(_instant(tick)))
        if not needed:
            return cls(dataset, known_until=known_until, at=at, tick=tick, known_at_tick=known_at_tick)
        boundary = time.calendar.floor(int(at // 1))
        complete = last_end(time.calendar, boundary if time.last is None else min(boundary, time.last))
        until = complete
        for _ in range(policy.refresh_last):
            until = last_end(time.calendar, until - 1)
        left_alone = float(until) if policy.refresh_last else None
        over = None if policy.retention is None else float(retired_until(time, policy.retention, at))
        return cls(
            dataset, needed=True, retired_until=over, complete=complete, left_alone=left_alone,
            known_until=known_until, at=at, tick=tick, known_at_tick=known_at_tick,
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
        if self.retired_until is None or window_end is None:
            return False
        return window_end <= self.retired_until

    def scheduled_at(self, key: PartitionKey | None, batch: int, since: float) -> float | None:
        """The tick of the schedule before which a partition is not computed; None where it may be computed now.

        `batch` is the id of its current batch, 0 where it has none; `since` when its dataset was first deployed. Each
        tick computes a partition once.
        """
        schedule, time = self.dataset.policy.schedule, self.dataset.partitioning.time
        if schedule is None or key is None:
            return None
        if batch:
            is_early = batch / 1_000 >= self.tick
        elif time is None:
            is_early = self.tick < since
        else:
            is_early = time.start_of(time.value_in(key)) >= self.known_at_tick
        return schedule.following(self.at) if is_early else None

    def refreshed_since(self, window_end: float | None) -> float | None:
        """Since when a batch is recent enough: for one of the newest windows, the end of the last complete window.

        Without windows it is the last tick of the schedule. None where a batch stays as long as its inputs do.
        """
        if self.dataset.recomputes and self.dataset.partitioning.time is None:
            return self.tick
        if self.left_alone is None or window_end is None or not self.left_alone < window_end <= self.complete:
            return None
        return self.complete


def _instant(seconds: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(seconds, tz=dt.UTC)


def past_retention(
    dataset: Dataset, key_of: Callable[[str], PartitionKey | None], at: float
) -> Callable[[str], bool] | None:
    """Whether the dataset has a key with this path, whose retention is over; None where it keeps all partitions."""
    if dataset.policy.retention is None:
        return None
    timing = Timing.of(dataset, (), at)
    return lambda path: timing.is_over(timing.window_end(key_of(path)))


def followed_by_time(dataset: Dataset, graph: Graph) -> Iterator[WindowCalendar]:
    """The calendars whose next boundary can change judgements of the dataset."""
    own, policy = dataset.partitioning.time, dataset.policy
    scheduled = policy.schedule is not None
    follows = policy.refresh_last or policy.retention is not None or policy.by_itself or scheduled
    if own is not None and (own.end_offset or follows):
        yield own.calendar
    if own is not None and policy.retention is not None:
        yield from retention_calendars(own)
    if policy.schedule is not None:
        yield policy.schedule.calendar
    for edge in graph.edges[dataset.name]:
        mappings = edge.dependency.dimension_mappings
        if own is not None and not any(mapping.reader_dimension is own for mapping in mappings):
            yield own.calendar
        theirs = edge.upstream.partitioning.time
        if theirs is None:
            continue
        if edge.upstream.policy.retention is not None and edge.reads_all_windows:
            yield from retention_calendars(theirs)
        if any(mapping.upstream is theirs and isinstance(mapping.rule, All | Latest) for mapping in mappings):
            yield theirs.calendar
