"""Between which instants the windows begin that a condition allows: from dates, moments and texts that spell them.

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

# Seconds since 1970 between which windows may begin; None: without end on that side.
Bounds: TypeAlias = "tuple[int | None, int | None]"

_DAY = 86_400
# What clocks of any zone, and their turns, may put between a date and the instants on it.
_SLACK = 2 * _DAY
# A text that begins with a month, however the rest of it goes on.
_MONTH = re.compile(r"(\d{4})(-?)(\d\d)(?:\2(\d\d))?(?!\d)")
_SORTABLE = re.compile(r"%Y(-?)%m(\1%d([T _]?%H.*)?)?")


def within(dimension: TimeDimension, bounds: Bounds, now: dt.datetime | None) -> TimeSpans:
    """The windows that begin between two instants; without a later bound, those that are there at `now`."""
    low, high = bounds
    start = dimension.first if low is None else max(dimension.first, dimension.calendar.floor(low))
    end = dimension.known_until(now) if high is None else dimension.calendar.following(high)
    if dimension.last is not None:
        end = min(end, dimension.last)
    return TimeSpans.of([(start, end)])


def is_sortable(dimension: TimeDimension) -> bool:
    """Whether the keys are in the order of their windows, but for what clocks repeat."""
    return dimension.value_type is not str or bool(_SORTABLE.fullmatch(dimension.text_format))


def is_column(node: exp.Expr, scan: Scan, dimension: TimeDimension) -> bool:
    """Whether an expression is the dimension's column, as it is or as the date or the instant that it spells."""
    node = node.unnest()
    while isinstance(node, exp.TsOrDsToDate | exp.Cast | exp.TryCast) and not node.args.get("format"):
        node = node.this.unnest()
    return isinstance(node, exp.Column) and node.table == scan.alias and node.name == dimension.name


def instants(kind: str, values: Array, separator: str) -> Bounds:
    """Between which instants the dates, moments or texts of a column lie."""
    if kind == DATE:
        return int(values.min()) * _DAY - _SLACK, int(values.max()) * _DAY + _DAY + _SLACK
    if kind == TIMESTAMP:
        return int(values.min()) // 1_000_000 - _SLACK, int(values.max()) // 1_000_000 + _SLACK
    if kind == STRING:
        return _text_bounds(str(values.min()), separator)[0], _text_bounds(str(values.max()), separator)[1]
    return None, None


def separator_of(dimension: TimeDimension) -> str:
    """What stands between year and month in a key: texts of another spelling are in another order."""
    if dimension.value_type is not str:
        return "-"
    found = _SORTABLE.fullmatch(dimension.text_format)
    return found[1] if found else "?"


def _text_bounds(text: str, separator: str) -> Bounds:
    found = _MONTH.match(text)
    if found is None or found[2] != separator:
        return None, None
    year, month, day = int(found[1]), int(found[3]), int(found[4] or 0)
    if not (1 <= month <= 12 and year >= 1 and day <= 31):
        return None, None
    first = calendar.timegm((year, month, max(day, 1), 0, 0, 0))
    last = first + _DAY * (1 if day else 31)
    return first - _SLACK, last + _SLACK


def meet(one: Bounds, other: Bounds) -> Bounds:
    """Where both hold."""
    lows = [each for each in (one[0], other[0]) if each is not None]
    highs = [each for each in (one[1], other[1]) if each is not None]
    return max(lows, default=None), min(highs, default=None)


def join(one: Bounds, other: Bounds) -> Bounds:
    """Where either may hold."""
    low = None if one[0] is None or other[0] is None else min(one[0], other[0])
    high = None if one[1] is None or other[1] is None else max(one[1], other[1])
    return low, high
