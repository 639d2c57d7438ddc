"""Migrates a breaking change of a dataset's columns: creates its view and all that depends on it again.

This is one transaction. Batches are immutable, so the tables stay as they are, and the new view casts their columns. A
type can be changed where every existing value is the same after a cast to the new type and back, whoever reads it; a
partition with another value is named in the refusal.

Not here: changes that need no migration (warehouse/tables/shape.py).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from varve.model.errors import VarveError, some
from varve.stores.postgres.types import type_sql
from varve.stores.warehouse import projection, publish, rebuild
from varve.stores.warehouse.tables import grants, notes, shape, view
from varve.stores.warehouse.tables.batch_tables import BatchTables
from varve.stores.warehouse.tables.dependents import dependents
from varve.stores.warehouse.tables.naming import periods_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varve.catalog.catalog import Catalog
    from varve.model.batch import Batch
    from varve.model.dataset import Dataset

logger = logging.getLogger(__name__)

_NOTHING_CHANGED = "Nothing was changed."
_LOSS = "Give the column another name, so that older periods keep theirs, or declare a type that holds them."
_BY_SESSION = "`varve evolve {}` computes it anew as that type."


@dataclass(frozen=True, slots=True)
class Migration:
    """What a migration does.

    Attributes:
        changes: the changes of columns, for people; empty where the view is as declared already.
        statements: the exact SQL, in order.
        restored: the views over it, which are dropped and created again.
    """

    changes: tuple[str, ...]
    statements: tuple[str, ...]
    restored: tuple[str, ...]


class _DryRunDone(Exception):
    """Rolls a dry run back, and carries its result."""

    def __init__(self, migration: Migration) -> None:
        super().__init__()
        self.migration = migration


def migrate(catalog: Catalog, dataset: Dataset, *, seconds: float, dry_run: bool) -> Migration:
    """Make the dataset's view exactly as it is declared; with `dry_run`, only say how.

    A dry run executes everything and rolls back, so that it says what would happen.

    Raises VarveError where a value would change, where something depends on the view that cannot be restored, or that
    needs a dropped column; and PublishTimeout where readers hold the view for too long.
    """
    notes.ensure_tables(catalog.connection)
    try:
        return publish.patiently(
            lambda: _migrate_once(catalog, dataset, dry_run=dry_run), dataset.name, str(dataset), seconds
        )
    except _DryRunDone as done:
        return done.migration


def narrow(catalog: Catalog, dataset: Dataset, *, seconds: float) -> bool:
    """Let columns that are not declared any more leave the view, where nothing else depends on it. Returns whether.

    What stands in the way is logged: the view then shows NULL in them, and the next publish tries again.
    """
    connection = catalog.connection
    existing = projection.existing_columns(connection, dataset)
    change = shape.evolve(dataset, existing)
    gone = sorted({column.name for column in change.shape.columns} - set(shape.declared_shape(dataset).names))
    if not existing or not gone or change.breaking:
        return False
    # What was published since, with other code than this, readers go on to see: then nothing is narrowed here.
    if not catalog.published_columns(dataset.name).keys().isdisjoint(gone):
        return False
    over_it = dependents(connection, view.view_name(dataset))
    others = [*(dependent.name.as_string(connection) for dependent in over_it.views), *over_it.others]
    if others:
        logger.info(
            "%s: %s is declared no more, and stays in the view, because %s depend on it. `varve warehouse migrate %s` "
            "makes all of them again without it.", dataset, some(gone), some(others), dataset,
        )  # fmt: skip
        return False
    try:
        migrate(catalog, dataset, seconds=seconds, dry_run=False)
    except (VarveError, psycopg.Error) as error:
        logger.warning("%s: %s is declared no more, and stays in the view for now: %s", dataset, some(gone), error)
        return False
    return True


def _migrate_once(catalog: Catalog, dataset: Dataset, *, dry_run: bool) -> Migration:
    connection = catalog.connection
    existing = projection.existing_columns(connection, dataset)
    wanted = shape.declared_shape(dataset)
    if not existing:
        return Migration((), (), ())
    grants.refuse_missing_roles(connection, dataset)
    if tuple(existing) == wanted.plain:
        return _regrant(connection, dataset, dry_run=dry_run)
    with connection.transaction():
        milliseconds = publish.lock_publishers(connection, dataset)
        publish.refuse_long_holders(connection, [view.view_name(dataset).as_string(connection)], milliseconds)
        refuse_loss(connection, dataset, list(catalog.current(dataset.name).values()))
        rebuilt = rebuild.rebuild(catalog, dataset, existing)
        migration = Migration(tuple(_changes(existing, wanted)), rebuilt.statements, rebuilt.restored)
        if dry_run:
            raise _DryRunDone(migration)
    return migration


def _regrant(connection: psycopg.Connection, dataset: Dataset, *, dry_run: bool) -> Migration:
    """Make the view's grants those that are declared; the view itself is as it is declared."""
    with connection.transaction():
        texts = tuple(statement.as_string(connection) for statement in grants.changes(connection, dataset))
        for text in texts:
            connection.execute(text.encode())
        migration = Migration(texts, texts, ())
        if dry_run:
            raise _DryRunDone(migration)
    return migration


