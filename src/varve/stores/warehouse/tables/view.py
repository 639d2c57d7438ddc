"""The SQL of views and period tables, composed with psycopg's own quoting. Nothing is executed here.

The view that readers use shows leaf views, and each leaf view about fifty period tables, so that a publish replaces one
leaf however many periods there are. Every arm of a leaf casts every column to the type in the view: with mixed types
PostgreSQL would widen them without a word, and filters would not reach the tables. The partition columns are typed
literals, by which PostgreSQL prunes a query for one period to its table.

Not here: which columns a view has (shape.py) and when it is replaced (warehouse/publish.py).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from psycopg import sql

from varve.model.partitions.key import parse_path
from varve.model.schema import ColumnType
from varve.stores.postgres.types import postgres_type, type_sql
from varve.stores.warehouse.tables.naming import periods_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.model.schema import Column
    from varve.model.store_options import Index
    from varve.stores.warehouse.tables.shape import ViewShape


def view_name(dataset: Dataset) -> sql.Identifier:
    """The view readers use: the dataset's own name."""
    return sql.Identifier(dataset.db, dataset.table)


def table_name(dataset: Dataset, table: str) -> sql.Identifier:
    """A period table by its catalog location, or a leaf view."""
    return sql.Identifier(periods_schema(dataset), table)


def create_period_table(dataset: Dataset, table: str, description: Mapping[str, object]) -> list[sql.Composed]:
    """An empty period table, with a comment that describes its batch."""
    columns = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(column.name), type_of(column)) for column in dataset.schema.columns
    )
    name = table_name(dataset, table)
    return [
        sql.SQL("create table {} ({})").format(name, columns),
        # COMMENT takes no parameters.
        sql.SQL("comment on table {} is {}").format(name, sql.Literal(json.dumps(description))),
    ]


def create_index(dataset: Dataset, table: str, index: Index) -> sql.Composed:
    """An index of a period table, under a name that PostgreSQL chooses."""
    kind = sql.SQL("create unique index") if index.unique else sql.SQL("create index")
    columns = sql.SQL(", ").join(map(sql.Identifier, index.columns))
    return sql.SQL("{} on {} ({})").format(kind, table_name(dataset, table), columns)


def create_leaf(
    dataset: Dataset, leaf: str, shape: ViewShape, arms: Sequence[sql.Composed], options: Sequence[str] = ()
) -> sql.Composed:
    """Create a leaf view of these arms, with these options. Without arms it has its columns and no rows."""
    return _create(table_name(dataset, leaf), shape, arms, options)


def create_view(dataset: Dataset, shape: ViewShape, leaves: Sequence[str], options: Sequence[str] = ()) -> sql.Composed:
    """Create the view over the leaf views, with these options. Without leaves it has its columns and no rows."""
    columns = sql.SQL(", ").join(sql.Identifier(name) for name in shape.names)
    arms = [sql.SQL("select {} from {}").format(columns, table_name(dataset, leaf)) for leaf in leaves]
    return _create(view_name(dataset), shape, arms, options)


def create_named_view(name: sql.Identifier, shape: ViewShape, arms: Sequence[sql.Composed]) -> sql.Composed:
    """Create a view of any name over these arms."""
    return _create(name, shape, arms, ())


def _create(
    name: sql.Identifier, shape: ViewShape, arms: Sequence[sql.Composed], options: Sequence[str]
) -> sql.Composed:
    """Create or replace a view. PostgreSQL resets all options that a replacement does not name."""
    # A view of several arms is not updatable, and PostgreSQL accepts a check option only for updatable views.
    kept = [option.split("=", 1) for option in options if len(arms) == 1 or not option.startswith("check_option=")]
    settings = sql.SQL(", ").join(
        sql.SQL("{} = {}").format(sql.Identifier(option), sql.Literal(value)) for option, value in kept
    )
    return sql.SQL("create or replace view {}{} as {}").format(
        name,
        sql.SQL(" with ({})").format(settings) if kept else sql.SQL(""),
        sql.SQL(" union all ").join(arms or [_no_rows(shape)]),
    )


def rename_column(dataset: Dataset, old: str, new: str) -> sql.Composed:
    """Rename a column of the view. What depends on it keeps its own names."""
    return sql.SQL("alter view {} rename column {} to {}").format(
        view_name(dataset), sql.Identifier(old), sql.Identifier(new)
    )


def comments(dataset: Dataset) -> dict[str | None, str]:
    """The comments that the view (None) and its columns should have."""
    return {None: dataset.comment} | {
        column.name: column.comment for column in dataset.schema.columns if column.comment
    }


