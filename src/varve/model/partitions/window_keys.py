"""How the windows of a time dimension are spelt: the key of the window that begins at an instant, and back.

Not here: which windows there are (time_dimension.py, calendar.py), and partition columns that spell them otherwise
(time_columns.py).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pendulum

from varve.model.errors import UnknownPartition
from varve.model.partitions.calendar import Every, Tiling, WindowCalendar, clock, cron_of
from varve.model.partitions.cron import cron_walls
from varve.model.partitions.key import Value, text_of
from varve.model.partitions.own_calendar import Calendar
from varve.model.partitions.zone import DAY, wall_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_DATE = "%Y-%m-%d"
# Of how many windows the starts are remembered.
_REMEMBERED = 200_000


@dataclass(frozen=True)
class WindowKeys:
    """The keys of the windows of a dimension.

    Attributes:
        name: the name of the dimension, for messages.
        tiling, key_format: those of the dimension.
        calendar: what computes where windows begin and end.
        first: where the first window begins, in seconds since 1970; its key is the example in messages.
    """

    name: str
    tiling: Tiling
    calendar: WindowCalendar
    first: int
    key_format: str | None = None

    @cached_property
    def value_type(self) -> type:
        """The type of the keys: date where every window begins on another date, else str."""
        if self.key_format is not None:
            return str
        if isinstance(self.tiling, Calendar):
            return dt.date if self.tiling.is_of_days else str
        if isinstance(self.tiling, Every):
            midnight = wall_of(clock(self.calendar.timezone, int(self.tiling.anchor.timestamp()))) % DAY == 0
            return dt.date if self.tiling.duration.total_seconds() % DAY == 0 and midnight else str
        return dt.date if len(cron_walls(cron_of(self.tiling)).times) == 1 else str

    @cached_property
    def text_format(self) -> str:
        """The format (strftime) of a window's start, without its offset."""
        if self.key_format is not None:
            return self.key_format
        if self.value_type is dt.date:
            return _DATE
        if isinstance(self.tiling, Calendar):
            return "%Y-%m-%dT%H:%M:%S" if self.tiling.has_seconds else "%Y-%m-%dT%H:%M"
        if isinstance(self.tiling, Every):
            seconds = int(self.tiling.duration.total_seconds()) % 60 or int(self.tiling.anchor.timestamp()) % 60
            return "%Y-%m-%dT%H:%M:%S" if seconds else "%Y-%m-%dT%H:%M"
        return (
            "%Y-%m-%dT%H:%M" if any(time % 3_600 for time in cron_walls(cron_of(self.tiling)).times) else "%Y-%m-%dT%H"
        )

    def start_of(self, value: Value) -> int:
        """The start of a key's window, in seconds since 1970. Raises UnknownPartition where no window begins there."""
        if (known := self._starts.get(value)) is None:
            if len(self._starts) >= _REMEMBERED:
                self._starts.clear()
            known = self._starts[value] = self._start_of(value)
        return known

    def _start_of(self, value: Value) -> int:
        if self.value_type is dt.date and isinstance(value, dt.date) and (starts := self._starts_on(value)):
            return starts[0]
        return self.start_of_text(text_of(value))

    def start_of_text(self, text: str) -> int:
        """The start of the window whose key `text` spells, in seconds since 1970. Raises UnknownPartition."""
        if self.value_type is dt.date and (date := _date(text)) and (starts := self._starts_on(date)):
            return starts[0]
        if (usual := self._usual_start(text)) is not None:
            return usual
        candidates = self._candidates(text)
        if candidates is None:
            raise UnknownPartition(
                f"{text!r} is no key of dimension {self.name}; its keys look like {self.text_at(self.first)}."
            )
        for start in candidates:
            if self.calendar.begins(start) and self.text_at(start) == text:
                return start
        hint = self._window_around(candidates[0]) if candidates else "no clock of the zone shows it"
        raise UnknownPartition(f"{text!r} begins no window of dimension {self.name} ({self.tiling}); {hint}.")

    def value_at(self, start: int) -> Value:
        """The key of the window that begins at `start`."""
        return self.calendar.wall(start).date() if self.value_type is dt.date else self.text_at(start)

    def text_at(self, start: int) -> str:
        """The text of the key of the window that begins at `start`."""
        if self.value_type is dt.date:
            return self.calendar.wall(start).date().isoformat()
        shown = clock(self.calendar.timezone, start)
        if "%z" in self.text_format:
            return self._at(start).strftime(self.text_format)
        text = shown.strftime(self.text_format)
        return f"{text}{self._at(start):%z}" if shown.fold else text

    def format_problem(self, sample: Iterable[int]) -> str:
        """Why the key format gives two windows the same text, or cannot be parsed back; "" where it can.

        `sample` are the starts of the windows that are looked at, in seconds since 1970.
        """
        if self.key_format is None:
            return ""
        for start in sample:
            text = self.text_at(start)
            if self._candidates(text) is None or self.start_of_text(text) != start:
                better = replace(self, key_format=None).text_format
                return (
                    f"key_format {self.key_format!r} spells {self._at(start)} as {text!r}, "
                    f"which does not say which window that is; try {better!r}."
                )
        return ""

    @cached_property
    def _starts(self) -> dict[Value, int]:
        """The starts of windows by their keys: whoever looks at the partitions again and again asks for the same."""
        return {}

    @cached_property
    def _time_of_day(self) -> dt.timedelta:
        """The time of day at which the windows begin, where the keys are dates."""
        if isinstance(self.tiling, Every | Calendar):
            return dt.timedelta(0)
        return dt.timedelta(seconds=cron_walls(cron_of(self.tiling)).times[0])

    def _starts_on(self, date: dt.date) -> list[int]:
        return self.calendar.starts(dt.datetime(date.year, date.month, date.day) + self._time_of_day)  # noqa: DTZ001

    def _usual_start(self, text: str) -> int | None:
        """The start of the window with that key, where it is an ISO time without an offset; `strptime` takes long."""
        if self.key_format is not None or self.value_type is dt.date:
            return None
        try:
            wall = dt.datetime.fromisoformat(text)
        except ValueError:
            return None
        if wall.tzinfo is not None:
            return None
        starts = self.calendar.starts(wall)
        return next((start for start in starts if self.calendar.begins(start) and self.text_at(start) == text), None)

    def _candidates(self, text: str) -> list[int] | None:
        """The instants (seconds since 1970) that a text may mean; None where the text is no time at all."""
        if self.value_type is dt.date:
            date = _date(text)
            return None if date is None else self._shown(dt.datetime(date.year, date.month, date.day))  # noqa: DTZ001
        for text_format in (self.text_format, f"{self.text_format}%z"):
            try:
                moment = dt.datetime.strptime(text, text_format)  # noqa: DTZ007
            except ValueError:
                continue
            return self._shown(moment) if moment.tzinfo is None else [int(moment.timestamp())]
        return None

    def _window_around(self, instant: int) -> str:
        """The window that holds an instant, as a phrase; where none does, the windows around it."""
        start, (first, end) = self.calendar.floor(instant), self.calendar.extent
        if self.calendar.begins(start):
            return f"the window that holds it starts at {self.text_at(start)}"
        if instant >= end:
            last = self.text_at(self.calendar.previous_start(end))
            return f"the last one of the calendar starts at {last}: add windows to it"
        if instant < first:
            return f"the first one of the calendar starts at {self.text_at(first)}"
        before, after = self.calendar.previous_start(instant), self.calendar.next_start(instant)
        return f"no window holds it: the nearest start at {self.text_at(before)} and {self.text_at(after)}"

    def _shown(self, wall: dt.datetime) -> list[int]:
        return self.calendar.starts(wall) or [
            int(pendulum.instance(wall, tz=self.calendar.timezone).timestamp()),
        ]

    def _at(self, start: int) -> pendulum.DateTime:
        return pendulum.from_timestamp(start, tz=self.calendar.timezone)


def _date(text: str) -> dt.date | None:
    """The date whose ISO text this is exactly; None for any other text."""
    try:
        date = dt.date.fromisoformat(text)
    except ValueError:
        return None
    return date if date.isoformat() == text else None
