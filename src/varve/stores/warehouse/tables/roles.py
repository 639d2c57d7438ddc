"""The roles: an owner that writes, and a reader that sees the views of datasets and nothing behind them.

A reader may come through a pooler in transaction mode. The owner must not (services/postgres.py).

Not here: passwords, and who may connect from where (pg_hba.conf), which the server's administrator decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

from varve.catalog.schema import HAS_SCHEMA
from varve.model.errors import VarveError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

OWNER, READER = "varve_owner", "varve_reader"
# For engines that read Iceberg: it sees where the metadata of tables is, and nothing else (catalog/upgrade_18.sql).
ICEBERG = "varve_iceberg"
_HAS_ICEBERG = "select from pg_catalog.pg_namespace where nspname = 'varve_iceberg'"
_ICEBERG_VIEWS = ("iceberg_tables", "iceberg_namespace_properties")
_LOCK = "select pg_advisory_xact_lock(hashtextextended('varve roles', 0))"
_EXISTS = "select from pg_catalog.pg_roles where rolname = %s"
_VIEWS = """
    select distinct n.nspname, c.relname from varve.dataset d
    join pg_catalog.pg_namespace n on n.nspname = split_part(d.dataset, '.', 1)
    join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = split_part(d.dataset, '.', 2)
    where d.store = 'warehouse' and c.relkind = 'v' order by 1, 2
"""
_SEES_SESSIONS = "select pg_has_role('pg_read_all_stats', 'usage')"


def create_roles(connection: psycopg.Connection, *, connections: int, statement_seconds: float) -> list[sql.Composed]:
    """The statements that create the missing roles, with their rights in this database.

    An existing role stays as somebody has made it.
    """
    database = sql.Identifier(connection.info.dbname)
    statements = []
    if not exists(connection, OWNER):
        statements += [
            sql.SQL("create role {} login").format(sql.Identifier(OWNER)),
            # A publish must see everybody's snapshots; without this role PostgreSQL hides them.
            sql.SQL("grant pg_read_all_stats to {}").format(sql.Identifier(OWNER)),
            sql.SQL("grant create, connect, temporary on database {} to {}").format(database, sql.Identifier(OWNER)),
        ]
    if not exists(connection, READER):
        reader = sql.Identifier(READER)
        milliseconds = sql.Literal(int(statement_seconds * 1000))
        statements += [
            sql.SQL("create role {} login connection limit {}").format(reader, sql.Literal(connections)),
            sql.SQL("grant connect on database {} to {}").format(database, reader),
            sql.SQL("alter role {} set default_transaction_read_only = on").format(reader),
            sql.SQL("alter role {} set statement_timeout = {}").format(reader, milliseconds),
            # A forgotten transaction would hold the view, and with it every publish.
            sql.SQL("alter role {} set idle_in_transaction_session_timeout = {}").format(reader, milliseconds),
        ]
        has_catalog = connection.execute(HAS_SCHEMA).fetchone() is not None
        for schema, view in connection.execute(_VIEWS).fetchall() if has_catalog else ():
            statements += _allow(sql.Identifier(schema), sql.Identifier(schema, view))
    return statements + _create_iceberg_role(connection, connections, statement_seconds)


def _create_iceberg_role(
    connection: psycopg.Connection, connections: int, statement_seconds: float
) -> list[sql.Composed]:
    """The statements that create the role of Iceberg's engines, who name the views without a schema."""
    if exists(connection, ICEBERG):
        return []
    role, database = sql.Identifier(ICEBERG), sql.Identifier(connection.info.dbname)
    milliseconds = sql.Literal(int(statement_seconds * 1000))
    statements = [
        sql.SQL("create role {} login connection limit {}").format(role, sql.Literal(connections)),
        sql.SQL("grant connect on database {} to {}").format(database, role),
        sql.SQL("alter role {} set default_transaction_read_only = on").format(role),
        sql.SQL("alter role {} set statement_timeout = {}").format(role, milliseconds),
        sql.SQL("alter role {} set search_path = {}").format(role, role),
    ]
    if connection.execute(_HAS_ICEBERG).fetchone() is not None:
        statements.append(sql.SQL("grant usage on schema {} to {}").format(role, role))
        statements += [
            sql.SQL("grant select on {} to {}").format(sql.Identifier(ICEBERG, view), role) for view in _ICEBERG_VIEWS
        ]
    return statements


def ensure_roles(connection: psycopg.Connection, *, connections: int, statement_seconds: float) -> list[str]:
    """Create the missing roles, in one transaction. Returns what was executed. Needs the right to create roles."""
    with connection.transaction():
        # Of two `varve up` at once, the second looks after the first has created them.
        connection.execute(_LOCK)
        statements = create_roles(connection, connections=connections, statement_seconds=statement_seconds)
        for statement in statements:
            connection.execute(statement)
    return [statement.as_string(connection) for statement in statements]


def let_read(connection: psycopg.Connection, schema: str, view: str) -> Iterator[sql.Composed]:
    """The statements that let the reader see a new view; none where there is no such role."""
    if exists(connection, READER):
        yield from _allow(sql.Identifier(schema), sql.Identifier(schema, view))


def exists(connection: psycopg.Connection, role: str) -> bool:
    """Whether the server has the role."""
    return connection.execute(_EXISTS, (role,)).fetchone() is not None


def refuse_blindness(connection: psycopg.Connection) -> None:
    """Raise VarveError where PostgreSQL hides from us how old the snapshots of other sessions are."""
    if connection.execute(_SEES_SESSIONS).fetchone() != (True,):
        raise VarveError(
            f"the role {connection.info.user} cannot see other sessions' snapshots, without which a publish may make a "
            f"reader miss a period. Nothing was published. Run: grant pg_read_all_stats to {connection.info.user};"
        )


def _allow(schema: sql.Identifier, view: sql.Identifier) -> list[sql.Composed]:
    reader = sql.Identifier(READER)
    return [
        sql.SQL("grant usage on schema {} to {}").format(schema, reader),
        sql.SQL("grant select on {} to {}").format(view, reader),
    ]
