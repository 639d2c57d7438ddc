"""Asks the server for roles: those of GRANT SELECT TO, where it is running and can be reached, and those of a command.

Not here: making the grants (varve/stores/warehouse/tables/grants.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.cli.context import chosen_settings
from varve.model.errors import ServiceUnavailable, VarveError
from varve.services.postgres import connect
from varve.services.postgres_server import PostgresServer
from varve.sql.syntax.errors import SqlErrors
from varve.stores.warehouse.tables.grants import missing_role_text, missing_roles

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import psycopg

    from varve.sql.sql_asset import SqlAsset
    from varve.sql.syntax.errors import Problem


def refuse_missing_roles(files: Iterable[SqlAsset]) -> None:
    """Raise SqlErrors with each role of a GRANT that the server has not; no server is started for that."""
    if problems := _role_problems(files):
        raise SqlErrors(problems)


def refuse_unknown_roles(connection: psycopg.Connection, roles: Sequence[str]) -> None:
    """Raise VarveError where the server lacks one of the roles."""
    if missing := missing_roles(connection, roles):
        raise VarveError(f"{missing_role_text(connection, missing[0])} Nothing was changed.")


def _role_problems(files: Iterable[SqlAsset]) -> list[Problem]:
    """Return a problem for each role that the server has not; none where it cannot be asked."""
    granting = [asset for asset in files if asset.dataset.warehouse.grants]
    if not granting:
        return []
    settings = chosen_settings()
    if settings.embedded_postgres and not PostgresServer(settings.home_dir).is_up():
        return []
    try:
        connection = connect(settings, application="varve check")
    except ServiceUnavailable:
        return []
    with connection:
        missing = missing_roles(connection, [role for asset in granting for role in asset.dataset.warehouse.grants])
        return [
            asset.sql.problem(role.span, missing_role_text(connection, role.name))
            for asset in granting
            for role in asset.sql.grants
            if role.name in missing
        ]
