"""Partition columns of time: which window it is, spelled in one column or in several, as in the dumps of Hive.

`year=2022/month=3/day=31/hour=13` is one window of an hourly series in four columns. Each column is a function of the
start of the window, and together they say which window it is.

Not here: the windows themselves (time_dimension.py, calendar.py).
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pendulum

from varve.model.errors import VarveError
from varve.model.partitions.calendar import clock
from varve.model.partitions.key import Value, text_of
from varve.model.partitions.zone import DAY, instants, moment_of, stretch, wall_of
from varve.model.schema import ColumnType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from varve.model.partitions.calendar import WindowCalendar

# The types that a column of time can have.
TIME_TYPES = (ColumnType.STRING, ColumnType.INT, ColumnType.BIGINT, ColumnType.DATE, ColumnType.TIMESTAMP)
_LARGEST = {ColumnType.INT: 2**31, ColumnType.BIGINT: 2**63}
# A date: the day, the first of its month, or the first of its year.
_DATES = ("%Y-%m-%d", "%Y-%m-01", "%Y-01-01")
_IN_UTC = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?", re.ASCII)
_PIECE = re.compile(r"%(-?[A-Za-z%])")
_PARTS = "together the columns name the year and all below it down to the start of a window"
_OF_THE_DAY = (
    "take the zone UTC, or instead of the hour on the clock those since the day began, 0 to 24 in a day of 25 hours"
)


@dataclass(frozen=True, slots=True)
class _Start:
    """The start of a window: the instant in seconds since 1970, the offset of the zone, what its clock shows."""

    instant: int
    offset: int
    timezone: str
    clock: dt.datetime

    @property
    def hours(self) -> int:
        """How many hours have passed since the day began on the clock of the zone: 24 in the last of 25 hours."""
        return (self.instant - _day_begins(self.timezone, wall_of(self.clock) // DAY)) // 3_600


# The part of a format after %, how many digits it has at least and at most, and its value.
_NUMBERS: Mapping[str, tuple[int, int, Callable[[_Start], int]]] = {
    "Y": (4, 4, lambda start: start.clock.year),
    "m": (2, 2, lambda start: start.clock.month),
    "d": (2, 2, lambda start: start.clock.day),
    "H": (2, 2, lambda start: start.clock.hour),
    "M": (2, 2, lambda start: start.clock.minute),
    "S": (2, 2, lambda start: start.clock.second),
    "j": (3, 3, lambda start: start.clock.timetuple().tm_yday),
    "G": (4, 4, lambda start: start.clock.isocalendar().year),
    "V": (2, 2, lambda start: start.clock.isocalendar().week),
    "q": (1, 1, lambda start: (start.clock.month + 2) // 3),
    "E": (2, 2, lambda start: start.hours),
    "s": (1, 12, lambda start: start.instant),
}


@dataclass(frozen=True)
class TimeColumn:
    """One partition column of a time dimension: a part of the start of a window, as the clock of its zone shows it.

    Attributes:
        name: the column.
        form: the parts of the start, as strftime writes them: %Y %m %d %H %M %S, %j (the day of the year), %G and %V
            (the ISO year and week), %q (the quarter), %s (the seconds since 1970), %z (the offset from UTC), and %E,
            the hours since the day began: 0 to 24 where a day has 25. `%-m` is written without a leading zero.
        type: STRING, INT, BIGINT, DATE or TIMESTAMP; a TIMESTAMP is the start itself, whatever the form.
    """

    name: str
    form: str
    type: ColumnType = ColumnType.STRING

    def check(self) -> None:
        """Raise VarveError with what is wrong and what to write instead."""
        if self.type not in TIME_TYPES:
            raise VarveError(f"column {self.name} is {self.type}; a column of time is {', '.join(TIME_TYPES)}.")
        known = {*_NUMBERS, *(f"-{part}" for part in _NUMBERS), "z", "%"}
        if unknown := [part for part in _PIECE.findall(self.form) if part not in known]:
            raise VarveError(
                f"column {self.name}: %{unknown[0]} in {self.form!r} is not known; write it of "
                f"{', '.join(f'%{part}' for part in (*_NUMBERS, 'z'))}."
            )
        if self.type is ColumnType.DATE and self.form not in _DATES:
            raise VarveError(f"column {self.name}: a DATE is written {' or '.join(_DATES)}, not {self.form!r}.")

    def value(self, start: _Start) -> Value:
        """The value of the column for a window. Raises VarveError where its type cannot hold it."""
        if self.type is ColumnType.TIMESTAMP:
            return dt.datetime.fromtimestamp(start.instant, tz=dt.UTC)
        if self.type is ColumnType.DATE:
            day = start.clock.date()
            return day if self.form == _DATES[0] else day.replace(day=1, month=day.month if "%m" in self.form else 1)
        text = _PIECE.sub(lambda part: _written(part[1], start), self.form)
        if self.type is ColumnType.STRING:
            return text
        if not text.removeprefix("-").isdecimal() or abs(int(text)) >= _LARGEST[self.type]:
            raise VarveError(
                f"column {self.name} is {self.type}, and {self.form} is {text}; declare it as BIGINT or STRING."
            )
        return int(text)

    def value_of(self, text: str) -> Value:
        """The value that a text spells, numbers also with leading zeros. Raises ValueError where it spells none.

        A TIMESTAMP is spelt `2026-10-25 00:00:00`, which is UTC, or with an offset. Any other text, such as the key
        `2026-10-25T02`, is the clock of the dimension's zone, which a column does not know.
        """
        if self.type in _LARGEST:
            if not re.fullmatch(r"-?\d+", text, re.ASCII):
                raise ValueError(text)
            return int(text)
        if self.type is ColumnType.DATE:
            return dt.date.fromisoformat(text)
        if self.type is ColumnType.TIMESTAMP:
            plain = unquote(text)
            # As the catalog's paths have it, and Spark in a session of UTC; or with an offset.
            if _IN_UTC.fullmatch(plain):
                return dt.datetime.fromisoformat(plain).replace(tzinfo=dt.UTC)
            if (moment := dt.datetime.fromisoformat(plain)).tzinfo is None:
                raise ValueError(text)
            return moment.astimezone(dt.UTC)
        return text

    def parts(self, value: Value) -> dict[str, int] | None:
        """The numbers that a value gives of the start of its window; None where it is no value of the column."""
        if self.type is ColumnType.TIMESTAMP:
            return {"s": int(value.timestamp())} if isinstance(value, dt.datetime) else None
        if self.type is ColumnType.DATE:
            if not isinstance(value, dt.date):
                return None
            named = {"Y": value.year, "m": value.month, "d": value.day}
            return {part: number for part, number in named.items() if f"%{part}" in self.form}
        if self.type in _LARGEST and type(value) is not int:
            return None
        match = self._pattern.fullmatch(text_of(value).zfill(self._digits) if type(value) is int else text_of(value))
        return None if match is None else {name: int(text) for name, text in match.groupdict().items()}

    @cached_property
    def _digits(self) -> int:
        """The length of a number of this form, in which leading zeros were lost."""
        lengths = [
            1 if part in {"%", "z"} or part[0] == "-" else _NUMBERS[part][0] for part in _PIECE.findall(self.form)
        ]
        return sum(lengths) + len(_PIECE.sub("", self.form))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        pattern, seen, place = "", set[str](), 0
        for match in _PIECE.finditer(self.form):
            pattern, place = pattern + re.escape(self.form[place : match.start()]), match.end()
            part = match[1].removeprefix("-")
            if part == "%":
                pattern += "%"
            elif part == "z":
                pattern += r"[+-]\d{4}"
            elif part in seen:
                pattern += f"(?P={part})"
            else:
                fewest, most, _ = _NUMBERS[part]
                pattern += rf"(?P<{part}>-?\d{{{1 if match[1][0] == '-' else fewest},{most}}})"
                seen.add(part)
        return re.compile(pattern + re.escape(self.form[place:]), re.ASCII)


def column_values(columns: tuple[TimeColumn, ...], calendar: WindowCalendar, start: int) -> tuple[Value, ...]:
    """The values of the columns for the window that begins at `start`, in seconds since 1970."""
    offset = stretch(calendar.timezone, start).offset
    moment = _Start(start, offset, calendar.timezone, moment_of(start + offset))
    return tuple([column.value(moment) for column in columns])


def window_start(columns: tuple[TimeColumn, ...], calendar: WindowCalendar, values: tuple[Value, ...]) -> int | None:
    """The start of the window with these values, in seconds since 1970; None where no window has them."""
    numbers: dict[str, int] = {}
    for column, value in zip(columns, values, strict=True):
        parts = column.parts(value)
        if parts is None or any(numbers.setdefault(part, number) != number for part, number in parts.items()):
            return None
    for start in _candidates(numbers, calendar):
        if calendar.begins(start) and column_values(columns, calendar, start) == values:
            return start
    return None


def columns_problem(columns: tuple[TimeColumn, ...], calendar: WindowCalendar, sample: Iterable[int]) -> str:
    """Why the columns do not say together which window it is, as a sentence; "" where they do.

    `sample` are the starts of the windows that are compared, in seconds since 1970.
    """
    names = [column.name for column in columns]
    starts: dict[tuple[Value, ...], int] = {}
    for start in sample:
        values = column_values(columns, calendar, start)
        if (other := starts.setdefault(values, start)) != start:
            first, second = (_shown_at(calendar, instant) for instant in sorted((other, start)))
            twice = clock(calendar.timezone, other).replace(fold=0) == clock(calendar.timezone, start).replace(fold=0)
            why = f", as the clock of {calendar.timezone} shows that hour twice" if twice else ""
            advice = _OF_THE_DAY if twice else f"add a column with the part that is missing; {_PARTS}"
            spelt = columns_text(zip(names, values, strict=True))
            return (
                f"{spelt} are the windows of {first} and of {second}{why}, so that the columns do not say which: "
                f"{advice}."
            )
    for start in starts.values():
        values = column_values(columns, calendar, start)
        if window_start(columns, calendar, values) != start:
            spelt = columns_text(zip(names, values, strict=True))
            return f"{spelt} does not say that its window begins at {_shown_at(calendar, start)}: {_PARTS}."
    return ""


def columns_text(values: Iterable[tuple[str, Value]]) -> str:
    """Columns with their values, for messages: `year=2022 month=3`."""
    return " ".join(f"{name}={text_of(value)}" for name, value in values)


def _candidates(numbers: Mapping[str, int], calendar: WindowCalendar) -> Iterator[int]:
    """The instants at which a window may begin whose start has these numbers."""
    if "s" in numbers:
        yield numbers["s"]
        return
    day = _day(numbers)
    if day is None:
        return
    if "E" in numbers:
        begins = _day_begins(calendar.timezone, day) + numbers["E"] * 3_600
        yield begins
        yield calendar.next_start(begins - 1)
        return
    hour, minute, second = (numbers.get(part, 0) for part in "HMS")
    wall = day * DAY + hour * 3_600 + minute * 60 + second
    shown = instants(calendar.timezone, wall)
    yield from shown
    # The columns may not say the time of day at which the windows begin.
    first = shown[0] if shown else wall - stretch(calendar.timezone, wall - DAY).offset
    yield calendar.floor(first)
    yield calendar.next_start(first - 1)


def _day(numbers: Mapping[str, int]) -> int | None:
    """The first day (counted from 1970) with these numbers; None where they name no day."""
    try:
        if "Y" in numbers and "j" in numbers:
            return (dt.date(numbers["Y"], 1, 1) - _EPOCH).days + numbers["j"] - 1
        if "Y" in numbers:
            month = numbers.get("m", numbers.get("q", 1) * 3 - 2)
            return (dt.date(numbers["Y"], month, numbers.get("d", 1)) - _EPOCH).days
        if "G" in numbers:
            return (dt.date.fromisocalendar(numbers["G"], numbers.get("V", 1), 1) - _EPOCH).days
    except ValueError:
        pass
    return None


_EPOCH = dt.date(1970, 1, 1)


def _written(part: str, start: _Start) -> str:
    if part == "%":
        return "%"
    if part == "z":
        minutes = abs(start.offset) // 60
        return f"{'-' if start.offset < 0 else '+'}{minutes // 60:02}{minutes % 60:02}"
    fewest, _, number = _NUMBERS[part.removeprefix("-")]
    return str(number(start)) if part[0] == "-" else f"{number(start):0{fewest}}"


@lru_cache(maxsize=4_096)
def _day_begins(timezone: str, day: int) -> int:
    """The first instant of a day (counted from 1970) on the clock of a zone, in seconds since 1970."""
    if begins := instants(timezone, day * DAY):
        return begins[0]
    # The clock skips midnight: the day begins where the clock moves.
    return stretch(timezone, day * DAY - stretch(timezone, (day - 1) * DAY).offset).start


def _shown_at(calendar: WindowCalendar, instant: int) -> pendulum.DateTime:
    return pendulum.from_timestamp(instant, tz=calendar.timezone)
