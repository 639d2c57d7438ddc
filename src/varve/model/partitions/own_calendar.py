"""`Calendar`: a listed division of time of one's own, such as trading days, 4-4-5 weeks or school terms.

A calendar is a value: a name, and windows by what a clock shows, so that one calendar serves every time zone. It may
have gaps, which belong to no window, and it ends with its last window.

Not here: its windows in a time zone (listed_windows.py), and its files (varve/sql/syntax/clauses/timeseries.py).
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from varve.model.errors import VarveError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_CUT = re.compile(r"calendar (\w+)(?: \((.*)\))?, (\S+)")


class CalendarError(VarveError):
    """A text that is no calendar.

    Attributes:
        offset: where in the text the mistake begins, in characters.
        length: how long it is.
    """

    def __init__(self, message: str, offset: int, length: int) -> None:
        self.offset, self.length = offset, length
        super().__init__(message)


@dataclass(frozen=True, repr=False)
class Calendar:
    """Windows that are listed one by one, each from its start to before its end, in order and without overlap.

    Attributes:
        name: lower-case letters, digits and _.
        windows: pairs of a start and an end, as datetimes without a zone: what the clock of the windows' zone shows.
    """

    name: str
    windows: tuple[tuple[dt.datetime, dt.datetime], ...]

    @classmethod
    def of_days(cls, name: str, days: Iterable[dt.date]) -> Calendar:
        """A window for each of these days, from midnight to midnight."""
        return cls.of(name, ((day, day + dt.timedelta(days=1)) for day in days))

    @classmethod
    def of_weekdays(
        cls,
        name: str,
        first: dt.date,
        last: dt.date,
        *,
        without: Collection[dt.date] = (),
        weekdays: Collection[int] = range(5),
    ) -> Calendar:
        """A window for each day from `first` to `last` (included), but weekends and the days of `without`.

        `weekdays` are numbers from 0, Monday.
        """
        days = (first + dt.timedelta(days=place) for place in range((last - first).days + 1))
        return cls.of_days(name, (day for day in days if day.weekday() in weekdays and day not in without))

    @classmethod
    def of_weeks(cls, name: str, first: dt.date, weeks: Iterable[int]) -> Calendar:
        """Windows end to end from `first`, each of so many weeks: `[4, 4, 5] * 4` is a year of 4-4-5 periods."""
        windows, begin = [], first
        for number in weeks:
            windows.append((begin, begin + dt.timedelta(weeks=number)))
            begin = windows[-1][1]
        return cls.of(name, windows)

    @classmethod
    def of(cls, name: str, windows: Iterable[tuple[dt.date, dt.date]]) -> Calendar:
        """Windows from a start to before an end, each a date (its midnight) or a datetime without a zone."""
        return cls(name, tuple((_midnight(start), _midnight(end)) for start, end in windows))

    @classmethod
    def parse(cls, name: str, text: str) -> Calendar:
        """The calendar of a text, as `text` writes it: a window a line, `#` begins a comment. Raises CalendarError.

        A line is one day, `2026-11-23`, or the start of a window and its end (not included any more),
        `2026-02-02, 2026-03-02`; either may have a time, `2026-11-27T09:30`.
        """
        windows: list[tuple[dt.datetime, dt.datetime]] = []
        offset = 0
        for number, line in enumerate(text.splitlines(keepends=True), 1):
            words = list(re.finditer(r"[^\s,;]+", line.partition("#")[0]))
            if words:
                at, length = offset + words[0].start(), words[-1].end() - words[0].start()
                try:
                    windows.append(_window([word[0] for word in words]))
                    _check_order(windows[-2:])
                except (ValueError, VarveError) as error:
                    message = f"calendar {name}, line {number}: {error}"
                    raise CalendarError(message, at, length) from None
            offset += len(line)
        calendar = cls(name, tuple(windows))
        try:
            calendar.check()
        except VarveError as error:
            raise CalendarError(str(error), 0, 1) from None
        return calendar

    @property
    def text(self) -> str:
        """The calendar as a text, which `parse` reads back."""
        lines = [
            _written(start) if _is_day(start, end) else f"{_written(start)}, {_written(end)}"
            for start, end in self.windows
        ]
        return "\n".join([*lines, ""])

    @cached_property
    def digest(self) -> str:
        """The version of its content: a hash of its windows."""
        return _hash(self.text, 6)

    @cached_property
    def is_of_days(self) -> bool:
        """Whether every window begins at midnight, so that a date names it."""
        return all(start.time() == dt.time() for start, _ in self.windows)

    @cached_property
    def has_seconds(self) -> bool:
        """Whether a window begins within a minute."""
        return any(start.second for start, _ in self.windows)

    def check(self) -> None:
        """Raise VarveError with the windows that are wrong, and what to write."""
        if not _NAME.fullmatch(self.name):
            raise VarveError(f"calendar {self.name!r}: a name is lower-case letters, digits and _.")
        if not self.windows:
            raise VarveError(f"calendar {self.name}: it has no windows; write one a line, such as 2026-11-23.")
        for place in range(len(self.windows)):
            try:
                _check_order(self.windows[max(0, place - 1) : place + 1])
            except VarveError as error:
                raise VarveError(f"calendar {self.name}, window {place + 1}: {error}") from None

    @cached_property
    def irregular(self) -> str:
        """Digests of its windows that are not one day each, by the month in which they begin."""
        months: dict[str, list[str]] = {}
        for start, end in self.windows:
            if not _is_day(start, end):
                months.setdefault(start.strftime("%Y-%m"), []).append(f"{_written(start)},{_written(end)}")
        return " ".join("{}:{}".format(month, _hash("\n".join(lines), 4)) for month, lines in months.items())

    def cut(self, timezone: str) -> str:
        """How time is cut into windows, as the catalog keeps it; see `changed_windows`."""
        return f"calendar {self.name}{f' ({self.irregular})' if self.irregular else ''}, {timezone}"

    def listed(self, key_of: Callable[[dt.datetime], str]) -> str:
        """Its windows by the names of their keys, as the catalog keeps them: `2026-11 3fe0 27:a1b2c3`.

        After a month a mask of the days in it that are a window each: its bit n is day n. Then the other windows that
        begin in it: named by the day, where the key says no more than that, else by a hash of the key, with a digest of
        where they begin and end. `key_of` is the key of a window that begins at a moment.
        """
        midnight = _midnight(self.windows[0][0].date())
        # Keys that are months or weeks: one of them may be another day in another calendar.
        tells_day = len({key_of(midnight + dt.timedelta(days=later)) for later in range(3)}) == 3
        days: dict[str, int] = {}
        others: dict[str, list[str]] = {}
        for start, end in self.windows:
            month = start.strftime("%Y-%m")
            days.setdefault(month, 0)
            if tells_day and _is_day(start, end):
                days[month] |= 1 << start.day
                continue
            key = key_of(start)
            is_day = tells_day and key == key_of(_midnight(start.date()))
            name = f"{start.day:02}" if is_day else _hash(key, 4)
            others.setdefault(month, []).append(f"{name}:{_hash(f'{_written(start)},{_written(end)}', 3)}")
        return ", ".join(" ".join([month, f"{mask:x}", *others.get(month, ())]) for month, mask in days.items())

    def __hash__(self) -> int:
        return hash((self.name, self.digest))

    def __str__(self) -> str:
        return f"calendar {self.name}"

    def __repr__(self) -> str:
        return f"Calendar({self.name!r}, {self.digest})"


def changed_windows(before: str, after: str, listed: tuple[str, str] = ("", "")) -> str:
    """What is different between two texts of how time is cut, as a sentence; "" where every key kept its window.

    A calendar may get more windows, and lose some: those partitions are retired. It is another calendar where a key
    that both have begins or ends elsewhere. That is told by what is `listed` of its windows, before and after (see
    Calendar.listed). Earlier versions kept no such texts: then it is told where months had other irregular windows.
    """
    old, new = _CUT.fullmatch(before), _CUT.fullmatch(after)
    both_irregular = old is not None and new is not None and bool(old[2]) == bool(new[2])
    if old and new and old[3] == new[3] and all(listed) and (old[1] == new[1] or both_irregular):
        windows, windows_now = map(_by_name, listed)
    elif before == after:
        return ""
    elif old is None or new is None or old[3] != new[3] or not both_irregular:
        return f"Its windows were {_shown(before)}, and are {_shown(after)} now."
    else:
        windows, windows_now = (
            {month: (month, digest) for month, digest in (part.split(":") for part in (match[2] or "").split())}
            for match in (old, new)
        )
    changed = [month for name, (month, held) in windows.items() if windows_now.get(name, (month, held))[1] != held]
    if not changed:
        return ""
    return f"The windows of calendar {new[1]} that begin in {min(changed)} were others than they are now."


def _by_name(listed: str) -> dict[str, tuple[str, str]]:
    """What a text of `Calendar.listed` says: by the name of each window its month, and which time it holds."""
    windows: dict[str, tuple[str, str]] = {}
    for of_month in listed.split(", "):
        month, mask, *others = of_month.split(" ")
        days = int(mask, 16)
        windows |= {f"{month}-{day:02}": (month, "") for day in range(1, 32) if days >> day & 1}
        for other in others:
            name, _, held = other.partition(":")
            windows[f"{month}-{name}" if len(name) == 2 else name] = (month, held)
    return windows


def _hash(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


def _shown(cut: str) -> str:
    match = _CUT.fullmatch(cut)
    return f"calendar {match[1]}, {match[3]}" if match else cut


def _midnight(day: dt.date) -> dt.datetime:
    return day if isinstance(day, dt.datetime) else dt.datetime(day.year, day.month, day.day)  # noqa: DTZ001


def _is_day(start: dt.datetime, end: dt.datetime) -> bool:
    return start.time() == dt.time() and end - start == dt.timedelta(days=1)


def _written(moment: dt.datetime) -> str:
    return moment.isoformat() if moment.time() != dt.time() else moment.date().isoformat()


def _window(words: Sequence[str]) -> tuple[dt.datetime, dt.datetime]:
    """The window of a line. Raises ValueError."""
    example = "write a day, 2026-11-23, or a start and an end, 2026-02-02, 2026-03-02"
    if len(words) > 2:
        raise ValueError(f"{' '.join(words)!r} is no window; {example}.")
    moments = []
    for word in words:
        try:
            moments.append(dt.datetime.fromisoformat(word))
        except ValueError:
            raise ValueError(f"{word!r} is no date; {example}.") from None
    if len(moments) == 1 and len(words[0]) > len("2026-11-23"):
        raise ValueError(f"{words[0]} has a time, but no end: {example}.")
    return (moments[0], moments[1]) if len(moments) == 2 else (moments[0], moments[0] + dt.timedelta(days=1))


def _check_order(windows: Sequence[tuple[dt.datetime, dt.datetime]]) -> None:
    """Raise VarveError where the last window is not one, or does not come after the one before it."""
    start, end = windows[-1]
    for moment in (start, end):
        if moment.tzinfo is not None or moment.microsecond:
            raise VarveError(
                f"{moment.isoformat()} is not in whole seconds without a zone: the zone is that of the series."
            )
        if not 1801 <= moment.year <= 8999:
            raise VarveError(f"{moment.isoformat()} is not in the years 1801 to 8999.")
    if end <= start:
        raise VarveError(f"the end {_written(end)} is not after the start {_written(start)}; it is not included.")
    for earlier, until in windows[:-1]:
        if start < earlier:
            raise VarveError(f"{_written(start)} comes after {_written(earlier)}; sort the windows.")
        if start < until:
            raise VarveError(
                f"the window from {_written(start)} overlaps the one from {_written(earlier)} to {_written(until)}; a "
                "moment belongs to one window at most."
            )
