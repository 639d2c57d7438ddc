"""Instants and wall clocks of a zone over whole columns, as Spark reckons them with a session time zone.

Not here: single windows of a time dimension (varve/model/partitions/calendar.py).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from varve.model.partitions.zone import stretch
from varve.sql.evaluate.vector import DAY_MICROS, Array

_SECOND = 1_000_000
# Stretches are listed a decade at a time.
_DECADE = 10 * 366 * 86_400


def to_wall(micros: Array, timezone: str) -> Array:
    """What the clock shows at instants, in microseconds since it showed 1970."""
    if timezone == "UTC" or not micros.size:
        return micros
    starts, offsets, _ = _stretches_over(micros, timezone)
    shown: Array = micros + offsets[np.searchsorted(starts, micros, side="right") - 1] * _SECOND
    return shown


def to_instant(walls: Array, timezone: str) -> Array:
    """When the clock shows walls: the first time where it shows one twice, and later by the gap where it skips one.

    That is java.time's rule, which Spark follows.
    """
    if timezone == "UTC" or not walls.size:
        return walls
    starts, offsets, before = _stretches_over(walls, timezone)
    # From here on the clock shows the wall only by the later offset.
    turns = starts + np.maximum(offsets, before) * _SECOND
    found: Array = walls - offsets[np.searchsorted(turns, walls, side="right") - 1] * _SECOND
    return found


def day_of(micros: Array, timezone: str) -> Array:
    """The date that the clock shows, in days since 1970."""
    days: Array = to_wall(micros, timezone) // DAY_MICROS
    return days


def _stretches_over(micros: Array, timezone: str) -> tuple[Array, Array, Array]:
    first, last = int(micros.min()) // _SECOND // _DECADE, int(micros.max()) // _SECOND // _DECADE
    found = [each for decade in range(first - 1, last + 2) for each in _stretches(timezone, decade)]
    starts, offsets, before = (np.array(each, dtype=np.int64) for each in zip(*found, strict=True))
    return starts * _SECOND, offsets, before


@lru_cache(maxsize=256)
def _stretches(timezone: str, decade: int) -> tuple[tuple[int, int, int], ...]:
    at, end, found = decade * _DECADE, (decade + 1) * _DECADE, []
    while at < end:
        around = stretch(timezone, at)
        found.append((at, around.offset, around.before if around.start == at else around.offset))
        at = around.end
    return tuple(found)
