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
    from collections.abc import Collection, Iterable, Sequence

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
        return hashlib.blake2b(self.text.encode(), digest_size=6).hexdigest()

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
        """Digests of its windows that are not one day each, by the month in which they begin.

        A window of one day has the same rows whatever other windows a calendar has. Any other key may have other rows
        when the calendar changes: it depends on where the window ends.
        """
        months: dict[str, list[str]] = {}
        for start, end in self.windows:
            if not _is_day(start, end):
                months.setdefault(start.strftime("%Y-%m"), []).append(f"{_written(start)},{_written(end)}")
        digests = {month: hashlib.blake2b("\n".join(lines).encode(), digest_size=4) for month, lines in months.items()}
        return " ".join(f"{month}:{digest.hexdigest()}" for month, digest in digests.items())

    def cut(self, timezone: str) -> str:
        """How time is cut into windows, as the catalog keeps it; see `changed_windows`."""
        return f"calendar {self.name}{f' ({self.irregular})' if self.irregular else ''}, {timezone}"

    def __hash__(self) -> int:
        return hash((self.name, self.digest))

    def __str__(self) -> str:
        return f"calendar {self.name}"

    def __repr__(self) -> str:
        return f"Calendar({self.name!r}, {self.digest})"


def changed_windows(before: str, after: str) -> str:
    """What is different between two texts of how time is cut, as a sentence; "" where every key kept its window.

    A calendar may get more windows, and lose some: those partitions are retired. It is another calendar where a key
    that both have ends elsewhere.
    """
    old, new = _CUT.fullmatch(before), _CUT.fullmatch(after)
    if before == after:
        return ""
    if old is None or new is None or old[3] != new[3] or bool(old[2]) != bool(new[2]):
        return f"Its windows were {_shown(before)}, and are {_shown(after)} now."
    months = [dict(digest.split(":") for digest in (match[2] or "").split()) for match in (old, new)]
    changed = sorted(month for month, digest in months[0].items() if months[1].get(month, digest) != digest)
    if not changed:
        return ""
    return f"The windows of calendar {new[1]} that begin in {changed[0]} were others than they are now."


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
