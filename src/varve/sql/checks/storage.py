"""What is wrong with the clauses that say how batches are stored, and the options that they mean: INDEX, COMPACT.

Not here: their syntax (varve/sql/syntax/storage_clauses.py), and the code that follows the options (varve/stores).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.model.dataset import StoreKind
from varve.model.errors import nearest, some
from varve.model.store_options import Index, WarehouseOptions
from varve.sql.syntax.sql_file import TimeSeries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varve.sql.syntax.errors import Problem
    from varve.sql.syntax.sql_file import NamedColumn, SqlDataset

# Clauses about the tables of the warehouse.
_OF_TABLES = ("INDEX", "COMPACT")


def storage_problems(sql: SqlDataset) -> Iterator[Problem]:
    """Yield a problem for each clause that belongs to another store."""
    given = [clause for clause in _OF_TABLES if clause in dict(sql.spans)]
    for clause in given if sql.store != StoreKind.WAREHOUSE else ():
        yield sql.problem(
            sql.span_of(clause),
            f"{clause} is for tables of the warehouse, and {sql.name} is stored in the {sql.store}; write STORED IN "
            "WAREHOUSE, or leave it out.",
        )
    if sql.compact is not None and not any(isinstance(generator, TimeSeries) for generator in sql.generators):
        yield sql.problem(
            sql.span_of("COMPACT"),
            f"COMPACT {sql.compact.upper()} puts windows of time together, and no generator is a TIMESERIES; leave it "
            "out.",
        )


def column_problems(sql: SqlDataset, columns: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem for each name in these clauses that is none of the data columns `columns`."""
    of_partition = {column.name.lower() for column in sql.partition_columns}
    for clause, column in _named_columns(sql):
        if column.name.lower() in of_partition:
            yield sql.problem(
                column.span,
                f"{column.name} is a partition column, which has one value in each batch: {clause} is about the other "
                "columns; leave it out.",
            )
        elif column.name.lower() not in {name.lower() for name in columns}:
            remedy = nearest(column.name, columns) or f" It has {some(columns)}."
            yield sql.problem(column.span, f"{sql.name} has no column {column.name}.{remedy}")


def warehouse_options(sql: SqlDataset, columns: Sequence[str]) -> WarehouseOptions:
    """Return how the period tables of a file's dataset are made; `columns` are its data columns."""
    spelt = {name.lower(): name for name in columns}
    indexes = [Index(tuple(spelt[name] for name in index.names), unique=index.unique) for index in sql.indexes]
    return WarehouseOptions(indexes=tuple(indexes), compact=sql.compact)


def _named_columns(sql: SqlDataset) -> Iterator[tuple[str, NamedColumn]]:
    """Yield the columns that these clauses name, each with the word of its clause."""
    for index in sql.indexes:
        yield from (("INDEX", column) for column in index.columns)
