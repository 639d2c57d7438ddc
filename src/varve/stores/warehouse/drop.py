"""Ends what readers are shown of a dropped dataset: its view with the leaves, in the transaction of the catalog.

Nothing of others is ever dropped with it: what depends on the view, a leaf or a period table is named with its owner.
The period tables stay until the sweep deletes them as those of any retired batch.

Not here: ending a dataset in the catalog (catalog/history/drops.py).
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from varve.catalog.history.drops import Drops
from varve.model.errors import VarveError, some
from varve.model.store_options import WarehouseOptions
from varve.stores.warehouse import publish
from varve.stores.warehouse.tables import notes
from varve.stores.warehouse.tables.naming import leaf_prefix, periods_schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from varve.catalog.catalog import Catalog
    from varve.catalog.history.drops import DroppedDataset

_VIEW = """
    select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relname = %s and c.relkind = 'v'
"""
_LEAVES = """
    select c.relname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relkind = 'v' and starts_with(c.relname, %s) order by c.relname
"""
_TABLES = """
    select c.relname, obj_description(c.oid, 'pg_class')
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relkind = 'r' and obj_description(c.oid, 'pg_class') is not null order by c.relname
"""
# What depends on these relations, their row types or arrays of those, and is none of them: PostgreSQL would refuse to
# drop them. Role 10 is the one that made the server: PostgreSQL does not note what depends on it.
_OTHERS = """
    with own as (
        select c.oid, c.reltype, t.typarray from unnest(%s::text[]) as w (name)
        join pg_catalog.pg_class c on c.oid = to_regclass(w.name) join pg_catalog.pg_type t on t.oid = c.reltype
    ), depending as (
        select distinct coalesce(r.ev_class, d.objid) as objid,
            case when r.oid is null then d.classid else 'pg_class'::regclass::oid end as classid,
            case when r.oid is null then d.objsubid else 0 end as objsubid
        from own join pg_catalog.pg_depend d on d.deptype = 'n'
            and (d.refclassid = 'pg_class'::regclass and d.refobjid = own.oid
                or d.refclassid = 'pg_type'::regclass and d.refobjid in (own.reltype, own.typarray))
        left join pg_catalog.pg_rewrite r on d.classid = 'pg_rewrite'::regclass and r.oid = d.objid
    )
    select pg_describe_object(o.classid, o.objid, o.objsubid), coalesce(
        (select pg_get_userbyid(s.refobjid) from pg_catalog.pg_shdepend s
            where s.deptype = 'o' and s.classid = o.classid and s.objid = o.objid and s.objsubid = 0
              and s.dbid = (select oid from pg_catalog.pg_database where datname = current_database()) limit 1),
        pg_get_userbyid(10))
    from depending o where not (o.classid = 'pg_class'::regclass and o.objid in (select oid from own)) order by 1
"""


def refuse_dependents(connection: psycopg.Connection, name: str) -> None:
    """Raise VarveError where something depends on the view, a leaf or a period table; names each with its owner."""
    schema = periods_schema_of(name)
    relations = [*_views(connection, name), *(sql.Identifier(schema, table) for table in _tables(connection, name))]
    parameters = ([relation.as_string(connection) for relation in relations],)
    if rows := connection.execute(_OTHERS, parameters).fetchall():
        raise _still_needed(name, [f"{described}, owned by {owner}" for described, owner in rows])


def drop(catalog: Catalog, name: str, end: Callable[[], DroppedDataset], *, seconds: float) -> DroppedDataset:
    """Call `end` and drop the view and its leaves, in one transaction; again and again until no reader is in the way.

    Raises PublishTimeout after `seconds`, naming who is in the way, VarveError where something of others depends on
    them, and what `end` raises.
    """
    notes.ensure_tables(catalog.connection)
    return publish.patiently(lambda: _drop_once(catalog.connection, name, end), name, f"the drop of {name}", seconds)


def finish(catalog: Catalog, dropped: DroppedDataset) -> None:
    """Note the drop in the comments of its tables, for a lost catalog, and tell the catalog that it is finished."""
    connection, schema = catalog.connection, periods_schema_of(dropped.name)
    for table, description in _tables(connection, dropped.name).items():
        began = int(description.get("began", description.get("batch_id", 0)))
        if began < dropped.number.millis and "dropped" not in description:
            text = json.dumps({**description, "dropped": dropped.number.millis})
            connection.execute(
                sql.SQL("comment on table {} is {}").format(sql.Identifier(schema, table), sql.Literal(text))
            )
    Drops(connection).finished(dropped)


def leave(catalog: Catalog, name: str, point: Callable[[], None], *, seconds: float) -> None:
    """Call `point` and drop the view and its leaves, in one transaction, as a drop does; the tables stay as they are.

    Raises what `drop` raises.
    """
    notes.ensure_tables(catalog.connection)

    def leave_once() -> None:
        with _hidden(catalog.connection, name):
            point()
            notes.forget_view(catalog.connection, name)

    publish.patiently(leave_once, name, f"the move of {name} to another store", seconds)


def _drop_once(connection: psycopg.Connection, name: str, end: Callable[[], DroppedDataset]) -> DroppedDataset:
    with _hidden(connection, name):
        dropped = end()
        notes.drop(connection, name, dropped.remains)
    return dropped


@contextmanager
def _hidden(connection: psycopg.Connection, name: str) -> Iterator[None]:
    """In a transaction: after the body drop the view and its leaves. Raises VarveError where others depend on them."""
    with connection.transaction():
        # The locks come before anything is read.
        milliseconds = WarehouseOptions().stall_milliseconds
        publish.lock_views(connection, [name], milliseconds)
        views = _views(connection, name)
        publish.refuse_long_holders(connection, [view.as_string(connection) for view in views], milliseconds)
        yield
        # Last, as readers wait from here on; the view first, in the order in which they lock.
        for view in views:
            try:
                connection.execute(sql.SQL("drop view if exists {}").format(view))
            except psycopg.errors.DependentObjectsStillExist as error:
                raise _still_needed(name, [error.diag.message_detail or str(error)]) from error


def _still_needed(name: str, others: Sequence[str]) -> VarveError:
    return VarveError(
        f"{name}: others depend on it: {some(others, limit=10)}. Nothing was changed, and what is not ours is never "
        "dropped. Let the owners read something else, or drop what is theirs, and run this again."
    )


def _views(connection: psycopg.Connection, name: str) -> list[sql.Identifier]:
    """The view and the leaves of all generations."""
    db, _, table = name.partition(".")
    schema = periods_schema_of(name)
    is_view = connection.execute(_VIEW, (db, table)).fetchone() is not None
    leaves = connection.execute(_LEAVES, (schema, leaf_prefix(name))).fetchall()
    return [
        *([sql.Identifier(db, table)] if is_view else []),
        *(sql.Identifier(schema, leaf) for (leaf,) in leaves),
    ]


def _tables(connection: psycopg.Connection, name: str) -> dict[str, dict[str, int]]:
    """The descriptions of the dataset's period tables, by table."""
    tables = {}
    for table, comment in connection.execute(_TABLES, (periods_schema_of(name),)):
        try:
            description = json.loads(comment)
        except ValueError:
            continue
        if isinstance(description, dict) and description.get("dataset") == name:
            tables[table] = description
    return tables
