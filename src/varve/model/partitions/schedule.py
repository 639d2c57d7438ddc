"""A schedule of a dataset: the instants from which its partitions may be computed.

Not here: which partitions that are (varve/planning/judgement/timing.py), and schedules of Dagster
(varve/dagster/automation/schedules.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.model.errors import VarveError
from varve.model.partitions.calendar import calendar_of

if TYPE_CHECKING:
    from varve.model.partitions.calendar import WindowCalendar


@dataclass(frozen=True, slots=True)
class Schedule:
    """Ticks of a clock: `Schedule("@daily")`, `Schedule("0 6 * * 1-5", "Europe/Paris")`. Instants are epoch seconds.

    Attributes:
        cron: a cron expression or shorthand.
        timezone: the IANA zone of its clock.

    Raises VarveError for an expression or a zone that is none.
    """

    cron: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        try:
            assert self.calendar is not None
        except VarveError as error:
            raise VarveError(f"its schedule: {error}") from None

    @property
    def calendar(self) -> WindowCalendar:
        """The windows between its ticks."""
        return calendar_of(self.cron, self.timezone)

    def last(self, at: float) -> float:
        """The last tick that is not after an instant."""
        return float(self.calendar.floor(int(at // 1)))

    def following(self, at: float) -> float:
        """The first tick after an instant."""
        return float(self.calendar.following(int(at // 1)))

    def __str__(self) -> str:
        return f"'{self.cron}'" if self.timezone == "UTC" else f"'{self.cron}' TIMEZONE '{self.timezone}'"
