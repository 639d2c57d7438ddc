"""The union view and the period tables as SQL text, composed with psycopg's own quoting. Nothing is executed here.

Every arm casts every column to the declared type and carries the partition columns as typed literals: arms of mixed
types would widen silently and stop filters from reaching the tables, and the literals prune a query for one period
to its table.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, LiteralString

from psycopg import sql

from pipeline_defs.model.schema import ColumnType
from resources.warehouse.naming import periods_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pipeline_defs.model.batch import Batch
    from pipeline_defs.model.dataset import Dataset
    from pipeline_defs.model.schema import Column

POSTGRES_TYPES: dict[ColumnType, LiteralString] = {
    ColumnType.STRING: "text",
    ColumnType.BOOLEAN: "boolean",
    ColumnType.INT: "integer",
    ColumnType.BIGINT: "bigint",
    ColumnType.DOUBLE: "double precision",
    ColumnType.DATE: "date",
    # Spark's TIMESTAMP is an instant.
    ColumnType.TIMESTAMP: "timestamp with time zone",
}


def view_name(dataset: Dataset) -> sql.Identifier:
    """The view readers use: the dataset's own name."""
    return sql.Identifier(dataset.db, dataset.table)


def table_name(dataset: Dataset, table: str) -> sql.Identifier:
    """A period table by its catalog location."""
    return sql.Identifier(periods_schema(dataset), table)


def create_schemas(dataset: Dataset) -> list[sql.Composed]:
    """The schemas of the view and of the period tables."""
    return [
        sql.SQL("create schema if not exists {}").format(sql.Identifier(name))
        for name in (dataset.db, periods_schema(dataset))
    ]


def create_period_table(dataset: Dataset, table: str, description: dict[str, object]) -> list[sql.Composed]:
    """An empty period table, with a comment that describes its batch."""
    columns = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(column.name), _type(column)) for column in dataset.schema.columns
    )
    name = table_name(dataset, table)
    return [
        sql.SQL("create table {} ({})").format(name, columns),
        # COMMENT takes no parameters.
        sql.SQL("comment on table {} is {}").format(name, sql.Literal(json.dumps(description))),
    ]


def create_view(dataset: Dataset, batches: Iterable[Batch]) -> sql.Composed:
    """The view over the period tables of these batches; over none it has its columns and no rows."""
    arms = [_arm(dataset, batch) for batch in batches] or [_empty_arm(dataset)]
    return sql.SQL("create or replace view {} as {}").format(view_name(dataset), sql.SQL(" union all ").join(arms))


def select_period(dataset: Dataset, batch: Batch) -> sql.Composed:
    """The rows of one period table: data columns, then the partition columns as typed literals."""
    return sql.SQL("select {} from {}").format(
        _list([*(_cast(column) for column in dataset.schema.columns), *_literals(dataset, batch)]),
        table_name(dataset, batch.location),
    )


def comments(dataset: Dataset) -> list[sql.Composed]:
    """The dataset's and its columns' comments on the view."""
    name = view_name(dataset)
    return [
        sql.SQL("comment on view {} is {}").format(name, sql.Literal(dataset.comment)),
        *(
            sql.SQL("comment on column {}.{} is {}").format(
                name, sql.Identifier(column.name), sql.Literal(column.comment)
            )
            for column in dataset.schema.columns
            if column.comment
        ),
    ]


def _arm(dataset: Dataset, batch: Batch) -> sql.Composed:
    return sql.SQL("select {} from {}").format(
        _list([*_literals(dataset, batch), *(_cast(column) for column in dataset.schema.columns)]),
        table_name(dataset, batch.location),
    )


def _literals(dataset: Dataset, batch: Batch) -> list[sql.Composed]:
    key = dataset.partitioning.from_path(batch.partition)
    return [
        sql.SQL("{}::{} as {}").format(sql.Literal(str(key[column.name])), _type(column), sql.Identifier(column.name))
        for column in dataset.partition_columns
    ]


def _empty_arm(dataset: Dataset) -> sql.Composed:
    nulls = [
        sql.SQL("null::{} as {}").format(_type(column), sql.Identifier(column.name))
        for column in (*dataset.partition_columns, *dataset.schema.columns)
    ]
    return sql.SQL("select {} where false").format(_list(nulls))


def _cast(column: Column) -> sql.Composed:
    name = sql.Identifier(column.name)
    return sql.SQL("{}::{} as {}").format(name, _type(column), name)


def _list(items: Sequence[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(items)


def _type(column: Column) -> sql.SQL:
    return sql.SQL(POSTGRES_TYPES[column.type])
