"""Two grains: fine partitions under a coarse period, put together into one table when the period is over.

While a period is open, each of its partitions has a table of its own in the view, and may be loaded again alone. When a
later period has begun, the rows of all of them are copied into one table, as readers see them, and that is swapped in
for theirs; batches, and what is made from them, stay as they are. No append happens ever, and tables stay few. A
partition that is loaded again afterwards has a table of its own again, until the period is put together anew.

Not here: how a view shows a shared table (projection.py), and the deletion of the tables that it replaces (clean.py).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from varve.model.batch import BatchId
from varve.model.errors import NOTHING_LOST, VarveError, VerifyFailed
from varve.model.store_options import Index
from varve.stores.warehouse import projection, publish
from varve.stores.warehouse.loading.load import loading
from varve.stores.warehouse.tables import notes, view
from varve.stores.warehouse.tables.naming import compacted_table, periods_schema
from varve.stores.warehouse.tables.schema import BatchTables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varve.catalog.catalog import Catalog
    from varve.model.batch import Batch
    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey

logger = logging.getLogger(__name__)

_HOLD = "select pg_advisory_lock(hashtextextended('compacting ' || %s, 0))"
_LET_GO = "select pg_advisory_unlock(hashtextextended('compacting ' || %s, 0))"
_COMMENTS = """
    select obj_description(c.oid, 'pg_class')
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relname = any(%s) and obj_description(c.oid, 'pg_class') is not null
"""


@dataclass(frozen=True, slots=True)
class Together:
    """The partitions of one period that shall share a table: all that are current."""

    first_day: dt.date
    batches: tuple[Batch, ...]

    def __str__(self) -> str:
        return f"the period of {self.first_day} ({len(self.batches)} partitions)"


def due(catalog: Catalog, dataset: Dataset) -> list[Together]:
    """The periods that are over and not in one table yet: a later one has begun. Empty where none is asked for."""
    period = dataset.warehouse.compact
    if period is None:
        return []
    notes.ensure_tables(catalog.connection)
    periods: dict[dt.date, list[Batch]] = defaultdict(list)
    for path, batch in catalog.current(dataset.name).items():
        day = _day(dataset.partitioning.from_path(path))
        if day is not None:
            periods[period.of(day)].append(batch)
    tables = BatchTables.of(catalog.connection, dataset.name, [one for each in periods.values() for one in each])
    found = []
    for first_day, batches in sorted(periods.items())[:-1]:
        if len(tables.of_all(batches)) > 1:
            found.append(Together(first_day, tuple(batches)))
    return found


def compact(catalog: Catalog, dataset: Dataset, together: Together, *, seconds: float) -> str:
    """Copy the rows of a period into one table and show that; the name of the table.

    May be ended at any time: the table is then one that nobody keeps. A partition that is published meanwhile keeps its
    own table. Raises PublishTimeout as a publish does, and VerifyFailed where rows are not the same.
    """
    connection = catalog.connection
    row = connection.execute("select (extract(epoch from clock_timestamp()) * 1000)::bigint").fetchone()
    assert row is not None
    stamp = BatchId(int(row[0]))
    table = compacted_table(dataset, str(together.first_day), stamp)
    with _in_progress(connection, dataset, table):
        with loading(connection):
            _fill(catalog, dataset, together, table, stamp)
        publish.wait_for_snapshots(connection, dataset, seconds)
        told = f"{dataset} {together}"
        publish.patiently(partial(_swap, catalog, dataset, together, table), dataset.name, told, seconds)
    return table


@contextlib.contextmanager
def _in_progress(connection: psycopg.Connection, dataset: Dataset, table: str) -> Iterator[None]:
    """For as long as this session lives, at most: a sweep leaves the table alone (clean.py)."""
    name = f"{periods_schema(dataset)}.{table}"
    connection.execute(_HOLD, (name,))
    try:
        yield
    finally:
        # Where the connection is lost, so is its lock.
        with contextlib.suppress(psycopg.OperationalError):
            connection.execute(_LET_GO, (name,))


def compact_closed(catalog: Catalog, dataset: Dataset, *, seconds: float) -> int:
    """Put together every period that is over; how many. What fails is left for the next time, and told."""
    done = 0
    try:
        for together in due(catalog, dataset):
            compact(catalog, dataset, together, seconds=seconds)
            done += 1
    except (VarveError, psycopg.Error) as error:
        logger.warning("%s: a period that is over stays in tables of its own for now: %s", dataset, error)
    return done


def _fill(catalog: Catalog, dataset: Dataset, together: Together, name: str, stamp: BatchId) -> None:
    connection = catalog.connection
    wanted = projection.change_of(connection, dataset).shape
    target = view.table_name(dataset, name)
    members = descriptions(connection, dataset, together.batches)
    described = {"format": 1, "dataset": dataset.name, "began": stamp.millis, "compacted": members}
    for statement in view.create_shared_table(dataset, wanted, name, described):
        connection.execute(statement)
    arms = projection.arms_of(catalog, dataset, wanted, together.batches)
    columns = sql.SQL(", ").join(map(sql.Identifier, wanted.names))
    with connection.transaction():
        for arm in arms:
            connection.execute(sql.SQL("insert into {} ({}) {}").format(target, columns, arm))
        _check(catalog, dataset, target)
    # A key is unique within its partition, not among them.
    for index in (Index(dataset.partitioning.names), *dataset.warehouse.indexes):
        connection.execute(view.create_index(dataset, name, replace(index, unique=False)))
    connection.execute(sql.SQL("analyze {}").format(target))
    counted = notes.seal(connection, target, name)
    expected = sum(batch.rows for batch in together.batches)
    if counted != expected:
        raise VerifyFailed(f"{dataset}: {together} has {expected} rows, and {name} got {counted}. {NOTHING_LOST}")


def descriptions(connection: psycopg.Connection, dataset: Dataset, batches: Sequence[Batch]) -> list[dict[str, Any]]:
    """What the tables of these batches say of them: each one's own, or the one that it shared before."""
    wanted = {(batch.partition, batch.batch_id.millis) for batch in batches}
    tables = [batch.location for batch in batches]
    tables += sorted(set(notes.compacted(connection, dataset.name).values()))
    found = {}
    for (comment,) in connection.execute(_COMMENTS, (periods_schema(dataset), tables)):
        said = json.loads(comment)
        for one in said.get("compacted", [said]):
            # From here on its rows lie in one table, however many they were in before.
            growth = one.get("growth", {})
            whole = {name: growth[name] for name in ("rows", "content") if name in growth}
            found[one["partition"], one["batch_id"]] = {
                name: value for name, value in {**one, **whole}.items() if name != "growth"
            }
    return [found[key] for key in sorted(wanted) if key in found]


