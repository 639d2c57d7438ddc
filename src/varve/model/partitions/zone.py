"""Time zones as the stretches of time over which their clocks do not move, in whole seconds.

An instant is counted in seconds since 1970 in UTC. A wall is what the clock of a zone shows, counted in seconds from
1970-01-01 00:00 on that clock. An hour is 3,600 of either, so that all arithmetic is on integers.

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
        offset: by how many seconds the clock is ahead of UTC.
        before: the offset right before `start`; it differs from `offset` where the clock moved at `start`.
    """

    start: int
    end: int
    offset: int
    before: int


def stretch(timezone: str, instant: int) -> Stretch:
    """The stretch that contains the instant. Raises VarveError for an unknown zone."""
    year = 1970 + instant // _YEAR
    for candidate in _stretches(timezone, year):
        if candidate.start <= instant < candidate.end:
            return candidate
    # `year` counts years of mean length, which begin up to two days before or after a calendar year.
    nearby = (*_stretches(timezone, year - 1), *_stretches(timezone, year + 1))
    return next(candidate for candidate in nearby if candidate.start <= instant < candidate.end)


def instants(timezone: str, wall: int) -> list[int]:
    """The instants at which the clock shows `wall`: one; two where it goes back over it; none where it skips it."""
    current = stretch(timezone, wall)
    if current.start + 2 * DAY <= wall - current.offset < current.end - 2 * DAY:
        return [wall - current.offset]
    matches = []
    # No clock differs from UTC by more than this, and none has ever moved by more than a day.
    at, last = wall - 2 * DAY, wall + 2 * DAY
    while at < last:
        current = stretch(timezone, at)
        if current.start <= wall - current.offset < current.end:
            matches.append(wall - current.offset)
        at = current.end
    return matches


def wall_of(moment: dt.datetime) -> int:
    """The wall of a datetime without a zone."""
    return int((moment - EPOCH).total_seconds())


def moment_of(wall: int) -> dt.datetime:
    """The wall as a datetime without a zone."""
    return EPOCH + dt.timedelta(seconds=wall)


@lru_cache(maxsize=4_096)
def _stretches(timezone: str, year: int) -> tuple[Stretch, ...]:
    if not dt.MINYEAR < year < dt.MAXYEAR:
        # Python's dates end here, on the clock of a zone a day earlier: the clock stands as at the nearest year's end.
        first_year = min(max(year, dt.MINYEAR), dt.MAXYEAR)
        first = calendar.timegm((first_year, 1, 1, 0, 0, 0)) + (year - first_year) * _YEAR
        offset = _stretches(timezone, dt.MAXYEAR - 1)[-1].offset if year > 1 else _stretches(timezone, 2)[0].offset
        return (Stretch(first, first + 366 * DAY, offset, offset),)
    zone = _zone(timezone)
    first, last = (calendar.timegm((start_year, 1, 1, 0, 0, 0)) for start_year in (year, year + 1))
    stretches: list[Stretch] = []
    start, before, offset = first, _offset(zone, first - 1), _offset(zone, first)
    # No zone has moved its clock twice within a day.
    for day in range(first + DAY, last + 1, DAY):
        if _offset(zone, day) != offset:
            moved = _moved(zone, day - DAY, day)
            if moved < last:
                stretches.append(Stretch(start, moved, offset, before))
                start, before, offset = moved, offset, _offset(zone, moved)
    stretches.append(Stretch(start, last, offset, before))
    return tuple(stretches)


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
