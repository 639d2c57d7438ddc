"""The bounds within which the windows must begin that a condition allows.

They are derived from dates, timestamps and texts that spell them.

Not here: which conditions there are (scan_reads.py).
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp

from varve.planning.mapping.partition_subset import TimeSpans
from varve.sql.evaluate.vector import DATE, INTEGERS, STRING, TIMESTAMP, Array

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
_MONTH = re.compile(r"(\d{4})(-?)(\d\d)(?:\2(\d\d))?(?!\d)", re.ASCII)
# The forms of whole numbers that are in the order of the windows, with how many digits they have.
_NUMBERS = {"%Y": 4, "%Y%m": 6, "%Y%m%d": 8, "%Y%m%d%H": 10, "%Y%m%d%H%M": 12}
# The forms that count from 1970, with how many units a second has.
_SECONDS = {"%s": 1, "%s000": 1_000}
_LATEST, _MONTHS = 1 << 40, 12
# The year 2099 begins: a bound in it or later, as DATE '2099-12-31' or '9999-12-31', is for ever. Taken at its word, it
# would be waited for.
_FOR_EVER = 4_070_908_800
_SORTABLE = re.compile(r"%Y(-?)%m(\1%d([T _]?%H.*)?)?")
_YEAR = "%Y"


def windows_within(dimension: TimeDimension, bounds: Bounds, now: dt.datetime | None) -> TimeSpans:
    """Return the windows that begin within the bounds; without an upper bound, those that exist at `now`."""
    low, high = bounds
    first = start = dimension.first
    if low is not None and low > first:
        start = max(first, dimension.calendar.floor(min(low, _FOR_EVER)))
    if high is None or high >= _FOR_EVER:
        end = dimension.known_until(now)
    else:
        end = dimension.calendar.following(high) if high > first else first
    if dimension.last is not None:
        end = min(end, dimension.last)
    return TimeSpans.of(dimension.calendar.runs(start, end))


@dataclass(frozen=True, slots=True)
class OrderedColumn:
    """A partition column of time whose values are in the order of the windows, apart from hours that a clock repeats.

    Attributes:
        kind: the Spark type of the column.
        form: how it spells the start of a window (strftime).
        length: how many seconds after it the last window with the same value may begin, where other columns say which.
    """

    name: str
    kind: str
    form: str
    length: int = 0

    def bounds(self, kind: str, values: Array) -> Bounds:
        """The bounds of the windows whose column lies between the lowest and the highest of values of a Spark type."""
        low, high = self._bounds(kind, values)
        return low, None if high is None else high + self.length

    def _bounds(self, kind: str, values: Array) -> Bounds:
        if self.kind in INTEGERS:
            if kind not in INTEGERS:
                return None, None
            return self._number_bounds(int(values.min()))[0], self._number_bounds(int(values.max()))[1]
        # A date or a moment is compared with the day on which the year begins, as a date.
        if self.kind == STRING and self.form == _YEAR and (kind == STRING or kind in INTEGERS):
            return reduce(unite_bounds, (self._year_bounds(str(value)) for value in set(values.tolist())))
        separator = "-" if self.kind == DATE else match[1] if (match := _SORTABLE.fullmatch(self.form)) else "?"
        return instant_bounds(kind, values, separator)

    def _number_bounds(self, number: int) -> Bounds:
        if self.form in _SECONDS:
            second = number // _SECONDS[self.form]
            return (second - _SLACK, second + _SLACK) if 0 <= second < _LATEST else (None, None)
        return _number_bounds(number, self.form)

    def _year_bounds(self, text: str) -> Bounds:
        return _number_bounds(int(text), _YEAR) if re.fullmatch("[0-9]{4}", text) else (None, None)


def ordered_columns(dimension: TimeDimension) -> list[OrderedColumn]:
    """The partition columns of a dimension from whose values bounds follow."""
    if not dimension.columns:
        kind = STRING if dimension.value_type is str else DATE
        form = dimension.text_format
        return [OrderedColumn(dimension.name, kind, form)] if _is_sortable(kind, form) else []
    columns = []
    for column in dimension.columns:
        kind = column.type.lower()
        if kind in INTEGERS and column.form not in _NUMBERS and column.form not in _SECONDS:
            continue
        if kind == STRING and not _is_sortable(kind, column.form):
            continue
        # Bounds of a number are those of its whole day, month or year already.
        has_day = kind == TIMESTAMP or kind in INTEGERS or "%d" in column.form
        length = 0 if has_day else 31 * _DAY if "%m" in column.form else 366 * _DAY
        columns.append(OrderedColumn(column.name, kind, column.form, length))
    return columns


def _is_sortable(kind: str, form: str) -> bool:
    return kind == DATE or form == _YEAR or bool(_SORTABLE.fullmatch(form))


def is_column(node: exp.Expr, scan: Scan, column: OrderedColumn) -> bool:
    """Whether an expression is the column, either bare or cast to the date or timestamp that it spells."""
    node = node.unnest()
    bare = node
    while isinstance(node, exp.TsOrDsToDate | exp.Cast | exp.TryCast) and not node.args.get("format"):
        node = node.this.unnest()
    if node is not bare and column.kind in INTEGERS:
        return False
    return isinstance(node, exp.Column) and node.table == scan.alias and node.name == column.name


def instant_bounds(kind: str, values: Array, separator: str) -> Bounds:
    """The bounds of the instants that the dates, timestamps or texts of a column mean."""
    if kind == DATE:
        return int(values.min()) * _DAY - _SLACK, int(values.max()) * _DAY + _DAY + _SLACK
    if kind == TIMESTAMP:
        return int(values.min()) // 1_000_000 - _SLACK, int(values.max()) // 1_000_000 + _SLACK
    if kind == STRING:
        # Not those of the smallest and the greatest text: '2025-10-1' < '2025-9-30', and they are compared as dates.
        return reduce(unite_bounds, (_text_bounds(text, separator) for text in set(values.tolist())))
    return None, None


def _number_bounds(number: int, form: str) -> Bounds:
    """The bounds of the day, the month or the year that a number such as 20220331 begins with."""
    digits = _NUMBERS[form]
    text = str(number)
    if number < 0 or len(text) != digits or text[0] == "0":
        return None, None
    year, month, day = int(text[:4]), int(text[4:6] or 0), int(text[6:8] or 0)
    # A number that is no date lies between those of the month or the year around it.
    is_month = 1 <= month <= _MONTHS
    is_day = is_month and 1 <= day <= calendar.monthrange(year, month)[1]
    first = calendar.timegm((year, month if is_month else 1, day if is_day else 1, 0, 0, 0))
    return first - _SLACK, first + _DAY * (1 if is_day else 31 if is_month else 366) + _SLACK


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
