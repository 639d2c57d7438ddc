"""The number of a row that PostgreSQL and Spark both compute, so that both sides of a comparison add up the same.

Each column gives numbers of at most 32 bits, the same ones on both sides:

    type of the dataset       numbers
    BOOLEAN                   1 or 2
    SMALLINT, INT, BIGINT     the value
    DATE                      days since 1970-01-01
    TIMESTAMP, TIMESTAMP_NTZ  microseconds since 1970-01-01
    FLOAT, DOUBLE             from 2^-20 to 2^32: the units of 2^-20, and what is left of it in units of 2^-72;
                              others: the fraction of the number's bits, and its exponent with the sign; 0 also for
                              -0.0, as both sides call them equal
    STRING, BINARY            the length in bytes; and of all of them together, the MD5 of the texts one after another

all but the last by their remainder modulo a prime number, and numbers of their own for NULL and for what no dataset has
(infinite dates). Each number is multiplied by a factor of its place, and the products are added up, modulo the prime.
What is added up for a slice is the square of that, nearly: sums of the numbers themselves would not change where two
rows have exchanged the values of a column. A row that differs is missed with a chance of one in two billion.

Arithmetic costs a fraction of what texts do: MD5 of a text of all columns took twice as long, on both sides.

Not here: the texts by which rows are told apart (canonical_text.py), and the sums (source_sums.py, lake_sums.py).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, TypeVar

from psycopg import sql

from varve.cdc.verify.canonical_text import source_text
from varve.model.schema import Column, ColumnType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.cdc.captured_table import SourceColumn

T = TypeVar("T")

# The largest prime numbers below 2^31 are this one and 2^31 - 1, by which a remainder of bits would be no mixture.
PRIME = 2_147_483_629
# Arbitrary numbers below it, which no value of a column is likely to be: a remainder has no others to spare.
_NULL, _NOT_FINITE = 1_357_924_679, 1_864_202_531
# Any bits: the number of a row is multiplied by itself with these turned.
TURNED = 715_827_883
# So many products of 32 and 27 bits, added up, are less than 2^63.
_ADDED = 8
_TEXTS = frozenset({ColumnType.STRING, ColumnType.BINARY})
_FLOATS = frozenset({ColumnType.FLOAT, ColumnType.DOUBLE})
# 2^-20, 2^32, 2^20, and 2^52: multiplying by powers of two is exact.
_FROM, _BELOW, _UNITS, _REST = "9.5367431640625e-07", "4294967296", "1048576", "4503599627370496"
_FRACTION = (1 << 52) - 1

_SOURCE_INTEGER = f"{{0}}::bigint % {PRIME}"
# As floating point numbers, seconds are exact to the microsecond for so long; `numeric` costs three times as much.
_SOURCE_MICROSECONDS = f"""
    case when {{0}} between '1901-01-01' and '2039-01-01' then (date_part('epoch', {{0}}) * 1000000)::bigint % {PRIME}
         when isfinite({{0}}) then (extract(epoch from {{0}}) * 1000000)::bigint % {PRIME}
         when {{0}} is not null then {_NOT_FINITE} end
