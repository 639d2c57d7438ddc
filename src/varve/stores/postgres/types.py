"""The PostgreSQL type of every column type, the form in which values are loaded, and what PostgreSQL cannot hold.

| Spark | PostgreSQL | |
|---|---|---|
| STRING | text | a NUL character is refused by row and column |
| BOOLEAN | boolean | |
| TINYINT, SMALLINT | smallint | PostgreSQL has no byte |
| INT, BIGINT | integer, bigint | |
| FLOAT, DOUBLE | real, double precision | NaN and infinities included |
| DECIMAL(p,s) | numeric(p,s) | |
| DATE | date | |
| TIMESTAMP | timestamp with time zone | an instant |
| TIMESTAMP_NTZ | timestamp without time zone | a wall clock |
| BINARY | bytea | |
| ARRAY, MAP, STRUCT | jsonb | maps with text keys only, as JSON has no others |

Not here: SQL statements (varve/stores/warehouse/tables/view.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, LiteralString

from psycopg import sql

from varve.model.errors import NOTHING_LOST, VarveError
from varve.model.schema import Column, ColumnType, Kind, Schema
from varve.stores.frames import JSON_OPTIONS, conform

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from varve.model.build import Build
    from varve.model.dataset import Dataset

# Written as pg_catalog.format_type writes them: the columns of an existing view are compared with these.
_TYPES: dict[Kind, LiteralString] = {
    Kind.STRING: "text",
    Kind.BOOLEAN: "boolean",
    Kind.TINYINT: "smallint",
    Kind.SMALLINT: "smallint",
    Kind.INT: "integer",
    Kind.BIGINT: "bigint",
    Kind.FLOAT: "real",
    Kind.DOUBLE: "double precision",
    Kind.DATE: "date",
    Kind.TIMESTAMP: "timestamp with time zone",
    Kind.TIMESTAMP_NTZ: "timestamp without time zone",
    Kind.BINARY: "bytea",
    Kind.ARRAY: "jsonb",
    Kind.MAP: "jsonb",
    Kind.STRUCT: "jsonb",
}
_NAME_BYTES = 63
_COLUMNS = 1_600
_SYSTEM_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})


def postgres_type(kind: ColumnType) -> str:
    """The PostgreSQL type, as `format_type` spells it."""
    if kind.kind is Kind.DECIMAL:
        precision, scale = kind.digits
        return f"numeric({precision},{scale})"
    return _TYPES[kind.kind]


def type_sql(spelling: str) -> sql.SQL:
    """A type of PostgreSQL as SQL; only for texts that come from `postgres_type` or `format_type`."""
    return sql.SQL(spelling)


def refuse_what_postgresql_cannot_hold(dataset: Dataset) -> None:
    """Raise VarveError with every name and column of the dataset that PostgreSQL cannot have."""
    if problems := list(_problems(dataset)):
        raise VarveError(f"{dataset} cannot be kept in PostgreSQL: {' '.join(problems)} {NOTHING_LOST}")


def wire_dataset(dataset: Dataset) -> Dataset:
    """The dataset as it is spooled: nested columns are bytes, in the binary form of jsonb."""
    columns = tuple(
        Column(column.name, ColumnType.BINARY if column.type.nested else column.type, nullable=column.nullable)
        for column in dataset.schema.columns
    )
    return replace(dataset, schema=Schema(columns), warehouse=type(dataset.warehouse)())


def to_wire(build: Build, frame: DataFrame) -> DataFrame:
    """The frame of a build with its nested columns as bytes, in the binary form of jsonb."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    nested = [column for column in build.dataset.schema.columns if column.type.nested]
    if not nested:
        return frame
    # The version of the binary form, its first byte.
    version = F.unhex(F.lit("01"))
    return conform(build, frame).withColumns(
        {column.name: F.concat(version, F.to_json(_quoted(column), JSON_OPTIONS).cast("binary")) for column in nested}
    )


def from_wire(columns: Sequence[Column], frame: DataFrame) -> DataFrame:
    """The inverse, for rows that are read: nested columns arrive as JSON text."""
    from pyspark.sql import functions as F  # noqa: N812

    nested = [column for column in columns if column.type.nested]
    if not nested:
        return frame
    return frame.withColumns(
        {column.name: F.from_json(_quoted(column), str(column.type), JSON_OPTIONS) for column in nested}
    )


def _quoted(column: Column) -> SparkColumn:
    from pyspark.sql import functions as F  # noqa: N812

    return F.col("`" + column.name.replace("`", "``") + "`")


def _problems(dataset: Dataset) -> Iterator[str]:
    for name, bytes_left in ((dataset.db, _NAME_BYTES - len("_periods")), (dataset.table, _NAME_BYTES)):
        if len(name.encode()) > bytes_left:
            yield f"{name} is {len(name.encode())} bytes long, {bytes_left} are left for a name there."
    columns = (*dataset.partition_columns, *dataset.schema.columns)
    if len(columns) > _COLUMNS:
        yield f"{len(columns)} columns, where a table has at most {_COLUMNS}."
    for column in columns:
        size = len(column.name.encode())
        if size > _NAME_BYTES:
            yield f"The column {column.name[:30]}... is {size} bytes long, {_NAME_BYTES} are a name's limit."
        if "\0" in column.name or not column.name:
            yield f"{column.name!r} is no name of a column."
        if column.name in _SYSTEM_COLUMNS:
            yield f"Every table has a column {column.name} of PostgreSQL's own; name yours otherwise."
        if (key := _odd_key(column.type)) is not None:
            yield f"{column.name} is kept as jsonb, whose keys are text: make {key} a MAP<STRING, ...>."


def _odd_key(kind: ColumnType) -> ColumnType | None:
    if kind.kind is Kind.MAP and kind.parts[0][1] is not ColumnType.STRING:
        return kind
    return next((odd for _, part in kind.parts if (odd := _odd_key(part)) is not None), None)
