"""A breaking change of a dataset's columns: its view and all that depends on it made anew, in one transaction.

Tables stay as they are, batches are immutable: the new view casts their columns. So a change of type is possible where
every value that is there comes back from the new type as it was, and is refused by table where one does not.

Not here: changes that a view takes under its readers (warehouse/tables/shape.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from varve.model.errors import VarveError, some
from varve.stores.postgres.types import type_sql
from varve.stores.warehouse import projection, publish
from varve.stores.warehouse.tables import notes, shape, view
from varve.stores.warehouse.tables.dependents import dependents
from varve.stores.warehouse.tables.naming import periods_schema
from varve.stores.warehouse.tables.schema import BatchTables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varve.catalog.catalog import Catalog
    from varve.model.batch import Batch
    from varve.model.dataset import Dataset

_NOTHING_CHANGED = "Nothing was changed."


@dataclass(frozen=True, slots=True)
class Migration:
    """What a migration does.

    Attributes:
        changes: what becomes of the columns, in words; empty where the view is as declared already.
        statements: the exact SQL, in order.
        restored: the views over it that go and come back.
    """

    changes: tuple[str, ...]
    statements: tuple[str, ...]
    restored: tuple[str, ...]


class _Looked(Exception):
    def __init__(self, found: Migration) -> None:
        super().__init__()
        self.found = found


def migrate(catalog: Catalog, dataset: Dataset, *, seconds: float, dry_run: bool) -> Migration:
    """Make the dataset's view exactly as it is declared, or with `dry_run` only say how.

    A dry run does everything and rolls back, so that what it says is what would happen. Raises VarveError where a value
    would change, where something depends on the view that cannot be restored, or needs a column that goes; and
    PublishTimeout where readers do not let go.
    """
    notes.ensure_tables(catalog.connection)
    try:
        return publish.patiently(lambda: _once(catalog, dataset, dry_run=dry_run), dataset.name, str(dataset), seconds)
    except _Looked as looked:
        return looked.found


def _once(catalog: Catalog, dataset: Dataset, *, dry_run: bool) -> Migration:
    connection = catalog.connection
    existing = projection.existing_columns(connection, dataset)
    wanted = shape.declared_shape(dataset)
    if not existing or tuple(existing) == wanted.plain:
        return Migration((), (), ())
    with connection.transaction():
        milliseconds = publish.lock_publishers(connection, dataset)
        publish.refuse_long_holders(connection, [view.view_name(dataset).as_string(connection)], milliseconds)
        found = _rebuild(catalog, dataset, existing, wanted)
        if dry_run:
            raise _Looked(found)
    return found


def _rebuild(
    catalog: Catalog, dataset: Dataset, existing: Sequence[tuple[str, str]], wanted: shape.ViewShape
) -> Migration:
    connection, name = catalog.connection, view.view_name(dataset)
    done: list[str] = []

    def run(statement: sql.Composable | str) -> None:
        text = statement if isinstance(statement, str) else statement.as_string(connection)
        connection.execute(text.encode())
        done.append(text)

    # What depends on a column that is renamed follows it only while the view is there.
    for old, new in shape.evolve(dataset, existing).renames:
        run(view.rename_column(dataset, old, new))
    hanging = dependents(connection, name)
    if hanging.others:
        raise VarveError(
            f"{dataset}: {some(hanging.others)} depend on its view, and cannot be made again by us. {_NOTHING_CHANGED} "
            "Drop them, migrate, and create them again."
        )
    said = projection.comments_of(connection, dataset)
    batches = list(catalog.current(dataset.name).values())
    _refuse_loss(connection, dataset, batches, wanted)
    try:
        for dependent in reversed(hanging.views):
            run(dependent.drop)
        run(sql.SQL("drop view {}").format(name))
        plan = projection.plan(catalog, dataset, (), shape.ViewChange(wanted), said=said)
        for statement in (*plan.first, *plan.last):
            run(statement)
        for restore in hanging.restore:
            if restore.column is None or restore.column in wanted.names:
                run(restore.statement)
        for statement in plan.comments:
            run(statement)
        for dependent in hanging.views:
            run(dependent.create)
            for restore in dependent.restore:
                run(restore.statement)
    except (psycopg.errors.UndefinedColumn, psycopg.errors.UndefinedFunction, psycopg.errors.DatatypeMismatch) as error:
        raise VarveError(
            f"{dataset}: a view that depends on it would not work any more: {str(error).splitlines()[0]} "
            f"({', '.join(each.name.as_string(connection) for each in hanging.views)}). {_NOTHING_CHANGED} "
            "Change or drop that view first."
        ) from error
    return Migration(
        tuple(_changes(existing, wanted)),
        tuple(done),
        tuple(dependent.name.as_string(connection) for dependent in hanging.views),
    )


def _changes(existing: Sequence[tuple[str, str]], wanted: shape.ViewShape) -> Iterator[str]:
    now, then = dict(existing), dict(wanted.plain)
    for column in wanted.columns:
        former = next((name for name in reversed(column.was) if name in now), None)
        if column.name in now and now[column.name] != column.type:
            yield f"{column.name}: {now[column.name]} -> {column.type}"
        elif column.name not in now and former:
            yield f"{former} -> {column.name}"
        elif column.name not in now:
            yield f"{column.name}: new, {column.type}"
    renamed = {name for column in wanted.columns for name in column.was}
    yield from (f"{name}: dropped" for name in now if name not in then and name not in renamed)
    kept = [name for name in now if name in then]
    if kept != [name for name in then if name in now]:
        yield "columns in the declared order"


def _refuse_loss(
    connection: psycopg.Connection, dataset: Dataset, batches: Sequence[Batch], wanted: shape.ViewShape
) -> None:
    """Raise VarveError for the first table with a value that the new type would change."""
    found = BatchTables.of(connection, dataset.name, batches)
    partitions = {table: batch.partition for batch in batches for table in found.own(batch)}
    tables = shape.columns_of(connection, periods_schema(dataset), list(partitions))
    for table, columns in tables.items():
        types = dict(columns)
        for column in wanted.columns:
            source = column.source_in(list(types))
            if source is None or types[source] == column.type:
                continue
            there_and_back = sql.SQL("select {0} from {1} where ({0}::{2})::{3} is distinct from {0} limit 1").format(
                sql.Identifier(source), view.table_name(dataset, table), type_sql(column.type), type_sql(types[source])
            )
            told = f"{dataset}: {column.name} of {partitions[table]} is {types[source]}"
            remedy = (
                f"{_NOTHING_CHANGED} Give the column another name, so that older periods keep theirs, or declare a "
                "type that holds them."
            )
            try:
                row = connection.execute(there_and_back).fetchone()
            except (psycopg.DataError, psycopg.errors.CannotCoerce, psycopg.errors.UndefinedFunction) as error:
                raise VarveError(
                    f"{told}, which is no {column.type}: {str(error).splitlines()[0]}. {remedy}"
                ) from error
            if row is not None:
                raise VarveError(f"{told}, and {row[0]!r} would not be the same as {column.type}. {remedy}")
