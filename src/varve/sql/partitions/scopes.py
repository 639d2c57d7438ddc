"""Scopes: the FOR comprehension of a SQL dataset as a partitioning, and the values of its variables for one partition.

Each generator is one dimension, whose keys are the values of the partition column that INSERT computes from it. So the
scopes of ten years of hours are arithmetic on a calendar, and no scope is listed to find another one. Expressions mean
what Spark makes of them in a session with the time zone of the TIMESERIES.

Not here: how an expression is evaluated (evaluate/functions.py), and the scope's variables in a query
(names/scope_variables.py).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING

from sqlglot import exp

from varve.model.errors import VarveError
from varve.model.partitions.dimension import DynamicDimension, TimeDimension
from varve.sql.evaluate.constants import NotConstant, Typed, evaluate, vector
from varve.sql.evaluate.vector import Vector
from varve.sql.names.trees import text_of
from varve.sql.syntax.sql_file import Named, TimeSeries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varve.model.partitions.dimension import Dimension
    from varve.model.partitions.key import PartitionKey, Value
    from varve.model.partitions.partitioning import Partitioning
    from varve.sql.syntax.sql_file import ColumnDefinition, Generator, SqlDataset

# A key of each type, for what must be known of a set before it has any.
_SAMPLES: Mapping[type, Value] = {str: "a", int: 1, dt.date: dt.date(2000, 1, 1)}


@dataclass(frozen=True)
class Scope:
    """The values of the variables under which one partition is computed."""

    partition: PartitionKey
    values: Mapping[str, Typed]


@dataclass(frozen=True)
class ScopeAxis:
    """One generator, and the dimension whose keys are the values of its partition column, or columns of time."""

    generator: Generator
    dimension: Dimension
    # For a list of values: the value of the generator's variable for each partition key.
    value_of: Mapping[Value, Value]


@dataclass(frozen=True)
class Scopes:
    """The scopes of a dataset.

    Attributes:
        partitioning: its dimensions are the partition columns, in their order.
    """

    dataset: SqlDataset
    partitioning: Partitioning
    axes: tuple[ScopeAxis, ...]
    timezone: str

    def of(self, partition: PartitionKey) -> Scope:
        """Return the scope that writes a partition. Raises VarveError where it would write another one."""
        values: dict[str, Typed] = {}
        for axis in self.axes:
            values |= _bound(axis, axis.dimension.value_in(partition))
        for let in self.dataset.lets:
            values[let.name] = evaluate(let.expression, values, self.timezone)
        for insert in self.inserts:
            value = evaluate(insert.expression, values, self.timezone).value
            expected = partition[insert.name]
            if value != expected:
                raise VarveError(
                    f"{self.dataset.source.path}: the scope of {partition} writes {insert.name}={value!r}; INSERT must "
                    "give each scope a partition of its own that names it."
                )
        return Scope(partition, values)

    def columns(self, keys: Sequence[PartitionKey]) -> dict[str, Vector]:
        """Return one column for each variable, over many scopes: a thousand scopes cost little more than one.

        Raises VarveError with the partition for which a LET has no value, as a key of a set may be any text.
        """
        columns: dict[str, Vector] = {}
        for axis in self.axes:
            bound_ = [_bound(axis, axis.dimension.value_in(key)) for key in keys]
            for name in axis.generator.variables:
                columns[name] = Vector.of(self.types[name].lower(), [bindings[name].value for bindings in bound_])
        for let in self.dataset.lets:
            try:
                columns[let.name] = vector(let.expression, columns, self.timezone, len(keys))
            except NotConstant as error:
                raise self._without_value(let.name, keys) or error from None
        return columns

    def _without_value(self, let: str, keys: Sequence[PartitionKey]) -> VarveError | None:
        """What to say of the first partition whose scope cannot be told; None where each can."""
        for key in keys:
            try:
                self.of(key)
            except NotConstant as error:
                return VarveError(
                    f"{self.dataset.name} {key}: LET {let} has no value there: {error} Or take the key out of its set."
                )
        return None

    def partition_values(self, partition: PartitionKey) -> dict[str, Typed]:
        """Return the values of the partition columns with their declared types."""
        kinds = {column.name: column.type for column in self.dataset.partition_columns}
        return {name: Typed(kinds[name], value) for name, value in partition.fields}

    @cached_property
    def inserts(self) -> tuple[Named, ...]:
        """The expression of each partition column, in their order.

        INSERT may leave out a column that is named like its variable.
        """
        insert_by_name = {insert.name: insert for insert in self.dataset.inserts}
        return tuple(insert_by_name.get(column.name) or same_name(column) for column in self.dataset.partition_columns)

    @cached_property
    def meaning(self) -> str:
        """A text that is the same for scopes in which the variables have the same values for the same partitions."""
        named = [*self.dataset.lets, *self.inserts]
        texts = [len(self.dataset.lets), *((expression.name, text_of(expression.expression)) for expression in named)]
        generators = [generator_meaning(axis.generator) for axis in self.axes]
        return repr((self.partitioning, self.timezone, generators, texts))

    @cached_property
    def types(self) -> dict[str, str]:
        """The Spark type of each variable, in the order in which variables are bound."""
        return {name: typed.type for name, typed in self.of(self.sample).values.items()}

    @cached_property
    def sample(self) -> PartitionKey:
        """An example partition (the first theoretical one), from which the types of the variables are read."""
        members: dict[str, list[Value]] = {
            axis.dimension.set_name: [_SAMPLES.get(axis.dimension.value_type, 1)]
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


def generator_meaning(generator: Generator) -> str:
    """A text that is the same for generators that bind the same variables to the same values, wherever they stand."""
    return repr([(part.name, getattr(generator, part.name)) for part in fields(generator) if part.name != "span"])


def same_name(column: ColumnDefinition) -> Named:
    """The INSERT expression of a column that has the name of its variable."""
    return Named(column.name, exp.column(column.name), column.span)


def window_variables(series: TimeSeries, start: int, end: int) -> dict[str, Typed]:
    """Return the variables that a TIMESERIES binds for the window from `start` to `end`, in seconds since 1970."""
    moments = [dt.datetime.fromtimestamp(second, tz=dt.UTC) for second in (start, end)]
    return {name: Typed("TIMESTAMP", moment) for name, moment in zip(series.variables, moments, strict=True)}


def _bound(axis: ScopeAxis, key: Value) -> dict[str, Typed]:
    generator, dimension = axis.generator, axis.dimension
    if isinstance(generator, TimeSeries):
        assert isinstance(dimension, TimeDimension)
        start = dimension.start_of(key)
        return window_variables(generator, start, dimension.calendar.following(start))
    return {generator.variable: Typed.of(axis.value_of.get(key, key))}
