"""Schedules that are not tied to partitions: which windows are complete at a tick of any schedule.

A daily schedule over hours completes 24 of them (or 23, or 25) at once. An hourly schedule over days completes a day at
one tick of 24, and none at the others.

Not here: Dagster's schedules (varve/dagster/automation/schedules.py), and when they tick, which Dagster decides.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from varve.model.partitions.calendar import first_from

if TYPE_CHECKING:
    import datetime as dt

    from varve.model.partitions.dimension import TimeDimension
    from varve.model.partitions.key import Value


def completed(dimension: TimeDimension, after: dt.datetime, until: dt.datetime) -> list[Value]:
    """The keys of the windows that end after `after` and not after `until`, in order; only those that exist.

    Windows that are partitions before they end (OPEN WINDOWS, WINDOWS AHEAD) count when they end, as all others.
    """
    calendar = dimension.calendar
    end = replace(dimension, end_offset=0).known_until(until)
    start = max(dimension.first, first_from(calendar, int(after.timestamp() // 1)))
    keys = []
    while start < end:
        keys.append(dimension.value_at(start))
        start = calendar.next_start(start)
    return keys