def comment(dataset: Dataset, column: str | None, text: str) -> sql.Composed:
    """A comment on the view (None) or on one of its columns."""
    name = view_name(dataset)
    if column is None:
        return sql.SQL("comment on view {} is {}").format(name, sql.Literal(text))
    return sql.SQL("comment on column {}.{} is {}").format(name, sql.Identifier(column), sql.Literal(text))


def literals(dataset: Dataset, partition: str) -> dict[str, sql.Composed]:
    """The partition columns of one partition as typed literals, by name."""
    # From texts: the view may still have a partition that the dimensions do not have any more.
    texts = dict(parse_path(partition))
    return {
        column.name: sql.SQL("{}::{}").format(sql.Literal(_with_zone(column, texts[column.name])), type_of(column))
        for column in dataset.partition_columns
    }


def _with_zone(column: Column, text: str) -> str:
    """The text of a key for PostgreSQL, which reads a moment without its zone as one of the session's."""
    return f"{text}+00" if column.type is ColumnType.TIMESTAMP else text


def table_arm(dataset: Dataset, shape: ViewShape, partition: str, table: str, columns: Sequence[str]) -> sql.Composed:
    """The rows of one period table, which has these columns: all of a partition, or a part of one that grows."""
    keys = literals(dataset, partition)
    items = [
        sql.SQL("{} as {}").format(
            keys[column.name] if column.name in keys else _value(column.source_in(columns), column.type),
            sql.Identifier(column.name),
        )
        for column in shape.columns
    ]
    return sql.SQL("select {} from {}").format(sql.SQL(", ").join(items), table_name(dataset, table))


def shared_arm(
    dataset: Dataset, shape: ViewShape, table: str, columns: Sequence[str], partitions: Sequence[str] | None
) -> sql.Composed:
    """The rows of these partitions (None: of all) in a table that holds their keys in columns of its own."""
    items = [
        sql.SQL("{} as {}").format(_value(column.source_in(columns), column.type), sql.Identifier(column.name))
        for column in shape.columns
    ]
    arm = sql.SQL("select {} from {}").format(sql.SQL(", ").join(items), table_name(dataset, table))
    return arm if partitions is None else sql.SQL("{} where {}").format(arm, of_partitions(dataset, partitions))


def of_partitions(dataset: Dataset, partitions: Sequence[str]) -> sql.Composed:
    """The condition that a row of a shared table is of one of these partitions.

    It has one IN for all partitions that differ in the first column alone. Of an IN over whole keys PostgreSQL makes an
    expression as deep as the list is long, and refuses that of some ten thousand keys.
    """
    first, *others = map(sql.Identifier, dataset.partitioning.names)
    groups: dict[tuple[str, ...], list[list[sql.Composed]]] = {}
    for partition in partitions:
        rest = tuple(text for _, text in parse_path(partition)[1:])
        groups.setdefault(rest, []).append(list(literals(dataset, partition).values()))
    conditions = []
    for keys in groups.values():
        same = [sql.SQL("{} = {}").format(name, value) for name, value in zip(others, keys[0][1:], strict=True)]
        is_one_of = sql.SQL("{} in ({})").format(first, sql.SQL(", ").join(key[0] for key in keys))
        conditions.append(sql.SQL(" and ").join([*same, is_one_of]))
    return sql.SQL("({})").format(sql.SQL(" or ").join(conditions))


def create_shared_table(
    dataset: Dataset, shape: ViewShape, table: str, description: Mapping[str, object]
) -> list[sql.Composed]:
    """An empty table for the rows of many partitions, their keys among its columns."""
    columns = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(column.name), type_sql(column.type)) for column in shape.columns
    )
    name = table_name(dataset, table)
    return [
        sql.SQL("create table {} ({})").format(name, columns),
        sql.SQL("comment on table {} is {}").format(name, sql.Literal(json.dumps(description))),
    ]


def _value(source: str | None, kind: str) -> sql.Composed:
    value = sql.SQL("null") if source is None else sql.Identifier(source)
    return sql.SQL("{}::{}").format(value, type_sql(kind))


def _no_rows(shape: ViewShape) -> sql.Composed:
    nulls = [
        sql.SQL("null::{} as {}").format(type_sql(column.type), sql.Identifier(column.name)) for column in shape.columns
    ]
    return sql.SQL("select {} where false").format(sql.SQL(", ").join(nulls))


def type_of(column: Column) -> sql.SQL:
    """The PostgreSQL type of a declared column."""
    return type_sql(postgres_type(column.type))
