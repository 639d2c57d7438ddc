"""Converts between instants and wall-clock times of a time zone over whole columns, as Spark does in a session.

Not here: single windows of a time dimension (varve/model/partitions/calendar.py).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from varve.model.partitions.zone import stretch
from varve.sql.evaluate.vector import DAY_MICROS, Array

_SECOND = 1_000_000
# Periods of one UTC offset are listed (and cached) for one decade at a time.
_DECADE = 10 * 366 * 86_400


def to_wall(micros: Array, timezone: str) -> Array:
    """Return the wall-clock time at each instant, in microseconds since its 1970."""
    if timezone == "UTC" or not micros.size:
        return micros
    starts, offsets, _ = _stretches_over(micros, timezone)
    shown: Array = micros + offsets[np.searchsorted(starts, micros, side="right") - 1] * _SECOND
    return shown


def to_instant(walls: Array, timezone: str) -> Array:
    """Return the instants at which the clock shows these times, in microseconds since 1970.

    Where the clock shows a time twice, the first instant counts; where it skips one, the time moves later by the gap.

    This is the rule of java.time, which Spark follows.
    """
    if timezone == "UTC" or not walls.size:
        return walls
    starts, offsets, before = _stretches_over(walls, timezone)
    # From this wall-clock time on, only the later offset is possible.
    turns = starts + np.maximum(offsets, before) * _SECOND
    instants: Array = walls - offsets[np.searchsorted(turns, walls, side="right") - 1] * _SECOND
    return instants


def day_of(micros: Array, timezone: str) -> Array:
    """Return the date that the clock shows at each instant, in days since 1970."""
    days: Array = to_wall(micros, timezone) // DAY_MICROS
    return days


def _stretches_over(micros: Array, timezone: str) -> tuple[Array, Array, Array]:
    first, last = int(micros.min()) // _SECOND // _DECADE, int(micros.max()) // _SECOND // _DECADE
    rows = [row for decade in range(first - 1, last + 2) for row in _stretches(timezone, decade)]
    starts, offsets, before = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return starts * _SECOND, offsets, before


@lru_cache(maxsize=256)
def _stretches(timezone: str, decade: int) -> tuple[tuple[int, int, int], ...]:
    at, end, rows = decade * _DECADE, (decade + 1) * _DECADE, []
    while at < end:
        around = stretch(timezone, at)
        rows.append((at, around.offset, around.before if around.start == at else around.offset))
        at = around.end
    return tuple(rows)
