"""The warehouse's notes, tables in schema `varve`: what is loaded, and which leaf view shows which partition.

Not here: the catalog, which says what is current.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

from psycopg import sql

from varve.catalog.schema import LOCK_SCHEMA

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence
    from decimal import Decimal

    import psycopg

    from varve.model.dataset import Dataset

# How many period tables one leaf view shows: to replace one takes 4 to 14 ms, however many leaves there are.
LEAF_TABLES = 50

# The last table of tables.sql.
_HAS_ALL = "select from pg_catalog.pg_tables where schemaname = 'varve' and tablename = 'view_grant'"
_COMMENTS = "select nullif(column_name, ''), comment from varve.view_comment where dataset = %s"
_FORGET_ENDED = """
    delete from varve.loading l
    where not exists (select from pg_stat_activity a where (a.pid, a.backend_start) = (l.pid, l.backend_start))
"""
# Spark's workers say it too (loading/copying.py), to whom it goes as a text.
START_LOADING = """
    insert into varve.loading (pid, backend_start)
    select pid, backend_start from pg_stat_activity where pid = pg_backend_pid() on conflict do nothing
"""
_END_LOADING = "delete from varve.loading where pid = pg_backend_pid()"
_NAME_STRAYS = """
    insert into varve.stray (table_name) select unnest(%s::text[]) on conflict do nothing returning table_name
"""
_FORGET_STRAYS = "delete from varve.stray where table_name <> all(%s)"
_FORGET_COMMENTS = "delete from varve.view_comment where dataset = %s"
_SET_COMMENTS = """
    insert into varve.view_comment (dataset, column_name, comment)
    select %s, c.column_name, c.comment from unnest(%s::text[], %s::text[]) as c (column_name, comment)
"""
_CLAIM = sql.SQL(
    "insert into varve.loaded (table_name, piece, rows) values ({}, {}, {}) on conflict do nothing returning 1"
)
_LOADED = "select table_name, sum(rows)::bigint from varve.loaded where table_name = any(%s) group by table_name"
_FORGET = """
    with unsealed as (delete from varve.sealed where table_name = any(%(tables)s))
    delete from varve.loaded where table_name = any(%(tables)s)
"""
_SEAL = """
    insert into varve.sealed (table_name, rows, hash) values (%s, %s, %s)
    on conflict (table_name) do update set rows = excluded.rows, hash = excluded.hash
"""
_SEALS = "select table_name, hash from varve.sealed where table_name = any(%s)"
# The sum does not depend on the order of rows, and counts equal rows. Values that PostgreSQL compares as equal have
# equal hashes.
_CONTENT = sql.SQL("select count(*), coalesce(sum(hash_record_extended(t.*, 0)), 0) from {} as t")
_GENERATION = "select generation from varve.view where dataset = %s"
_SET_GENERATION = """
    insert into varve.view (dataset, generation) values (%s, %s)
    on conflict (dataset) do update set generation = excluded.generation
"""
_LEAVES = "select partition, leaf from varve.leaf where dataset = %s order by leaf, partition"
_SET_LEAF = """
    insert into varve.leaf (dataset, partition, leaf) select %s, p.partition, p.leaf
    from unnest(%s::text[], %s::int[]) as p (partition, leaf)
"""
_MOVE = """
    update varve.leaf set leaf = %s where dataset = %s and partition = any(%s)
"""
_COMPACTED = (
    "select partition, batch_id, table_name from varve.compacted where dataset = %s order by table_name, partition"
)
# Each batch is looked up by its key and not joined, as its parts are (varve/catalog/parts.py).
_SHARED_BY = """
    select w.partition, w.batch_id, c.table_name from unnest(%s::text[], %s::bigint[]) as w (partition, batch_id)
    cross join lateral (
        select table_name from varve.compacted x
        where (x.dataset, x.partition, x.batch_id) = (%s, w.partition, w.batch_id) offset 0
    ) c
"""
_CURRENT_SHARE = """
    select c.partition, c.batch_id, s.table_name
    from varve.current c left join varve.compacted s using (dataset, partition, batch_id) where c.dataset = %s
"""
_COMPACTED_AT = "select partition, batch_id, compacted_at from varve.compacted where dataset = %s"
_SET_COMPACTED = """
    insert into varve.compacted (dataset, partition, batch_id, table_name)
    select %s, m.partition, m.batch_id, %s from unnest(%s::text[], %s::bigint[]) as m (partition, batch_id)
    on conflict (dataset, partition, batch_id) do update
    set table_name = excluded.table_name, compacted_at = excluded.compacted_at
