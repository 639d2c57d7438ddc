"""The sums of the source, computed by PostgreSQL in one read of the table; only the sums leave the server.

Not here: what is added up (row_numbers.py), and the texts that rows are compared by (canonical_text.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

from varve.cdc.verify.canonical_text import LONG, SHOWN, source_text
from varve.cdc.verify.row_numbers import PRIME, TURNED, source_number, source_value
from varve.cdc.verify.slices import Sum
from varve.model.schema import ColumnType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import psycopg

    from varve.cdc.verify.slices import Comparison, Texts
    from varve.model.schema import Column

# Each step is a query of its own, or PostgreSQL would compute a value again wherever it is used.
_SUMS = """
    select {slice}, count(*), sum(number * (number # {turned}) % {prime})
    from (select {number} as number, {key} as key from (select {values} from only {table} offset 0) as row offset 0)
        as numbered
    group by 1
"""
_ROWS = "select {texts} from only {table} where {slice} = any({slices})"
_ESTIMATE = "select greatest(reltuples, 0)::bigint from pg_class where oid = %s"
_ENCODING = "show server_encoding"


def estimated_rows(connection: psycopg.Connection, oid: int) -> int:
    """About how many rows the table has, as its server estimates for its plans."""
    row = connection.execute(_ESTIMATE, (oid,)).fetchone()
    return int(row[0]) if row else 0


def source_sums(connection: psycopg.Connection, table: str, comparison: Comparison) -> dict[int, Sum]:
    """The sum of each slice that has rows, in the snapshot of the connection's transaction."""
    utf8 = _is_utf8(connection)
    names = {column.name: sql.Identifier(f"v{place}") for place, (column, _) in enumerate(comparison.columns)}
    values = [
        sql.SQL("{0} as {1}").format(source_value(column, source, utf8=utf8), names[column.name])
        for column, source in comparison.columns
    ]
    number, key = (
        source_number([(column, names[column.name]) for column, _ in columns], utf8=utf8)
        for columns in (comparison.columns, comparison.key_columns)
    )
    query = sql.SQL(_SUMS).format(
        slice=_slice(sql.SQL("key" if comparison.key else "number"), comparison), turned=TURNED, prime=PRIME,
        number=number, key=key if comparison.key else sql.SQL("null"), values=sql.SQL(", ").join(values),
        table=_table(table),
    )  # fmt: skip
    # Without parameters: the remainder's % would be taken for the beginning of one.
    return {place: Sum(rows, int(numbers)) for place, rows, numbers in connection.execute(query)}


def source_rows(
    connection: psycopg.Connection, table: str, comparison: Comparison, slices: Sequence[int]
) -> Iterator[Texts]:
    """The texts of the rows of some slices."""
    utf8 = _is_utf8(connection)
    texts = [_shown(column, source_text(column, source, utf8=utf8), utf8=utf8) for column, source in comparison.columns]
    key = source_number(
        [(column, source_value(column, source, utf8=utf8)) for column, source in comparison.key_columns], utf8=utf8
    )
    query = sql.SQL(_ROWS).format(
        texts=sql.SQL(", ").join(texts), table=_table(table), slice=_slice(key, comparison),
        slices=sql.Literal(list(slices)),
    )  # fmt: skip
    yield from connection.execute(query)


def _is_utf8(connection: psycopg.Connection) -> bool:
    return connection.execute(_ENCODING).fetchone() == ("UTF8",)


def _table(name: str) -> sql.Identifier:
    schema, _, table = name.partition(".")
    return sql.Identifier(schema, table)


def _slice(number: sql.Composable, comparison: Comparison) -> sql.Composable:
    """The slice, by the number of the key."""
    return sql.SQL("((({0}) % {1} + {1}) % {1})::int").format(number, comparison.slices)


def _shown(column: Column, text: sql.Composable, *, utf8: bool) -> sql.Composable:
    """The text, or the beginning of a long one with its length in bytes and its hash."""
    if column.type not in {ColumnType.STRING, ColumnType.BINARY}:
        return text
    whole = sql.SQL("convert_from({0}, 'UTF8')").format(text) if not utf8 and column.type == ColumnType.STRING else text
    template = (
        "case when octet_length({0}) <= {long} then {1} "
        "else left({1}, {shown}) || '... (' || octet_length({0}) || ' bytes, md5 ' || md5({0}) || ')' end"
    )
    return sql.SQL(template).format(text, whole, long=sql.Literal(LONG), shown=sql.Literal(SHOWN))
