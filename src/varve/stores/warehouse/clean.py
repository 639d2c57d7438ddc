"""Lists the tables that no batch of the catalog needs, and drops tables, for sweeps.

Not here: which batches may be deleted (catalog/history/history.py).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from varve.catalog.history.drops import declared_name
from varve.catalog.history.history import History
from varve.model.batch import BatchId
from varve.model.errors import VarveError, some
from varve.model.inventory import Leftover
from varve.stores.warehouse.tables import notes
from varve.stores.warehouse.tables.naming import leaf_prefix, periods_schema_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

_TABLES = """
    select c.relname, pg_total_relation_size(c.oid), obj_description(c.oid, 'pg_class')
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relkind = 'r' order by c.relname
"""
_LEAVES = """
    select c.relname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relkind = 'v' and starts_with(c.relname, %s) and c.relname <> all(%s)
"""
_IN_USE = """
    select location from varve.batch
    where dataset = %(dataset)s and location = any(%(tables)s) and state in ('published', 'retired')
      and not exists (select from varve.compacted c
        where (c.dataset, c.partition, c.batch_id) = (batch.dataset, batch.partition, batch.batch_id))
    union all
    select c.table_name from varve.compacted c join varve.batch b using (dataset, partition, batch_id)
    where c.dataset = %(dataset)s and c.table_name = any(%(tables)s) and b.state in ('published', 'retired')
    union all
    select location from varve.living where dataset = %(dataset)s and location = any(%(tables)s)
"""
# The tables that hold the parts of kept batches; with `swept`, also of swept batches whose data is not deleted yet.
_PARTS = """
    select distinct p.dataset, p.location from varve.batch_part g
    join varve.batch b using (dataset, partition, batch_id)
    cross join lateral unnest(g.parts) as u (part_id)
    join varve.part p on (p.dataset, p.partition, p.part_id) = (g.dataset, g.partition, u.part_id)
    where (%(dataset)s::text is null or g.dataset = %(dataset)s) and b.state <> 'failed' and b.deleted_at is null
      and (b.state <> 'swept' or %(swept)s)
      and not exists (select from varve.compacted c
        where (c.dataset, c.partition, c.batch_id) = (g.dataset, g.partition, g.batch_id))
"""
_PARTS_OF_SWEPT = """
    select distinct p.location from varve.batch b
    join varve.batch_part g using (dataset, partition, batch_id)
    cross join lateral unnest(g.parts) as u (part_id)
    join varve.part p on (p.dataset, p.partition, p.part_id) = (g.dataset, g.partition, u.part_id)
    where b.dataset = %s and b.location = any(%s) and b.state = 'swept'
