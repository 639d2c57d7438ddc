"""The bounds within which the windows must begin that a condition allows.

They are derived from dates, timestamps and texts that spell them.

Not here: which conditions there are (scan_reads.py).
"""

from __future__ import annotations

import calendar
import re
from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp

from varve.planning.mapping.partition_subset import TimeSpans
from varve.sql.evaluate.vector import DATE, STRING, TIMESTAMP, Array

if TYPE_CHECKING:
    import datetime as dt

    from varve.model.partitions.dimension import TimeDimension
    from varve.sql.pushdown.relations import Scan

# The earliest and the latest start of a window, in seconds since 1970; None: unbounded on that side.
Bounds: TypeAlias = "tuple[int | None, int | None]"

_DAY = 86_400
# A date and the instants on it differ by at most this much, in any time zone and with any change of its clock.
_SLACK = 2 * _DAY
# A text that begins with a year and a month, whatever follows.
_MONTH = re.compile(r"(\d{4})(-?)(\d\d)(?:\2(\d\d))?(?!\d)")
_SORTABLE = re.compile(r"%Y(-?)%m(\1%d([T _]?%H.*)?)?")


def windows_within(dimension: TimeDimension, bounds: Bounds, now: dt.datetime | None) -> TimeSpans:
    """Return the windows that begin within the bounds; without an upper bound, those that exist at `now`."""
    low, high = bounds
    start = dimension.first if low is None else max(dimension.first, dimension.calendar.floor(low))
    end = dimension.known_until(now) if high is None else dimension.calendar.following(high)
    if dimension.last is not None:
        end = min(end, dimension.last)
    return TimeSpans.of([(start, end)])


def is_sortable(dimension: TimeDimension) -> bool:
    """Whether keys sort in the order of their windows (apart from hours that a clock repeats)."""
    return dimension.value_type is not str or bool(_SORTABLE.fullmatch(dimension.text_format))


def is_column(node: exp.Expr, scan: Scan, dimension: TimeDimension) -> bool:
    """Whether an expression is the dimension's column, either bare or cast to the date or timestamp that it spells."""
    node = node.unnest()
    while isinstance(node, exp.TsOrDsToDate | exp.Cast | exp.TryCast) and not node.args.get("format"):
        node = node.this.unnest()
    return isinstance(node, exp.Column) and node.table == scan.alias and node.name == dimension.name


def instant_bounds(kind: str, values: Array, separator: str) -> Bounds:
    """The bounds of the instants that the dates, timestamps or texts of a column mean."""
    if kind == DATE:
        return int(values.min()) * _DAY - _SLACK, int(values.max()) * _DAY + _DAY + _SLACK
    if kind == TIMESTAMP:
        return int(values.min()) // 1_000_000 - _SLACK, int(values.max()) // 1_000_000 + _SLACK
    if kind == STRING:
        return _text_bounds(str(values.min()), separator)[0], _text_bounds(str(values.max()), separator)[1]
    return None, None


def separator_of(dimension: TimeDimension) -> str:
    """The separator between year and month in a key; texts with another separator sort differently."""
    if dimension.value_type is not str:
        return "-"
    match = _SORTABLE.fullmatch(dimension.text_format)
    return match[1] if match else "?"


def _text_bounds(text: str, separator: str) -> Bounds:
    match = _MONTH.match(text)
    if match is None or match[2] != separator:
        return None, None
    year, month, day = int(match[1]), int(match[3]), int(match[4] or 0)
    if not (1 <= month <= 12 and year >= 1 and day <= 31):
        return None, None
    first = calendar.timegm((year, month, max(day, 1), 0, 0, 0))
    last = first + _DAY * (1 if day else 31)
    return first - _SLACK, last + _SLACK


def intersect_bounds(first: Bounds, second: Bounds) -> Bounds:
    """The bounds where both conditions hold."""
    lows = [bound for bound in (first[0], second[0]) if bound is not None]
    highs = [bound for bound in (first[1], second[1]) if bound is not None]
    return max(lows, default=None), min(highs, default=None)


def unite_bounds(first: Bounds, second: Bounds) -> Bounds:
    """The bounds where at least one of the conditions may hold."""
    low = None if first[0] is None or second[0] is None else min(first[0], second[0])
    high = None if first[1] is None or second[1] is None else max(first[1], second[1])
    return low, high
