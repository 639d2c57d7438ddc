"""Which partitions each of many scopes reads, and which scopes read a partition: conditions over what may exist.

Whole columns at once: a condition is evaluated over (scopes x keys of one dimension), and over the product of several
dimensions only where it ties them together. Of a time dimension only the windows are listed that the conditions allow
for any of the scopes at hand.

Not here: the conditions (dependencies.py).
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from sqlglot import exp

from pipeline_defs.model.dimension import TimeDimension
from pipeline_defs.model.partition import plain
from pipeline_defs.planning.region import Box, Spans
from pipeline_defs.sql.columns import DATE, STRING, TIMESTAMP, Array, CannotEvaluate, Vector
from pipeline_defs.sql.functions import Evaluator
from pipeline_defs.sql.predicates import SCOPE, columns_of, holds

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pipeline_defs.model.dimension import Dimension, Members
    from pipeline_defs.model.partition import Value
    from pipeline_defs.model.partitioning import Partitioning
    from pipeline_defs.planning.region import Choice
    from pipeline_defs.sql.dependencies import Dependencies
    from pipeline_defs.sql.relations import Scan

# Seconds since 1970 between which windows may begin; None: without end on that side.
Bounds: TypeAlias = "tuple[int | None, int | None]"

_DAY = 86_400
# What clocks of any zone, and their turns, may put between a date and the instants on it.
_SLACK = 2 * _DAY
# Scopes are taken so many at a time, so that neighbours share a short list of windows.
_CHUNK = 512
# The most pairs of keys that are compared for each scope by itself.
_MOST_CELLS = 20_000_000
# A text that begins with a month, however the rest of it goes on.
_MONTH = re.compile(r"(\d{4})(-?)(\d\d)(?:\2(\d\d))?(?!\d)")
_SORTABLE = re.compile(r"%Y(-?)%m(\1%d([T _]?%H.*)?)?")


@dataclass(frozen=True)
class Upstream:
    """The theoretical partitions of a dataset that is read.

    Attributes:
        partitioning: its dimensions; their keys are the values of its partition columns. None: it has no partitions.
        types: the Spark type of each partition column.
        members: the members of dynamic sets, where it has any.
    """

    name: str
    partitioning: Partitioning | None
    types: Mapping[str, str] = field(default_factory=dict)
    members: Members | None = None


@dataclass(frozen=True)
class Bindings:
    """The variables of some scopes, as columns of equal lengths.

    Attributes:
        columns: by name; vectors of one dimension.
        timezone: the session's time zone in which the query runs.
    """

    columns: Mapping[str, Vector]
    count: int
    timezone: str = "UTC"

    @classmethod
    def of(cls, types: Mapping[str, str], rows: Sequence[Mapping[str, object]], timezone: str = "UTC") -> Bindings:
        """The bindings of scopes by their values: str, int, date, datetime with a zone."""
        columns = {name.lower(): Vector.of(kind.lower(), [row[name] for row in rows]) for name, kind in types.items()}
        return cls(columns, len(rows), timezone)

    def part(self, start: int, end: int) -> Bindings:
        """Some of the scopes."""
        places = np.arange(start, min(end, self.count))
        return Bindings({name: each.taken(places) for name, each in self.columns.items()}, len(places), self.timezone)


@dataclass(frozen=True)
class Axis:
    """The keys of one dimension that may matter, in order, as a column.

    Attributes:
        starts: where the windows of a time dimension begin, in seconds since 1970, and the end of the last.
    """

    dimension: Dimension
    keys: Sequence[Value]
    starts: Sequence[int]
    column: Vector


@dataclass
class Group:
    """Dimensions that the conditions of a scan tie together, with the truth for each scope and combination of keys."""

    axes: list[Axis]
    mask: Array

    @property
    def size(self) -> int:
        """How many combinations there are."""
        return int(np.prod([len(axis.keys) for axis in self.axes], dtype=np.int64))

    def columns(self, alias: str, shape: tuple[int, int]) -> dict[tuple[str, str], Vector]:
        """The partition columns over the combinations, the last dimension fastest."""
        places = np.indices([len(axis.keys) for axis in self.axes]).reshape(len(self.axes), -1)
        return {
            (alias, axis.dimension.name): axis.column.taken(places[at]).reshaped(*shape)
            for at, axis in enumerate(self.axes)
        }


@dataclass
class Reading:
    """What some scopes read by one scan."""

    scan: Scan
    upstream: Upstream
    count: int
    groups: list[Group]

    def boxes(self, scope: int) -> list[Box]:
        """The partitions that one scope reads; none for a dataset without partitions."""
        if self.upstream.partitioning is None:
            return []
        parts: list[dict[str, Choice]] = [{}]
        for group in self.groups:
            found = list(_choices(group, group.mask[scope]))
            parts = [{**part, **choice} for part in parts for choice in found]
        names = self.upstream.partitioning.names
        return [Box(self.upstream.partitioning, tuple(part[name] for name in names)) for part in parts]

    def reads(self, scope: int) -> bool:
        """Whether a scope reads anything by this scan."""
        return all(bool(group.mask[scope].any()) for group in self.groups)

    @property
    def pairs(self) -> int:
        """How many (scope, partition) pairs there are."""
        counts = np.ones(self.count, dtype=np.int64)
        for group in self.groups:
            counts *= group.mask.sum(axis=1)
        return int(counts.sum())


def readings(
    found: Dependencies,
    upstreams: Mapping[str, Upstream],
    scopes: Bindings,
    *,
    now: dt.datetime | None = None,
    warn: Callable[[exp.Expr, str], None] = lambda *_: None,
) -> Iterator[tuple[range, list[Reading]]]:
    """What the scopes read, for some of them at a time, in their order: their places and a reading for each scan.

    Windows that are not over at `now` are read too where a condition bounds them: a plan waits for them. Without such
    a condition, what is read is what there is at `now`.
    """
    for start in range(0, scopes.count, _CHUNK):
        part = scopes.part(start, start + _CHUNK)
        yield range(start, start + part.count), _Plan(found, upstreams, part, now, warn).readings()


def readers(
    found: Dependencies,
    upstreams: Mapping[str, Upstream],
    scopes: Bindings,
    dataset: str,
    partition: Box,
    *,
    warn: Callable[[exp.Expr, str], None] = lambda *_: None,
) -> Array:
    """Which of the scopes read any of some partitions of a dataset: a boolean for each."""
    answer = np.zeros(scopes.count, dtype=bool)
    for start in range(0, scopes.count, _CHUNK):
        part = scopes.part(start, start + _CHUNK)
        # One scan at a time: a dataset that is joined with itself may be read elsewhere by its other scan.
        for scan in found.scans:
            if scan.dataset == dataset:
                plan = _Plan(found, upstreams, part, None, warn, fixed=(scan.place, partition))
                reading = next(each for each in plan.readings() if each.scan is scan)
                read = np.ones(part.count, dtype=bool)
                for group in reading.groups:
                    read &= group.mask.any(axis=1)
                answer[start : start + part.count] |= read
    return answer


@dataclass
class _Plan:
    """The readings of some scopes."""

    found: Dependencies
    upstreams: Mapping[str, Upstream]
    scopes: Bindings
    now: dt.datetime | None
    warn: Callable[[exp.Expr, str], None]
    # Partitions to which one scan, by its place, is confined.
    fixed: tuple[int, Box] | None = None
    groups: dict[int, list[Group]] = field(default_factory=dict)

    def readings(self) -> list[Reading]:
        """A reading for each scan."""
        own = {scan.place: [each for each in scan.conditions if not _links(each, scan)] for scan in self.found.scans}
        # A scan that only others bound comes after them.
        waiting = sorted(self.found.scans, key=lambda scan: not self._is_bounded(scan, own[scan.place]))
        for scan in waiting:
            self.groups[scan.place] = self._own(scan, own[scan.place])
        for _ in range(2):
            for scan in self.found.scans:
                for condition in scan.conditions:
                    if _links(condition, scan):
                        self._link(scan, condition)
        return [
            Reading(scan, self.upstreams[scan.dataset], self.scopes.count, self.groups[scan.place])
            for scan in self.found.scans
        ]

    def _is_bounded(self, scan: Scan, own: Sequence[exp.Expr]) -> bool:
        partitioning = self.upstreams[scan.dataset].partitioning
        time = partitioning.time if partitioning else None
        return time is None or self._bounds(scan, time, own) != (None, None)

    @property
    def _variables(self) -> dict[tuple[str, str], Vector]:
        return {(SCOPE, name): each.reshaped(self.scopes.count, 1) for name, each in self.scopes.columns.items()}

    def _own(self, scan: Scan, conditions: Sequence[exp.Expr]) -> list[Group]:
        """The groups of a scan, by the conditions on itself alone."""
        partitioning = self.upstreams[scan.dataset].partitioning
        if partitioning is None:
            return []
        together = {name: {name} for name in partitioning.names}
        for condition in conditions:
            tied = sorted(_own_names(condition, scan))
            for name in tied[1:]:
                merged = together[tied[0]] | together[name]
                for each in merged:
                    together[each] = merged
        axes = {dimension.name: self._axis(scan, dimension, conditions) for dimension in partitioning.dimensions}
        groups = []
        ordered = [tuple(each for each in partitioning.names if each in group) for group in together.values()]
        for names in dict.fromkeys(ordered):
            group = Group([axes[name] for name in names], np.ones((self.scopes.count, 1), dtype=bool))
            mask = np.ones((self.scopes.count, group.size), dtype=bool)
            columns = {**self._variables, **group.columns(scan.alias, (1, group.size))}
            evaluator = Evaluator(columns, self.scopes.timezone)
            for condition in conditions:
                if _own_names(condition, scan) <= set(names):
                    mask &= holds(condition, evaluator, self.warn)
            group.mask = mask
            groups.append(group)
        return groups

    def _axis(self, scan: Scan, dimension: Dimension, conditions: Sequence[exp.Expr]) -> Axis:
        upstream = self.upstreams[scan.dataset]
        if self.fixed is not None and self.fixed[0] == scan.place:
            choice = self.fixed[1].choices[self.fixed[1].partitioning.names.index(dimension.name)]
            spans = choice if isinstance(choice, Spans) else None
            keys = () if isinstance(choice, Spans) else choice
        elif isinstance(dimension, TimeDimension):
            bounds = self._bounds(scan, dimension, [*conditions, *scan.conditions])
            spans, keys = _within(dimension, bounds, self.now), ()
        else:
            spans, keys = None, tuple(dimension.keys(upstream.members, self.now))
        starts: list[int] = []
        if spans is not None:
            assert isinstance(dimension, TimeDimension)
            starts, keys = _listed(dimension, spans)
        kind = upstream.types[dimension.name].lower()
        if kind == TIMESTAMP and spans is not None:
            moments = np.array(starts, dtype=np.int64) * 1_000_000
            return Axis(dimension, keys, starts, Vector(kind, moments, np.ones(len(starts), dtype=bool)))
        try:
            column = Vector.of(kind, [plain(key) for key in keys])
        except CannotEvaluate:
            column = Vector("unknown", np.zeros(len(keys), dtype=object), np.zeros(len(keys), dtype=bool))
        return Axis(dimension, keys, starts, column)

    def _bounds(self, scan: Scan, dimension: TimeDimension, conditions: Sequence[exp.Expr]) -> Bounds:
        """Between which instants windows begin that satisfy the conditions for any of the scopes."""
        if not _is_sortable(dimension):
            return None, None
        found: Bounds = (None, None)
        for condition in conditions:
            found = _meet(found, self._bound(scan, dimension, condition))
        return found

    def _bound(self, scan: Scan, dimension: TimeDimension, condition: exp.Expr) -> Bounds:
        condition = condition.unnest()
        if isinstance(condition, exp.And):
            return _meet(self._bound(scan, dimension, condition.left), self._bound(scan, dimension, condition.right))
        if isinstance(condition, exp.Or):
            return _join(self._bound(scan, dimension, condition.left), self._bound(scan, dimension, condition.right))
        if isinstance(condition, exp.In) and _is_column(condition.this, scan, dimension) and condition.expressions:
            found = [self._values(scan, each, _separator(dimension)) for each in condition.expressions]
            bounds = found[0]
            for each in found[1:]:
                bounds = _join(bounds, each)
            return bounds
        if not isinstance(condition, exp.EQ | exp.LT | exp.LTE | exp.GT | exp.GTE | exp.NullSafeEQ):
            return None, None
        left, right = condition.this, condition.expression
        below = isinstance(condition, exp.LT | exp.LTE)
        above = isinstance(condition, exp.GT | exp.GTE)
        if not _is_column(left, scan, dimension):
            left, right, below, above = right, left, above, below
        if not _is_column(left, scan, dimension):
            return None, None
        low, high = self._values(scan, right, _separator(dimension))
        return (None if below else low), (None if above else high)

    def _values(self, scan: Scan, node: exp.Expr, separator: str) -> Bounds:
        """Between which instants the values of an expression of the scopes, or of one other scan, lie."""
        tables = {column.table for column in columns_of(node)}
        columns = dict(self._variables)
        for other in self.found.scans:
            if other.alias in tables:
                if other is scan or other.place not in self.groups:
                    return None, None
                for group in self.groups[other.place]:
                    columns |= group.columns(other.alias, (1, group.size))
        try:
            found = Evaluator(columns, self.scopes.timezone).of(node)
        except CannotEvaluate:
            return None, None
        values = np.broadcast_to(found.values, np.broadcast_shapes(found.values.shape, found.valid.shape))
        there = values[np.broadcast_to(found.valid, values.shape)]
        if not there.size:
            return 0, 0
        return _instants(found.type, there, separator)

    def _link(self, scan: Scan, condition: exp.Expr) -> None:
        """Keep the keys of a scan for which another scan has, for the same scope, keys that satisfy a condition."""
        tables = {column.table for column in columns_of(condition)} - {scan.alias, SCOPE}
        others = [each for each in self.found.scans if each.alias in tables]
        if len(others) != 1 or len(others) != len(tables) or not self.upstreams[others[0].dataset].partitioning:
            return
        other = others[0]
        mine, theirs = self._one_group(scan, condition), self._one_group(other, condition)
        if mine is None or theirs is None:
            return
        with_scope = any(column.table == SCOPE for column in columns_of(condition))
        cells = mine.size * theirs.size * (self.scopes.count if with_scope else 1)
        if cells > _MOST_CELLS:
            return
        if not with_scope:
            columns = {**mine.columns(scan.alias, (mine.size, 1)), **theirs.columns(other.alias, (1, theirs.size))}
            found = holds(condition, Evaluator(columns, self.scopes.timezone), self.warn)
            table = np.broadcast_to(found, (mine.size, theirs.size)).astype(np.float32)
            mine.mask = mine.mask & ((theirs.mask.astype(np.float32) @ table.T) > 0)
            return
        for scope in range(self.scopes.count):
            here = np.array([scope])
            columns = {
                **{(SCOPE, name): each.taken(here).reshaped(1, 1) for name, each in self.scopes.columns.items()},
                **mine.columns(scan.alias, (mine.size, 1)),
                **theirs.columns(other.alias, (1, theirs.size)),
            }
            found = holds(condition, Evaluator(columns, self.scopes.timezone), self.warn)
            table = np.broadcast_to(found, (mine.size, theirs.size))
            mine.mask[scope] &= (table & theirs.mask[scope][None, :]).any(axis=1)

    def _one_group(self, scan: Scan, condition: exp.Expr) -> Group | None:
        """The group that holds all columns of a scan in a condition."""
        names = _own_names(condition, scan)
        for group in self.groups[scan.place]:
            if names <= {axis.dimension.name for axis in group.axes}:
                return group
        return None


def _choices(group: Group, mask: Array) -> Iterator[dict[str, Choice]]:
    """The combinations of keys as products of choices: one for each key of the other dimensions than the last time."""
    time = next((at for at, axis in enumerate(group.axes) if isinstance(axis.dimension, TimeDimension)), None)
    shaped = mask.reshape([len(axis.keys) for axis in group.axes])
    if len(group.axes) == 1:
        axis = group.axes[0]
        places = np.flatnonzero(shaped).tolist()
        if places:
            yield {axis.dimension.name: _choice(axis, places)}
        return
    last = len(group.axes) - 1 if time is None else time
    rest = [axis for at, axis in enumerate(group.axes) if at != last]
    moved = np.moveaxis(shaped, last, -1)
    for place in np.argwhere(moved.any(axis=-1)).tolist():
        found: dict[str, Choice] = {
            axis.dimension.name: _choice(axis, [at]) for axis, at in zip(rest, place, strict=True)
        }
        found[group.axes[last].dimension.name] = _choice(group.axes[last], np.flatnonzero(moved[tuple(place)]).tolist())
        yield found


def _choice(axis: Axis, places: Sequence[int]) -> Choice:
    if isinstance(axis.dimension, TimeDimension):
        following = axis.dimension.calendar.following
        ends = [*axis.starts[1:], following(axis.starts[-1])]
        # Windows beside each other in the list need not be neighbours where only some were listed.
        return Spans.of((axis.starts[at], min(ends[at], following(axis.starts[at]))) for at in places)
    return tuple(axis.keys[at] for at in places)


def _within(dimension: TimeDimension, bounds: Bounds, now: dt.datetime | None) -> Spans:
    """The windows that begin between two instants; without a later bound, those that are there at `now`."""
    low, high = bounds
    start = dimension.first if low is None else max(dimension.first, dimension.calendar.floor(low))
    end = dimension.known_until(now) if high is None else dimension.calendar.following(high)
    if dimension.last is not None:
        end = min(end, dimension.last)
    return Spans.of([(start, end)])


def _is_sortable(dimension: TimeDimension) -> bool:
    """Whether the keys are in the order of their windows, but for what clocks repeat."""
    return dimension.value_type is not str or bool(_SORTABLE.fullmatch(dimension.text_format))


def _is_column(node: exp.Expr, scan: Scan, dimension: TimeDimension) -> bool:
    """Whether an expression is the dimension's column, as it is or as the date or the instant that it spells."""
    node = node.unnest()
    while isinstance(node, exp.TsOrDsToDate | exp.Cast | exp.TryCast) and not node.args.get("format"):
        node = node.this.unnest()
    return isinstance(node, exp.Column) and node.table == scan.alias and node.name == dimension.name


