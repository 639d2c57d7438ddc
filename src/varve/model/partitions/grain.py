"""The usual lengths of windows: hour, day, week, month, quarter and year.

Not here: their boundaries (calendar.py).
"""

from __future__ import annotations

from enum import StrEnum


class Grain(StrEnum):
    """The length of the windows of a time dimension, on the calendar of its zone."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"

    @property
    def cron(self) -> str:
        """The same windows as a cron expression; weeks are ISO weeks, from Monday (cron's `@weekly` is from Sunday)."""
        return {
            "hour": "0 * * * *",
            "day": "0 0 * * *",
            "week": "0 0 * * 1",
            "month": "0 0 1 * *",
            "quarter": "0 0 1 */3 *",
            "year": "0 0 1 1 *",
        }[self]
