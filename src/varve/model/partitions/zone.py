"""Zones of time as the stretches over which their clocks do not move, in whole seconds.

Instants are seconds since 1970 in UTC; walls are what the clock shows, in seconds since it showed 1970: so an hour is
always 3,600 of either, and arithmetic on them is arithmetic on integers.

Not here: windows (calendar.py).
"""

from __future__ import annotations

import calendar
import datetime as dt
from dataclasses import dataclass
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from varve.model.errors import VarveError

DAY = 86_400
_YEAR = 31_556_952
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock's


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of time over which a zone's clock does not move; at most a year.

    Attributes:
        start: the first instant.
        end: the instant after the last.
        offset: what the clock is ahead of UTC, in seconds.
        before: the same right before `start`; unlike `offset` where the clock moved at `start`.
    """

    start: int
    end: int
    offset: int
    before: int


def stretch(timezone: str, instant: int) -> Stretch:
    """The stretch that holds the instant. Raises VarveError for an unknown zone."""
    year = 1970 + instant // _YEAR
    for found in _stretches(timezone, year):
        if found.start <= instant < found.end:
            return found
    # A mean year begins up to two days beside the calendar's.
    nearby = (*_stretches(timezone, year - 1), *_stretches(timezone, year + 1))
    return next(found for found in nearby if found.start <= instant < found.end)


def instants(timezone: str, wall: int) -> list[int]:
    """When the clock shows `wall`: once, twice where it goes back, and never where it skips it."""
    around = stretch(timezone, wall)
    if around.start + 2 * DAY <= wall - around.offset < around.end - 2 * DAY:
        return [wall - around.offset]
    found = []
    # No clock is further from UTC than this, and none has moved by more than a day.
    at, last = wall - 2 * DAY, wall + 2 * DAY
    while at < last:
        around = stretch(timezone, at)
        if around.start <= wall - around.offset < around.end:
            found.append(wall - around.offset)
        at = around.end
    return found


def wall_of(moment: dt.datetime) -> int:
    """The wall that a naive time says."""
    return int((moment - EPOCH).total_seconds())


def moment_of(wall: int) -> dt.datetime:
    """The wall as a naive time."""
    return EPOCH + dt.timedelta(seconds=wall)


@lru_cache(maxsize=4_096)
def _stretches(timezone: str, year: int) -> tuple[Stretch, ...]:
    zone = _zone(timezone)
    first, last = (calendar.timegm((each, 1, 1, 0, 0, 0)) for each in (year, year + 1))
    found: list[Stretch] = []
    start, before, offset = first, _offset(zone, first - 1), _offset(zone, first)
    # No zone has moved its clock twice within a day.
    for day in range(first + DAY, last + 1, DAY):
        if _offset(zone, day) != offset:
            moved = _moved(zone, day - DAY, day)
            if moved < last:
                found.append(Stretch(start, moved, offset, before))
                start, before, offset = moved, offset, _offset(zone, moved)
    found.append(Stretch(start, last, offset, before))
    return tuple(found)


def _moved(zone: ZoneInfo, before: int, after: int) -> int:
    """The instant between the two at which the clock moves."""
    offset = _offset(zone, before)
    while after - before > 1:
        middle = (before + after) // 2
        before, after = (middle, after) if _offset(zone, middle) == offset else (before, middle)
    return after


def _offset(zone: ZoneInfo, instant: int) -> int:
    offset = dt.datetime.fromtimestamp(instant, tz=zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


@lru_cache
def _zone(timezone: str) -> ZoneInfo:
    try:
        return ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise VarveError(
            f"time zone {timezone!r} is unknown; write a name of the IANA database, such as UTC or Europe/Paris."
        ) from None
