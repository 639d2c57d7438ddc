"""The windows of a `Calendar` in a time zone, with the arithmetic that the planner needs of any division of time.

Not here: the calendar itself (own_calendar.py), and windows that follow from a rule (calendar.py).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from varve.model.errors import VarveError
from varve.model.partitions.zone import DAY, instants, moment_of, stretch, wall_of

if TYPE_CHECKING:
    import datetime as dt

    from varve.model.partitions.own_calendar import Calendar

# Before its first window and after its last one a calendar has one gap each, which ends here: in 1800 and in 9000.
_EARLIEST, _LATEST = -5_364_662_400, 221_845_392_000


@dataclass(frozen=True, slots=True)
class ListedWindows:
    """The windows of a `Calendar` in a time zone, as a calendar of the model; instants are seconds since 1970.

    Where no window is, there is a gap: `floor` and `following` know its boundaries as they know those of windows.

    Attributes:
        window_starts, window_ends: the bounds of the windows, in order.
        walls: what the clock should show at each start.
        run_starts, run_ends: the bounds of the windows that follow each other without a gap.
    """

    window_starts: tuple[int, ...]
    window_ends: tuple[int, ...]
    walls: tuple[int, ...]
    run_starts: tuple[int, ...]
    run_ends: tuple[int, ...]
    timezone: str

    @property
    def extent(self) -> tuple[int, int]:
        """The start of the first window, and the end of the last one."""
        return self.window_starts[0], self.window_ends[-1]

    @property
    def has_gaps(self) -> bool:
        """True: there is time that belongs to no window, at least before the first and after the last one."""
        return True

    def floor(self, instant: int) -> int:
        """The start of the window or of the gap that holds the instant."""
        place = bisect_right(self.window_starts, instant) - 1
        if place < 0:
            return min(_EARLIEST, instant)
        if instant < self.window_ends[place]:
            return self.window_starts[place]
        return self.window_ends[place] if instant < _LATEST else instant

    def following(self, instant: int) -> int:
        """The end of the window or of the gap that holds the instant."""
        place = bisect_right(self.window_starts, instant)
        if place and instant < self.window_ends[place - 1]:
            return self.window_ends[place - 1]
        if place < len(self.window_starts):
            return self.window_starts[place]
        return max(_LATEST, instant + 1)

    def begins(self, instant: int) -> bool:
        """Whether a window begins at the instant."""
        place = bisect_left(self.window_starts, instant)
        return place < len(self.window_starts) and self.window_starts[place] == instant

    def next_start(self, instant: int) -> int:
        """The start of the first window that begins after the instant; one in the far future where there is none."""
        place = bisect_right(self.window_starts, instant)
        return self.window_starts[place] if place < len(self.window_starts) else max(_LATEST, instant + 1)

    def previous_start(self, instant: int) -> int:
        """The start of the last window that begins before the instant; one in the far past where there is none."""
        place = bisect_left(self.window_starts, instant)
        return self.window_starts[place - 1] if place else min(_EARLIEST, instant - 1)

    def runs(self, start: int, end: int) -> list[tuple[int, int]]:
        """The spans of windows without a gap between them that begin from `start` to before `end`."""
        first, last = bisect_left(self.window_starts, start), bisect_left(self.window_starts, end) - 1
        if first > last:
            return []
        begin, until = self.window_starts[first], self.window_ends[last]
        place = bisect_right(self.run_starts, begin) - 1
        spans = []
        while place < len(self.run_starts) and self.run_starts[place] < until:
            spans.append((max(begin, self.run_starts[place]), min(until, self.run_ends[place])))
            place += 1
        return spans

    def wall(self, start: int) -> dt.datetime:
        """The wall at which a window should begin: what the clock shows at its start, or what it skips then."""
        place = bisect_left(self.window_starts, start)
        if place < len(self.window_starts) and self.window_starts[place] == start:
            return moment_of(self.walls[place])
        return moment_of(start + stretch(self.timezone, start).offset)

    def starts(self, wall: dt.datetime) -> list[int]:
        """The start of the window that begins at a wall, if any."""
        at = wall_of(wall)
        place = bisect_left(self.walls, at)
        return [self.window_starts[place]] if place < len(self.walls) and self.walls[place] == at else []


@lru_cache(maxsize=256)
def listed_windows(calendar: Calendar, timezone: str) -> ListedWindows:
    """The windows of a calendar in a zone. Raises VarveError where they are not in order there."""
    calendar.check()
    starts = [instant_of(start, timezone) for start, _ in calendar.windows]
    ends = [instant_of(end, timezone) for _, end in calendar.windows]
    for start, end, (begin, _) in zip(starts, ends, calendar.windows, strict=True):
        if start >= end:
            raise VarveError(
                f"{calendar}: its window from {begin.isoformat()} has no length in {timezone}, where clocks skip it."
            )
    run_starts = [start for place, start in enumerate(starts) if not place or ends[place - 1] < start]
    run_ends = [end for place, end in enumerate(ends) if place + 1 == len(ends) or starts[place + 1] > end]
    return ListedWindows(
        tuple(starts), tuple(ends), tuple(wall_of(start) for start, _ in calendar.windows),
        tuple(run_starts), tuple(run_ends), timezone,
    )  # fmt: skip


def instant_of(moment: dt.datetime, timezone: str) -> int:
    """The instant of a wall: the first one where the clock shows it twice, when it moves where it skips it."""
    wall = wall_of(moment)
    if shown := instants(timezone, wall):
        return shown[0]
    return stretch(timezone, wall - stretch(timezone, wall - DAY).offset).start
