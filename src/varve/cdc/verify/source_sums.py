"""The sums of the source, computed by PostgreSQL in one read of the table; only the sums leave the server.

Not here: the texts that are hashed (canonical_text.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

from varve.cdc.verify.canonical_text import LONG, SHOWN, source_row, source_text
from varve.cdc.verify.slices import Sum
from varve.model.schema import ColumnType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import psycopg

    from varve.cdc.captured_table import SourceColumn
    from varve.cdc.verify.slices import Comparison, Texts
    from varve.model.schema import Column

_SUMS = """
    select {slice}, count(*), sum(('x' || substr(md5({row}), 1, 16))::bit(64)::bigint)
    from only {table} group by 1
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
    texts = _texts(comparison.columns, utf8=utf8)
    query = sql.SQL(_SUMS).format(
        slice=_slice(comparison, utf8=utf8), row=source_row(texts, utf8=utf8), table=_table(table)
    )
    return {place: Sum(rows, int(hashes)) for place, rows, hashes in connection.execute(query)}


def source_rows(
    connection: psycopg.Connection, table: str, comparison: Comparison, slices: Sequence[int]
) -> Iterator[Texts]:
    """The texts of the rows of some slices."""
    utf8 = _is_utf8(connection)
    shown_texts = [_shown(column, text, utf8=utf8) for column, text in _texts(comparison.columns, utf8=utf8)]
    query = sql.SQL(_ROWS).format(
        texts=sql.SQL(", ").join(shown_texts), table=_table(table), slice=_slice(comparison, utf8=utf8),
        slices=sql.Literal(list(slices)),
    )  # fmt: skip
    # Without parameters: the remainder's % would be taken for the beginning of one.
    yield from connection.execute(query)


def _is_utf8(connection: psycopg.Connection) -> bool:
    return connection.execute(_ENCODING).fetchone() == ("UTF8",)


def _table(name: str) -> sql.Identifier:
    schema, _, table = name.partition(".")
    return sql.Identifier(schema, table)


def _texts(columns: Iterable[tuple[Column, SourceColumn]], *, utf8: bool) -> list[tuple[Column, sql.Composable]]:
    return [(column, source_text(column, source, utf8=utf8)) for column, source in columns]


def _slice(comparison: Comparison, *, utf8: bool) -> sql.Composable:
    if comparison.by_remainder:
        ((_, source),) = comparison.key_columns
        return sql.SQL("(({0}::bigint % {1} + {1}) % {1})::int").format(
            sql.Identifier(source.name), sql.Literal(comparison.slices)
        )
    key = source_row(_texts(comparison.key_columns, utf8=utf8), utf8=utf8)
    template = "('x' || substr(md5({0}), 1, {1}))::bit({2})::int"
    return sql.SQL(template).format(key, sql.Literal(comparison.digits), sql.Literal(4 * comparison.digits))


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
