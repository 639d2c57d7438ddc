"""Loads period tables: makes empty tables, commits them, and fills them in pieces by binary COPY through ADBC.

Spark writes the partitions as parquet, and each row group of a file is one piece. Another way needs no files: each
Spark task gives its rows to a Python worker that loads them (1.3 times as fast in benchmarks/load.py). It cannot load
every row exactly once: when Spark computes a stage again, rows may go to other tasks than before, and some of those
tasks may have committed. Files are complete before the first row is loaded, and do not change.

Below 64 MB this process copies, because its connections are open soonest; above, tasks of Spark copy. On one machine
both are equally fast (4.1 to 4.4 s for 2 million rows); with a cluster only Spark's tasks get faster.

Not here: what runs in a worker (copying.py), what its errors mean (errors.py), and publishing (warehouse/publish.py).
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from varve.catalog.rows import declaration
from varve.model.errors import NOTHING_LOST, VerifyFailed
from varve.services.files import open_files
from varve.services.sessions import session_url
from varve.stores.folders import footers
from varve.stores.folders.file_calls import at_once
from varve.stores.frames import arrow_schema
from varve.stores.postgres import driver
from varve.stores.postgres.types import wire_dataset
from varve.stores.warehouse.loading import copying, grown
from varve.stores.warehouse.loading import errors as load_errors
from varve.stores.warehouse.tables import notes, view
from varve.stores.warehouse.tables.naming import period_table, periods_schema
from varve.stores.warehouse.tables.schemas import ensure_schemas_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from varve.model.batch import StagedBatch
    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.stores.warehouse.loading.copying import CopyPiece, Outcome

# Below this size, this process loads alone: a Spark job with Python workers takes a second to begin.
_BYTES_FOR_SPARK = 64 << 20
# The bytes for which another connection is worth its start.
_BYTES_A_CONNECTION = 4 << 20
_TABLES_A_TRANSACTION = 100


@dataclass(frozen=True)
class Route:
    """How rows may get into PostgreSQL.

    Attributes:
        url: for connections of ADBC's own; it must be reachable from Spark's workers for large loads.
        connections: how many connections may load at once.
        spark: opens the session whose workers load large batches; None where this process loads everything.
    """

    url: str = field(repr=False)
    connections: int = 4
    spark: Callable[[], SparkSession] | None = None

    @property
    def loading_url(self) -> str:
        """The URL for loading, whose application name tells people what these sessions do."""
        return session_url(self.url, application_name="varve-load")

    @property
    def reading_url(self) -> str:
        """The URL for reading the tables."""
        return session_url(self.url)


@contextlib.contextmanager
def loading(connection: psycopg.Connection) -> Iterator[None]:
    """Record that this session only fills tables: a publish then does not wait for the snapshots of its indexes."""
    notes.start_loading(connection)
    try:
        yield
    finally:
        # Where the connection is lost, its session has ended; the error that lost it must not be replaced by ours.
        with contextlib.suppress(psycopg.OperationalError):
            notes.end_loading(connection)


def load(connection: psycopg.Connection, route: Route, build: Build, files: Sequence[StagedBatch]) -> list[StagedBatch]:
    """Load the parquet files of every partition into a period table of its own. Returns the loaded batches.

    `files` are the partitions as staged parquet, in any order.

    Raises BadInput where PostgreSQL cannot hold a value (a NUL character in a text) or an index refuses one.
    """
    dataset = build.dataset
    notes.ensure_tables(connection)
    ensure_schemas_of(connection, dataset)
    tables = {batch.partition: period_table(dataset, batch.partition, build.batch_id) for batch in files}
    for chunk in _chunks(files, _TABLES_A_TRANSACTION):
        with connection.transaction():
            for batch in chunk:
                for statement in view.create_period_table(dataset, tables[batch.partition], _description(build, batch)):
                    connection.execute(statement)
    pieces = pieces_of(connection, dataset, [(tables[batch.partition], batch) for batch in files])
    schema = arrow_schema(wire_dataset(dataset).schema.columns)
    size = sum(batch.size for batch in files)
    shares = _deal(pieces, max(1, min(route.connections, size // _BYTES_A_CONNECTION, len(pieces))))
    run = in_spark if route.spark is not None and size >= _BYTES_FOR_SPARK else in_threads
    for outcome in run(route, schema, shares):
        if outcome.error is not None:
            raise load_errors.explained(build, pieces[outcome.place], outcome)
    with loading(connection):
        for partition, table in tables.items():
            grown.fill(connection, build, partition, table)
        return [_finish(connection, build, batch, tables[batch.partition]) for batch in files]


def in_threads(route: Route, schema: pa.Schema, shares: Sequence[Sequence[tuple[int, CopyPiece]]]) -> Iterator[Outcome]:
    """Load each share over a connection of this process."""
    with ThreadPoolExecutor(max(1, len(shares))) as pool:
        for outcomes in pool.map(lambda share: list(copying.copy_pieces(route.loading_url, schema, share)), shares):
            yield from outcomes


def in_spark(route: Route, schema: pa.Schema, shares: Sequence[Sequence[tuple[int, CopyPiece]]]) -> Iterator[Outcome]:
    """Load each share in a Spark task. Its worker reads the files itself: no row comes from the JVM."""
    from pyspark import cloudpickle

    for module in (copying, driver):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    assert route.spark is not None
    numbers = route.spark().range(0, len(shares), 1, len(shares))
    task = copying.in_task(route.loading_url, schema, shares)
    for row in numbers.mapInArrow(task, copying.OUTCOMES).collect():
        yield copying.Outcome(row["place"], row["rows"], row["error"], row["state"])


def verify_rows(
    connection: psycopg.Connection, build: Build, files: Sequence[StagedBatch], loaded: Sequence[StagedBatch]
) -> None:
    """Compare the rows of each table with its files and with its recorded pieces. Raises VerifyFailed."""
    noted = notes.loaded(connection, [batch.location for batch in loaded])
    expected = {batch.partition: batch.rows for batch in files}
    grown.refuse_other_rows(connection, build, loaded)
    folded = {partition for partition, growth in build.growth.items() if growth.fold}
    for batch in loaded:
        if batch.partition in folded:
            # No file was loaded into it.
            continue
        if not (batch.rows == expected[batch.partition] == noted.get(batch.location, 0)):
            raise VerifyFailed(
                f"{build}: {batch.partition} has {expected[batch.partition]} rows, its table {batch.location} holds "
                f"{batch.rows}, and {noted.get(batch.location, 0)} are noted as loaded. {NOTHING_LOST} Run it again."
            )


def drop_tables(connection: psycopg.Connection, build: Build) -> None:
    """Drop the tables of a failed build, as far as they exist."""
    tables = [period_table(build.dataset, partition, build.batch_id) for partition in build.partitions]
    for table in tables:
        connection.execute(sql.SQL("drop table if exists {}").format(view.table_name(build.dataset, table)))
    notes.forget_loads(connection, tables)


def pieces_of(
    connection: psycopg.Connection, dataset: Dataset, tables: Sequence[tuple[str, StagedBatch]]
) -> list[CopyPiece]:
    """The row groups of the files of partitions, as pieces of their tables. The files are looked at many at once."""
    schema = periods_schema(dataset)
    pieces = []
    for (table, batch), groups in zip(tables, at_once(lambda pair: _row_groups(pair[1]), tables), strict=True):
        for name, uri, group, rows in groups:
            claim = notes.claim(connection, table, f"{name}#{group}", rows)
            pieces.append(copying.CopyPiece(batch.partition.path, uri, group, rows, schema, table, claim))
    return pieces


def _row_groups(batch: StagedBatch) -> list[tuple[str, str, int, int]]:
    """The row groups with rows in the files of a batch: name of the file, its URI, number of the group, rows."""
    files, path = open_files(batch.location)
    entries = sorted(footers.data_files(files, path), key=lambda entry: str(entry["name"]))
    return [
        (entry["name"].rsplit("/", 1)[-1], files.unstrip_protocol(entry["name"]), group, rows)
        for entry in entries
        for group, rows in enumerate(footers.rows_of_groups(files, entry))
        if rows
    ]


def _deal(pieces: Sequence[CopyPiece], shares: int) -> list[list[tuple[int, CopyPiece]]]:
    """Distribute the pieces, with their numbers, over shares of about equal size."""
    largest_first = sorted(enumerate(pieces), key=lambda numbered: -numbered[1].rows)
    return [share for number in range(shares) if (share := largest_first[number::shares])]


def _finish(connection: psycopg.Connection, build: Build, batch: StagedBatch, table: str) -> StagedBatch:
    """Build the indexes of a loaded table, count and hash its rows. Returns the batch as it is in the table."""
    name = view.table_name(build.dataset, table)
    with load_errors.of_an_index(build, batch.partition):
        for index in build.dataset.warehouse.indexes:
            connection.execute(view.create_index(build.dataset, table, index))
    connection.execute(sql.SQL("analyze {}").format(name))
    rows = notes.seal(connection, name, table)
    row = connection.execute("select pg_total_relation_size(%s::regclass)", (name.as_string(connection),)).fetchone()
    assert row is not None
    return replace(batch, location=table, rows=rows, size=int(row[0]), files=1)


def _description(build: Build, batch: StagedBatch) -> dict[str, object]:
    """The description of a batch, which is the comment of its table."""
    inputs = build.inputs.get(batch.partition, set())
    return {
        "format": 1,
        "dataset": build.dataset.name,
        "partition": batch.partition.path,
        "batch_id": build.batch_id.millis,
        "run_id": build.run_id,
        "code_version": build.code_version,
        "rows": batch.rows,
        "content": batch.content,
        "bounds": [[bounds.column, bounds.low, bounds.high] for bounds in batch.bounds],
        "inputs": sorted([read.source, read.partition, read.version] for read in inputs),
        "declaration": declaration(build.dataset),
        **grown.description(build, batch),
    }


def _chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
