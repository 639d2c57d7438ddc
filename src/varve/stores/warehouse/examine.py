"""Compares the catalog with the warehouse: batches with their tables, and current batches with the view.

Changes nothing. Not here: repairing the view (publish.py, `show_current`) and rebuilding a lost catalog (inventory.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

from varve.model.errors import some
from varve.model.inventory import RESTORE_TABLE, Finding
from varve.model.partitions.texts import command_words
from varve.stores.warehouse.tables import notes, view
from varve.stores.warehouse.tables.batch_tables import BatchTables
from varve.stores.warehouse.tables.naming import periods_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from decimal import Decimal

    import psycopg

    from varve.model.batch import Batch
    from varve.model.dataset import Dataset

_SHOW = "`varve repair` makes the view anew from the catalog."
_TABLES = """
    select c.relname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relkind = 'r'
"""
# The tables under the view, on which the rules of its leaves depend.
_SHOWN = """
    with recursive under as (
        select to_regclass(%s)::oid as oid
        union
        select d.refobjid from under u
        join pg_catalog.pg_rewrite r on r.ev_class = u.oid
        join pg_catalog.pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid
          and d.refclassid = 'pg_class'::regclass
    )
    select c.relname from under u join pg_catalog.pg_class c on c.oid = u.oid where c.relkind = 'r'
"""


def tables(
    connection: psycopg.Connection, dataset: Dataset, batches: Sequence[Batch], *, deep: bool = False
) -> Iterator[Finding]:
    """Every batch whose table is missing or has another number of rows; with `deep`, also rows with other values."""
    present = {name for (name,) in connection.execute(_TABLES, (periods_schema(dataset),))}
    notes.ensure_tables(connection)
    batch_tables = BatchTables.of(connection, dataset.name, batches)
    own = {table for batch in batches for table in batch_tables.own(batch)}
    sealed = notes.seals(connection, [*own, *batch_tables.shared.values()])
    seen: set[str] = set()
    # A part that several batches list is counted, and read, once.
    rows: dict[str, int] = {}
    changed: dict[str, bool] = {}
    for batch in batches:
        if (table := batch_tables.shared_by(batch)) in present:
            assert table is not None
            # Its rows were compared when the table was filled, and its own table may be dropped.
            if deep and table not in seen:
                seen.add(table)
                if _changed(connection, dataset, table, sealed):
                    problem = (
                        f"the rows of {table}, which holds several partitions, are not those that were put into it"
                    )
                    yield Finding(dataset.name, batch.partition, batch.batch_id, problem, RESTORE_TABLE)
            continue
        tables = batch_tables.own(batch)
        table_names = some(tables, limit=3)
        if missing := [table for table in tables if table not in present]:
            problem = f"the table {some(missing, limit=3)} of batch {batch.batch_id} is gone"
            yield Finding(dataset.name, batch.partition, batch.batch_id, problem, RESTORE_TABLE)
            continue
        for table in tables:
            if table not in rows:
                rows[table] = _rows(connection, dataset, table)
                changed[table] = deep and _changed(connection, dataset, table, sealed)
        counted = sum(rows[table] for table in tables)
        if counted != batch.rows:
            problem = f"the table {table_names} has {counted} rows, and batch {batch.batch_id} had {batch.rows}"
            yield Finding(dataset.name, batch.partition, batch.batch_id, problem, RESTORE_TABLE)
        elif wrong := [table for table in tables if changed[table]]:
            problem = (
                f"the {rows[wrong[0]]} rows of the table {wrong[0]} are not those that batch {batch.batch_id} loaded"
            )
            yield Finding(dataset.name, batch.partition, batch.batch_id, problem, RESTORE_TABLE)


def _rows(connection: psycopg.Connection, dataset: Dataset, table: str) -> int:
    row = connection.execute(sql.SQL("select count(*) from {}").format(view.table_name(dataset, table))).fetchone()
    assert row is not None
    return int(row[0])


def _changed(connection: psycopg.Connection, dataset: Dataset, table: str, sealed: Mapping[str, Decimal]) -> bool:
    """Whether a table holds other rows than when it was loaded, as far as that was recorded."""
    if table not in sealed:
        return False
    _, content = notes.content_of(connection, view.table_name(dataset, table))
    return content != sealed[table]


def tables_under(connection: psycopg.Connection, view_name: str) -> set[str]:
    """The tables that a view shows, directly or through other views."""
    return {table for (table,) in connection.execute(_SHOWN, (view_name,))}


def shown(connection: psycopg.Connection, dataset: Dataset, current: Mapping[str, Batch]) -> Iterator[Finding]:
    """Every partition whose current batch the view does not show, and every table that it should not show."""
    name = view.view_name(dataset).as_string(connection)
    shown_tables = tables_under(connection, name)
    notes.ensure_tables(connection)
    tables = BatchTables.of(connection, dataset.name, current.values())
    present = {table for (table,) in connection.execute(_TABLES, (periods_schema(dataset),))}
    gone = [path for path, batch in current.items() if not present.issuperset(tables.all_of(batch))]
    remedy = _without(dataset, gone) if gone else _SHOW
    for path, batch in current.items():
        if not shown_tables.issuperset(tables.all_of(batch)):
            problem = f"the view does not show batch {batch.batch_id}"
            yield Finding(dataset.name, path, batch.batch_id, problem, remedy)
    for table in sorted(shown_tables - tables.of_all(current.values())):
        yield Finding(dataset.name, "", None, f"the view shows {table}, and that is no current batch", _SHOW)


def _without(dataset: Dataset, gone: Sequence[str]) -> str:
    """What makes a view again, tables of which are gone: a run that loads the partitions which were in all of them."""
    one = len(gone) == 1
    commands = "; ".join(f"varve backfill start {dataset} {command_words(path)}".rstrip() for path in gone)
    return (
        f"The view cannot be made while {'a table' if one else 'tables'} of it {'is' if one else 'are'} gone "
        f"({some(gone, limit=3)}). Compute what was in {'it' if one else 'them'} again, which makes the view too"
        f"{'' if one else '; while the sensor of the dataset is off, so that one run has all of them'}: {commands}"
    )
