"""Lengths of time as SQL files write them.

Not here: reading them (varve/sql/syntax/clauses/timeseries.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import datetime as dt

_UNITS = ((86_400, "DAY"), (3_600, "HOUR"), (60, "MINUTE"), (1, "SECOND"))


def length_text(length: dt.timedelta) -> str:
    """A length of time in the largest unit that divides it: `6 HOURS`."""
    seconds = int(length.total_seconds())
    size, unit = next((size, unit) for size, unit in _UNITS if seconds % size == 0)
    return f"{seconds // size} {unit}{'' if seconds == size else 'S'}"
