"""A catalog that is only looked at: these commands start no server and make no tables, and say what is missing."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from varve.catalog.history.drops import declared_name
from varve.catalog.history.history import History
from varve.catalog.schema import HAS_SCHEMA, CatalogSchema
from varve.model.errors import ServiceUnavailable, VarveError, nearest
from varve.services.postgres import connect
from varve.services.postgres_server import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from varve.services.settings import Settings


@contextmanager
def opened_catalog(settings: Settings, application: str) -> Iterator[psycopg.Connection]:
    """Open the catalog to look at it; an older one is upgraded, as by any command.

    Raises VarveError that says what to do where there is no catalog, and where its server is down.
    """
    _refuse_down(settings)
    with connect(settings, application=application) as connection:
        if connection.execute(HAS_SCHEMA).fetchone() is None:
            raise VarveError(
                f"there is no catalog in database {connection.info.dbname} on {connection.info.host}: nothing was ever "
                "run there. `varve up` makes one; VARVE_HOME or VARVE_POSTGRES_URL name another place."
            )
        CatalogSchema().ensure(connection)
        yield connection


@contextmanager
def untouched_catalog(settings: Settings, application: str) -> Iterator[psycopg.Connection]:
    """Open the catalog to look at it, and leave it as it is: no server is started, and no table is upgraded.

    Raises ServiceUnavailable where its server is down, UnfitCatalog where there is none or one of another version.
    """
    try:
        opened = connect(settings, application=application, starting=False)
    except ServiceUnavailable:
        _refuse_down(settings)
        raise
    with opened as connection:
        CatalogSchema().refuse_unfit(connection)
        yield connection


def _refuse_down(settings: Settings) -> None:
    if settings.embedded_postgres and not PostgresServer(settings.home_dir).is_up():
        raise ServiceUnavailable(
            f"the embedded PostgreSQL of {settings.home_dir} is down, so there is no catalog to look at. Start it: "
            "varve up. Or name your own server: VARVE_POSTGRES_URL."
        )


def refuse_never_built(connection: psycopg.Connection, dataset: str) -> None:
    """Raise VarveError for a dataset of which nothing was ever built, with the names of those that were."""
    names = sorted({declared_name(name) for name in History(connection).stores()})
    if dataset not in names:
        raise VarveError(
            f"nothing of {dataset!r} was ever built.{nearest(dataset, names)} There are {', '.join(names) or 'none'}."
        )
