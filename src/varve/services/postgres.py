"""Connections to the PostgreSQL that holds the catalog and the warehouse.

A writer's connection must be a session of its own, not one of a transaction-mode pooler: its locks are session locks.

Not here: what is stored (varve/catalog/catalog.py, warehouse/).
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


def dagster_storage_url(settings: Settings) -> str:
    """The SQLAlchemy URL of Dagster's own storage; starts the embedded server where it is the one to use."""
    if settings.dagster_postgres_url is not None:
        return dagster_url(settings.dagster_postgres_url)
    server = PostgresServer(settings.home_dir)
    server.ensure_up()
    return dagster_url(server.url(DAGSTER_DATABASE))


def connect(
    settings: Settings, *, application: str = "varve", connecting: Mapping[str, str | int] | None = None
) -> psycopg.Connection:
    """A new autocommit connection; its transactions are opened in the code. Raises ServiceUnavailable.

    Timestamps come and go in UTC, and no default of a role, a database or a server has a say (sessions.py).
    `connecting` is for libpq.
    """
    url = warehouse_url(settings)
    try:
        opened = open_session(url, application=application, connecting=connecting)
        _refuse_pooler(opened)
    except psycopg.Error as error:
        where = "VARVE_POSTGRES_URL" if settings.postgres_url else "the embedded server"
        raise ServiceUnavailable(f"PostgreSQL ({where}) cannot be reached: {redacted(str(error).strip())}") from error
    return opened


def _refuse_pooler(connection: psycopg.Connection) -> None:
    """Raise ServiceUnavailable where somebody else answers than the server: a pooler tells a backend's pid of its own.

    In transaction mode it would give our locks to whoever comes next.
    """
    row = connection.execute("select pg_backend_pid()").fetchone()
    if row != (connection.info.backend_pid,):
        connection.close()
        raise ServiceUnavailable(
            "VARVE_POSTGRES_URL leads to a connection pooler, and a writer's locks are its session's: name the server "
            "itself. Readers may go through the pooler."
        )
