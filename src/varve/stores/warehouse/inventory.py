"""What the warehouse holds, without a catalog: each complete table, and the views, which show the current batches.

Not here: rebuilding a catalog from it (catalog/recovery/recovery.py).
"""

from __future__ import annotations

import json
import re
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

# As a partition column of the type TIMESTAMP is spelled in a path.
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


@dataclass
class _DatasetTables:
    """The tables of one dataset.

    Attributes:
        own: the batches in tables of their own.
        tables: the complete tables of single batches: description, name and size, by partition and batch id.
        shared: the batches in shared tables.
        findings: the tables that are not complete.
    """

    own: list[DescribedBatch] = field(default_factory=list)
    tables: dict[tuple[str, int], tuple[dict[str, Any], str, int]] = field(default_factory=dict)
    shared: list[DescribedBatch] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def take_inventory(connection: psycopg.Connection) -> list[StoreInventory]:
    """The inventory of each dataset that has tables. Also records again which batches share a table."""
    notes.ensure_tables(connection)
    datasets: dict[str, _DatasetTables] = {}
    for schema, table, comment, size in connection.execute(_TABLES).fetchall():
        description = _parsed(comment)
        if description is None or periods_schema_of(description["dataset"]) != schema:
            continue
        contents = datasets.setdefault(description["dataset"], _DatasetTables())
        counted = connection.execute(sql.SQL("select count(*) from {}").format(sql.Identifier(schema, table)))
        rows = int((counted.fetchone() or (0,))[0])
        members = description.get("compacted")
        if members is None and rows != description["rows"]:
            contents.findings.append(_not_whole(description, table, rows))
        elif members is None:
            contents.tables[description["partition"], int(description["batch_id"])] = (description, table, int(size))
        elif rows == sum(member["rows"] for member in members):
            keys = [(member["partition"], member["batch_id"]) for member in members]
            notes.set_compacted(connection, description["dataset"], table, keys)
            contents.shared += [_described(member, table, int(size) // len(members)) for member in members]
    for contents in datasets.values():
        _look_at_batches(contents)
    return [
        # The catalog names a batch's own table, also where its rows are in a shared one too.
        StoreInventory(
            dataset,
            list({(batch.partition, batch.batch_id): batch for batch in (*contents.shared, *contents.own)}.values()),
            _current(connection, dataset, contents),
            contents.findings,
        )
        for dataset, contents in sorted(datasets.items())
    ]


def _look_at_batches(contents: _DatasetTables) -> None:
    """The batches of complete tables. A batch that grew has its rows in several."""
    parts = grown.parts_of_batches(contents.tables)
    for key, (description, table, size) in contents.tables.items():
        batch = _described(description, table, size)
        if "growth" not in description:
            contents.own.append(batch)
        elif key in parts:
            contents.own.append(grown.with_parts(batch, description, parts[key]))
        else:
            count = len(description["growth"]["parts"])
            problem = f"a table of batch {key[1]} is gone or not whole, of the {count} that it had"
            contents.findings.append(Finding(description["dataset"], key[0], BatchId(key[1]), problem, _LEFT_OUT))


def _not_whole(description: dict[str, Any], table: str, rows: int) -> Finding:
    problem = f"the table {table} has {rows} rows, and says {description['rows']}: its load died before it was whole"
    batch_id = BatchId(int(description["batch_id"]))
    return Finding(description["dataset"], description["partition"], batch_id, problem, _LEFT_OUT)


def _described(description: dict[str, Any], table: str, size: int) -> DescribedBatch:
    return DescribedBatch(
        description["dataset"], description["partition"], BatchId(int(description["batch_id"])), table,
        description["run_id"], description.get("code_version", ""), description["rows"], size, 1,
        description.get("content"),
        tuple(Bounds(*bounds) for bounds in description.get("bounds", ())),
        tuple(Input(*input_fields) for input_fields in description["inputs"]), description.get("declaration", {}),
    )  # fmt: skip


def _current(connection: psycopg.Connection, dataset: str, contents: _DatasetTables) -> list[Publication]:
    """The batches that the view shows, as publications of this moment."""
    schema, _, table = dataset.partition(".")
    view = sql.Identifier(schema, table)
    shown = tables_under(connection, view.as_string(connection))
    current: dict[str, DescribedBatch] = {}
    # Of a partition that grew, the batch with most parts: each batch before it has some of its parts.
    for batch in sorted(contents.own, key=lambda batch: len(batch.parts)):
        if shown.issuperset({batch.location, *(part.location for part in batch.parts)}):
            current[batch.partition] = batch
    for batch in contents.shared:
        # Some partitions of a shared table may have tables of their own again, or no current batch any more.
        is_shown = batch.location in shown and batch.partition not in current
        if is_shown and (batch.rows == 0 or _has_rows(connection, view, batch)):
            current[batch.partition] = batch
    row = connection.execute("select clock_timestamp()").fetchone()
    assert row is not None
    at: dt.datetime = row[0]
    return [
        Publication(batch.batch_id, "publish", batch.run_id, "", at, {batch.partition: batch.batch_id.millis})
        for batch in sorted(current.values(), key=lambda batch: batch.batch_id)
    ]


def _has_rows(connection: psycopg.Connection, view: sql.Identifier, batch: DescribedBatch) -> bool:
    """Whether the view shows rows of the batch's partition."""
    conditions = [
        sql.SQL("{}::text = {}").format(sql.Identifier(name), _key_text(value))
        for name, value in parse_path(batch.partition)
    ]
    query = sql.SQL("select from {} where {} limit 1").format(view, sql.SQL(" and ").join(conditions))
    return connection.execute(query).fetchone() is not None


def _key_text(value: str) -> sql.Composable:
    """The text that PostgreSQL gives a key in the view; a moment is one of UTC, whatever the zone of the session."""
    if not _MOMENT.fullmatch(value):
        return sql.Literal(value)
    return sql.SQL("any(array[{}, {}::timestamptz::text])").format(sql.Literal(value), sql.Literal(f"{value}+00"))


def _parsed(comment: str) -> dict[str, Any] | None:
    """The description in a table's comment; None where it is not complete, or the table is not ours."""
    try:
        description = json.loads(comment)
    except ValueError:
        return None
    required = {"dataset", "partition", "batch_id", "run_id", "rows", "inputs"}
    if not isinstance(description, dict):
        return None
    whole = all(required <= member.keys() for member in description.get("compacted", [description]))
    # Tables of a dropped dataset wait for the sweep: nobody may find it again under the same name.
    return description if whole and "dataset" in description and "dropped" not in description else None
