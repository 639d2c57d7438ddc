"""Calendars: how time is divided into half-open windows, exactly, also where the clock of a zone moves.

A calendar computes with whole seconds since 1970 (see zone.py); it never lists windows to find one. A wall is what the
clock of a zone shows.

Where clocks move, a window begins
- once for each wall of `0 0 * * *`, `30 1 * * 1` and their like: when the clock first shows the wall, or where it skips
  it, at the moment it does;
- each time the clock shows a wall of an expression whose hour is `*`, and never for one that it skips.
So days have 23 or 25 hours, hours stay on the hour in zones that move by 30 minutes, and every key is one window.

A calendar of one's own may have gaps, which belong to no window (listed_windows.py).

Not here: keys (dimension.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import pendulum

from varve.model.errors import VarveError
from varve.model.partitions.cron import EveryDays, Walls, cron_walls
from varve.model.partitions.grain import Grain
from varve.model.partitions.listed_windows import listed_windows
from varve.model.partitions.own_calendar import Calendar
from varve.model.partitions.zone import DAY, instants, moment_of, stretch, wall_of

if TYPE_CHECKING:
    import datetime as dt


@dataclass(frozen=True, slots=True)
class Every:
    """Windows of one duration, end to end from an anchor, which cron cannot express: 7 minutes, 90 minutes, two weeks.

    Attributes:
        duration: whole seconds. Whole days follow the calendar of the zone, so that every window begins at the same
            time of day; any other duration is counted in seconds, so that every window is equally long.
        anchor: an instant at which a window begins, in the zone of the windows.
    """

    duration: dt.timedelta
    anchor: pendulum.DateTime

    def __str__(self) -> str:
        return f"every {pendulum.duration(seconds=self.duration.total_seconds()).in_words(locale='en')}"


# A grain, a cron expression or shorthand (`@hourly`), a duration from an anchor, or a calendar of one's own.
Tiling: TypeAlias = Grain | str | Every | Calendar


class WindowCalendar(Protocol):
    """A division of time into half-open windows, and gaps between them; instants are seconds since 1970 in UTC."""

    @property
    def timezone(self) -> str:
        """The IANA zone of its clock."""
        ...

    @property
    def has_gaps(self) -> bool:
        """Whether there is time that belongs to no window."""
        ...

    @property
    def extent(self) -> tuple[int, int]:
        """The start of its first window, and the end of its last one."""
        ...

    def floor(self, instant: int) -> int:
        """The start of the window that holds the instant, or of the gap that does."""
        ...

    def following(self, instant: int) -> int:
        """The end of the window that holds the instant, or of the gap that does."""
        ...

    def begins(self, instant: int) -> bool:
        """Whether a window begins at the instant."""
        ...

    def next_start(self, instant: int) -> int:
        """The start of the first window that begins after the instant."""
        ...

    def previous_start(self, instant: int) -> int:
        """The start of the last window that begins before the instant."""
        ...

    def runs(self, start: int, end: int) -> list[tuple[int, int]]:
        """The spans of windows without a gap between them, of those that begin from `start` to before `end`."""
        ...

    def wall(self, start: int) -> dt.datetime:
        """The wall at which a window should begin: what the clock shows at its start, or what it skips then."""
        ...

    def starts(self, wall: dt.datetime) -> list[int]:
        """The starts of the windows that begin at a wall: none, one, or two where the clock goes back over it."""
        ...


class _Gapless(ABC):
    """What follows from `floor` and `following` where every moment belongs to a window."""

    __slots__ = ()

    @property
    def has_gaps(self) -> bool:
        """See WindowCalendar."""
        return False

    @property
    def extent(self) -> tuple[int, int]:
        """See WindowCalendar: it has no first and no last window."""
        return -(1 << 62), 1 << 62

    @abstractmethod
    def floor(self, instant: int) -> int:
        """See WindowCalendar."""

    @abstractmethod
    def following(self, instant: int) -> int:
        """See WindowCalendar."""

    def begins(self, instant: int) -> bool:
        """See WindowCalendar."""
        return self.floor(instant) == instant

    def next_start(self, instant: int) -> int:
        """See WindowCalendar."""
        return self.following(instant)

    def previous_start(self, instant: int) -> int:
        """See WindowCalendar."""
        return self.floor(instant - 1)

    def runs(self, start: int, end: int) -> list[tuple[int, int]]:
        """See WindowCalendar."""
        return [(start, end)] if start < end else []


@dataclass(frozen=True, slots=True)
class WallCalendar(_Gapless):
    """Windows that begin where the clock of a zone shows certain walls.

    Attributes:
        repeats: whether a wall begins a window each time the clock shows it (see the module).
    """

    walls: Walls
    timezone: str
    repeats: bool

    def floor(self, instant: int) -> int:
        """See WindowCalendar."""
        while True:
            current = stretch(self.timezone, instant)
            wall = self.walls.floor(instant + current.offset)
            if wall >= self._first(current.start, current.offset, current.before):
                return wall - current.offset
            if self._begins(current.start, current.offset, current.before):
                return current.start
            instant = current.start - 1

    def following(self, instant: int) -> int:
        """See WindowCalendar."""
        current = stretch(self.timezone, instant)
        wall = self.walls.following(instant + current.offset)
        while True:
            first = self._first(current.start, current.offset, current.before)
            if wall < first:
                wall = self.walls.following(first - 1)
            if wall - current.offset < current.end:
                return wall - current.offset
            current = stretch(self.timezone, current.end)
            if self._begins(current.start, current.offset, current.before):
                return current.start
            wall = self.walls.following(current.start + current.offset - 1)

    def wall(self, start: int) -> dt.datetime:
        """See WindowCalendar."""
        current = stretch(self.timezone, start)
        wall = start + current.offset
        if start == current.start and self.walls.floor(wall) != wall:
            wall = self.walls.floor(wall)
        return moment_of(wall)

    def starts(self, wall: dt.datetime) -> list[int]:
        """See WindowCalendar."""
        at = wall_of(wall)
        if starts := instants(self.timezone, at):
            return [start for start in starts if self.floor(start) == start]
        skipped = self.floor(at - stretch(self.timezone, at - DAY).offset)
        return [skipped] if self.wall(skipped) == wall else []

    def _first(self, start: int, offset: int, before: int) -> int:
        """The first wall of a stretch that may begin a window: earlier walls of it were shown before, once already."""
        return start + (offset if self.repeats else max(offset, before))

    def _begins(self, start: int, offset: int, before: int) -> bool:
        """Whether a window begins where the clock moves, as it skips the wall of its start; never for a whole day."""
        if self.repeats or not before < offset < before + DAY:
            return False
        return self.walls.following(start + before - 1) < start + offset


@dataclass(frozen=True, slots=True)
class SteadyCalendar(_Gapless):
    """Windows of the same number of seconds, end to end from an anchor."""

    anchor: int
    seconds: int
    timezone: str

    def floor(self, instant: int) -> int:
        """See WindowCalendar."""
        return instant - (instant - self.anchor) % self.seconds

    def following(self, instant: int) -> int:
        """See WindowCalendar."""
        return self.floor(instant) + self.seconds

    def wall(self, start: int) -> dt.datetime:
        """See WindowCalendar."""
        return clock(self.timezone, start)

    def starts(self, wall: dt.datetime) -> list[int]:
        """See WindowCalendar."""
        return [start for start in instants(self.timezone, wall_of(wall)) if self.floor(start) == start]


def first_from(calendar: WindowCalendar, instant: int) -> int:
    """The start of the first window that ends after the instant: the one that holds it, or the next one."""
    start = calendar.floor(instant)
    return start if not calendar.has_gaps or calendar.begins(start) else calendar.next_start(start)


def last_end(calendar: WindowCalendar, instant: int) -> int:
    """The end of the last window that is over at the instant."""
    boundary = calendar.floor(instant)
    return min(calendar.following(calendar.previous_start(boundary)), boundary) if calendar.has_gaps else boundary


def clock(timezone: str, instant: int) -> dt.datetime:
    """What the clock of a zone shows, without a zone; fold=1 where it shows that for the second time."""
    current = stretch(timezone, instant)
    second = instant + current.offset < current.start + current.before
    return moment_of(instant + current.offset).replace(fold=int(second))


def calendar_of(tiling: Tiling, timezone: str) -> WindowCalendar:
    """The calendar of a tiling in a zone. Raises VarveError where the cron, the duration or the zone is not valid."""
    stretch(timezone, 0)
    if isinstance(tiling, Calendar):
        return listed_windows(tiling, timezone)
    if not isinstance(tiling, Every):
        walls = cron_walls(cron_of(tiling))
        return WallCalendar(walls, timezone, walls.repeats)
    seconds = tiling.duration.total_seconds()
    if getattr(tiling.duration, "months", 0) or getattr(tiling.duration, "years", 0):
        raise VarveError(f"{tiling}: months and years are not equally long; write a cron, such as 0 0 1 */2 *.")
    if seconds < 1 or seconds != int(seconds):
        raise VarveError(f"every {tiling.duration}: a duration is one or more whole seconds.")
    if tiling.anchor.microsecond:
        raise VarveError(f"{tiling}: the anchor {tiling.anchor} must be a whole second.")
    anchor = int(tiling.anchor.timestamp())
    if seconds % DAY == 0:
        return WallCalendar(EveryDays(anchor + stretch(timezone, anchor).offset, int(seconds)), timezone, repeats=False)
    return SteadyCalendar(anchor, int(seconds), timezone)


def cron_of(tiling: Grain | str) -> str:
    """The cron expression of a grain, or the text itself."""
    return tiling.cron if isinstance(tiling, Grain) else tiling
