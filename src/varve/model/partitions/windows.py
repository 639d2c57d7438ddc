"""Windows in time: complete, open, upcoming or outside of their dimension, and from when on they are partitions.

Not here: where windows begin and end (calendar.py, time_dimension.py), and what the planner does with it (planning/).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import datetime as dt

    from varve.model.partitions.time_dimension import TimeDimension


class WindowState(StrEnum):
    """What a window is at some instant."""

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
    """From when on the window that begins at `start` is a partition, in seconds since 1970.

    When it is complete; `time.end_offset` windows earlier where the dimension has windows ahead.
    """
    boundary = time.calendar.following(start)
    for _ in range(time.end_offset):
        boundary = time.calendar.floor(boundary - 1)
    return boundary


def kept_from(time: TimeDimension, retention: dt.timedelta, now: float) -> int:
    """Where the first window begins whose retention is not over at `now`, in seconds since 1970."""
    # The end of a window is compared with the last boundary, so that it changes once a window
    # (varve/planning/judgement/timing.py).
    over = time.calendar.floor(int(now // 1)) - int(retention.total_seconds())
    return max(time.first, time.calendar.floor(over))


def why_not_there(time: TimeDimension, start: int, now: float, retention: dt.timedelta | None = None) -> str:
    """Why the window that begins at `start` is no partition at `now`, in words; empty where it is one."""
    state = window_state(time, start, now)
    if state is WindowState.OUTSIDE:
        return f"it lies outside dimension {time.name}, which {time.extent}"
    if retention is not None and start < kept_from(time, retention, now):
        return f"its retention of {retention} is over"
    begins = there_from(time, start)
    if begins <= now:
        return ""
    begun = (
        f"its window is open until {time.shown(time.calendar.following(start))}"
        if state is WindowState.OPEN
        else f"its window begins at {time.shown(start)}"
    )
    return f"{begun}, and it is a partition from {time.shown(begins)} on"
