"""The state of a window at an instant (complete, open, upcoming, outside), and from when it is a partition.

Also which time the keys of a calendar of one's own hold, by which a later text of it is compared.

Not here: where windows begin and end (calendar.py, time_dimension.py), and what the planner does with it (planning/).
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

import pendulum

from varve.model.errors import counted
from varve.model.partitions.calendar import calendar_of, first_from
from varve.model.partitions.grain import Grain
from varve.model.partitions.key import text_of
from varve.model.partitions.listed_windows import instant_of
from varve.model.partitions.own_calendar import Calendar

if TYPE_CHECKING:
    import datetime as dt

    from varve.model.partitions.calendar import WindowCalendar
    from varve.model.partitions.time_dimension import TimeDimension


class WindowState(StrEnum):
    """The state of a window at an instant; OUTSIDE means before the start or after the end of its dimension."""

    COMPLETE = "complete"
    OPEN = "open"
    UPCOMING = "upcoming"
    OUTSIDE = "outside"


def window_state(time: TimeDimension, start: int, now: float) -> WindowState:
    """The state at `now` of the window that begins at `start`; both in seconds since 1970."""
    if start < time.first or (time.last is not None and start >= time.last):
        return WindowState.OUTSIDE
    if start > now:
        return WindowState.UPCOMING
    return WindowState.OPEN if time.calendar.following(start) > now else WindowState.COMPLETE


def there_from(time: TimeDimension, start: int) -> int:
    """The instant from which the window that begins at `start` is a partition; both in seconds since 1970.

    That is when it is complete, or `time.end_offset` windows earlier.
    """
    if not time.end_offset:
        return time.calendar.following(start)
    for _ in range(time.end_offset - 1):
        start = time.calendar.previous_start(start)
    return start


def retention_calendars(time: TimeDimension) -> list[WindowCalendar]:
    """The calendars from whose last boundary retention is counted back, so that it changes at each of them.

    They are the dimension's own one and, where that has gaps and an end, in which time goes on too, the days of its
    zone.
    """
    days = [calendar_of(Grain.DAY, time.timezone)] if time.calendar.has_gaps else []
    return [time.calendar, *days]


def retired_until(time: TimeDimension, retention: dt.timedelta, now: float) -> int:
    """The end of the last window whose retention is over at `now`, or a moment before the next one's end.

    It is counted back from the last boundary of `retention_calendars`; in whole days by the clock of the zone, of which
    one may have 23 or 25 hours, and then in seconds.
    """
    days, seconds = divmod(int(retention.total_seconds()), 86_400)
    last = max(calendar.floor(int(now // 1)) for calendar in retention_calendars(time))
    boundary = pendulum.from_timestamp(last, tz=time.timezone)
    return int(boundary.subtract(days=days).timestamp()) - seconds


def kept_from(time: TimeDimension, retention: dt.timedelta, now: float) -> int:
    """The start of the first window whose retention is not over at `now`; both in seconds since 1970."""
    return max(time.first, first_from(time.calendar, retired_until(time, retention, now)))


def why_not_there(time: TimeDimension, start: int, now: float, retention: dt.timedelta | None = None) -> str:
    """Why the window that begins at `start` is no partition at `now`, as a phrase; "" where it is one."""
    state = window_state(time, start, now)
    if state is WindowState.OUTSIDE:
        return f"it lies outside dimension {time.name}, which {time.extent}"
    if retention is not None and start < kept_from(time, retention, now):
        whole_days = retention.seconds == 0 and retention.microseconds == 0
        return f"its retention of {counted(retention.days, 'day') if whole_days else retention} is over"
    partition_from = there_from(time, start)
    if partition_from <= now:
        return ""
    state_text = (
        f"its window is open until {time.shown(time.calendar.following(start))}"
        if state is WindowState.OPEN
        else f"its window begins at {time.shown(start)}"
    )
    return f"{state_text}, and it is a partition from {time.shown(partition_from)} on"


@lru_cache(maxsize=256)
def windows_by_key(dimension: TimeDimension) -> str:
    """Which time each key of a dimension holds, as `Calendar.listed` writes it; "" where its windows follow a rule."""
    if not isinstance(dimension.tiling, Calendar):
        return ""

    def key_of(moment: dt.datetime) -> str:
        return "/".join(map(text_of, dimension.column_values_at(instant_of(moment, dimension.timezone))))

    return dimension.tiling.listed(key_of)
