"""Which windows of a dataset are not there although its FRESH WITHIN is over.

Looked at are the newest windows that should be there, `LOOKED_BACK` of them, and none from before the dataset's first
partition: history that nobody ever loaded is not late. The newest of them counts in any case.

Not here: how the facts are read (varve/catalog/history/alerts/facts.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pendulum

from varve.model.partitions.calendar import first_from
from varve.model.partitions.key import text_of
from varve.model.partitions.windows import kept_from

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members, TimeDimension

LOOKED_BACK = 31


@dataclass(frozen=True, slots=True)
class FreshnessFacts:
    """What the catalog knows of a dataset with FRESH WITHIN.

    Attributes:
        existing: those of the partitions of `expected_partitions` that have a batch.
        others: whether it has partitions of earlier windows too, which are not looked at.
        published: when it was last published, in seconds since 1970; None: never.
    """

    existing: Collection[str] = ()
    others: bool = False
    published: float | None = None


@dataclass(frozen=True, slots=True)
class Late:
    """A window of which partitions are missing, or (window "") a dataset without windows that is not published anew.

    Attributes:
        window: its partition columns, `day=2026-11-01`.
        missing: the paths of the partitions that are not there.
        expected: how many partitions the window has.
        since: from when on it is late, in seconds since 1970; None: it was never published.
    """

    window: str
    missing: tuple[str, ...] = ()
    expected: int = 0
    since: float | None = None

    def __str__(self) -> str:
        if self.since is None:
            return "never published"
        moment = pendulum.from_timestamp(self.since).format("YYYY-MM-DD HH:mm [UTC]")
        if not self.window:
            return f"not published anew, late since {moment}"
        if len(self.missing) == self.expected:
            return f"not there, late since {moment}"
        shown = ", ".join(self.missing[:3]) + (f" and {len(self.missing) - 3} more" if len(self.missing) > 3 else "")
        return f"{len(self.missing):,} of {self.expected:,} partitions are not there, late since {moment}: {shown}"


def expected_partitions(dataset: Dataset, members: Members | None, now: float) -> dict[int, tuple[str, ...]]:
    """The paths of the partitions that should be there at `now`, by the start of their windows, oldest first.

    Empty for a dataset without FRESH WITHIN or without a time dimension; a window whose retention is over is left out.
    """
    return {start: tuple(_paths(dataset, [start], members)) for start in _looked_back(dataset, now)}


def windows_looked_at(dataset: Dataset, now: float) -> list[str]:
    """Those windows, as alerts name them."""
    time = dataset.partitioning.time
    return [] if time is None else [_window_text(time, start) for start in _looked_back(dataset, now)]


def _looked_back(dataset: Dataset, now: float) -> list[int]:
    """Where the windows begin that are looked at, oldest first."""
    time, fresh_within = dataset.partitioning.time, dataset.policy.fresh_within
    if time is None or fresh_within is None:
        return []
    retention = dataset.policy.retention
    earliest = time.first if retention is None else kept_from(time, retention, now)
    end = time.calendar.floor(int((now - fresh_within.total_seconds()) // 1))
    if time.last is not None:
        end = min(end, time.last)
    starts = list[int]()
    while len(starts) < LOOKED_BACK and (end := time.calendar.previous_start(end)) >= earliest:
        starts.append(end)
    return sorted(starts)


def _window_text(time: TimeDimension, start: int) -> str:
    columns = zip(time.column_names, time.column_values_at(start), strict=True)
    return " ".join(f"{name}={text_of(value)}" for name, value in columns)


def newer_partitions(dataset: Dataset, members: Members | None, now: float) -> list[str]:
    """The paths of the partitions of later windows: of those that are not late yet, and of those that are not over."""
    time, fresh_within = dataset.partitioning.time, dataset.policy.fresh_within
    if time is None or fresh_within is None:
        return []
    start = max(time.first, first_from(time.calendar, int((now - fresh_within.total_seconds()) // 1)))
    end = time.known_until(pendulum.from_timestamp(now))
    starts = list[int]()
    while start < end:
        starts.append(start)
        start = time.calendar.next_start(start)
    return _paths(dataset, starts, members)


def _paths(dataset: Dataset, starts: Sequence[int], members: Members | None) -> list[str]:
    time, partitioning = dataset.partitioning.time, dataset.partitioning
    assert time is not None
    values = [
        [time.value_at(start) for start in starts] if dimension is time else list(dimension.keys(members))
        for dimension in partitioning.dimensions
    ]
    return [key.path for key in partitioning.keys_of(values)]


def late_windows(dataset: Dataset, facts: FreshnessFacts, members: Members | None, now: float) -> list[Late]:
    """The windows of a dataset that are late at `now` (seconds since 1970), oldest first; none without FRESH WITHIN."""
    time, fresh_within = dataset.partitioning.time, dataset.policy.fresh_within
    if fresh_within is None:
        return []
    seconds = fresh_within.total_seconds()
    if time is None:
        if facts.published is None:
            return [Late("")]
        since = facts.published + seconds
        return [Late("", since=since)] if since < now else []
    existing = set(facts.existing)
    late, begun = list[Late](), facts.others
    expected = expected_partitions(dataset, members, now)
    newest = max(expected, default=None)
    for start, paths in expected.items():
        missing = tuple(path for path in paths if path not in existing)
        begun |= len(missing) < len(paths)
        if missing and (begun or start == newest):
            late.append(Late(_window_text(time, start), missing, len(paths), time.calendar.following(start) + seconds))
    return late
