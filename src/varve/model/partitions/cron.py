"""Cron expressions as sets of walls (times on a wall clock), and the arithmetic between these.

croniter parses the text. Its iteration is not used, as it would begin windows elsewhere where clocks move.

Not here: zones, and what happens where a clock skips a wall or shows it twice (calendar.py).
"""

from __future__ import annotations

import calendar
import datetime as dt
import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from croniter import CroniterBadCronError, croniter

from varve.model.errors import VarveError
from varve.model.partitions.zone import DAY, EPOCH

# croniter knows @hourly to @yearly; weeks of @weekly begin on Sunday, as in every cron.
_SHORTHANDS = {"@quarterly": "0 0 1 */3 *"}
# What croniter knows beyond cron, and CronWalls does not: a random or hashed number, and the weekday nearest to a day.
_OF_CRONITER = re.compile(r"[hr](\(.*\))?(/.*)?|\d+w|w\d+", re.ASCII | re.IGNORECASE)
# An expression names a day at least once in so many years: 29 February falls on a given weekday that rarely.
_YEARS = 41
_ORDINAL_OF_EPOCH = EPOCH.toordinal()


class Walls(Protocol):
    """A set of walls without a first or a last, at which windows may begin; in seconds (see zone.py)."""

    def floor(self, wall: int) -> int:
        """The last wall of the set that is not after `wall`."""
        ...

    def following(self, wall: int) -> int:
        """The first wall of the set that is after `wall`."""
        ...


@dataclass(frozen=True, slots=True)
class EveryDays:
    """Walls that are `seconds` apart (whole days), counted from an anchor."""

    anchor: int
    seconds: int

    def floor(self, wall: int) -> int:
        """See Walls."""
        return wall - (wall - self.anchor) % self.seconds

    def following(self, wall: int) -> int:
        """See Walls."""
        return self.floor(wall) + self.seconds


@dataclass(frozen=True, slots=True)
class CronWalls:
    """The walls that a cron expression names.

    Attributes:
        times: seconds since midnight, in order.
        days, months, weekdays: the numbers in these fields (weekdays from 0, Sunday); None: all of them.
        nth: for a weekday, which occurrences of it in a month: `1#2` is {1: {2}}; "l" is the last one.
        repeats: whether the hour is `*`: then a wall counts again when the clock shows it again.
    """

    expression: str
    times: tuple[int, ...]
    days: frozenset[int | str] | None
    months: frozenset[int | str] | None
    weekdays: frozenset[int | str] | None
    nth: tuple[tuple[int, frozenset[int | str]], ...]
    repeats: bool

    def floor(self, wall: int) -> int:
        """See Walls."""
        day, time = divmod(wall, DAY)
        if self._has(day) and (place := bisect_right(self.times, time)):
            return day * DAY + self.times[place - 1]
        return self._day_before(day) * DAY + self.times[-1]

    def following(self, wall: int) -> int:
        """See Walls."""
        day, time = divmod(wall, DAY)
        if self._has(day) and (place := bisect_right(self.times, time)) < len(self.times):
            return day * DAY + self.times[place]
        return self._day_after(day) * DAY + self.times[0]

    @property
    def daily(self) -> bool:
        """Whether the expression names every day."""
        return self.days is None and self.months is None and self.weekdays is None

    def _has(self, day: int) -> bool:
        if self.daily:
            return True
        days = self._in_year(_year(day))
        place = bisect_left(days, day)
        return place < len(days) and days[place] == day

    def _day_before(self, day: int) -> int:
        if self.daily:
            return day - 1
        year = _year(day)
        for earlier_year in range(year, year - _YEARS, -1):
            days = self._in_year(earlier_year)
            if place := bisect_left(days, day):
                return days[place - 1]
        raise self._impossible()

    def _day_after(self, day: int) -> int:
        if self.daily:
            return day + 1
        year = _year(day)
        for later_year in range(year, year + _YEARS):
            days = self._in_year(later_year)
            if (place := bisect_right(days, day)) < len(days):
                return days[place]
        raise self._impossible()

    def _in_year(self, year: int) -> tuple[int, ...]:
        return _days_in_year(self, year)

    def _impossible(self) -> VarveError:
        return VarveError(f"cron {self.expression!r} names no day that any calendar has.")

    def names(self, date: dt.date) -> bool:
        """Whether the expression names this day. As in cron, one of day and weekday is enough where both are given."""
        if self.months is not None and date.month not in self.months:
            return False
        length = calendar.monthrange(date.year, date.month)[1]
        by_day = self.days is not None and (date.day in self.days or ("l" in self.days and date.day == length))
        by_weekday = self.weekdays is not None and self._names_weekday(date, length)
        if self.days is not None and self.weekdays is not None:
            return by_day or by_weekday
        return by_day or by_weekday or (self.days is None and self.weekdays is None)

    def _names_weekday(self, date: dt.date, length: int) -> bool:
        weekday = date.isoweekday() % 7
        assert self.weekdays is not None
        if weekday not in self.weekdays:
            return False
        nth = dict(self.nth).get(weekday)
        return nth is None or (date.day + 6) // 7 in nth or ("l" in nth and date.day > length - 7)


def known_to_croniter(expression: str) -> str:
    """The expression as croniter knows it, and Dagster, which has one of its own: `@quarterly` in its five fields."""
    return _SHORTHANDS.get(expression, expression)


@lru_cache(maxsize=256)
def cron_walls(expression: str) -> CronWalls:
    """The walls of a cron expression or shorthand. Raises VarveError where it is not valid, or names no day at all."""
    text = known_to_croniter(expression)
    problem = f"cron {expression!r} is not understood: five fields are expected (minute hour day month weekday)"
    if own := [field for field in text.split() if _OF_CRONITER.fullmatch(field)]:
        raise VarveError(
            f"cron {expression!r}: {own[0]} is not understood. R, H and W are not known here; write the numbers."
        )
    try:
        fields, nth = croniter.expand(text)
    except (CroniterBadCronError, AttributeError, ValueError, KeyError) as error:
        raise VarveError(f"{problem}; {error}.") from None
    if len(fields) != 5:
        raise VarveError(f"{problem}; found {len(fields)}. No window is shorter than a minute.")
    minutes = _numbers(fields[0], range(60))
    hours = _numbers(fields[1], range(24))
    walls = CronWalls(
        expression=expression,
        times=tuple(hour * 3_600 + minute * 60 for hour in hours for minute in minutes),
        days=_some(fields[2]),
        months=_some(fields[3]),
        weekdays=_some(fields[4]),
        nth=tuple(sorted((int(day), frozenset(which)) for day, which in nth.items())),
        repeats=len(hours) == 24,
    )
    walls.following(0)
    return walls


def _numbers(field: list[int | str], everything: range) -> list[int]:
    return list(everything) if field == ["*"] else sorted(int(number) for number in field)


def _some(field: list[int | str]) -> frozenset[int | str] | None:
    return None if field == ["*"] else frozenset(field)


@lru_cache(maxsize=4_096)
def _days_in_year(walls: CronWalls, year: int) -> tuple[int, ...]:
    first = dt.date(year, 1, 1).toordinal()
    last = dt.date(year, 12, 31).toordinal()
    return tuple(
        ordinal - _ORDINAL_OF_EPOCH for ordinal in range(first, last + 1) if walls.names(dt.date.fromordinal(ordinal))
    )


def _year(day: int) -> int:
    return dt.date.fromordinal(day + _ORDINAL_OF_EPOCH).year
