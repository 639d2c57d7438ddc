"""Quiet hours: when nothing is sent. What begins or ends meanwhile is sent together when they are over."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pendulum

from varve.model.errors import VarveError

if TYPE_CHECKING:
    import datetime as dt

_FORM = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)(?: +(\S+))?")
_WRITE = "Write for example 22:00-07:00 Europe/Zurich."


@dataclass(frozen=True, slots=True)
class QuietHours:
    """The hours between two times of the clock in a time zone, every day; minutes are counted from midnight.

    Where the end is not after the beginning, they go on until the next day. They are as many instants as the clock
    makes of them: one hour more or less in the night in which it changes. A time that the clock skips is as much
    later as it skips; of one that it shows twice the first counts.
    """

    begin: int
    end: int
    timezone: str = "UTC"

    @classmethod
    def of(cls, text: str) -> QuietHours:
        """The quiet hours that a text such as `22:00-07:00 Europe/Zurich` says. Raises VarveError."""
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise VarveError(f"{text!r} are no quiet hours. {_WRITE}")
        begin, end = int(match[1]) * 60 + int(match[2]), int(match[3]) * 60 + int(match[4])
        if begin == end:
            raise VarveError(f"{text!r} begin when they end. {_WRITE}")
        timezone = match[5] or "UTC"
        try:
            ZoneInfo(timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise VarveError(f"{timezone!r} is no time zone. {_WRITE}") from None
        return cls(begin, end, timezone)

    def until(self, now: dt.datetime) -> pendulum.DateTime | None:
        """When the quiet hours end that hold at `now`; None where it is not quiet."""
        today = pendulum.instance(now).in_timezone(self.timezone).date()
        for day in (today.subtract(days=1), today):
            last_day = day if self.begin < self.end else day.add(days=1)
            begin, end = self._instant(day, self.begin), self._instant(last_day, self.end)
            if begin <= now < end:
                return end
        return None

    def _instant(self, day: pendulum.Date, minutes: int) -> pendulum.DateTime:
        hour, minute = divmod(minutes, 60)
        earlier, later = (
            pendulum.datetime(day.year, day.month, day.day, hour, minute, tz=self.timezone, fold=fold)
            for fold in (0, 1)
        )
        return earlier if (earlier.hour, earlier.minute) == (hour, minute) else later


def problem_of_quiet_hours(text: str) -> str | None:
    """What is wrong with the text of quiet hours, behind the name of their setting; None where nothing is."""
    try:
        QuietHours.of(text)
    except VarveError as error:
        return f"says when nothing is sent: {error}"
    return None