def _instants(kind: str, values: Array, separator: str) -> Bounds:
    if kind == DATE:
        return int(values.min()) * _DAY - _SLACK, int(values.max()) * _DAY + _DAY + _SLACK
    if kind == TIMESTAMP:
        return int(values.min()) // 1_000_000 - _SLACK, int(values.max()) // 1_000_000 + _SLACK
    if kind == STRING:
        return _text_bounds(str(values.min()), separator)[0], _text_bounds(str(values.max()), separator)[1]
    return None, None


def _separator(dimension: TimeDimension) -> str:
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


def _meet(one: Bounds, other: Bounds) -> Bounds:
    lows = [each for each in (one[0], other[0]) if each is not None]
    highs = [each for each in (one[1], other[1]) if each is not None]
    return max(lows, default=None), min(highs, default=None)


def _join(one: Bounds, other: Bounds) -> Bounds:
    low = None if one[0] is None or other[0] is None else min(one[0], other[0])
    high = None if one[1] is None or other[1] is None else max(one[1], other[1])
    return low, high


def _own_names(condition: exp.Expr, scan: Scan) -> set[str]:
    return {column.name for column in columns_of(condition) if column.table == scan.alias}


def _links(condition: exp.Expr, scan: Scan) -> bool:
    return any(column.table not in (scan.alias, SCOPE) for column in columns_of(condition))


@lru_cache(maxsize=64)
def _listed(dimension: TimeDimension, spans: Spans) -> tuple[list[int], tuple[Value, ...]]:
    """The windows of some spans, by where they begin and by their keys; many datasets have the same ones."""
    starts = list(spans.starts(dimension))
    return starts, tuple([dimension.value_at(start) for start in starts])
