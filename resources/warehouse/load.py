"""Loading a period table: an empty table, committed first, then one binary COPY of the partition's rows through ADBC.

Spark writes the partitions as parquet beside the lake, and this process streams them into PostgreSQL: no row crosses
from the JVM through a Python worker, and of a load that dies a table is left that nothing names.

Not here: publishing (publish.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg import sql

from pipeline_defs.model.batch import StagedBatch
from pipeline_defs.model.errors import NOTHING_LOST, BadInput, VerifyFailed
from resources.warehouse import view
from resources.warehouse.naming import period_table, periods_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import psycopg
    import pyarrow as pa

    from resources.store import Build


def load(connection: psycopg.Connection, url: str, build: Build, files: Sequence[StagedBatch]) -> list[StagedBatch]:
    """Load the parquet files of every partition into a period table of its own; what was loaded.

    `url` is for ADBC's own connection; `files` are the partitions as staged parquet, in any order.

    Raises BadInput where PostgreSQL cannot hold a value (a NUL character in a text).
    """
    import adbc_driver_postgresql.dbapi as adbc

    for statement in view.create_schemas(build.dataset):
        connection.execute(statement)
    loaded = []
    with adbc.connect(url) as copying:
        for batch in files:
            table = period_table(build.dataset, batch.partition, build.batch_id)
            with connection.transaction():
                for statement in view.create_period_table(build.dataset, table, _description(build, batch)):
                    connection.execute(statement)
            _copy(copying, build, batch, table)
            connection.execute(sql.SQL("analyze {}").format(view.table_name(build.dataset, table)))
            rows, size = _measure(connection, build, table)
            loaded.append(StagedBatch(batch.partition, table, rows, size, files=1))
    return loaded


def verify_rows(build: Build, files: Sequence[StagedBatch], loaded: Sequence[StagedBatch]) -> None:
    """Compare the rows of each table with those of its files. Raises VerifyFailed."""
    expected = {batch.partition: batch.rows for batch in files}
    for batch in loaded:
        if batch.rows != expected[batch.partition]:
            raise VerifyFailed(
                f"{build}: {batch.partition} has {expected[batch.partition]} rows, its table {batch.location} holds "
                f"{batch.rows}. {NOTHING_LOST} Run it again."
            )


def drop_tables(connection: psycopg.Connection, build: Build) -> None:
    """Drop the tables of a failed build, as far as they are there."""
    for partition in build.partitions:
        table = view.table_name(build.dataset, period_table(build.dataset, partition, build.batch_id))
        connection.execute(sql.SQL("drop table if exists {}").format(table))


def _copy(copying: Any, build: Build, batch: StagedBatch, table: str) -> None:
    import adbc_driver_manager
    import pyarrow as pa

    from resources.frames import arrow_schema

    schema = arrow_schema(build.dataset.schema.columns)
    rows = pa.RecordBatchReader.from_batches(schema, _rows(batch.location, schema))
    try:
        with copying.cursor() as cursor:
            cursor.adbc_ingest(table, rows, mode="append", db_schema_name=periods_schema(build.dataset))
        copying.commit()
    except adbc_driver_manager.Error as error:
        copying.rollback()
        raise BadInput(
            f"{build}: PostgreSQL refused the rows of {batch.partition}: {str(error).strip()} {NOTHING_LOST}"
        ) from error


def _rows(folder: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    import fsspec
    import pyarrow.dataset as ds

    files, path = fsspec.core.url_to_fs(folder)
    listed = sorted(name for name in files.ls(path, detail=False) if name.endswith(".parquet"))
    yield from ds.dataset(listed, schema=schema, format="parquet", filesystem=files).to_batches()


def _measure(connection: psycopg.Connection, build: Build, table: str) -> tuple[int, int]:
    name = view.table_name(build.dataset, table)
    row = connection.execute(
        sql.SQL("select count(*), pg_total_relation_size({}::regclass) from {}").format(
            sql.Literal(name.as_string(connection)), name
        )
    ).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def _description(build: Build, batch: StagedBatch) -> dict[str, object]:
    inputs = build.inputs.get(batch.partition, set())
    return {
        "format": 1,
        "dataset": build.dataset.name,
        "partition": batch.partition.path,
        "batch_id": build.batch_id.millis,
        "run_id": build.run_id,
        "rows": batch.rows,
        "inputs": sorted([found.source, found.partition, found.version] for found in inputs),
    }
