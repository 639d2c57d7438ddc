"""Connections to the PostgreSQL that holds the catalog and the warehouse.

The locks of a writer are locks of its session. So its connection must lead to the server itself, and not to a pooler
in transaction mode, which gives one session to several clients.

Not here: what is stored (catalog/, stores/warehouse/).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from varve.model.errors import ServiceUnavailable
from varve.services.addresses import dagster_url, libpq_url
from varve.services.postgres_server import CATALOG_DATABASE, DAGSTER_DATABASE, PostgresServer
from varve.services.secrets import redacted
from varve.services.sessions import open_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varve.services.settings import Settings


def warehouse_url(settings: Settings) -> str:
    """The libpq URL of the catalog and the warehouse; starts the embedded server where it is the one to use."""
    if settings.postgres_url is not None:
        return libpq_url(settings.postgres_url)
    server = PostgresServer(settings.home_dir)
    server.ensure_up()
    return server.url(CATALOG_DATABASE)


def dagster_libpq_url(settings: Settings) -> str:
    """The libpq URL of Dagster's own storage; starts the embedded server where it is the one to use.

    Only for the address of somebody else's server is SQLAlchemy imported.
    """
    if settings.dagster_postgres_url is not None:
        return libpq_url(settings.dagster_postgres_url)
    server = PostgresServer(settings.home_dir)
    server.ensure_up()
    return server.url(DAGSTER_DATABASE)


def dagster_storage_url(settings: Settings) -> str:
    """The same storage as an SQLAlchemy URL, as dagster-postgres needs it."""
    return dagster_url(dagster_libpq_url(settings))


def connect(
    settings: Settings,
    *,
    application: str = "varve",
    connecting: Mapping[str, str | int] | None = None,
    starting: bool = True,
) -> psycopg.Connection:
    """A new connection in autocommit mode. Raises ServiceUnavailable.

    Its settings do not depend on the defaults of a role, a database or a server (sessions.py); timestamps are in UTC.
    `connecting` are parameters of libpq; `starting`: whether the embedded server is started where it is down.
    """
    try:
        connection = _session(settings, application, connecting, starting=starting)
        _refuse_pooler(connection)
        if settings.embedded_postgres:
            # Nobody else's code uses it: whatever is newer upgrades the catalog (catalog/schema.py).
            connection.execute("select set_config('varve.upgrades', 'automatic', false)")
    except psycopg.Error as error:
        where = "VARVE_POSTGRES_URL" if settings.postgres_url else "the embedded server"
        raise ServiceUnavailable(f"PostgreSQL ({where}) cannot be reached: {redacted(str(error).strip())}") from error
    return connection


def _session(
    settings: Settings, application: str, connecting: Mapping[str, str | int] | None, *, starting: bool
) -> psycopg.Connection:
    if settings.postgres_url is not None:
        return open_session(libpq_url(settings.postgres_url), application=application, connecting=connecting)
    url = PostgresServer(settings.home_dir).url(CATALOG_DATABASE)
    try:
        # It is up, but for the first time: looking whether it is would be a second connection for each.
        return open_session(url, application=application, connecting=connecting)
    except psycopg.OperationalError:
        if not starting:
            raise
    return open_session(warehouse_url(settings), application=application, connecting=connecting)


def _refuse_pooler(connection: psycopg.Connection) -> None:
    """Raise ServiceUnavailable where a pooler answers: it tells a process id that is not the one of our session.

    In transaction mode a pooler would give our locks to its next client.
    """
    row = connection.execute("select pg_backend_pid()").fetchone()
    if row != (connection.info.backend_pid,):
        connection.close()
        raise ServiceUnavailable(
            "VARVE_POSTGRES_URL leads to a connection pooler, and a writer's locks are its session's: name the server "
            "itself. Readers may go through the pooler."
        )