"""
_SOURCE_BITS = "('x' || encode(float8send({0}), 'hex'))::bit(64)::bigint"
_SOURCE_FLOATS = (
    f"""
    case when abs({{0}}) >= {_FROM} and abs({{0}}) < {_BELOW} then trunc({{0}} * {_UNITS})::bigint % {PRIME}
         when {{0}} = 0 then 0 when {{0}} = 'NaN' then {_NOT_FINITE}
         else ({_SOURCE_BITS} & {_FRACTION}) % {PRIME} end
    """,
    f"""
    case when abs({{0}}) >= {_FROM} and abs({{0}}) < {_BELOW}
         then (({{0}} * {_UNITS} - trunc({{0}} * {_UNITS})) * {_REST})::bigint % {PRIME}
         when {{0}} = 0 then 0 when {{0}} = 'NaN' then {_NOT_FINITE}
         else {_SOURCE_BITS} >> 52 end
    """,
)
_SOURCE = {
    ColumnType.SMALLINT: (_SOURCE_INTEGER,),
    ColumnType.INT: (_SOURCE_INTEGER,),
    ColumnType.BIGINT: (_SOURCE_INTEGER,),
    ColumnType.BOOLEAN: ("case {0} when true then 1 when false then 2 end",),
    ColumnType.FLOAT: _SOURCE_FLOATS,
    ColumnType.DOUBLE: _SOURCE_FLOATS,
    ColumnType.DATE: (
        f"case when isfinite({{0}}) then {{0}} - date '1970-01-01' when {{0}} is not null then {_NOT_FINITE} end",
    ),
    ColumnType.TIMESTAMP: (_SOURCE_MICROSECONDS,),
    ColumnType.TIMESTAMP_NTZ: (_SOURCE_MICROSECONDS,),
    ColumnType.STRING: ("octet_length({0})",),
    ColumnType.BINARY: ("octet_length({0})",),
}

_LAKE_INTEGER = f"cast({{0}} as bigint) % {PRIME}L"
# Spark has no function for the bits of a number, but Java's format %a writes them: 0x1.8p3, or 0x0.8p-1022.
_LAKE_HEX = "format_string('%a', abs({0}))"
_LAKE_FRACTION = f"cast(conv(rpad(regexp_extract({_LAKE_HEX}, '[.]([0-9a-f]+)p', 1), 13, '0'), 16, 10) as bigint)"
_LAKE_EXPONENT = (
    f"case when {_LAKE_HEX} = 'Infinity' then 2047 when startswith({_LAKE_HEX}, '0x0') then 0 "
    f"else cast(regexp_extract({_LAKE_HEX}, 'p(-?[0-9]+)', 1) as int) + 1023 end - if({{0}} < 0, 2048, 0)"
)
_LAKE_FLOATS = (
    f"""
    case when abs({{0}}) >= {_FROM}D and abs({{0}}) < {_BELOW}D then cast({{0}} * {_UNITS}D as bigint) % {PRIME}L
         when {{0}} = 0 then 0L when isnan({{0}}) then {_NOT_FINITE}L
         when {_LAKE_HEX} = 'Infinity' then 0L
         when {{0}} is not null then {_LAKE_FRACTION} % {PRIME}L end
    """,
    f"""
    case when abs({{0}}) >= {_FROM}D and abs({{0}}) < {_BELOW}D
         then cast(({{0}} * {_UNITS}D - cast({{0}} * {_UNITS}D as bigint)) * {_REST}D as bigint) % {PRIME}L
         when {{0}} = 0 then 0L when isnan({{0}}) then {_NOT_FINITE}L
         when {{0}} is not null then cast({_LAKE_EXPONENT} as bigint) end
    """,
)
_LAKE = {
    ColumnType.SMALLINT: (_LAKE_INTEGER,),
    ColumnType.INT: (_LAKE_INTEGER,),
    ColumnType.BIGINT: (_LAKE_INTEGER,),
    ColumnType.BOOLEAN: ("case {0} when true then 1L when false then 2L end",),
    ColumnType.FLOAT: tuple(template.replace("{0}", "cast({0} as double)") for template in _LAKE_FLOATS),
    ColumnType.DOUBLE: _LAKE_FLOATS,
    ColumnType.DATE: ("cast(unix_date({0}) as bigint)",),
    ColumnType.TIMESTAMP: (f"unix_micros({{0}}) % {PRIME}L",),
    ColumnType.TIMESTAMP_NTZ: (
        f"timestampdiff(MICROSECOND, timestamp_ntz'1970-01-01 00:00:00', {{0}}) % {PRIME}L",
    ),
    ColumnType.STRING: ("cast(octet_length({0}) as bigint)",),
    ColumnType.BINARY: ("cast(octet_length({0}) as bigint)",),
}  # fmt: skip


def source_value(column: Column, source: SourceColumn, *, utf8: bool) -> sql.Composable:
    """What the numbers of a column are made of, in the SQL of the source."""
    name = sql.Identifier(source.name)
    if column.type == ColumnType.STRING:
        return source_text(column, source, utf8=utf8)
    if source.type == "real":
        # It came into a DOUBLE as its shortest text.
        return sql.SQL("{0}::text::float8" if column.type == ColumnType.DOUBLE else "{0}::float8").format(name)
    return name


def source_number(values: Sequence[tuple[Column, sql.Composable]], *, utf8: bool) -> sql.Composable:
    """The number of the row in the SQL of the source, by the values of its columns (`source_value`)."""
    numbers = [
        sql.SQL("coalesce({0}, {1})").format(sql.SQL(template).format(value), sql.Literal(_NULL))
        for column, value in values for template in _SOURCE[column.type]
    ]  # fmt: skip
    texts = [_source_text(column, value, utf8=utf8) for column, value in values if column.type in _TEXTS]
    if texts:
        joined = sql.SQL(" || ").join(texts)
        numbers.append(sql.SQL("('x' || substr(md5({0}), 1, 8))::bit(32)::bigint").format(joined))
    products = [
        sql.SQL("{0} * {1}::bigint").format(number, sql.Literal(_factor(place))) for place, number in enumerate(numbers)
    ]
    sums = [sql.SQL("({0}) % {1}").format(sql.SQL(" + ").join(some), PRIME) for some in _in_groups(products)]
    return sql.SQL("({0}) % {1}").format(sql.SQL(" + ").join(sums), PRIME)


def _source_text(column: Column, value: sql.Composable, *, utf8: bool) -> sql.Composable:
    """The text, or its bytes where the database has another encoding; without rows that are NULL."""
    if column.type == ColumnType.BINARY:
        value = sql.SQL("encode({0}, 'hex')" if utf8 else "convert_to(encode({0}, 'hex'), 'UTF8')").format(value)
    return sql.SQL("coalesce({0}, '')").format(value)


def lake_number(columns: Sequence[Column]) -> str:
    """The number of the row in Spark SQL."""
    numbers = [
        f"coalesce({template.format(_quoted(column))}, {_NULL}L)"
        for column in columns for template in _LAKE[column.type]
    ]  # fmt: skip
    texts = [
        f"coalesce({_quoted(column) if column.type == ColumnType.STRING else f'lower(hex({_quoted(column)}))'}, '')"
        for column in columns if column.type in _TEXTS
    ]  # fmt: skip
    if texts:
        numbers.append(f"cast(conv(left(md5(concat({', '.join(texts)})), 8), 16, 10) as bigint)")
    products = [f"{number} * {_factor(place)}L" for place, number in enumerate(numbers)]
    sums = [f"({' + '.join(added)}) % {PRIME}L" for added in _in_groups(products)]
    return f"({' + '.join(sums)}) % {PRIME}L"


def _quoted(column: Column) -> str:
    return f"`{column.name}`"


def _in_groups(products: Sequence[T]) -> list[Sequence[T]]:
    return [products[first : first + _ADDED] for first in range(0, len(products), _ADDED)]


def _factor(place: int) -> int:
    """An odd number of 27 bits, another for each place, without a pattern among them."""
    drawn = int.from_bytes(hashlib.sha256(str(place).encode()).digest()[:4], "big")
    return (1 << 26) | (drawn & ((1 << 26) - 1)) | 1
