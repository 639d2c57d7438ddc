"""`TimeDimension`: the windows of a calendar as keys.

Not here: where windows begin (calendar.py), how they are spelt (window_keys.py, time_columns.py), and the other
dimensions (dimension.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, TypeAlias

import pendulum

from varve.model.errors import OutsideDimension, UnknownPartition, VarveError
from varve.model.partitions.calendar import Every, Tiling, WindowCalendar, calendar_of, cron_of, first_from
from varve.model.partitions.own_calendar import Calendar
from varve.model.partitions.time_columns import TimeColumn, column_values, columns_problem, columns_text, window_start
from varve.model.partitions.window_keys import WindowKeys
from varve.model.partitions.zone import DAY, stretch
from varve.model.schema import FOLDER_COLUMN, ColumnType

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from varve.model.partitions.key import PartitionKey, Value

# The members of dynamic sets, by the name of the set.
Members: TypeAlias = "Mapping[str, Sequence[Value]]"

_SAMPLES = 40
# How many windows of which the partition columns are remembered.
_REMEMBERED = 200_000
# The shorthands of cron in its five fields.
_FIELDS = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *", "@quarterly": "0 0 1 */3 *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}  # fmt: skip


@dataclass(frozen=True)
class TimeDimension:
    """The windows of a tiling in one time zone, from `start` (inclusive) to `end` (exclusive; None: without end).

    Attributes:
        name: the name of the dimension, which is also the partition column where `columns` names no others.
        tiling: a `Grain`, a cron expression or shorthand (`@hourly`), an `Every`, or a `Calendar` of one's own.
        start: where the first window begins; its zone is the zone of the windows.
        key_format: how the start of a window is spelt (strftime). None: as a date where every window begins on another
            date, else as text, `2013-01-05T13` or `2013-01-05T13:30`. Where the clock shows a start for the second
            time, its key ends in the offset: `2013-11-03T01-0500`.
        end_offset: how many windows after the last complete one are partitions already. It is 1 (the open window) for
            datasets whose partitions others produce and for OPEN WINDOWS, and 1 + n for WINDOWS AHEAD n.
        timezone: the IANA zone of the windows, taken from `start`.
        problem: the error in the texts from which it was made, if any; `check` raises it.
        columns: the partition columns that say together which window it is, where it is not one column with the key
            itself: `year`, `month`, `day` and `hour`, or an INT such as 20220331.
    """

    name: str
    tiling: Tiling
    start: pendulum.DateTime
    end: pendulum.DateTime | None = None
    key_format: str | None = None
    end_offset: int = 0
    timezone: str = field(init=False, repr=False, default="UTC")
    problem: str = field(repr=False, default="")
    # repr=False: Dagster's sets of windows are named after the repr, and hold the same keys whatever the columns.
    columns: tuple[TimeColumn, ...] = field(repr=False, default=())

    def __post_init__(self) -> None:
        # A field, as two starts are equal to Python where they are one instant in two zones.
        object.__setattr__(self, "timezone", self.start.timezone_name or "UTC")

    @classmethod
    def of(
        cls, name: str, tiling: Tiling, start: str, end: str | None = None, *, timezone: str = "UTC"
    ) -> TimeDimension:
        """The dimension from texts: `TimeDimension.of("day", "@daily", "2013-01-01", timezone="Europe/Paris")`.

        `check` reports an invalid zone or moment, as it does all other errors, so that the message names the dataset.
        """
        try:
            stretch(timezone, 0)
            return cls(name, tiling, _moment(start, timezone), _moment(end, timezone) if end else None)
        except VarveError as error:
            return cls(name, tiling, pendulum.datetime(1970, 1, 1), problem=str(error))

    @cached_property
    def calendar(self) -> WindowCalendar:
        """The calendar that computes where windows begin and end."""
        return calendar_of(self.tiling, self.timezone)

    @cached_property
    def window_keys(self) -> WindowKeys:
        """How its windows are spelt."""
        return WindowKeys(self.name, self.tiling, self.calendar, self.first, self.key_format)

    @cached_property
    def cut(self) -> str:
        """How time is cut into windows, and in which zone: `0 0 * * *, UTC`. Equal where all windows are."""
        if isinstance(self.tiling, Calendar):
            return self.tiling.cut(self.timezone)
        if isinstance(self.tiling, Every):
            return f"{self.tiling} from {self.tiling.anchor.isoformat()}, {self.timezone}"
        text = " ".join(cron_of(self.tiling).split())
        return f"{_FIELDS.get(text, text)}, {self.timezone}"

    @cached_property
    def first(self) -> int:
        """`start` in seconds since 1970."""
        return int(self.start.timestamp())

    @cached_property
    def last(self) -> int | None:
        """`end` in seconds since 1970."""
        return None if self.end is None else int(self.end.timestamp())

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of its partition columns."""
        return tuple(column.name for column in self.columns) or (self.name,)

    def column_values(self, value: Value) -> tuple[Value, ...]:
        """The values of its partition columns for a key."""
        return self.column_values_at(self.start_of(value)) if self.columns else (value,)

    def column_values_at(self, start: int) -> tuple[Value, ...]:
        """The values of its partition columns for the window that begins at `start`."""
        return column_values(self.columns, self.calendar, start) if self.columns else (self.value_at(start),)

    def value_in(self, partition: PartitionKey) -> Value:
        """The key of this dimension in a partition. Raises UnknownPartition where its columns name no window."""
        if not self.columns:
            return partition[self.name]
        return self.value_of_columns(tuple([partition[column.name] for column in self.columns]))

    def value_of_columns(self, values: tuple[Value, ...]) -> Value:
        """The key of the window whose partition columns have these values. Raises UnknownPartition."""
        if not self.columns:
            return values[0]
        if (value := self._values_of_columns.get(values)) is None:
            start = window_start(self.columns, self.calendar, values)
            if start is None:
                shown = zip(self.column_names, values, strict=True)
                example = zip(self.column_names, self.column_values_at(self.first), strict=True)
                raise UnknownPartition(
                    f"{columns_text(shown)} begins no window of dimension {self.name} ({self.tiling}); the first one "
                    f"is {columns_text(example)}."
                )
            if len(self._values_of_columns) >= _REMEMBERED:
                self._values_of_columns.clear()
            value = self._values_of_columns[values] = self.value_at(start)
        return value

    def parse_column(self, name: str, text: str) -> Value:
        """The value that a text spells in one of its partition columns. Raises UnknownPartition."""
        column = next((column for column in self.columns if column.name == name), None)
        if column is None:
            return self.parse(text)
        try:
            return self._value_of(column, text)
        except ValueError:
            raise UnknownPartition(f"{text!r} is no {column.type}, as {name} is.") from None

    def parse_columns(self, texts: Mapping[str, str]) -> Value:
        """The key that the texts of its partition columns spell. Raises as `parse` does."""
        if not self.columns:
            return self.parse(texts[self.name])
        try:
            values = tuple([self._value_of(column, texts[column.name]) for column in self.columns])
        except ValueError as error:
            spelt = columns_text((column.name, texts[column.name]) for column in self.columns)
            example = columns_text(zip(self.column_names, self.column_values_at(self.first), strict=True))
            raise UnknownPartition(
                f"{spelt} names no window of dimension {self.name} ({error}); its first one is {example}."
            ) from None
        value = self.value_of_columns(values)
        if not self.exists(value):
            spelt = columns_text(zip(self.column_names, values, strict=True))
            raise OutsideDimension(f"{spelt} lies outside dimension {self.name}, which {self.extent}.")
        return value

    def _value_of(self, column: TimeColumn, text: str) -> Value:
        """The value that a text spells in one of the columns. Raises ValueError, or UnknownPartition for a key."""
        try:
            return column.value_of(text)
        except ValueError:
            if column.type is not ColumnType.TIMESTAMP:
                raise
            if self.timezone == "UTC" and "T" in text and ":" in text:
                return column.value_of(f"{text}+00:00")
        # As Dagster spells the window, on the clock of the zone.
        return column_values((column,), self.calendar, self.window_keys.start_of_text(text))[0]

    def windows_with(self, texts: Mapping[str, str], starts: Iterable[int]) -> Iterator[int]:
        """Those of the windows that begin at `starts` whose partition columns are spelled so, as far as they are named.

        Raises UnknownPartition where a text is no value of its column.
        """
        wanted = [
            (place, self.parse_column(name, texts[name]))
            for place, name in enumerate(self.column_names)
            if name in texts
        ]
        for start in starts:
            values = self.column_values_at(start)
            if all(values[place] == value for place, value in wanted):
                yield start

    def sample(self) -> Iterator[int]:
        """The starts of windows by which forms of its keys are compared, in seconds since 1970.

        These are the first ones, a sample over ten years, and those around each time the clock goes back.
        """
        following, floor = self.calendar.next_start, partial(first_from, self.calendar)
        last = min(self.last or self.first + 10 * 366 * DAY, self.calendar.extent[1])
        at = self.first
        for _ in range(_SAMPLES):
            if at < last:
                yield at
                at = following(at)
        step = max(1, (last - self.first) // _SAMPLES)
        yield from (start for instant in range(self.first, last, step) if (start := floor(instant)) < last)
        turn = self.first
        while turn < last:
            around = stretch(self.timezone, turn)
            if around.offset < around.before and around.start > self.first:
                at = floor(around.start - 7_200)
                while at < min(around.start + 7_200, last):
                    if at >= self.first:
                        yield at
                    at = following(at)
            turn = around.end

    def check(self) -> None:
        """Raise VarveError with what is wrong and what to write instead."""
        check_name(self.name)
        if self.problem:
            raise VarveError(f"dimension {self.name}: {self.problem}")
        if "/" not in self.timezone and re.match(r"[+-]\d", self.timezone):
            raise VarveError(f"dimension {self.name}: {self.timezone} is an offset, not a zone; name one.")
        try:
            calendar = self.calendar
        except VarveError as error:
            raise VarveError(f"dimension {self.name}: {error}") from None
        for word, moment in (("start", self.start), ("end", self.end)):
            if moment is not None and (problem := bound_problem(calendar, moment, is_start=word == "start")):
                raise VarveError(
                    f"dimension {self.name}: {word} {moment} is not on a boundary of its windows ({self.tiling}); "
                    f"{problem.replace(chr(39), '')}."
                )
        if self.last is not None and self.last <= self.first:
            raise VarveError(f"dimension {self.name}: end {self.end} is not after start {self.start}.")
        if self.end_offset < 0:
            raise VarveError(f"dimension {self.name}: end_offset {self.end_offset} is less than 0.")
        if self.key_format is not None and (problem := _format_problem(self)):
            raise VarveError(f"dimension {self.name}: {problem}")
        self._check_columns()

    def window(self, value: Value) -> pendulum.Interval[pendulum.DateTime]:
        """The half-open window of a key. Raises UnknownPartition where no window begins at the key."""
        start = self.start_of(value)
        return pendulum.interval(self._at(start), self._at(self.calendar.following(start)))

    def floor(self, instant: dt.datetime) -> pendulum.DateTime:
        """The start of the window that contains `instant`."""
        return self._at(self.calendar.floor(int(instant.timestamp() // 1)))

    def holding(self, instant: dt.datetime) -> Value:
        """The key of the window that contains `instant`, or of the next one, whether the dimension has it or not."""
        return self.value_at(first_from(self.calendar, int(instant.timestamp() // 1)))

    def exists(self, value: Value, members: Members | None = None) -> bool:
        """Whether the key's window lies between `start` and `end`."""
        del members
        start = self.start_of(value)
        return self.first <= start and (self.last is None or start < self.last)

    def parse(self, text: str) -> Value:
        """The key that `text` spells. Raises UnknownPartition, or OutsideDimension where it is too early or late."""
        start = self.window_keys.start_of_text(text)
        if not (self.first <= start and (self.last is None or start < self.last)):
            raise OutsideDimension(f"{text!r} lies outside dimension {self.name}, which {self.extent}.")
        # A key that is a text is spelt in one way.
        return text if self.value_type is str else self.value_at(start)

    def keys(self, members: Members | None = None, now: dt.datetime | None = None) -> Iterator[Value]:
        """All keys from `start` to `end`, or to `known_until(now)` where that is earlier."""
        del members
        end, start, following, value = (
            self.known_until(now),
            self.first,
            self.calendar.next_start,
            self.window_keys.value_at,
        )
        while start < end:
            yield value(start)
            start = following(start)

    def known_until(self, now: dt.datetime | None = None) -> int:
        """The end of the last window that is a partition at `now` (see `end_offset`), in seconds since 1970."""
        at = int((now or pendulum.now("UTC")).timestamp() // 1)
        until = self.calendar.floor(at)
        for windows_ahead in range(self.end_offset):
            # The open window, if any, and those that begin after it.
            until = self.calendar.following(self.calendar.next_start(until - 1) if windows_ahead else until)
        until = max(self.first, until)
        return until if self.last is None else min(until, self.last)

    def reaching(self, end_offset: int) -> TimeDimension:
        """The same windows, of which at least `end_offset` after the last complete one are partitions already."""
        return self if end_offset <= self.end_offset else replace(self, end_offset=end_offset)

    def same_windows(self, other: object) -> bool:
        """Whether the other has the same windows and keys, whatever its `end_offset`."""
        return self == other or (
            isinstance(other, TimeDimension) and self == replace(other, end_offset=self.end_offset)
        )

    def shown(self, instant: int) -> str:
        """An instant as the clock of the zone shows it: `2026-11-22 00:00 Europe/Paris`."""
        return f"{self._at(instant).strftime('%Y-%m-%d %H:%M')} {self.timezone}"

    @property
    def extent(self) -> str:
        """The start and the end of the dimension, as a phrase for messages."""
        last, end = self.last, self.calendar.extent[1]
        if isinstance(self.tiling, Calendar) and (last is None or end <= last):
            last_start = self.calendar.previous_start(end)
            return (
                f"runs from {self.text_at(self.first)} to {self.text_at(last_start)}, the last window of {self.tiling}"
            )
        until = "without end" if last is None else f"before {self.text_at(last)}"
        return f"runs from {self.text_at(self.first)}, {until} ({self.timezone})"

    @property
    def value_type(self) -> type:
        """The type of the keys: date where every window begins on another date, else str."""
        return self.window_keys.value_type

    @property
    def text_format(self) -> str:
        """The format (strftime) of a window's start, without its offset."""
        return self.window_keys.text_format

    def start_of(self, value: Value) -> int:
        """The start of a key's window, in seconds since 1970. Raises UnknownPartition where no window begins there."""
        return self.window_keys.start_of(value)

    def value_at(self, start: int) -> Value:
        """The key of the window that begins at `start`."""
        return self.window_keys.value_at(start)

    def text_at(self, start: int) -> str:
        """The text of the key of the window that begins at `start`."""
        return self.window_keys.text_at(start)

    @cached_property
    def _values_of_columns(self) -> dict[tuple[Value, ...], Value]:
        return {}

    def _at(self, start: int) -> pendulum.DateTime:
        return pendulum.from_timestamp(start, tz=self.timezone)

    def _check_columns(self) -> None:
        """Raise VarveError where the columns are not valid, or do not say together which window it is."""
        for column in self.columns:
            check_name(column.name)
            try:
                column.check()
                column_values((column,), self.calendar, self.first)
            except VarveError as error:
                raise VarveError(f"dimension {self.name}: {error}") from None
        if self.columns and (problem := self.column_problem()):
            raise VarveError(f"dimension {self.name}: {problem}")

    def column_problem(self) -> str:
        """Why its partition columns do not say which window it is, as a sentence; "" where they do."""
        return columns_problem(self.columns, self.calendar, self.sample())


@dataclass(frozen=True)
class MovingDimension(TimeDimension):
    """A series that moves with time: `start` lies before all windows that are kept, elsewhere at a later load."""

    @classmethod
    def like(cls, time: TimeDimension) -> MovingDimension:
        """The same windows and keys."""
        return cls(time.name, time.tiling, time.start, time.end, time.key_format, time.end_offset, columns=time.columns)


def check_name(name: str) -> None:
    """Raise VarveError where a dimension cannot have this name."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name == FOLDER_COLUMN:
        raise VarveError(
            f"dimension {name!r}: a name is lower-case letters, digits and _, as it is also a column; not "
            f"{FOLDER_COLUMN}, which names the folders of batches."
        )


@lru_cache(maxsize=1_000)
def _format_problem(dimension: TimeDimension) -> str:
    """Why its key format does not tell its windows apart; "" where it does. Most datasets have a few dimensions."""
    return dimension.window_keys.format_problem(dimension.sample())


def bound_problem(calendar: WindowCalendar, moment: pendulum.DateTime, *, is_start: bool) -> str:
    """Why a dimension cannot start or end at a moment, as a phrase with the nearest moments; "" where it can."""
    instant, (first, end) = int(moment.timestamp() // 1), calendar.extent
    boundary = calendar.floor(instant)
    if boundary == moment.timestamp() and (not is_start or calendar.begins(boundary)):
        return ""
    if calendar.has_gaps and not calendar.begins(boundary):
        if not is_start:
            # The end lies in a gap: all windows before it are over.
            return ""
        if instant >= end:
            last = _clock_text(calendar, calendar.previous_start(end))
            return f"its last window begins at {last}: add windows to the calendar, or start earlier"
        if instant < first:
            return f"its first window begins at {_clock_text(calendar, first)}"
    before = boundary if calendar.begins(boundary) else calendar.previous_start(boundary)
    after = calendar.next_start(instant) if is_start else calendar.following(instant)
    return f"the nearest are {_clock_text(calendar, before)} and {_clock_text(calendar, after)}"


def _clock_text(calendar: WindowCalendar, instant: int) -> str:
    return f"'{pendulum.from_timestamp(instant, tz=calendar.timezone).format('YYYY-MM-DDTHH:mm:ss')}'"


def _moment(text: str, timezone: str) -> pendulum.DateTime:
    try:
        moment = pendulum.parse(text, tz=timezone)
    except ValueError:
        moment = None
    if not isinstance(moment, pendulum.DateTime):
        raise VarveError(f"{text!r} is no moment; write it as 2013-01-01 or 2013-01-01T10:35.")
    return moment.in_timezone(timezone)
