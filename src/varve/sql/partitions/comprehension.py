"""Builds the scopes of a dataset from its FOR, LET, INSERT and PARTITIONED BY, or reports all that is wrong in them.

Not here: the scopes themselves (scopes.py).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from varve.model.errors import VarveError, nearest
from varve.model.partitions.dimension import DynamicDimension, StaticDimension, TimeDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.partitions.time_dimension import MovingDimension
from varve.sql.evaluate.constants import NotConstant, Typed, evaluate, vector
from varve.sql.evaluate.vector import Vector
from varve.sql.names.scope_variables import free_names, substitute, variable_of
from varve.sql.names.trees import text_of
from varve.sql.partitions.columns_of_time import ColumnError, PartitionValue, columns_of_time
from varve.sql.partitions.key_format import key_format
from varve.sql.partitions.scopes import ScopeAxis, Scopes, generator_meaning, same_name, window_variables
from varve.sql.syntax.errors import SqlErrors
from varve.sql.syntax.sql_file import DynamicSet, Named, TimeSeries, ValueList

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlglot import exp

    from varve.model.partitions.key import Value
    from varve.sql.syntax.errors import Problem
    from varve.sql.syntax.sql_file import ColumnDefinition, Generator, SqlDataset


# The Spark type of a partition column, by the Python type of the dimension's keys.
_KEY_TYPES = {str: "STRING", dt.date: "DATE", int: "BIGINT"}


def scopes_of(dataset: SqlDataset) -> Scopes:
    """Return the scopes of a dataset.

    Raises SqlErrors with every problem in FOR, LET, INSERT and PARTITIONED BY.
    """
    problems = list(_names(dataset))
    axes: dict[str, ScopeAxis] = {}
    if not problems:
        problems += _axes(dataset, axes)
    if problems:
        raise SqlErrors(problems)
    dimensions = tuple(axis.dimension for axis in axes.values())
    order, plain_order = tuple(column.name for column in dataset.partition_columns), Partitioning(dimensions).names
    partitioning = Partitioning(dimensions, () if order == plain_order else order)
    scopes = Scopes(dataset, partitioning, tuple(axes.values()), _timezone(dataset))
    try:
        partitioning.check()
        assert scopes.types is not None
    except NotConstant as error:
        raise SqlErrors([dataset.problem(error.span or dataset.span_of("LET"), str(error))]) from None
    except VarveError as error:
        raise SqlErrors([dataset.problem(dataset.span_of("FOR"), str(error))]) from None
    return scopes


def _axes(dataset: SqlDataset, axes: dict[str, ScopeAxis]) -> Iterator[Problem]:
    """Put the axis of each generator into `axes` (by the generator's variable); yield the problems."""
    inlined, failed = _inlined(dataset), False
    inserts = {insert.name: insert.span for insert in dataset.inserts}
    columns_of: dict[str, tuple[Generator, list[PartitionValue]]] = {}
    for column in dataset.partition_columns:
        where = inserts.get(column.name, column.span)
        value = PartitionValue(column, inlined[column.name], where)
        try:
            generator = _generator(dataset, value)
        except VarveError as error:
            failed = True
            yield dataset.problem(where, str(error))
            continue
        columns_of.setdefault(generator.variable, (generator, []))[1].append(value)
    for variable, (generator, values) in columns_of.items():
        where = values[-1].span
        try:
            axes[variable] = _axis(dataset, generator, values)
        except NotConstant as error:
            failed = True
            yield dataset.problem(error.span or where, str(error))
        except ColumnError as error:
            failed = True
            yield dataset.problem(error.span, str(error))
        except VarveError as error:
            failed = True
            yield dataset.problem(where, str(error))
    for generator in dataset.generators:
        if generator.variable not in axes and not failed:
            yield dataset.problem(
                generator.span,
                f"no partition column follows {generator.variable}, so that several scopes would write one partition; "
                f"add a column to PARTITIONED BY and INSERT, or take {generator.variable} out.",
            )


def _timezone(dataset: SqlDataset) -> str:
    return next((generator.timezone for generator in dataset.generators if isinstance(generator, TimeSeries)), "UTC")


def _names(dataset: SqlDataset) -> Iterator[Problem]:
    """Yield a problem for each name that is bound twice or never."""
    bound: dict[str, object] = {}
    for generator in dataset.generators:
        for name in generator.variables:
            if name in bound:
                yield dataset.problem(generator.span, f"variable {name} is bound twice; give each its own name.")
            bound[name] = generator
    series = [generator for generator in dataset.generators if isinstance(generator, TimeSeries)]
    if len(series) > 1:
        yield dataset.problem(
            series[1].span,
            f"two TIMESERIES, {series[0].variable} and {series[1].variable}; a dataset has one dimension of time. "
            "Write the finer one alone, and all columns of time with it, such as INSERT "
            f"(day = CAST({series[0].variable} AS DATE), hour = HOUR({series[0].variable})).",
        )
    for let in dataset.lets:
        yield from _unknown(dataset, let, bound)
        if let.name in bound:
            yield dataset.problem(let.span, f"variable {let.name} is bound twice; give each its own name.")
        bound[let.name] = let
    columns = {column.name: column for column in dataset.partition_columns}
    for insert in dataset.inserts:
        if insert.name not in columns:
            yield dataset.problem(
                insert.span,
                f"{insert.name} is no partition column; those are {', '.join(columns)}.{nearest(insert.name, columns)}",
            )
        yield from _unknown(dataset, insert, bound)
    inserted = {insert.name for insert in dataset.inserts}
    for column in columns.values():
        if column.name not in inserted and column.name not in bound:
            example = next(iter(reversed(bound)), "t")
            yield dataset.problem(
                column.span,
                f"nothing says which value {column.name} has: no variable has this name; write "
                f"INSERT ({column.name} = {example}), for example.",
            )
    data = {column.name.lower() for column in dataset.columns}
    for column in columns.values():
        if column.name in data:
            yield dataset.problem(
                column.span,
                f"{column.name} is both a data and a partition column; take it out of the data columns: its "
                "value is INSERT's.",
            )


def _unknown(dataset: SqlDataset, named: Named, bound: Mapping[str, object]) -> Iterator[Problem]:
    for name, span in free_names(named.expression):
        if name not in bound:
            yield dataset.problem(
                span or named.span,
                f"no variable {name} is bound before this; there are {', '.join(bound) or 'none'}."
                f"{nearest(name, bound)}",
            )


def _inlined(dataset: SqlDataset) -> dict[str, exp.Expr]:
    """Each partition column as an expression that uses only the generators' variables."""
    lets: dict[str, exp.Expr] = {}
    for let in dataset.lets:
        lets[let.name] = substitute(let.expression, lets)
    inserts = {insert.name: insert for insert in dataset.inserts}
    return {
        column.name: substitute((inserts.get(column.name) or same_name(column)).expression, lets)
        for column in dataset.partition_columns
    }


def _generators_of(dataset: SqlDataset, expression: exp.Expr) -> list[Generator]:
    names = {name for name, _ in free_names(expression)}
    return [generator for generator in dataset.generators if names & set(generator.variables)]


def _generator(dataset: SqlDataset, value: PartitionValue) -> Generator:
    """The one generator that a partition column follows. Raises VarveError where it follows none, or several."""
    generators = _generators_of(dataset, value.expression)
    if len(generators) != 1:
        names = " and ".join(generator.variable for generator in generators) or "nothing"
        raise VarveError(
            f"partition column {value.column.name} follows {names}; each follows exactly one variable of FOR."
        )
    return generators[0]


def _axis(dataset: SqlDataset, generator: Generator, values: Sequence[PartitionValue]) -> ScopeAxis:
    if isinstance(generator, TimeSeries):
        time = _time(_Series.of(generator, values))
        return ScopeAxis(generator, MovingDimension.like(time) if generator.moves else time, {})
    if len(values) > 1:
        raise VarveError(
            f"partition columns {values[0].column.name} and {values[1].column.name} both follow {generator.variable}; "
            "only a TIMESERIES has several columns. Write one of them here, and the other as a column of the query."
        )
    column, expression = values[0].column, values[0].expression
    if isinstance(generator, DynamicSet):
        return ScopeAxis(generator, _dynamic(generator, column, expression), {})
    value_of = _keys(generator, column, expression, _timezone(dataset))
    return ScopeAxis(generator, StaticDimension(column.name, tuple(value_of)), value_of)


def _dynamic(generator: DynamicSet, column: ColumnDefinition, expression: exp.Expr) -> DynamicDimension:
    kind = {"STRING": str, "BIGINT": int, "DATE": dt.date}.get(column.type)
    if variable_of(expression.unnest(), {generator.variable}) is None:
        raise VarveError(f"{column.name} must be {generator.variable} itself: its set is not known beforehand.")
    if kind is None:
        raise VarveError(f"{column.name} is {column.type}; the keys of a dynamic set are STRING, BIGINT or DATE.")
    return DynamicDimension(column.name, generator.set_name, kind, source=generator.source)


def _keys(generator: ValueList, column: ColumnDefinition, expression: exp.Expr, timezone: str) -> dict[Value, Value]:
    """Map the partition key of each value of a list to that value, in the order of the list."""
    value_by_key: dict[Value, Value] = {}
    for value in generator.values:
        at = f"for {generator.variable} = {value!r}"
        key: Any = evaluate(expression, {generator.variable: Typed.of(value)}, timezone).value
        if key is None:
            raise VarveError(f"{column.name} is NULL {at}; no partition is named by NULL.")
        if (kind := _KEY_TYPES.get(type(key), type(key).__name__)) != column.type:
            raise VarveError(f"{column.name} is declared {column.type}, but it is {kind} {at}; declare it {kind}.")
        if key in value_by_key:
            raise VarveError(
                f"{column.name} is {key!r} {at} and for {value_by_key[key]!r}: two scopes would write one partition."
            )
        value_by_key[key] = value
    return value_by_key


@dataclass(frozen=True)
class _Series:
    """A TIMESERIES and its partition columns; equal to another one that says the same elsewhere."""

    meaning: str
    series: TimeSeries = field(compare=False)
    values: tuple[PartitionValue, ...] = field(compare=False)

    @classmethod
    def of(cls, series: TimeSeries, values: Sequence[PartitionValue]) -> _Series:
        columns = [(value.column.name, value.column.type, text_of(value.expression)) for value in values]
        return cls(f"{generator_meaning(series)} {columns}", series, tuple(values))


# Many datasets of a project have one series, whose keys are compared with many windows. What is raised is not kept.
@lru_cache(maxsize=64)
def _time(what: _Series) -> TimeDimension:
    """The time dimension whose partition columns have exactly the values of these expressions for its windows."""
    series, values = what.series, what.values

    def computed(expression: exp.Expr, windows: Sequence[tuple[int, int]]) -> list[object]:
        moments = [window_variables(series, start, end) for start, end in windows]
        columns = {
            name: Vector.of("timestamp", [moment[name].value for moment in moments]) for name in series.variables
        }
        return vector(expression, columns, series.timezone, len(windows)).to_list()

    (first, *others) = values
    if not others and first.column.type in {"STRING", "DATE"}:
        return key_format(series, first.column, first.expression, partial(computed, first.expression))
    return columns_of_time(series, values, computed)
