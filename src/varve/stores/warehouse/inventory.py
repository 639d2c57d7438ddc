"""Everything the warehouse can tell without a catalog: each whole table, and the views: what they show is in force.

Not here: making a catalog of it (varve/catalog/recovery/recovery.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from psycopg import sql

from varve.model.batch import BatchId, Bounds, Input
from varve.model.inventory import DescribedBatch, Finding, Publication, StoreInventory
from varve.model.partitions.key import parse_path
from varve.stores.warehouse.examine import tables_under
from varve.stores.warehouse.loading import grown
from varve.stores.warehouse.tables import notes
from varve.stores.warehouse.tables.naming import periods_schema_of

if TYPE_CHECKING:
    import datetime as dt

    import psycopg

_TABLES = """
    select n.nspname, c.relname, obj_description(c.oid, 'pg_class'), pg_total_relation_size(c.oid)
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where c.relkind = 'r' and n.nspname like '%\\_periods' and obj_description(c.oid, 'pg_class') is not null
    order by n.nspname, c.relname
"""
_LEFT_OUT = "Left out; restore it from a dump and repair again, or run the partition."


@dataclass
class _Looked:
    """What of one dataset lies in tables of its own, what in shared ones, and what is not whole.

    `tables` are those of single batches, whole, as they describe themselves.
    """

    own: list[DescribedBatch] = field(default_factory=list)
    tables: dict[tuple[str, int], tuple[dict[str, Any], str, int]] = field(default_factory=dict)
    shared: list[DescribedBatch] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def remains(connection: psycopg.Connection) -> list[StoreInventory]:
    """One for each dataset of which any table describes itself; which batches share a table is noted again."""
    notes.ensure_tables(connection)
    datasets: dict[str, _Looked] = {}
    for schema, table, comment, size in connection.execute(_TABLES).fetchall():
        said = _said(comment)
        if said is None or periods_schema_of(said["dataset"]) != schema:
            continue
        looked = datasets.setdefault(said["dataset"], _Looked())
        counted = connection.execute(sql.SQL("select count(*) from {}").format(sql.Identifier(schema, table)))
        rows = int((counted.fetchone() or (0,))[0])
        members = said.get("compacted")
        if members is None and rows != said["rows"]:
            looked.findings.append(_not_whole(said, table, rows))
        elif members is None:
            looked.tables[said["partition"], int(said["batch_id"])] = (said, table, int(size))
        elif rows == sum(one["rows"] for one in members):
            keys = [(one["partition"], one["batch_id"]) for one in members]
            notes.set_compacted(connection, said["dataset"], table, keys)
            looked.shared += [_described(one, table, int(size) // len(members)) for one in members]
    for looked in datasets.values():
        _look_at_batches(looked)
    return [
        # A batch in a table of its own and in a shared one lies where the catalog had it: in its own.
        StoreInventory(
            dataset,
            list({(one.partition, one.batch_id): one for one in (*looked.shared, *looked.own)}.values()),
            _in_force(connection, dataset, looked),
            looked.findings,
        )
        for dataset, looked in sorted(datasets.items())
    ]


def _look_at_batches(looked: _Looked) -> None:
    """The batches of whole tables; one that grew has its rows in several."""
    parts = grown.parts_said(looked.tables)
    for key, (said, table, size) in looked.tables.items():
        described = _described(said, table, size)
        if "growth" not in said:
            looked.own.append(described)
        elif key in parts:
            looked.own.append(grown.as_described(described, said, parts[key]))
        else:
            text = f"a table of batch {key[1]} is gone or not whole, of the {len(said['growth']['parts'])} that it had"
            looked.findings.append(Finding(said["dataset"], key[0], BatchId(key[1]), text, _LEFT_OUT))


def _not_whole(said: dict[str, Any], table: str, rows: int) -> Finding:
    text = f"the table {table} has {rows} rows, and says {said['rows']}: its load died before it was whole"
    return Finding(said["dataset"], said["partition"], BatchId(int(said["batch_id"])), text, _LEFT_OUT)


def _described(said: dict[str, Any], table: str, size: int) -> DescribedBatch:
    return DescribedBatch(
        said["dataset"], said["partition"], BatchId(int(said["batch_id"])), table, said["run_id"],
        said.get("code_version", ""), said["rows"], size, 1, said.get("content"),
        tuple(Bounds(*bounds) for bounds in said.get("bounds", ())),
        tuple(Input(*found) for found in said["inputs"]), said.get("declaration", {}),
    )  # fmt: skip


def _in_force(connection: psycopg.Connection, dataset: str, looked: _Looked) -> list[Publication]:
    schema, _, table = dataset.partition(".")
    view = sql.Identifier(schema, table)
    shown = tables_under(connection, view.as_string(connection))
    in_force: dict[str, DescribedBatch] = {}
    # Of a partition that grew, the batch that has all of what is shown; each before it has a part of that.
    for one in sorted(looked.own, key=lambda described: len(described.parts)):
        if shown.issuperset({one.location, *(part.location for part in one.parts)}):
            in_force[one.partition] = one
    for one in looked.shared:
        # Of a shared table some partitions may have tables of their own again, or may have been taken back.
        is_shown = one.location in shown and one.partition not in in_force
        if is_shown and (one.rows == 0 or _has_rows(connection, view, one)):
            in_force[one.partition] = one
    now = connection.execute("select clock_timestamp()").fetchone()
    assert now is not None
    at: dt.datetime = now[0]
    return [
        Publication(one.batch_id, "publish", one.run_id, "", at, {one.partition: one.batch_id.millis})
        for one in sorted(in_force.values(), key=lambda one: one.batch_id)
    ]


def _has_rows(connection: psycopg.Connection, view: sql.Identifier, one: DescribedBatch) -> bool:
    conditions = [
        sql.SQL("{}::text = {}").format(sql.Identifier(name), sql.Literal(value))
        for name, value in parse_path(one.partition)
    ]
    query = sql.SQL("select from {} where {} limit 1").format(view, sql.SQL(" and ").join(conditions))
    return connection.execute(query).fetchone() is not None


def _said(comment: str) -> dict[str, Any] | None:
    try:
        found = json.loads(comment)
    except ValueError:
        return None
    wanted = {"dataset", "partition", "batch_id", "run_id", "rows", "inputs"}
    if not isinstance(found, dict):
        return None
    whole = all(wanted <= one.keys() for one in found.get("compacted", [found]))
    return found if whole and "dataset" in found else None
