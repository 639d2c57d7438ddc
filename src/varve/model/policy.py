"""What the planner may do with a dataset without being asked: rebuild, hold, refresh, retire.

Not here: the decision about a partition (varve/planning/judgement/judging.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from varve.model.errors import VarveError

if TYPE_CHECKING:
    import datetime as dt


class OnUpstreamChange(StrEnum):
    """What happens to a partition when one of its inputs is published with other content."""

    REBUILD = "rebuild"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Policy:
    """How a dataset follows its upstream datasets and the clock.

    Attributes:
        on_upstream_change: rebuild the partition, or hold it until a person asks for it (`varve backfill`).
        refresh_last: how many of the newest complete windows are computed again whenever another window completes.
        retention: how long after the end of its window a partition is retired; None: never.
        partitions_per_run: the largest number of partitions in one run; None: the number in the settings.
        by_itself: for a dataset that reads nothing: whether each window runs when it is complete. Without it such a
            dataset runs by schedules, by hand and in backfills.
    """

    on_upstream_change: OnUpstreamChange = OnUpstreamChange.REBUILD
    refresh_last: int = 0
    retention: dt.timedelta | None = None
    partitions_per_run: int | None = None
    by_itself: bool = False

    def check(self, *, has_time: bool) -> None:
        """Raise VarveError where the policy cannot hold for a dataset with or without a time dimension."""
        if self.refresh_last < 0 or (self.partitions_per_run is not None and self.partitions_per_run < 1):
            raise VarveError("its policy: refresh_last is 0 or more, and partitions_per_run 1 or more.")
        if self.retention is not None and self.retention.total_seconds() <= 0:
            raise VarveError(f"its policy: a retention of {self.retention} would keep nothing.")
        if not has_time and (self.refresh_last or self.retention is not None):
            raise VarveError("its policy: refresh_last and retention count windows, and it has no time dimension.")