"""
_FORGET_COMPACTED = "delete from varve.compacted where dataset = %s and table_name = any(%s)"
# Of a dropped dataset: only where the rows of its batches lie is remembered, until they are deleted.
_FORGET_VIEW = (
    "delete from varve.view where dataset = %(dataset)s",
    "delete from varve.leaf where dataset = %(dataset)s",
    "delete from varve.view_comment where dataset = %(dataset)s",
    "delete from varve.view_grant where dataset = %(dataset)s",
)
_DROP = (
    *_FORGET_VIEW,
    "update varve.compacted set dataset = %(remains)s where dataset = %(dataset)s",
)
_FORGET_BATCHES = "delete from varve.compacted where dataset = %s"
# A partition that is not current any more gives its place to the next new one.
_VACATE = """
    delete from varve.leaf l where l.dataset = %s
      and not exists (select from varve.current c where (c.dataset, c.partition) = (l.dataset, l.partition))
    returning leaf
"""


def ensure_tables(connection: psycopg.Connection) -> None:
    """Make the tables that are missing, beside the catalog's own; safe to call from several processes at once."""
    if connection.execute(_HAS_ALL).fetchone() is not None:
        return
    with connection.transaction():
        connection.execute(LOCK_SCHEMA)
        connection.execute(resources.files("varve.stores.warehouse.tables").joinpath("tables.sql").read_bytes())


def claim(connection: psycopg.Connection, table: str, piece: str, rows: int) -> str:
    """The complete statement that records a piece of a table as loaded, for a connection that is not ours."""
    return _CLAIM.format(sql.Literal(table), sql.Literal(piece), sql.Literal(rows)).as_string(connection)


def loaded(connection: psycopg.Connection, tables: Sequence[str]) -> dict[str, int]:
    """The rows of each table, by its recorded pieces."""
    return dict(connection.execute(_LOADED, (list(tables),)).fetchall())


def forget_loads(connection: psycopg.Connection, tables: Sequence[str]) -> None:
    """Remove the notes about dropped tables. A load that still runs for one finds no table, and ends."""
    connection.execute(_FORGET, {"tables": list(tables)})


def generation(connection: psycopg.Connection, dataset: Dataset) -> int:
    """The generation of the dataset's leaf views; 0 where it has none."""
    return generation_of(connection, dataset.name)


def generation_of(connection: psycopg.Connection, dataset: str) -> int:
    """The generation of the leaf views of the dataset with this name; 0 where it has none."""
    row = connection.execute(_GENERATION, (dataset,)).fetchone()
    return int(row[0]) if row else 0


def set_generation(connection: psycopg.Connection, dataset: Dataset, number: int) -> None:
    """Record that the dataset's views are of this generation."""
    connection.execute(_SET_GENERATION, (dataset.name, number))


def newly_named(connection: psycopg.Connection, strays: Sequence[str]) -> list[str]:
    """Those of these foreign tables that were not reported before. Forgets tables that are not in the list."""
    connection.execute(_FORGET_STRAYS, (list(strays),))
    return sorted(table for (table,) in connection.execute(_NAME_STRAYS, (list(strays),)))


def seal(connection: psycopg.Connection, name: sql.Identifier, table: str) -> int:
    """Count and hash the rows of a loaded table, and record both. Returns the number of rows."""
    rows, content = content_of(connection, name)
    connection.execute(_SEAL, (table, rows, content))
    return rows


def seals(connection: psycopg.Connection, tables: Sequence[str]) -> dict[str, Decimal]:
    """The hash that each of these tables had when it was loaded, where it was recorded."""
    return dict(connection.execute(_SEALS, (list(tables),)).fetchall())


def content_of(connection: psycopg.Connection, name: sql.Identifier) -> tuple[int, Decimal]:
    """The number of rows of a table, and the sum of their hashes; reads the whole table."""
    row = connection.execute(_CONTENT.format(name)).fetchone()
    assert row is not None
    return int(row[0]), row[1]


def start_loading(connection: psycopg.Connection) -> None:
    """Record that this session only fills tables from now on, and reads no view."""
    ensure_tables(connection)
    connection.execute(_FORGET_ENDED)
    connection.execute(START_LOADING.encode())


def end_loading(connection: psycopg.Connection) -> None:
    """Record that it may read views again."""
    connection.execute(_END_LOADING)


def comments(connection: psycopg.Connection, dataset: Dataset) -> dict[str | None, str]:
    """The comments that we last wrote for the view (None) and its columns."""
    return dict(connection.execute(_COMMENTS, (dataset.name,)).fetchall())


def set_comments(connection: psycopg.Connection, dataset: Dataset, comments: Mapping[str | None, str]) -> None:
    """Record the comments that we have written."""
    connection.execute(_FORGET_COMMENTS, (dataset.name,))
    names = [column or "" for column in comments]
    connection.execute(_SET_COMMENTS, (dataset.name, names, list(comments.values())))


