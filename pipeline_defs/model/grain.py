"""Grains of time, and the arithmetic of their boundaries on the wall clocks of a zone.

Not here: dimensions and their keys (dimension.py).
"""

from __future__ import annotations

import datetime as dt
from enum import StrEnum
from functools import lru_cache

import pendulum


class Grain(StrEnum):
    """How long the windows of a time dimension are, on the calendar of its zone."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"

    @property
    def cron(self) -> str:
        """The same windows as a cron schedule; weeks are ISO weeks, from Monday."""
        return {
            "hour": "0 * * * *",
            "day": "0 0 * * *",
            "week": "0 0 * * 1",
            "month": "0 0 1 * *",
            "year": "0 0 1 1 *",
        }[self]

    @property
    def key_format(self) -> str:
        """How a window's start is spelt as a key (strftime); free of characters that a path must escape."""
        return "%Y-%m-%dT%H" if self is Grain.HOUR else "%Y-%m-%d"

    def truncated(self, wall: dt.datetime) -> dt.datetime:
        """The wall clock at the start of the window that holds `wall`."""
        if self is Grain.HOUR:
            return wall.replace(minute=0, second=0, microsecond=0)
        midnight = dt.datetime(wall.year, wall.month, wall.day)  # noqa: DTZ001 - a wall clock's
        match self:
            case Grain.WEEK:
                return midnight - dt.timedelta(days=midnight.weekday())
            case Grain.MONTH:
                return midnight.replace(day=1)
            case Grain.YEAR:
                return midnight.replace(month=1, day=1)
            case _:
                return midnight

    def following(self, wall: dt.datetime) -> dt.datetime:
        """The wall clock at the start of the window after the one that starts at `wall`."""
        match self:
            case Grain.WEEK:
                return wall + dt.timedelta(days=7)
            case Grain.MONTH:
                return (wall + dt.timedelta(days=31)).replace(day=1)
            case Grain.YEAR:
                return wall.replace(year=wall.year + 1)
            case _:
                return wall + dt.timedelta(days=1)


@lru_cache(maxsize=65_536)
def boundary(wall: dt.datetime, timezone: str) -> pendulum.DateTime:
    """The instant at which a window begins.

    The first of two where clocks go back over it, and where they skip it the one at which they do. Pendulum's own
    arithmetic begins such days at 23:00, or goes on from 01:00.
    """
    zone = pendulum.timezone(timezone)
    return pendulum.instance(wall.replace(tzinfo=zone, fold=0).astimezone(dt.UTC)).in_timezone(zone)
