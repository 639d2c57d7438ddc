"""Which keys of which dimensions a group of scopes reads through each scan: conditions over all (scope, key) pairs.

A condition is evaluated over whole columns: over (scopes x keys of one dimension), and over the product of several
dimensions only where the condition relates them. Of a time dimension, only those windows are listed that the conditions
allow for at least one of the scopes.

Not here: many scopes in chunks (scan_reads.py), the keys as columns (axes.py), and which windows conditions allow
(bounds.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from varve.model.partitions.dimension import DynamicDimension, TimeDimension
from varve.model.partitions.key import plain
from varve.planning.mapping.partition_subset import PartitionBox, TimeSpans
from varve.sql.evaluate.functions import Evaluator
from varve.sql.evaluate.vector import TIMESTAMP, CannotEvaluate, Vector
from varve.sql.names.scope_variables import SCOPE
from varve.sql.partitions.axes import (
    Axis,
    Bindings,
    Group,
    Upstream,
    joint_group,
    key_selections,
    window_columns,
    windows_of,
)
from varve.sql.partitions.bounds import (
    Bounds,
    OrderedColumn,
    intersect_bounds,
    is_column,
    ordered_columns,
    unite_bounds,
    windows_within,
)
from varve.sql.pushdown.predicates import columns_of, holds

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping, Sequence

    from varve.model.partitions.dimension import Dimension
    from varve.model.partitions.partitioning import Partitioning
    from varve.planning.mapping.partition_subset import KeySelection
    from varve.sql.pushdown.relations import Scan
    from varve.sql.pushdown.scans import Dependencies

# Two scans are compared only where they have at most this many pairs of keys (times scopes, where the condition names a
# variable of the scope).
_MOST_CELLS = 20_000_000


@dataclass
class ScanReading:
    """The partitions that several scopes read through one scan."""

    scan: Scan
    upstream: Upstream
    count: int
    groups: list[Group]

    def boxes(self, scope: int) -> list[PartitionBox]:
        """The partitions that the scope at this position reads; empty for a dataset without partitions."""
        if self.upstream.partitioning is None:
            return []
        parts: list[dict[str, KeySelection]] = [{}]
        for group in self.groups:
            selections = list(key_selections(group, group.mask[scope]))
            parts = [{**part, **choice} for part in parts for choice in selections]
        names = self.upstream.partitioning.dimension_names
        return [PartitionBox(self.upstream.partitioning, tuple(part[name] for name in names)) for part in parts]

    def reads(self, scope: int) -> bool:
        """Whether the scope at this position reads any partition through this scan."""
        return all(bool(group.mask[scope].any()) for group in self.groups)

    @property
    def pairs(self) -> int:
        """The number of (scope, partition) pairs."""
        counts = np.ones(self.count, dtype=np.int64)
        for group in self.groups:
            counts *= group.mask.sum(axis=1)
        return int(counts.sum())


@dataclass
class ScanPlan:
    """Computes which partitions several scopes read."""

    dependencies: Dependencies
    upstreams: Mapping[str, Upstream]
    scopes: Bindings
    now: dt.datetime | None
    warn: Callable[[exp.Expr, str], None]
    # The position of one scan, and the partitions to which its candidates are confined.
    fixed: tuple[int, PartitionBox] | None = None
    groups: dict[int, list[Group]] = field(default_factory=dict)

    def readings(self) -> list[ScanReading]:
        """Return one reading for each scan."""
        own = {
            scan.place: [condition for condition in scan.conditions if not _links(condition, scan)]
            for scan in self.dependencies.scans
        }
        # A scan that is bounded only through other scans is computed after them.
        waiting = sorted(self.dependencies.scans, key=lambda scan: not self._is_bounded(scan, own[scan.place]))
        for scan in waiting:
            self.groups[scan.place] = self._own(scan, own[scan.place])
        for _ in range(2):
            for scan in self.dependencies.scans:
                for condition in self._linking(scan):
                    self._link(scan, condition)
        return [
            ScanReading(scan, self.upstreams[scan.dataset], self.scopes.count, self.groups[scan.place])
            for scan in self.dependencies.scans
        ]

    def _is_bounded(self, scan: Scan, own: Sequence[exp.Expr]) -> bool:
        partitioning = self.upstreams[scan.dataset].partitioning
        time = partitioning.time if partitioning else None
        return time is None or self._bounds(scan, time, own) != (None, None)

    def _evaluator(self, columns: Mapping[tuple[str, str], Vector]) -> Evaluator:
        return Evaluator(columns, self.scopes.timezone, self.scopes.spark_values)

    @property
    def _variables(self) -> dict[tuple[str, str], Vector]:
        return {(SCOPE, name): column.reshaped(self.scopes.count, 1) for name, column in self.scopes.columns.items()}

    def _own(self, scan: Scan, conditions: Sequence[exp.Expr]) -> list[Group]:
        """The groups of a scan, according to the conditions that concern this scan alone."""
        partitioning = self.upstreams[scan.dataset].partitioning
        if partitioning is None:
            return []
        related_names = {name: {name} for name in partitioning.dimension_names}
        for condition in conditions:
            names_in_condition = sorted(_own_dimensions(condition, scan, partitioning))
            for name in names_in_condition[1:]:
                merged = related_names[names_in_condition[0]] | related_names[name]
                for related_name in merged:
                    related_names[related_name] = merged
        axes = {dimension.name: self._axis(scan, dimension, conditions) for dimension in partitioning.dimensions}
        groups = []
        ordered = [
            tuple(name for name in partitioning.dimension_names if name in group) for group in related_names.values()
        ]
        for names in dict.fromkeys(ordered):
            group = Group([axes[name] for name in names], np.ones((self.scopes.count, 1), dtype=bool))
            mask = np.ones((self.scopes.count, group.size), dtype=bool)
            columns = {**self._variables, **group.columns(scan.alias, (1, group.size))}
            evaluator = self._evaluator(columns)
            for condition in conditions:
                if _own_dimensions(condition, scan, partitioning) <= set(names):
                    mask &= holds(condition, evaluator, self.warn)
            group.mask = mask
            groups.append(group)
        return groups

    def _axis(self, scan: Scan, dimension: Dimension, conditions: Sequence[exp.Expr]) -> Axis:
        upstream = self.upstreams[scan.dataset]
        if self.fixed is not None and self.fixed[0] == scan.place:
            choice = self.fixed[1].choices[self.fixed[1].partitioning.dimension_names.index(dimension.name)]
            spans = choice if isinstance(choice, TimeSpans) else None
            keys = () if isinstance(choice, TimeSpans) else choice
        elif isinstance(dimension, TimeDimension):
            bounds = self._bounds(scan, dimension, [*conditions, *scan.conditions])
            spans, keys = windows_within(dimension, bounds, self.now), ()
        elif isinstance(dimension, DynamicDimension) and upstream.members is None and upstream.any_member:
            return Axis(dimension, ("",), [], {dimension.name: _unknown(1)})
        else:
            spans, keys = None, tuple(dimension.keys(upstream.members, self.now))
        starts: list[int] = []
        if spans is not None:
            assert isinstance(dimension, TimeDimension)
            starts, keys = windows_of(dimension, spans)
            if dimension.columns:
                types = tuple((name, upstream.types[name].lower()) for name in dimension.column_names)
                return Axis(dimension, keys, starts, window_columns(dimension, spans, types))
        kind = upstream.types[dimension.name].lower()
        if kind == TIMESTAMP and spans is not None:
            moments = np.array(starts, dtype=np.int64) * 1_000_000
            column = Vector(kind, moments, np.ones(len(starts), dtype=bool))
            return Axis(dimension, keys, starts, {dimension.name: column})
        try:
            column = Vector.of(kind, [plain(key) for key in keys])
        except CannotEvaluate:
            column = _unknown(len(keys))
        return Axis(dimension, keys, starts, {dimension.name: column})

    def _bounds(self, scan: Scan, dimension: TimeDimension, conditions: Sequence[exp.Expr]) -> Bounds:
        """The bounds of the windows that satisfy the conditions for at least one of the scopes."""
        columns = ordered_columns(dimension)
        bounds: Bounds = (None, None)
        for condition in conditions if columns else ():
            bounds = intersect_bounds(bounds, self._bound(scan, columns, condition))
        return bounds

    def _bound(self, scan: Scan, columns: Sequence[OrderedColumn], condition: exp.Expr) -> Bounds:
        condition = condition.unnest()
        if isinstance(condition, exp.And):
            return intersect_bounds(
                self._bound(scan, columns, condition.left), self._bound(scan, columns, condition.right)
            )
        if isinstance(condition, exp.Or):
            return unite_bounds(self._bound(scan, columns, condition.left), self._bound(scan, columns, condition.right))
        bounds: Bounds = (None, None)
        for column in columns:
            bounds = intersect_bounds(bounds, self._compared(scan, column, condition))
        return bounds

    def _compared(self, scan: Scan, column: OrderedColumn, condition: exp.Expr) -> Bounds:
        """The bounds of the windows for which a comparison with one of their columns may hold."""
        if isinstance(condition, exp.In) and (items := _items(condition, scan, column)):
            item_bounds = [self._values(scan, item, column) for item in items]
            bounds = item_bounds[0]
            for next_bounds in item_bounds[1:]:
                bounds = unite_bounds(bounds, next_bounds)
            return bounds
        if not isinstance(condition, exp.EQ | exp.LT | exp.LTE | exp.GT | exp.GTE | exp.NullSafeEQ):
            return None, None
        left, right = condition.this, condition.expression
        below = isinstance(condition, exp.LT | exp.LTE)
        above = isinstance(condition, exp.GT | exp.GTE)
        if not is_column(left, scan, column):
            left, right, below, above = right, left, above, below
        if not is_column(left, scan, column):
            return None, None
        low, high = self._values(scan, right, column)
        return (None if below else low), (None if above else high)

    def _values(self, scan: Scan, node: exp.Expr, column: OrderedColumn) -> Bounds:
        """The bounds of the values of an expression that names variables of the scopes, or columns of other scans."""
        tables = {column.table for column in columns_of(node)}
        columns = dict(self._variables)
        other_scans = [other_scan for other_scan in self.dependencies.scans if other_scan.alias in tables]
        # The keys of two scans are not in step: row by row their columns are not every combination of them.
        if len(other_scans) > 1:
            return None, None
        for other_scan in other_scans:
            if other_scan is scan or other_scan.place not in self.groups:
                return None, None
            group = self._joint_group(other_scan, node)
            if group is None:
                return None, None
            columns |= group.columns(other_scan.alias, (1, group.size))
        try:
            vector = self._evaluator(columns).of(node)
        except CannotEvaluate:
            return None, None
        values = np.broadcast_to(vector.values, np.broadcast_shapes(vector.values.shape, vector.valid.shape))
        valid_values = values[np.broadcast_to(vector.valid, values.shape)]
        if not valid_values.size:
            return 0, 0
        return column.bounds(vector.type, valid_values)

    def _linking(self, scan: Scan) -> list[exp.Expr]:
        """The conditions that relate a scan to another one, those on the same columns' dimensions as one condition.

        Together they say more than one after the other: year, month and day of both, not any day of the month.
        """
        together: dict[object, exp.Expr] = {}
        for condition in scan.conditions:
            if _links(condition, scan):
                related = _dimensions_of(condition, self._partitionings)
                # Conditions that relate more than one dimension of each scan are evaluated one by one.
                key = related if len(related) == len({alias for alias, _ in related}) else condition.sql()
                together[key] = exp.And(this=together[key], expression=condition) if key in together else condition
        return [*together.values()]

    @cached_property
    def _partitionings(self) -> dict[str, Partitioning]:
        """The partitioning of each scan, by its alias."""
        return {
            scan.alias: partitioning
            for scan in self.dependencies.scans
            if (partitioning := self.upstreams[scan.dataset].partitioning) is not None
        }

    def _link(self, scan: Scan, condition: exp.Expr) -> None:
        """Narrow the keys of a scan to those that match keys of another scan, of the same scope, under a condition."""
        tables = {column.table for column in columns_of(condition)} - {scan.alias, SCOPE}
        other_scans = [candidate for candidate in self.dependencies.scans if candidate.alias in tables]
        if (
            len(other_scans) != 1
            or len(other_scans) != len(tables)
            or not self.upstreams[other_scans[0].dataset].partitioning
        ):
            return
        other_scan = other_scans[0]
        own_group, other_group = self._one_group(scan, condition), self._joint_group(other_scan, condition)
        if own_group is None or other_group is None:
            return
        with_scope = any(column.table == SCOPE for column in columns_of(condition))
        cells = own_group.size * other_group.size * (self.scopes.count if with_scope else 1)
        if cells > _MOST_CELLS:
            return
        if not with_scope:
            columns = {
                **own_group.columns(scan.alias, (own_group.size, 1)),
                **other_group.columns(other_scan.alias, (1, other_group.size)),
            }
            truth = holds(condition, self._evaluator(columns), self.warn)
            table = np.broadcast_to(truth, (own_group.size, other_group.size)).astype(np.float32)
            own_group.mask = own_group.mask & ((other_group.mask.astype(np.float32) @ table.T) > 0)
            return
        for scope in range(self.scopes.count):
            position = np.array([scope])
            columns = {
                **{
                    (SCOPE, name): column.taken(position).reshaped(1, 1) for name, column in self.scopes.columns.items()
                },
                **own_group.columns(scan.alias, (own_group.size, 1)),
                **other_group.columns(other_scan.alias, (1, other_group.size)),
            }
            truth = holds(condition, self._evaluator(columns), self.warn)
            table = np.broadcast_to(truth, (own_group.size, other_group.size))
            own_group.mask[scope] &= (table & other_group.mask[scope][None, :]).any(axis=1)

    def _one_group(self, scan: Scan, condition: exp.Expr) -> Group | None:
        """The group with all columns of the scan that the condition names; None where they are in several groups."""
        partitioning = self.upstreams[scan.dataset].partitioning
        assert partitioning is not None
        names = _own_dimensions(condition, scan, partitioning)
        for group in self.groups[scan.place]:
            if names <= {axis.dimension.name for axis in group.axes}:
                return group
        return None

    def _joint_group(self, scan: Scan, node: exp.Expr) -> Group | None:
        """One group of all columns of the scan that an expression names: every combination of keys of their groups.

        None where there are too many.
        """
        partitioning = self.upstreams[scan.dataset].partitioning
        assert partitioning is not None
        names = _own_dimensions(node, scan, partitioning)
        groups = [
            group
            for group in self.groups[scan.place]
            if not names.isdisjoint(axis.dimension.name for axis in group.axes)
        ]
        size = math.prod(group.size for group in groups)
        return joint_group(groups) if len(groups) == 1 or size * self.scopes.count <= _MOST_CELLS else None


def _unknown(count: int) -> Vector:
    """Values of which nothing is known: what is computed from them cannot be evaluated."""
    return Vector("unknown", np.zeros(count, dtype=object), np.zeros(count, dtype=bool))


def _dimensions_of(condition: exp.Expr, partitionings: Mapping[str, Partitioning]) -> frozenset[tuple[str, str]]:
    """The dimensions that a condition names, each with the alias of its scan."""
    return frozenset(
        (column.table, partitionings[column.table][column.name].name)
        for column in columns_of(condition)
        if column.table in partitionings
    )


def _items(condition: exp.In, scan: Scan, time_column: OrderedColumn) -> list[exp.Expr]:
    """The items of `column IN (...)` or `(a, column) IN ((...), ...)`; empty where the column is not compared so."""
    if isinstance(condition.this, exp.Tuple):
        for place, column in enumerate(condition.this.expressions):
            if is_column(column, scan, time_column):
                rows = condition.expressions
                return [row.expressions[place] for row in rows] if all(isinstance(e, exp.Tuple) for e in rows) else []
        return []
    return condition.expressions if is_column(condition.this, scan, time_column) else []


def _own_dimensions(condition: exp.Expr, scan: Scan, partitioning: Partitioning) -> set[str]:
    """The dimensions of a scan whose partition columns a condition names."""
    return {partitioning[column.name].name for column in columns_of(condition) if column.table == scan.alias}


def _links(condition: exp.Expr, scan: Scan) -> bool:
    return any(column.table not in (scan.alias, SCOPE) for column in columns_of(condition))