"""
_NOBODY_COMPACTS = "select pg_try_advisory_xact_lock(hashtextextended('compacting ' || %s, 0))"
_LOCK_TIMEOUT = "set local lock_timeout = '1s'"


def leftovers(connection: psycopg.Connection) -> list[Leftover]:
    """The period tables that hold no batch which the catalog keeps, and belong to no living build."""
    history = History(connection)
    # A dropped dataset has another name in the catalog than in the comments of its tables.
    datasets = sorted(name for name, store in history.stores().items() if store == "warehouse")
    # Tables are listed first: a build that begins in between then counts as living.
    tables_by_schema = {
        schema: connection.execute(_TABLES, (schema,)).fetchall() for schema in {periods_schema_of(n) for n in datasets}
    }
    kept = {(dataset, path, batch_id.millis) for dataset, path, batch_id, _ in history.kept()}
    notes.ensure_tables(connection)
    # Batches whose rows lie in a shared table, and the shared tables that kept batches need.
    moved: dict[str, dict[tuple[str, int], dt.datetime]] = {}
    for name in datasets:
        moved.setdefault(declared_name(name), {}).update(notes.compacted_at(connection, name))
    used = {
        (declared_name(name), table)
        for name in datasets
        for (path, batch_id), table in notes.compacted(connection, name).items()
        if (declared_name(name), path, batch_id) in kept
    }
    # A kept batch needs the tables of its parts, also where the batches that loaded them were swept.
    parts = connection.execute(_PARTS, {"dataset": None, "swept": True})
    used |= {(declared_name(name), table) for name, table in parts}
    left = []
    for schema, tables in tables_by_schema.items():
        for table, size, comment in tables:
            dataset, partition, batch_id = _described(comment)
            moved_at = moved.get(dataset, {}).get((partition, batch_id))
            if (dataset, table) in used or ((dataset, partition, batch_id) in kept and moved_at is None):
                continue
            if dataset and not partition and _in_progress(connection, f"{schema}.{table}"):
                continue
            began = BatchId(batch_id).started if batch_id else None
            # Each compaction leaves tables that a shared one has replaced.
            replaced = moved_at is not None
            left.append(Leftover(f"{schema}.{table}", dataset, int(size), moved_at or began, superseded=replaced))
    return left


def drop(connection: psycopg.Connection, dataset: str, tables: Sequence[str]) -> None:
    """Drop period tables, and leaf views that no view shows any more. Missing tables are no error.

    The tables of all parts of a swept batch are dropped, except those that a kept batch lists: they are dropped with
    the last batch that lists them.

    Raises VarveError for a table that a kept batch needs, and for one on which something else depends.
    """
    schema = periods_schema_of(dataset)
    names = [table.removeprefix(f"{schema}.") for table in tables]
    if used := connection.execute(_IN_USE, {"dataset": dataset, "tables": names}).fetchall():
        raise VarveError(f"{dataset}: {some(table for (table,) in used)} belong to batches that are kept. Not dropped.")
    needed = {table for _, table in connection.execute(_PARTS, {"dataset": dataset, "swept": False})}
    parts = {table for (table,) in connection.execute(_PARTS_OF_SWEPT, (dataset, names))}
    names = sorted({*names, *parts} - needed)
    drop_former_leaves(connection, dataset)
    for name in names:
        _drop(connection, "table", schema, name)
        notes.forget_loads(connection, [name])
    notes.forget_compacted(connection, dataset, names)


def drop_former_leaves(connection: psycopg.Connection, dataset: str) -> None:
    """Drop the leaf views of former generations, and those whose partitions have all moved to other leaves."""
    schema = periods_schema_of(dataset)
    current = leaf_prefix(dataset, notes.generation_of(connection, dataset))
    used = [f"{current}{leaf}" for leaf in notes.leaf_numbers(connection, dataset)]
    for (name,) in connection.execute(_LEAVES, (schema, leaf_prefix(dataset), used)).fetchall():
        _drop(connection, "view", schema, name)


def _in_progress(connection: psycopg.Connection, table: str) -> bool:
    """Whether a compaction fills the table: its session holds a lock for as long as it lives."""
    # Outside of a transaction the lock is released at once.
    return connection.execute(_NOBODY_COMPACTS, (table,)).fetchone() != (True,)


def _drop(connection: psycopg.Connection, kind: str, schema: str, name: str) -> None:
    statement = sql.SQL("drop table if exists {}" if kind == "table" else "drop view if exists {}")
    try:
        with connection.transaction():
            connection.execute(_LOCK_TIMEOUT)
            connection.execute(statement.format(sql.Identifier(schema, name)))
    except psycopg.errors.LockNotAvailable as error:
        raise VarveError(
            f"{schema}.{name} is being read, and was not dropped. Nothing else was lost; sweep again later."
        ) from error
    except psycopg.errors.DependentObjectsStillExist as error:
        raise VarveError(
            f"{schema}.{name} was not dropped: {error.diag.message_detail}. Period tables are Varve's own: let "
            "what depends on it read the dataset's view instead, and sweep again."
        ) from error


def _described(comment: str | None) -> tuple[str, str, int]:
    """The dataset, partition and batch that a table's comment names; all empty for a table that is not ours.

    For a table of several partitions the partition is empty, and the batch is the time at which it was begun.
    """
    try:
        description = json.loads(comment or "")
        if "compacted" in description:
            # Tables of former versions do not say when they were begun.
            return str(description["dataset"]), "", int(description.get("began", 0))
        return str(description["dataset"]), str(description["partition"]), int(description["batch_id"])
    except (ValueError, TypeError, KeyError):
        return "", "", 0
