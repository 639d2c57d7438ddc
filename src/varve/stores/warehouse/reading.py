"""Reads batches into Spark from their immutable tables, so that a publish in between changes nothing.

It does not read the view: each connection has its own snapshot, and could see other batches than its neighbour.

Not here: what runs in a task (varve/stores/postgres/spark_source.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from varve.model.errors import MissingUpstream, some
from varve.model.schema import Column, ColumnType
from varve.stores.postgres import types
from varve.stores.postgres.fetch import at_once, lazily
from varve.stores.postgres.types import postgres_type, type_sql
from varve.stores.warehouse.tables import notes, shape, view
from varve.stores.warehouse.tables.batch_tables import BatchTables
from varve.stores.warehouse.tables.naming import periods_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import psycopg
    from pyspark.sql import DataFrame, SparkSession

    from varve.model.batch import Batch
    from varve.model.dataset import Dataset

# Below this size, this process fetches the rows: a Spark job with Python workers takes a second to begin.
_BYTES_FOR_SPARK = 32 << 20
_BYTES_A_TASK = 64 << 20
# Into how many tasks what is large is divided at least, as far as it has so many tables.
_TASKS = 32
_PAGE = 8_192
_PAGES = """
    select c.relname, pg_relation_size(c.oid) / current_setting('block_size')::int
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relname = any(%s)
"""


@dataclass(frozen=True)
class PinnedReader:
    """Reads batches: a connection for looking up their tables, and the URL for those that fetch rows."""

    connection: psycopg.Connection
    url: str
    spark: SparkSession

    def read(self, dataset: Dataset, batches: Sequence[Batch], columns: Sequence[str] | None = None) -> DataFrame:
        """Exactly these batches: the data columns (None: all), then the typed partition columns.

        Raises MissingUpstream where a table is missing, and VarveError for an unknown column.
        """
        read_columns = dataset.read_columns(columns)
        wanted = read_columns[: len(read_columns) - len(dataset.partition_columns)]
        read = [_wire(column) for column in read_columns]
        large = sum(batch.size for batch in batches) >= _BYTES_FOR_SPARK
        queries = list(self._queries(dataset, batches, wanted, split=large))
        if large:
            frame = lazily(self.spark, self.url, read, list(_tasks(queries)))
        else:
            frame = at_once(self.spark, self.url, read, [query for query, _ in queries])
        return types.from_wire(wanted, frame)

    def _queries(
        self, dataset: Dataset, batches: Sequence[Batch], columns: Sequence[Column], *, split: bool
    ) -> Iterator[tuple[str, int]]:
        """A query for each table, or for each part of a large one, and how many pages it reads."""
        schema = periods_schema(dataset)
        groups = self._groups(dataset, batches)
        pages: dict[str, int] = dict(self.connection.execute(_PAGES, (schema, list(groups))).fetchall())
        if missing := [table for table in groups if table not in pages]:
            raise MissingUpstream(
                f"{dataset}: the catalog names {some(missing)} in {schema}, which is not there: somebody dropped it. "
                "Nothing was read or changed. Restore the table, or rerun those partitions."
            )
        names = {
            table: [name for name, _ in table_columns]
            for table, table_columns in shape.columns_of(self.connection, schema, list(groups)).items()
        }
        step = _BYTES_A_TASK // _PAGE
        for table, (partition, paths) in groups.items():
            query = _select(dataset, table, columns, names.get(table, []), partition)
            if partition is None:
                query += sql.SQL(" where {}").format(view.of_partitions(dataset, paths))
            starts = range(0, max(pages[table], 1), step) if split else [0]
            for start in starts:
                range_clause = sql.SQL("")
                if len(starts) > 1:
                    first, end = sql.Literal(f"({start},0)"), sql.Literal(f"({start + step},0)")
                    clause = sql.SQL(" and " if partition is None else " where ")
                    range_clause = clause + sql.SQL("ctid >= {}::tid and ctid < {}::tid").format(first, end)  # type: ignore[assignment]
                yield (query + range_clause).as_string(self.connection), min(step, pages[table] - start)

    def _groups(self, dataset: Dataset, batches: Sequence[Batch]) -> dict[str, tuple[str | None, list[str]]]:
        """By table: its only partition, or None for a shared table; and the partitions to read from it."""
        notes.ensure_tables(self.connection)
        tables = BatchTables.of(self.connection, dataset.name, batches)
        groups: dict[str, tuple[str | None, list[str]]] = {}
        for batch in batches:
            shared = tables.shared_by(batch)
            if shared is None:
                groups |= {table: (batch.partition, [batch.partition]) for table in tables.own(batch)}
            else:
                groups.setdefault(shared, (None, []))[1].append(batch.partition)
        return groups


def _tasks(queries: Sequence[tuple[str, int]]) -> Iterator[list[str]]:
    """The queries in lists that are worth a task: many small tables are one, as each task connects first."""
    enough = min(_BYTES_A_TASK // _PAGE, sum(pages for _, pages in queries) // _TASKS)
    task, of_task = list[str](), 0
    for query, pages in queries:
        task.append(query)
        of_task += pages
        if of_task >= enough:
            yield task
            task, of_task = [], 0
    if task:
        yield task


def _wire(column: Column) -> Column:
    return Column(column.name, ColumnType.STRING if column.type.nested else column.type)


def _select(
    dataset: Dataset, table: str, columns: Sequence[Column], present: Sequence[str], partition: str | None
) -> sql.Composed:
    items = []
    for column in columns:
        kind = postgres_type(column.type)
        name = shape.ViewColumn(column.name, kind, column.was).source_in(present)
        value = sql.SQL("null") if name is None else sql.Identifier(name)
        items.append(sql.SQL("{}::{} as {}").format(value, type_sql(kind), sql.Identifier(column.name)))
    literals: Mapping[str, sql.Composed] = {} if partition is None else view.literals(dataset, partition)
    for name in dataset.partitioning.names:
        column_name = sql.Identifier(name)
        items.append(sql.SQL("{} as {}").format(literals.get(name, column_name), column_name))
    return sql.SQL("select {} from {}").format(sql.SQL(", ").join(items), view.table_name(dataset, table))
