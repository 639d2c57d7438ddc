"""Comparing what the catalog says of batches with their tables, and what is current with what the view shows.

Changes nothing. Not here: mending (publish.py, `show_current`) and rebuilding a lost catalog (remains.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

from resources.store import Finding
from resources.warehouse import notes, view
from resources.warehouse.naming import periods_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from decimal import Decimal

    import psycopg

    from pipeline_defs.model.batch import Batch
    from pipeline_defs.model.dataset import Dataset

_RERUN = "Restore it from a dump, go back to an earlier batch with `varve rollback`, or run the partition again."
_SHOW = "`varve repair` makes the view anew from the catalog."
_TABLES = """
    select c.relname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relkind = 'r'
"""
# The tables under the view: what its leaves' rules depend on.
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
    """Every batch whose table is gone or has other rows than it should: by their number, `deep` by what they hold."""
    present = {name for (name,) in connection.execute(_TABLES, (periods_schema(dataset),))}
    notes.ensure_tables(connection)
    shared = notes.compacted(connection, dataset.name)
    sealed = notes.seals(connection, [*(batch.location for batch in batches), *shared.values()])
    seen: set[str] = set()
    for batch in batches:
        if shared.get((batch.partition, batch.batch_id.millis)) in present:
            # Its rows were compared when they were put together, and its own table may be gone.
            if deep and (table := shared[batch.partition, batch.batch_id.millis]) not in seen:
                seen.add(table)
                if _changed(connection, dataset, table, sealed):
                    text = f"the rows of {table}, which holds several partitions, are not those that were put into it"
                    yield Finding(dataset.name, batch.partition, batch.batch_id, text, _RERUN)
            continue
        if batch.location not in present:
            text = f"the table {batch.location} of batch {batch.batch_id} is gone"
            yield Finding(dataset.name, batch.partition, batch.batch_id, text, _RERUN)
            continue
        name = view.table_name(dataset, batch.location)
        row = connection.execute(sql.SQL("select count(*) from {}").format(name)).fetchone()
        assert row is not None
        if row[0] != batch.rows:
            text = f"the table {batch.location} has {row[0]} rows, and batch {batch.batch_id} had {batch.rows}"
            yield Finding(dataset.name, batch.partition, batch.batch_id, text, _RERUN)
        elif deep and _changed(connection, dataset, batch.location, sealed):
            text = f"the {row[0]} rows of the table {batch.location} are not those that batch {batch.batch_id} loaded"
            yield Finding(dataset.name, batch.partition, batch.batch_id, text, _RERUN)


def _changed(connection: psycopg.Connection, dataset: Dataset, table: str, sealed: Mapping[str, Decimal]) -> bool:
    """Whether a table holds other rows than when it was loaded, as far as that was recorded."""
    if table not in sealed:
        return False
    _, content = notes.content_of(connection, view.table_name(dataset, table))
    return content != sealed[table]


def tables_under(connection: psycopg.Connection, view_name: str) -> set[str]:
    """The tables that a view shows, itself or through others."""
    return {table for (table,) in connection.execute(_SHOWN, (view_name,))}


def shown(connection: psycopg.Connection, dataset: Dataset, current: Mapping[str, Batch]) -> Iterator[Finding]:
    """Every partition that the view does not show at its current batch, and every table it should not show."""
    name = view.view_name(dataset).as_string(connection)
    seen = tables_under(connection, name)
    notes.ensure_tables(connection)
    shared = notes.compacted(connection, dataset.name)
    wanted = {path: shared.get((path, batch.batch_id.millis), batch.location) for path, batch in current.items()}
    for path, batch in current.items():
        if wanted[path] not in seen:
            text = f"the view does not show batch {batch.batch_id}"
            yield Finding(dataset.name, path, batch.batch_id, text, _SHOW)
    for table in sorted(seen - set(wanted.values())):
        yield Finding(dataset.name, "", None, f"the view shows {table}, and that is no current batch", _SHOW)
