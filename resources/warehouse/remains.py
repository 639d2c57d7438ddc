"""Everything the warehouse can tell without a catalog: each whole table, and the views: what they show is in force.

Not here: making a catalog of it (resources/recovery.py).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from psycopg import sql

from pipeline_defs.model.batch import BatchId, Bounds, Input
from resources.store import Described, Finding, Publication, Remains
from resources.warehouse.examine import tables_under

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


def remains(connection: psycopg.Connection) -> list[Remains]:
    """One for each dataset of which any table describes itself."""
    batches: dict[str, list[Described]] = {}
    findings: dict[str, list[Finding]] = {}
    for schema, table, comment, size in connection.execute(_TABLES).fetchall():
        said = _said(comment)
        if said is None or f"{said['dataset'].partition('.')[0]}_periods" != schema:
            continue
        counted = connection.execute(sql.SQL("select count(*) from {}").format(sql.Identifier(schema, table)))
        found = _look(said, table, int(size), int((counted.fetchone() or (0,))[0]))
        if isinstance(found, Described):
            batches.setdefault(found.dataset, []).append(found)
        else:
            findings.setdefault(found.dataset, []).append(found)
    return [
        Remains(name, batches.get(name, []), _in_force(connection, name, batches.get(name, [])), findings.get(name, []))
        for name in sorted(batches.keys() | findings.keys())
    ]


def _look(said: dict[str, Any], table: str, size: int, rows: int) -> Described | Finding:
    batch_id = BatchId(int(said["batch_id"]))
    if rows != said["rows"]:
        text = f"the table {table} has {rows} rows, and says {said['rows']}: its load died before it was whole"
        return Finding(said["dataset"], said["partition"], batch_id, text, _LEFT_OUT)
    return Described(
        said["dataset"], said["partition"], batch_id, table, said["run_id"], said.get("code_version", ""),
        rows, size, 1, said.get("content"), tuple(Bounds(*bounds) for bounds in said.get("bounds", ())),
        tuple(Input(*found) for found in said["inputs"]), said.get("declaration", {}),
    )  # fmt: skip


def _in_force(connection: psycopg.Connection, dataset: str, batches: list[Described]) -> list[Publication]:
    schema, _, table = dataset.partition(".")
    shown = tables_under(connection, sql.Identifier(schema, table).as_string(connection))
    in_force = [one for one in batches if one.location in shown]
    now = connection.execute("select clock_timestamp()").fetchone()
    assert now is not None
    at: dt.datetime = now[0]
    return [
        Publication(one.batch_id, "publish", one.run_id, "", at, {one.partition: one.batch_id.millis})
        for one in sorted(in_force, key=lambda one: one.batch_id)
    ]


def _said(comment: str) -> dict[str, Any] | None:
    try:
        found = json.loads(comment)
    except ValueError:
        return None
    wanted = {"dataset", "partition", "batch_id", "run_id", "rows", "inputs"}
    return found if isinstance(found, dict) and wanted <= found.keys() else None
