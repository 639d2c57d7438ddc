"""The schemas of the warehouse's views and period tables, made where they are missing.

Not here: what lies in them (view.py, naming.py).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from varve.stores.warehouse.tables.naming import periods_schema

if TYPE_CHECKING:
    from varve.model.dataset import Dataset


def ensure_schemas_of(connection: psycopg.Connection, dataset: Dataset) -> None:
    """Make the schemas of the dataset's view and of its period tables, where they are missing."""
    for name in (dataset.db, periods_schema(dataset)):
        ensure_schema(connection, name)


def ensure_schema(connection: psycopg.Connection, name: str) -> None:
    """Make the schema where it is missing; safe to call from several processes at once.

    PostgreSQL looks first and makes it then: where another session has made it in between, that fails on a unique
    index, after the other one has committed.
    """
    with contextlib.suppress(psycopg.errors.UniqueViolation, psycopg.errors.DuplicateSchema), connection.transaction():
        connection.execute(sql.SQL("create schema if not exists {}").format(sql.Identifier(name)))