def _check(catalog: Catalog, dataset: Dataset, target: sql.Identifier) -> None:
    """Tell the planner between which keys the rows lie, so that a query of another period passes the table over."""
    for column in dataset.partition_columns:
        name = sql.Identifier(column.name)
        row = catalog.connection.execute(
            sql.SQL("select min({0})::text, max({0})::text from {1}").format(name, target)
        ).fetchone()
        if row and row[0] is not None:
            kind = view.type_of(column)
            catalog.connection.execute(
                sql.SQL("alter table {0} add check ({1} >= {2}::{4} and {1} <= {3}::{4})").format(
                    target, name, sql.Literal(row[0]), sql.Literal(row[1]), kind
                )
            )


def _swap(catalog: Catalog, dataset: Dataset, together: Together, table: str) -> None:
    connection = catalog.connection
    with connection.transaction():
        milliseconds = publish.lock_publishers(connection, dataset)
        paths = [batch.partition for batch in together.batches]
        publish.refuse_long_holders(connection, projection.views_to_replace(connection, dataset, paths), milliseconds)
        members = [(batch.partition, batch.batch_id.millis) for batch in together.batches]
        notes.set_compacted(connection, dataset.name, table, members)
        keys = [dataset.partitioning.from_path(path) for path in paths]
        current = catalog.current(dataset.name, keys)
        # All partitions of the table into one leaf, or each leaf would show the table anew.
        where = notes.leaves(connection, dataset)
        left = {where[path] for path in current if path in where}
        notes.move(connection, dataset, list(current), min(left))
        plan = projection.plan(catalog, dataset, [dataset.partitioning.from_path(p) for p in current], also=left)
        publish.replace_views(connection, [plan])


def _day(key: PartitionKey) -> dt.date | None:
    """The day in which a partition begins, by the one of its values that is a date or begins with one."""
    for value in key.values:
        if isinstance(value, dt.date):
            return value
        try:
            return dt.date.fromisoformat(str(value)[:10])
        except ValueError:
            continue
    return None
