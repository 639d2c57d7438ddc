"""What is wrong with the clauses that say how batches are stored, and the options that they mean.

Not here: their syntax (varve/sql/syntax/clauses/storage.py), and the code that follows the options (varve/stores).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.model.dataset import StoreKind
from varve.model.errors import nearest, some
from varve.model.store_options import Index, LakeOptions, WarehouseOptions
from varve.sql.syntax.sql_file import TimeSeries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varve.sql.syntax.errors import Problem
    from varve.sql.syntax.sql_file import ColumnDefinition, NamedColumn, SqlDataset

# Clauses about the tables of the warehouse, and about parquet files.
_OF_TABLES = ("INDEX", "COMPACT", "GRANT SELECT TO")
_OF_FILES = ("SORTED BY", "BOUNDS", "ICEBERG")
# The clauses that each store follows. A store that a package adds has files, as far as it has any of them.
_FOLLOWED: dict[str, tuple[str, ...]] = {StoreKind.LAKE: _OF_FILES, StoreKind.WAREHOUSE: _OF_TABLES}
_NESTED = ("ARRAY", "MAP", "STRUCT")


def storage_problems(sql: SqlDataset) -> Iterator[Problem]:
    """Yield a problem for each clause that belongs to another store."""
    if sql.is_view:
        # These are told with the source (syntax/external.py).
        return
    followed = _FOLLOWED.get(sql.store, _OF_FILES)
    for clause, span in sql.spans:
        if clause in _OF_TABLES and clause not in followed:
            yield sql.problem(
                span,
                f"{clause} is for tables of the warehouse, and {sql.name} is stored in the {sql.store}; write STORED "
                "IN WAREHOUSE, or leave it out.",
            )
        elif clause in _OF_FILES and clause not in followed:
            yield sql.problem(
                span,
                f"{clause} is for files of the lake, and {sql.name} is stored in the {sql.store}; leave it out"
                f"{', or write INDEX' if clause == 'SORTED BY' else ''}.",
            )
    if sql.compact is not None and not any(isinstance(generator, TimeSeries) for generator in sql.generators):
        yield sql.problem(
            sql.span_of("COMPACT"),
            f"COMPACT {sql.compact.upper()} puts windows of time together, and no generator is a TIMESERIES; leave it "
            "out.",
        )


def column_problems(sql: SqlDataset, columns: Sequence[ColumnDefinition]) -> Iterator[Problem]:
    """Yield a problem for each name in these clauses that is none of the data columns, or one without an order."""
    names = [column.name for column in columns]
    types = {column.name.lower(): column.type for column in columns}
    of_partition = {column.name.lower() for column in sql.partition_columns}
    for clause, column in _named_columns(sql):
        if column.name.lower() in of_partition:
            yield sql.problem(
                column.span,
                f"{column.name} is a partition column, which has one value in each batch: {clause} is about the other "
                "columns; leave it out.",
            )
        elif column.name.lower() not in types:
            remedy = nearest(column.name, names) or f" It has {some(names)}."
            yield sql.problem(column.span, f"{sql.name} has no column {column.name}.{remedy}")
        elif (kind := types[column.name.lower()]).upper().startswith(_NESTED):
            yield sql.problem(
                column.span,
                f"{column.name} is of type {kind}, whose values have no order: {clause} needs columns that have one; "
                "leave it out.",
            )


def warehouse_options(sql: SqlDataset, names: Sequence[str]) -> WarehouseOptions:
    """Return how the period tables of a file's dataset are made; `names` are those of its data columns."""
    spelt = {name.lower(): name for name in names}
    indexes = [Index(tuple(spelt[name] for name in index.names), unique=index.unique) for index in sql.indexes]
    return WarehouseOptions(indexes=tuple(indexes), compact=sql.compact, grants=tuple(role.name for role in sql.grants))


def lake_options(sql: SqlDataset, names: Sequence[str]) -> LakeOptions:
    """Return how the parquet files of a file's dataset are made; `names` are those of its data columns."""
    spelt = {name.lower(): name for name in names}
    return LakeOptions(
        sort=tuple(spelt[column.name.lower()] for column in sql.sorted_by),
        bounds=tuple(spelt[column.name.lower()] for column in sql.bounds),
        iceberg=sql.iceberg,
    )


def _named_columns(sql: SqlDataset) -> Iterator[tuple[str, NamedColumn]]:
    """Yield the columns that these clauses name, each with the word of its clause."""
    for index in sql.indexes:
        yield from (("INDEX", column) for column in index.columns)
    yield from (("SORTED BY", column) for column in sql.sorted_by)
    yield from (("BOUNDS", column) for column in sql.bounds)