def leaves(connection: psycopg.Connection, dataset: Dataset) -> dict[str, int]:
    """The leaf of each partition, in the order of leaves."""
    return dict(connection.execute(_LEAVES, (dataset.name,)).fetchall())


def leaf_numbers(connection: psycopg.Connection, dataset: str) -> list[int]:
    """The leaves that show a partition of the dataset with this name."""
    return sorted({leaf for _, leaf in connection.execute(_LEAVES, (dataset,))})


def vacate(connection: psycopg.Connection, dataset: Dataset) -> set[int]:
    """Remove partitions that are not current from their leaves. Returns the leaves that have lost one."""
    return {leaf for (leaf,) in connection.execute(_VACATE, (dataset.name,)).fetchall()}


def place(
    connection: psycopg.Connection,
    dataset: Dataset,
    leaf_by_path: Mapping[str, int],
    paths: Sequence[str],
    shared_tables: Mapping[str, str],
) -> dict[str, int]:
    """Give partitions without a leaf one that has room, or a new one. Returns the leaf of each.

    `shared_tables` has the shared table of each partition that has one. A shared table takes the room of one table.
    """
    room: dict[int, int] = {}
    for leaf, _ in {(leaf, shared_tables.get(path, path)) for path, leaf in leaf_by_path.items()}:
        room[leaf] = room.get(leaf, LEAF_TABLES) - 1
    placed = {}
    for path in paths:
        leaf = next((number for number, left in sorted(room.items()) if left > 0), max(room, default=0) + 1)
        room[leaf] = room.get(leaf, LEAF_TABLES) - 1
        placed[path] = leaf
    if placed:
        connection.execute(_SET_LEAF, (dataset.name, list(placed), list(placed.values())))
    return placed


def move(connection: psycopg.Connection, dataset: Dataset, paths: Sequence[str], leaf: int) -> None:
    """Put partitions that have a leaf into this one."""
    connection.execute(_MOVE, (leaf, dataset.name, list(paths)))


def drop(connection: psycopg.Connection, dataset: str, remains: str) -> None:
    """Forget the views of a dropped dataset; its batches are noted under the name `remains` from now on."""
    for statement in _DROP:
        connection.execute(statement.encode(), {"dataset": dataset, "remains": remains})


def forget_view(connection: psycopg.Connection, dataset: str) -> None:
    """Forget the views of a dataset that is not shown here any more; where its rows lie is remembered."""
    for statement in _FORGET_VIEW:
        connection.execute(statement.encode(), {"dataset": dataset})


def forget_batches(connection: psycopg.Connection, remains: str) -> None:
    """Forget where the rows of the batches of a dropped dataset lay: all are deleted."""
    connection.execute(_FORGET_BATCHES, (remains,))


def compacted(connection: psycopg.Connection, dataset: str) -> dict[tuple[str, int], str]:
    """The shared table of each (partition, batch id) that has one."""
    rows = connection.execute(_COMPACTED, (dataset,)).fetchall()
    return {(partition, batch_id): table for partition, batch_id, table in rows}


def shared_by(
    connection: psycopg.Connection, dataset: str, batches: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], str]:
    """The shared table of each of these (partition, batch id) that has one."""
    paths, ids = [path for path, _ in batches], [batch_id for _, batch_id in batches]
    rows = connection.execute(_SHARED_BY, (paths, ids, dataset)).fetchall()
    return {(partition, batch_id): table for partition, batch_id, table in rows}


def current_share(connection: psycopg.Connection, dataset: str) -> list[tuple[str, int, str | None]]:
    """(partition, batch id, shared table) of what is current; None: its rows are in tables of its own."""
    return connection.execute(_CURRENT_SHARE, (dataset,)).fetchall()


def compacted_at(connection: psycopg.Connection, dataset: str) -> dict[tuple[str, int], dt.datetime]:
    """When each (partition, batch id) that has a shared table got it."""
    rows = connection.execute(_COMPACTED_AT, (dataset,)).fetchall()
    return {(partition, batch_id): at for partition, batch_id, at in rows}


def set_compacted(connection: psycopg.Connection, dataset: str, table: str, members: Sequence[tuple[str, int]]) -> None:
    """Record that these batches lie in this table, whatever table they shared before."""
    paths, ids = [path for path, _ in members], [batch_id for _, batch_id in members]
    connection.execute(_SET_COMPACTED, (dataset, table, paths, ids))


def forget_compacted(connection: psycopg.Connection, dataset: str, tables: Sequence[str]) -> None:
    """Record that these shared tables are gone."""
    connection.execute(_FORGET_COMPACTED, (dataset, list(tables)))
