"""Loading period tables: empty tables, committed first, then binary COPY of their pieces through ADBC.

Spark writes the partitions as parquet, whose row groups are then the pieces of the load. The other way spares the
files: each Spark task hands its rows to a Python worker that loads them (1.3 times as fast in benchmarks/load.py). It
is not taken, because it cannot load a row exactly once: a stage that is computed again may deal its rows to other
tasks, of which some have committed already. Files are complete before the first row is loaded, and always the same.

Who copies goes by size: below some 64 MB this process, whose connections are the quickest to be there; above, tasks of
Spark, as fast on one machine (4.1 to 4.4 s for 2 million rows, either way), and the only way that grows with a cluster.

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
from varve.stores.frames import arrow_schema
from varve.stores.postgres.types import wire_dataset
from varve.stores.warehouse.loading import copying, grown
from varve.stores.warehouse.loading import errors as load_errors
from varve.stores.warehouse.tables import notes, view
from varve.stores.warehouse.tables.naming import period_table, periods_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from varve.model.batch import StagedBatch
    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.stores.warehouse.loading.copying import CopyPiece, Outcome

# Below, this process loads alone: a Spark job with Python workers costs a second before its first row.
_BYTES_FOR_SPARK = 64 << 20
# What is worth a connection of its own.
_BYTES_A_CONNECTION = 4 << 20
_TABLES_A_TRANSACTION = 100


@dataclass(frozen=True)
class Route:
    """By which way rows may go into PostgreSQL.

    Attributes:
        url: for connections of ADBC's own; it must be reachable from Spark's workers for large loads.
        connections: how many may load at once.
        spark: opens the session whose workers load what is large; None where this process loads everything.
    """

    url: str = field(repr=False)
    connections: int = 4
    spark: Callable[[], SparkSession] | None = None

    @property
    def loading_url(self) -> str:
        """The URL under a name by which a person finds these sessions; tables/notes.py has what a publish goes by."""
        return session_url(self.url, application_name="varve-load")

    @property
    def reading_url(self) -> str:
        """The URL for those who read the tables back."""
        return session_url(self.url)


@contextlib.contextmanager
def loading(connection: psycopg.Connection) -> Iterator[None]:
    """Say that this session only fills tables: building an index has a snapshot, for which no publish need wait."""
    notes.start_loading(connection)
    try:
        yield
    finally:
        # Where the connection is lost, its session is no more; the error that lost it is the one to tell.
        with contextlib.suppress(psycopg.OperationalError):
            notes.end_loading(connection)


def load(connection: psycopg.Connection, route: Route, build: Build, files: Sequence[StagedBatch]) -> list[StagedBatch]:
    """Load the parquet files of every partition into a period table of its own; what was loaded.

    `files` are the partitions as staged parquet, in any order.

    Raises BadInput where PostgreSQL cannot hold a value (a NUL character in a text) or an index refuses one.
    """
    dataset = build.dataset
    notes.ensure_tables(connection)
    for statement in view.create_schemas(dataset):
        connection.execute(statement)
    tables = {batch.partition: period_table(dataset, batch.partition, build.batch_id) for batch in files}
    for some in _chunks(files, _TABLES_A_TRANSACTION):
        with connection.transaction():
            for batch in some:
                for statement in view.create_period_table(dataset, tables[batch.partition], _description(build, batch)):
                    connection.execute(statement)
    pieces = [piece for batch in files for piece in pieces_of(connection, dataset, tables[batch.partition], batch)]
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
    """Load each share in a Spark task; no row crosses from the JVM, the workers read the files themselves."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(copying)  # type: ignore[no-untyped-call]
    assert route.spark is not None
    numbers = route.spark().range(0, len(shares), 1, len(shares))
    task = copying.in_task(route.loading_url, schema, shares)
    for row in numbers.mapInArrow(task, copying.OUTCOMES).collect():
        yield copying.Outcome(row["place"], row["rows"], row["error"], row["state"])


def verify_rows(
    connection: psycopg.Connection, build: Build, files: Sequence[StagedBatch], loaded: Sequence[StagedBatch]
) -> None:
    """Compare the rows of each table, as counted there, with its files and with its notes. Raises VerifyFailed."""
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
    """Drop the tables of a failed build, as far as they are there."""
    tables = [period_table(build.dataset, partition, build.batch_id) for partition in build.partitions]
    for table in tables:
        connection.execute(sql.SQL("drop table if exists {}").format(view.table_name(build.dataset, table)))
    notes.forget_loads(connection, tables)


def pieces_of(connection: psycopg.Connection, dataset: Dataset, table: str, batch: StagedBatch) -> Iterator[CopyPiece]:
    """The row groups of a partition's files, as pieces of a table."""
    import pyarrow.parquet as pq

    files, path = open_files(batch.location)
    for name in sorted(name for name in files.ls(path, detail=False) if name.endswith(".parquet")):
        with files.open(name, "rb") as file:
            footer = pq.read_metadata(file)
        for group in range(footer.num_row_groups):
            if rows := footer.row_group(group).num_rows:
                label = f"{name.rsplit('/', 1)[-1]}#{group}"
                claim = notes.claim(connection, table, label, rows)
                uri = files.unstrip_protocol(name)
                yield copying.CopyPiece(batch.partition.path, uri, group, rows, periods_schema(dataset), table, claim)


def _deal(pieces: Sequence[CopyPiece], shares: int) -> list[list[tuple[int, CopyPiece]]]:
    largest_first = sorted(enumerate(pieces), key=lambda numbered: -numbered[1].rows)
    return [share for number in range(shares) if (share := largest_first[number::shares])]


def _finish(connection: psycopg.Connection, build: Build, batch: StagedBatch, table: str) -> StagedBatch:
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
        "inputs": sorted([found.source, found.partition, found.version] for found in inputs),
        "declaration": declaration(build.dataset),
        **grown.description(build, batch),
    }


def _chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