def _changes(existing: Sequence[tuple[str, str]], wanted: shape.ViewShape) -> Iterator[str]:
    types_now, types_wanted = dict(existing), dict(wanted.plain)
    for column in wanted.columns:
        former = next((name for name in reversed(column.was) if name in types_now), None)
        if column.name in types_now and types_now[column.name] != column.type:
            yield f"{column.name}: {types_now[column.name]} -> {column.type}"
        elif column.name not in types_now and former:
            yield f"{former} -> {column.name}"
        elif column.name not in types_now:
            yield f"{column.name}: new, {column.type}"
    renamed = {name for column in wanted.columns for name in column.was}
    yield from (f"{name}: dropped" for name in types_now if name not in types_wanted and name not in renamed)
    kept = [name for name in types_now if name in types_wanted]
    if kept != [name for name in types_wanted if name in types_now]:
        yield "columns in the declared order"


def refuse_loss(
    connection: psycopg.Connection, dataset: Dataset, batches: Sequence[Batch], *, remedy: str | None = None
) -> None:
    """Raise VarveError for the first batch with a value that its declared type would change.

    The same for a value that each reader would see as the settings of his session say. `remedy` is what to do about it;
    None: what a migration can do.
    """
    batch_tables = BatchTables.of(connection, dataset.name, batches)
    rows_of = {table: _named(batch, batch_tables) for batch in batches for table in batch_tables.all_of(batch)}
    tables = shape.columns_of(connection, periods_schema(dataset), list(rows_of))
    for table, columns in tables.items():
        types = dict(columns)
        for column in shape.declared_shape(dataset).columns:
            source = column.source_in(list(types))
            if source is None or types[source] == column.type:
                continue
            if loss := _loss(connection, view.table_name(dataset, table), source, types[source], column.type):
                own_remedy = _BY_SESSION.format(dataset) if depends_on_session(types[source], column.type) else _LOSS
                raise VarveError(
                    f"{dataset}: {column.name} of {rows_of[table]} is {types[source]}, {loss}. {_NOTHING_CHANGED} "
                    f"{remedy or own_remedy}"
                )


def _named(batch: Batch, tables: BatchTables) -> str:
    """The rows that the tables of a batch hold, in words: a shared one is checked whole."""
    shared = tables.shared_by(batch)
    return batch.partition if shared is None else f"{shared}, which holds {batch.partition} and others,"


def depends_on_session(kind: str, cast_to: str) -> bool:
    """Whether PostgreSQL casts the one type to the other as the TimeZone or DateStyle of each session says.

    A text that is cast is not meant: those that are the same after the cast and back are read alike by all sessions.
    """
    clocks, moment = {"date", "timestamp without time zone"}, "timestamp with time zone"
    return (
        (cast_to == "text" and kind in {*clocks, moment})
        or (cast_to == moment and kind in clocks)
        or (kind == moment and cast_to in clocks)
    )


def _loss(connection: psycopg.Connection, table: sql.Identifier, column: str, kind: str, cast_to: str) -> str:
    """What is wrong with the first value of a column that a cast would change, as a phrase; "" where none is."""
    name, by_session = sql.Identifier(column), depends_on_session(kind, cast_to)
    changed = sql.SQL("{0} is not null" if by_session else "({0}::{1})::{2} is distinct from {0}").format(
        name, type_sql(cast_to), type_sql(kind)
    )
    value = sql.SQL("null") if by_session else name
    try:
        row = connection.execute(sql.SQL("select {} from {} where {} limit 1").format(value, table, changed)).fetchone()
    except (psycopg.DataError, psycopg.errors.CannotCoerce, psycopg.errors.UndefinedFunction) as error:
        return f"which is no {cast_to}: {str(error).splitlines()[0]}"
    if row is None:
        return ""
    if by_session:
        return f"and as {cast_to} each reader would see it by the settings of his session, such as TimeZone"
    return f"and {row[0]!r} would not be the same as {cast_to}"
