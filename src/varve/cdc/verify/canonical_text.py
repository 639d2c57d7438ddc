"""The text of a value that PostgreSQL and Spark both compute, by which rows are compared where their slices differ.

    type of the dataset       text of a value
    BOOLEAN                   t or f
    SMALLINT, INT, BIGINT     its digits
    FLOAT, DOUBLE             the bits of the number as an integer; NaN; 0 also for -0.0, as both sides call them equal
    DATE                      days since 1970-01-01
    TIMESTAMP, TIMESTAMP_NTZ  microseconds since 1970-01-01
    BINARY                    hexadecimal digits
    STRING                    what the output function of the source's type writes: numeric, json, arrays, enums, ...

The dates and times that no dataset has (infinity) have PostgreSQL's own text, which no value of the dataset has.

Not here: the numbers that are added up (row_numbers.py).
"""

from __future__ import annotations

import datetime as dt
import struct
from typing import TYPE_CHECKING

from psycopg import sql

from varve.model.schema import Column, ColumnType

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

    from varve.cdc.captured_table import SourceColumn

# Longer texts are shown, and compared row by row, by their beginning and the hash of the whole.
LONG, SHOWN = 100, 60
_FLOATS = frozenset({ColumnType.FLOAT, ColumnType.DOUBLE})
_TIMES = frozenset({ColumnType.TIMESTAMP, ColumnType.TIMESTAMP_NTZ})
_INTEGER = "{0}::text"
_FINITE = "case when isfinite({{0}}) then {} else {{0}}::text end"
_NUMBER = "case when {{0}} = 0 then '0' when {{0}} = 'NaN' then 'NaN' else {} end"
_MICROSECONDS = _FINITE.format("(extract(epoch from {0}) * 1000000)::bigint::text")
_DOUBLE = _NUMBER.format("('x' || encode(float8send({0}), 'hex'))::bit(64)::bigint::text")
# The SQL of the source for each type of the dataset but STRING and DOUBLE, which depend on the type at the source.
_SIMPLE = {
    ColumnType.SMALLINT: _INTEGER,
    ColumnType.INT: _INTEGER,
    ColumnType.BIGINT: _INTEGER,
    ColumnType.BOOLEAN: "case {0} when true then 't' when false then 'f' end",
    ColumnType.BINARY: "encode({0}, 'hex')",
    ColumnType.FLOAT: _NUMBER.format("('x' || encode(float4send({0}), 'hex'))::bit(32)::int::text"),
    ColumnType.DATE: _FINITE.format("({0} - date '1970-01-01')::text"),
    ColumnType.TIMESTAMP: _MICROSECONDS,
    ColumnType.TIMESTAMP_NTZ: _MICROSECONDS,
}
# Types of PostgreSQL whose cast to text is the value itself.
_PLAIN_TEXTS = {"text", "character varying"}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def source_text(column: Column, source: SourceColumn, *, utf8: bool) -> sql.Composable:
    """The text in the SQL of the source, as bytes where its database has another encoding than UTF-8; NULL for NULL."""
    name = sql.Identifier(source.name)
    if column.type == ColumnType.STRING:
        # concat() calls the output function of the type, as COPY and the stream do; a cast differs for char(n).
        text = name if source.type in _PLAIN_TEXTS else sql.SQL("concat({0})").format(name)
        text = text if utf8 else sql.SQL("convert_to({0}, 'UTF8')").format(text)
        return sql.SQL("case when {0} is not null then {1} end").format(name, text)
    return sql.SQL(_source_template(column, source)).format(name)


def _source_template(column: Column, source: SourceColumn) -> str:
    if column.type in _SIMPLE:
        return _SIMPLE[column.type]
    if column.type == ColumnType.DOUBLE and source.type == "real":
        # A `real` came as its shortest text.
        return _DOUBLE.replace("float8send({0})", "float8send({0}::text::float8)")
    return _DOUBLE


def lake_text(column: Column) -> SparkColumn:
    """The text in Spark; NULL for NULL."""
    from pyspark.sql import functions as F  # noqa: N812

    value, name = F.col(f"`{column.name}`"), f"`{column.name}`"
    if column.type in _FLOATS:
        # Spark has no function of its own for the bits of a number, and its texts are not PostgreSQL's.
        method = "Float', 'floatToIntBits" if column.type == ColumnType.FLOAT else "Double', 'doubleToLongBits"
        bits = F.expr(f"java_method('java.lang.{method}', coalesce({name}, cast(0 as {str(column.type).lower()})))")
        return F.when(value == 0, "0").when(F.isnan(value), "NaN").when(value.isNotNull(), bits)
    texts = {
        ColumnType.BOOLEAN: lambda: F.when(value, "t").when(~value, "f"),
        ColumnType.BINARY: lambda: F.lower(F.hex(value)),
        ColumnType.DATE: lambda: F.unix_date(value).cast("string"),
        ColumnType.TIMESTAMP: lambda: F.unix_micros(value).cast("string"),
        ColumnType.TIMESTAMP_NTZ: lambda: F.expr(
            f"timestampdiff(MICROSECOND, timestamp_ntz'1970-01-01 00:00:00', {name})"
        ).cast("string"),
    }
    return texts.get(column.type, lambda: value.cast("string"))()


def shown(column: Column, text: str | None) -> str | None:
    """The value as people write it, from its canonical text; None for NULL."""
    if text is None or not text.lstrip("-").isdigit() or column.type == ColumnType.STRING:
        return text
    number = int(text)
    try:
        if column.type == ColumnType.DATE:
            return str(dt.date(1970, 1, 1) + dt.timedelta(days=number))
        if column.type in _TIMES:
            at = _EPOCH + dt.timedelta(microseconds=number)
            return str(at if column.type == ColumnType.TIMESTAMP else at.replace(tzinfo=None))
    except OverflowError:
        return text
    if column.type in _FLOATS:
        packed, unpacked = ("i", "f") if column.type == ColumnType.FLOAT else ("q", "d")
        return str(struct.unpack(unpacked, struct.pack(packed, number))[0])
    return text
