"""What the planner may do with a dataset without being asked: rebuild, hold, go forward, refresh, retire.

Not here: the decision about a partition (varve/planning/judgement/judging.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import pendulum

from varve.model.errors import VarveError
from varve.model.partitions.texts import length_text

if TYPE_CHECKING:
    import datetime as dt

    from varve.model.partitions.schedule import Schedule


class OnUpstreamChange(StrEnum):
    """What happens to a partition when one of its inputs is published with other content."""

    REBUILD = "rebuild"
    HOLD = "hold"


class OnCodeChange(StrEnum):
    """What happens to a dataset whose code is not the one that made its partitions.

    HOLD: nothing of it is computed until a person decides (`varve apply`). REBUILD: the new code is deployed as soon as
    a sensor or a run has it, and every partition of earlier code is computed again. FORWARD: it is deployed likewise,
    and only windows from a given instant on are computed with it; earlier ones stay as they are.
    """

    HOLD = "hold"
    REBUILD = "rebuild"
    FORWARD = "forward"


@dataclass(frozen=True, slots=True)
class Policy:
    """How a dataset follows its upstream datasets and the clock.

    Attributes:
        on_upstream_change: rebuild the partition, or hold it until a person asks for it (`varve backfill`).
        on_code_change: what happens when its code is another one than made its partitions.
        forward_from: for FORWARD: the begin of the first window that the new code makes, as an ISO 8601 text
            ("2026-01-01"); without a UTC offset it is meant in the time zone of the windows.
        refresh_last: how many of the newest complete windows are computed again whenever another window completes.
        retention: how long after the end of its window a partition is retired; None: never.
        partitions_per_run: the largest number of partitions in one run; None: the number in the settings.
        by_itself: for a dataset that reads nothing: whether each window runs when it is complete. Without it such a
            dataset runs by schedules, by hand and in backfills.
        retain_batches: how long a sweep keeps a batch after it was replaced, at least; None: as the sweep says.
        retain_last: how many replaced batches of each partition a sweep keeps at least.
        schedule: the ticks at which it is computed; None: as soon as there is a reason. At each tick it has the windows
            that are complete then, and those whose inputs have changed; without windows, every partition again.
        catchup: whether windows are computed that were over before its code was first deployed. Without it they wait
            for a person (`varve backfill`).
        rebuild_within: a change of an input rebuilds windows that ended no longer than this before it; None: all.
        rebuild_within_of: the upstream datasets for which that is said; none: all of them.
        fresh_within: how long after the end of its window a partition is there, at most; of a dataset without a time
            dimension: how long after its last publish there is another one. None: nothing is said.
    """

    on_upstream_change: OnUpstreamChange = OnUpstreamChange.REBUILD
    on_code_change: OnCodeChange = OnCodeChange.HOLD
    forward_from: str = ""
    refresh_last: int = 0
    retention: dt.timedelta | None = None
    partitions_per_run: int | None = None
    by_itself: bool = False
    retain_batches: dt.timedelta | None = None
    retain_last: int = 0
    schedule: Schedule | None = None
    catchup: bool = True
    rebuild_within: dt.timedelta | None = None
    rebuild_within_of: tuple[str, ...] = ()
    fresh_within: dt.timedelta | None = None

    def check(self, *, has_time: bool) -> None:
        """Raise VarveError where the policy cannot hold for a dataset with or without a time dimension."""
        if self.refresh_last < 0 or (self.partitions_per_run is not None and self.partitions_per_run < 1):
            raise VarveError("its policy: refresh_last is 0 or more, and partitions_per_run 1 or more.")
        if self.retention is not None and self.retention.total_seconds() <= 0:
            raise VarveError(f"its policy: a retention of {self.retention} would keep nothing.")
        if self.retain_last < 0 or (self.retain_batches is not None and self.retain_batches.total_seconds() < 0):
            raise VarveError("its policy: retain_batches and retain_last are 0 or more.")
        if self.fresh_within is not None and self.fresh_within.total_seconds() <= 0:
            raise VarveError(f"its policy: nothing is fresh within {self.fresh_within}; fresh_within is above 0.")
        if (self.on_code_change is OnCodeChange.FORWARD) != bool(self.forward_from):
            raise VarveError("its policy: on_code_change is FORWARD exactly where forward_from says from when.")
        if self.forward_from:
            instant_of(self.forward_from)
            if not has_time:
                raise VarveError("its policy: FORWARD FROM names a window of time, and it has no time dimension.")
        if not has_time and (self.refresh_last or self.retention is not None):
            raise VarveError("its policy: refresh_last and retention count windows, and it has no time dimension.")
        if not has_time and (not self.catchup or self.rebuild_within is not None):
            raise VarveError("its policy: catchup and rebuild_within are about windows, and it has no time dimension.")
        if self.rebuild_within is not None and self.rebuild_within.total_seconds() <= 0:
            raise VarveError(f"its policy: rebuild_within is a length of time, and {self.rebuild_within} is none.")
        if self.rebuild_within_of and self.rebuild_within is None:
            raise VarveError("its policy: rebuild_within_of names datasets, and rebuild_within says no length of time.")

    def rebuilds_within(self, upstream: str) -> float | None:
        """How many seconds after its window a change of an upstream dataset rebuilds a partition; None: always."""
        if self.rebuild_within is None or (self.rebuild_within_of and upstream not in self.rebuild_within_of):
            return None
        return self.rebuild_within.total_seconds()

    @property
    def clauses(self) -> tuple[str, ...]:
        """How soon partitions are there, and how long they and batches are kept, as the words of a file; or none."""
        fresh = () if self.fresh_within is None else (f"FRESH WITHIN {length_text(self.fresh_within)}",)
        windows = () if self.retention is None else (f"RETENTION {length_text(self.retention)}",)
        age = () if self.retain_batches is None else (length_text(self.retain_batches),)
        last = (f"LAST {self.retain_last}",) if self.retain_last else ()
        batches = (f"RETAIN BATCHES {' AND '.join([*age, *last])}",) if age or last else ()
        return (*fresh, *windows, *batches)


def instant_of(text: str, timezone: str = "UTC") -> float:
    """The instant of an ISO 8601 text, in seconds since 1970. Raises VarveError for any other text."""
    try:
        instant = pendulum.parse(text, tz=timezone)
    except ValueError:
        instant = None
    if not isinstance(instant, pendulum.DateTime):
        raise VarveError(f"{text!r} is no date; write for example 2026-01-31, or 2026-01-31T12:00.")
    return instant.timestamp()
