"""Scopes: the comprehension of a SQL dataset as a partitioning, and the variables of any one partition.

Each generator is one dimension, whose keys are the values of the partition column that INSERT makes of it. So the
scopes of ten years of hours are arithmetic on a calendar, and none is listed to find another. Expressions mean what
Spark makes of them in a session whose time zone is that of the TIMESERIES.

Not here: how an expression is evaluated (evaluate/functions.py), and the scope's variables in a query
(names/scope_variables.py).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from sqlglot import exp

from varve.model.errors import VarveError
from varve.model.partitions.dimension import DynamicDimension, TimeDimension
from varve.sql.evaluate.constants import Typed, evaluate, vector
from varve.sql.evaluate.vector import Vector
from varve.sql.syntax.sql_file import Named, TimeSeries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varve.model.partitions.dimension import Dimension
    from varve.model.partitions.key import PartitionKey, Value
    from varve.model.partitions.partitioning import Partitioning
    from varve.sql.syntax.sql_file import ColumnDefinition, Generator, SqlDataset


@dataclass(frozen=True)
class Scope:
    """The variable bindings under which one partition is computed."""

    partition: PartitionKey
    values: Mapping[str, Typed]


@dataclass(frozen=True)
class ScopeAxis:
    """One generator with the partition column that it makes, and the dimension that has the column's values as keys."""

    generator: Generator
    column: ColumnDefinition
    dimension: Dimension
    # For a list: the generator's value of each key.
    value_of: Mapping[Value, Value]


@dataclass(frozen=True)
class Scopes:
    """The scopes of a dataset.

    Attributes:
        partitioning: as the model has it; its dimensions are the partition columns, in their order.
    """

    dataset: SqlDataset
    partitioning: Partitioning
    axes: tuple[ScopeAxis, ...]
    timezone: str

    def of(self, partition: PartitionKey) -> Scope:
        """The scope that writes a partition. Raises VarveError where it would write another one."""
        values: dict[str, Typed] = {}
        for axis in self.axes:
            values |= _bound(axis, partition[axis.column.name])
        for let in self.dataset.lets:
            values[let.name] = evaluate(let.expression, values, self.timezone)
        for insert in self.inserts:
            found = evaluate(insert.expression, values, self.timezone).value
            wanted = partition[insert.name]
            if found != wanted:
                raise VarveError(
                    f"{self.dataset.source.path}: the scope of {partition} writes {insert.name}={found!r}; INSERT must "
                    "give each scope a partition of its own that names it."
                )
        return Scope(partition, values)

    def columns(self, keys: Sequence[PartitionKey]) -> dict[str, Vector]:
        """The variables of many scopes at once, a column each: a thousand scopes cost little more than one."""
        found: dict[str, Vector] = {}
        for axis in self.axes:
            bound_ = [_bound(axis, key[axis.column.name]) for key in keys]
            for name in axis.generator.variables:
                found[name] = Vector.of(self.types[name].lower(), [each[name].value for each in bound_])
        for let in self.dataset.lets:
            found[let.name] = vector(let.expression, found, self.timezone, len(keys))
        return found

    def partition_values(self, partition: PartitionKey) -> dict[str, Typed]:
        """The values of the partition columns, as they are declared."""
        kinds = {column.name: column.type for column in self.dataset.partition_columns}
        return {name: Typed(kinds[name], value) for name, value in partition.fields}

    @cached_property
    def inserts(self) -> tuple[Named, ...]:
        """For each partition column its expression, in the order of the columns; INSERT may leave out equal names."""
        given = {each.name: each for each in self.dataset.inserts}
        return tuple(given.get(column.name) or same_name(column) for column in self.dataset.partition_columns)

    @cached_property
    def types(self) -> dict[str, str]:
        """The Spark type of each variable, in the order in which they are bound."""
        return {name: typed.type for name, typed in self.of(self.sample).values.items()}

    @cached_property
    def sample(self) -> PartitionKey:
        """Some partition, the first one there could be: to tell types by."""
        members: dict[str, list[Value]] = {
            axis.dimension.set_name: ["a"] if axis.dimension.value_type is str else [1]
            for axis in self.axes
            if isinstance(axis.dimension, DynamicDimension)
        }
        values = []
        for dimension in self.partitioning.dimensions:
            if isinstance(dimension, TimeDimension):
                values.append(dimension.value_at(dimension.first))
            else:
                values.append(next(iter(dimension.keys(members))))
        return self.partitioning.key(values)


def same_name(column: ColumnDefinition) -> Named:
    """What INSERT would say of a column that has the name of its variable."""
    return Named(column.name, exp.column(column.name), column.span)


def instants(series: TimeSeries, start: int, end: int) -> dict[str, Typed]:
    """The variables that a series binds for a window, by its start and end in seconds."""
    moments = [dt.datetime.fromtimestamp(each, tz=dt.UTC) for each in (start, end)]
    return {name: Typed("TIMESTAMP", moment) for name, moment in zip(series.variables, moments, strict=True)}


def _bound(axis: ScopeAxis, key: Value) -> dict[str, Typed]:
    generator, dimension = axis.generator, axis.dimension
    if isinstance(generator, TimeSeries):
        assert isinstance(dimension, TimeDimension)
        start = dimension.start_of(key)
        return instants(generator, start, dimension.calendar.following(start))
    return {generator.variable: Typed.of(axis.value_of.get(key, key))}
