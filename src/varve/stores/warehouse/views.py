"""A view over chosen batches under another name: what an environment's readers see by SQL.

Not here: the view that follows what is current (projection.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from varve.model.errors import VarveError
from varve.stores.warehouse import projection
from varve.stores.warehouse.tables import grants, notes, roles, shape, view
from varve.stores.warehouse.tables.schemas import ensure_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.catalog.catalog import Catalog
    from varve.model.batch import Batch
    from varve.model.dataset import Dataset

_HAS_SCHEMA = "select from pg_catalog.pg_namespace where nspname = %s"
_RELATIONS = """
    select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relkind in ('r', 'v', 'm', 'p', 'f', 'S') limit 1
"""
_NAMED = """
    select c.relname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relname = any(%s) and c.relkind::text = any(%s) order by 1
"""
_EVERY_KIND = ["r", "v", "m", "p", "f", "S", "c", "i", "I"]


def show_as(
    catalog: Catalog, dataset: Dataset, batches: Sequence[Batch], schema: str, readers: Sequence[str] = ()
) -> None:
    """Make the view `schema.table` of exactly these batches, in one transaction.

    Who could select from the view that it replaces still can, and so can `readers`, which are roles of the server.
    Raises VarveError.
    """
    connection = catalog.connection
    notes.ensure_tables(connection)
    name = sql.Identifier(schema, dataset.table)
    wanted = shape.declared_shape(dataset)
    try:
        with connection.transaction():
            ensure_schema(connection, schema)
            allowed = grants.may_select(connection, name)
            connection.execute(sql.SQL("drop view if exists {}").format(name))
            arms = projection.arms_of(catalog, dataset, wanted, batches)
            connection.execute(view.create_named_view(name, wanted, arms))
            for statement in roles.let_read(connection, schema, dataset.table):
                connection.execute(statement)
            for role in sorted(allowed.union(readers)):
                for statement in grants.let_select(schema, dataset.table, role):
                    connection.execute(statement)
    except psycopg.errors.DependentObjectsStillExist as error:
        raise _in_use(schema, dataset.table, error) from error


def taken(connection: psycopg.Connection, schema: str, tables: Sequence[str]) -> list[str]:
    """Those of the names that a relation in the schema has, of whatever kind."""
    return [name for (name,) in connection.execute(_NAMED, (schema, list(tables), _EVERY_KIND))]


def hide(connection: psycopg.Connection, schema: str, views: Sequence[str]) -> None:
    """Remove these views, and the schema where nothing else is in it. Raises VarveError where somebody uses one."""
    try:
        with connection.transaction():
            # What somebody else has put there since, a table say, is not ours.
            for (table,) in connection.execute(_NAMED, (schema, list(views), ["v"])).fetchall():
                connection.execute(sql.SQL("drop view if exists {}").format(sql.Identifier(schema, table)))
            if (
                connection.execute(_HAS_SCHEMA, (schema,)).rowcount
                and not connection.execute(_RELATIONS, (schema,)).rowcount
            ):
                connection.execute(sql.SQL("drop schema {}").format(sql.Identifier(schema)))
    except psycopg.errors.DependentObjectsStillExist as error:
        raise _in_use(schema, ", ".join(views), error) from error


def _in_use(schema: str, views: str, error: psycopg.Error) -> VarveError:
    detail = (error.diag.message_detail or str(error)).replace("\n", "; ")
    return VarveError(
        f"{schema}: somebody's own object depends on {views}: {detail}. Nothing was changed. Drop that first."
    )
