"""Compaction: when a coarse period is over, the fine partitions under it get one table together.

While the period is open, each of its partitions has a table of its own in the view, and may be loaded again alone. When
a later period has begun, the rows of all of them are copied into one table, as readers see them, and the view shows
that table instead. Batches, and what is made from them, stay as they are. So the tables stay few, and none is ever
appended to. A partition that is loaded again later has its own table again, until the period is compacted again.

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

from varve.catalog.parts import Parts
from varve.model.batch import BatchId
from varve.model.errors import NOTHING_LOST, UnknownPartition, VarveError, VerifyFailed
from varve.model.partitions.calendar import clock
from varve.model.partitions.key import made, parse_path
from varve.model.store_options import Index
from varve.stores.warehouse import projection, publish
from varve.stores.warehouse.loading.load import loading
from varve.stores.warehouse.tables import notes, view
from varve.stores.warehouse.tables.batch_tables import BatchTables
from varve.stores.warehouse.tables.naming import compacted_table, periods_schema
from varve.stores.warehouse.tables.shape import ViewColumn, ViewShape, columns_of

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
class PeriodGroup:
    """All current partitions of one period, which are to share a table."""

    first_day: dt.date
    batches: tuple[Batch, ...]

    def __str__(self) -> str:
        return f"the period of {self.first_day} ({len(self.batches)} partitions)"


def due(catalog: Catalog, dataset: Dataset) -> list[PeriodGroup]:
    """The periods that are over (a later one has begun) and not in one table yet; none without declared compaction."""
    period = dataset.warehouse.compact
    if period is None:
        return []
    notes.ensure_tables(catalog.connection)
    periods: dict[dt.date, list[tuple[str, int, str | None]]] = defaultdict(list)
    for share in notes.current_share(catalog.connection, dataset.name):
        try:
            day = _day(dataset, dataset.partitioning.from_path(share[0]))
        except UnknownPartition:
            # It has left the dimensions, and keeps its table until it is retired.
            continue
        if day is not None:
            periods[period.of(day)].append(share)
    over = dict(sorted(periods.items())[:-1])
    # A batch with tables of its own may have several: it grew.
    alone = [(path, BatchId(number)) for shares in over.values() for path, number, table in shares if table is None]
    grown = Parts(catalog.connection).of(dataset.name, alone)
    groups = []
    for first_day, shares in over.items():
        own = sum(max(1, len(grown.get((path, number), ()))) for path, number, table in shares if table is None)
        if own + len({table for *_, table in shares if table is not None}) > 1:
            batches = catalog.shown(dataset.name, [made(parse_path(path)) for path, *_ in shares])
            groups.append(PeriodGroup(first_day, tuple(batches.values())))
    return groups


def compact(catalog: Catalog, dataset: Dataset, group: PeriodGroup, *, seconds: float) -> str:
    """Copy the rows of a period into one table, and make the view show it. Returns the name of the table.

    It may be killed at any time: a sweep then drops the table. A partition that is published meanwhile keeps its own
    table. Raises PublishTimeout as a publish does, and VerifyFailed where the number of rows differs.
    """
    connection = catalog.connection
    row = connection.execute("select (extract(epoch from clock_timestamp()) * 1000)::bigint").fetchone()
    assert row is not None
    stamp = BatchId(int(row[0]))
    table = compacted_table(dataset, str(group.first_day), stamp)
    with _marked_in_progress(connection, dataset, table):
        with loading(connection):
            _fill(catalog, dataset, group, table, stamp)
        publish.wait_for_snapshots(connection, dataset, seconds)
        subject = f"{dataset} {group}"
        publish.patiently(partial(_swap, catalog, dataset, group, table), dataset.name, subject, seconds)
    return table


@contextlib.contextmanager
def _marked_in_progress(connection: psycopg.Connection, dataset: Dataset, table: str) -> Iterator[None]:
    """While the context is open and this session lives, no sweep drops the table (clean.py)."""
    name = f"{periods_schema(dataset)}.{table}"
    connection.execute(_HOLD, (name,))
    try:
        yield
    finally:
        # Where the connection is lost, so is its lock.
        with contextlib.suppress(psycopg.OperationalError):
            connection.execute(_LET_GO, (name,))


def compact_closed(catalog: Catalog, dataset: Dataset, *, seconds: float) -> int:
    """Compact every period that is over. Returns how many. A failure is logged, and the next call tries again."""
    count = 0
    try:
        for group in due(catalog, dataset):
            compact(catalog, dataset, group, seconds=seconds)
            count += 1
    except (VarveError, psycopg.Error) as error:
        logger.warning("%s: a period that is over stays in tables of its own for now: %s", dataset, error)
    return count


def _fill(catalog: Catalog, dataset: Dataset, group: PeriodGroup, name: str, stamp: BatchId) -> None:
    connection = catalog.connection
    wanted = _with_hidden(catalog, dataset, group, projection.change_of(connection, dataset).shape)
    target = view.table_name(dataset, name)
    members = descriptions(connection, dataset, group.batches)
    description = {"format": 1, "dataset": dataset.name, "began": stamp.millis, "compacted": members}
    for statement in view.create_shared_table(dataset, wanted, name, description):
        connection.execute(statement)
    arms = projection.arms_of(catalog, dataset, wanted, group.batches)
    columns = sql.SQL(", ").join(map(sql.Identifier, wanted.names))
    with connection.transaction():
        for arm in arms:
            connection.execute(sql.SQL("insert into {} ({}) {}").format(target, columns, arm))
        _add_key_checks(catalog, dataset, target)
    # Not unique: a key is unique only within its partition.
    for index in (Index(dataset.partitioning.names), *dataset.warehouse.indexes):
        connection.execute(view.create_index(dataset, name, replace(index, unique=False)))
    connection.execute(sql.SQL("analyze {}").format(target))
    counted = notes.seal(connection, target, name)
    expected = sum(batch.rows for batch in group.batches)
    if counted != expected:
        raise VerifyFailed(f"{dataset}: {group} has {expected} rows, and {name} got {counted}. {NOTHING_LOST}")


def _with_hidden(catalog: Catalog, dataset: Dataset, group: PeriodGroup, shown: ViewShape) -> ViewShape:
    """The columns of the view, and those of the tables that it does not show: they may be declared again.

    Raises VarveError where two tables have another type of such a column each.
    """
    connection = catalog.connection
    tables = BatchTables.of(connection, dataset.name, group.batches).of_all(group.batches)
    hidden: dict[str, str] = {}
    for table, columns in columns_of(connection, periods_schema(dataset), sorted(tables)).items():
        names = [name for name, _ in columns]
        in_view = {*shown.names, *(column.source_in(names) for column in shown.columns)}
        for name, kind in columns:
            if name not in in_view and hidden.setdefault(name, kind) != kind:
                raise VarveError(
                    f"{dataset}: {table} has {name} as {kind}, and another table of {group} as {hidden[name]}. It is "
                    f"declared no more, so that neither is the right one. {NOTHING_LOST}"
                )
    return ViewShape((*shown.columns, *(ViewColumn(name, kind) for name, kind in hidden.items())))


def descriptions(connection: psycopg.Connection, dataset: Dataset, batches: Sequence[Batch]) -> list[dict[str, Any]]:
    """The descriptions of these batches, from the comments of their own tables or of tables that they shared before."""
    wanted = {(batch.partition, batch.batch_id.millis) for batch in batches}
    tables = [batch.location for batch in batches]
    tables += sorted(set(notes.shared_by(connection, dataset.name, sorted(wanted)).values()))
    by_batch = {}
    for (comment,) in connection.execute(_COMMENTS, (periods_schema(dataset), tables)):
        description = json.loads(comment)
        for member in description.get("compacted", [description]):
            # The rows of a batch that grew lie in one table from here on: its description needs no parts.
            growth = member.get("growth", {})
            whole = {name: growth[name] for name in ("rows", "content") if name in growth}
            by_batch[member["partition"], member["batch_id"]] = {
                name: value for name, value in {**member, **whole}.items() if name != "growth"
            }
    return [by_batch[key] for key in sorted(wanted) if key in by_batch]


def _add_key_checks(catalog: Catalog, dataset: Dataset, target: sql.Identifier) -> None:
    """Add checks of the lowest and highest keys, by which PostgreSQL skips the table in queries of other periods."""
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


def _swap(catalog: Catalog, dataset: Dataset, group: PeriodGroup, table: str) -> None:
    connection = catalog.connection
    with connection.transaction():
        milliseconds = publish.lock_publishers(connection, dataset)
        paths = [batch.partition for batch in group.batches]
        publish.refuse_long_holders(connection, projection.views_to_replace(connection, dataset, paths), milliseconds)
        keys = {path: made(parse_path(path)) for path in paths}
        current = catalog.shown(dataset.name, keys.values())
        if not current:
            # All of it was withdrawn meanwhile: no view shows the table, and a sweep drops it.
            return
        members = [(batch.partition, batch.batch_id.millis) for batch in group.batches]
        notes.set_compacted(connection, dataset.name, table, members)
        # All partitions of the table go into one leaf: in several, each leaf would show the table.
        leaves = notes.leaves(connection, dataset)
        former_leaves = {leaves[path] for path in current if path in leaves}
        notes.move(connection, dataset, list(current), min(former_leaves))
        plan = projection.plan(catalog, dataset, [keys[path] for path in current], lost_leaves=former_leaves)
        publish.replace_views(connection, [plan])


def _day(dataset: Dataset, key: PartitionKey) -> dt.date | None:
    """The day on which a partition begins, as the clock of its zone shows it.

    Without a time dimension it is the first of its values that is a date or begins with one; None where there is none.
    """
    if (time := dataset.partitioning.time) is not None:
        return clock(time.timezone, time.start_of(time.value_in(key))).date()
    for value in key.values:
        if isinstance(value, dt.date):
            return value
        try:
            return dt.date.fromisoformat(str(value)[:10])
        except ValueError:
            continue
    return None
