"""Which keys of which dimensions some scopes read by each scan: its conditions over all pairs of the two.

Whole columns at once: a condition is evaluated over (scopes x keys of one dimension), and over the product of several
dimensions only where it ties them together. Of a time dimension only the windows are listed that the conditions allow
for any of the scopes at hand.

Not here: many scopes, some at a time (scan_reads.py), the keys as columns (axes.py), and which windows conditions allow
(bounds.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.key import plain
from varve.planning.mapping.partition_subset import PartitionBox, TimeSpans
from varve.sql.evaluate.functions import Evaluator
from varve.sql.evaluate.vector import TIMESTAMP, CannotEvaluate, Vector
from varve.sql.names.scope_variables import SCOPE
from varve.sql.partitions.axes import Axis, Bindings, Group, Upstream, choices, windows_of
from varve.sql.partitions.bounds import Bounds, instants, is_column, is_sortable, join, meet, separator_of, within
from varve.sql.pushdown.predicates import columns_of, holds

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping, Sequence

    from varve.model.partitions.dimension import Dimension
    from varve.planning.mapping.partition_subset import KeySelection
    from varve.sql.pushdown.relations import Scan
    from varve.sql.pushdown.scans import Dependencies

# The most pairs of keys that are compared for each scope by itself.
_MOST_CELLS = 20_000_000


@dataclass
class ScanReading:
    """What some scopes read by one scan."""

    scan: Scan
    upstream: Upstream
    count: int
    groups: list[Group]

    def boxes(self, scope: int) -> list[PartitionBox]:
        """The partitions that one scope reads; none for a dataset without partitions."""
        if self.upstream.partitioning is None:
            return []
        parts: list[dict[str, KeySelection]] = [{}]
        for group in self.groups:
            found = list(choices(group, group.mask[scope]))
            parts = [{**part, **choice} for part in parts for choice in found]
        names = self.upstream.partitioning.names
        return [PartitionBox(self.upstream.partitioning, tuple(part[name] for name in names)) for part in parts]

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


@dataclass
class ScanPlan:
    """The readings of some scopes."""

    found: Dependencies
    upstreams: Mapping[str, Upstream]
    scopes: Bindings
    now: dt.datetime | None
    warn: Callable[[exp.Expr, str], None]
    # Partitions to which one scan, by its place, is confined.
    fixed: tuple[int, PartitionBox] | None = None
    groups: dict[int, list[Group]] = field(default_factory=dict)

    def readings(self) -> list[ScanReading]:
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
            ScanReading(scan, self.upstreams[scan.dataset], self.scopes.count, self.groups[scan.place])
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
            spans = choice if isinstance(choice, TimeSpans) else None
            keys = () if isinstance(choice, TimeSpans) else choice
        elif isinstance(dimension, TimeDimension):
            bounds = self._bounds(scan, dimension, [*conditions, *scan.conditions])
            spans, keys = within(dimension, bounds, self.now), ()
        else:
            spans, keys = None, tuple(dimension.keys(upstream.members, self.now))
        starts: list[int] = []
        if spans is not None:
            assert isinstance(dimension, TimeDimension)
            starts, keys = windows_of(dimension, spans)
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
        if not is_sortable(dimension):
            return None, None
        found: Bounds = (None, None)
        for condition in conditions:
            found = meet(found, self._bound(scan, dimension, condition))
        return found

    def _bound(self, scan: Scan, dimension: TimeDimension, condition: exp.Expr) -> Bounds:
        condition = condition.unnest()
        if isinstance(condition, exp.And):
            return meet(self._bound(scan, dimension, condition.left), self._bound(scan, dimension, condition.right))
        if isinstance(condition, exp.Or):
            return join(self._bound(scan, dimension, condition.left), self._bound(scan, dimension, condition.right))
        if isinstance(condition, exp.In) and (items := _items(condition, scan, dimension)):
            found = [self._values(scan, each, separator_of(dimension)) for each in items]
            bounds = found[0]
            for each in found[1:]:
                bounds = join(bounds, each)
            return bounds
        if not isinstance(condition, exp.EQ | exp.LT | exp.LTE | exp.GT | exp.GTE | exp.NullSafeEQ):
            return None, None
        left, right = condition.this, condition.expression
        below = isinstance(condition, exp.LT | exp.LTE)
        above = isinstance(condition, exp.GT | exp.GTE)
        if not is_column(left, scan, dimension):
            left, right, below, above = right, left, above, below
        if not is_column(left, scan, dimension):
            return None, None
        low, high = self._values(scan, right, separator_of(dimension))
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
        return instants(found.type, there, separator)

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


def _items(condition: exp.In, scan: Scan, dimension: TimeDimension) -> list[exp.Expr]:
    """What the dimension's column is one of, alone or in a row of columns; nothing where it is neither."""
    if isinstance(condition.this, exp.Tuple):
        for place, column in enumerate(condition.this.expressions):
            if is_column(column, scan, dimension):
                rows = condition.expressions
                return [each.expressions[place] for each in rows] if all(isinstance(e, exp.Tuple) for e in rows) else []
        return []
    return condition.expressions if is_column(condition.this, scan, dimension) else []


def _own_names(condition: exp.Expr, scan: Scan) -> set[str]:
    return {column.name for column in columns_of(condition) if column.table == scan.alias}


def _links(condition: exp.Expr, scan: Scan) -> bool:
    return any(column.table not in (scan.alias, SCOPE) for column in columns_of(condition))
