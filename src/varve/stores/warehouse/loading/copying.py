"""Copies spooled parquet into period tables, one piece at a time, in this process or in Spark's Python workers.

The module is sent to the workers by value: they need only pyarrow, fsspec and the ADBC driver, and not Varve.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.services.sessions import FIRST_NAMES, NO_LIMIT, settings_statement
from varve.stores.postgres.driver import connect
from varve.stores.warehouse.tables.notes import START_LOADING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

_BATCH_ROWS = 65_536
# Texts, which are sent to the workers with the functions.
_SETTINGS = (NO_LIMIT, FIRST_NAMES, settings_statement())


@dataclass(frozen=True)
class CopyPiece:
    """One row group of a parquet file: what one transaction loads.

    Attributes:
        claim: the statement that records the piece as loaded; it returns no row where it is recorded already.
    """

    partition: str
    uri: str
    group: int
    rows: int
    schema: str
    table: str
    claim: str


@dataclass(frozen=True)
class Outcome:
    """The result of a piece: how many rows are in its table now, or the server's message and SQLSTATE."""

    place: int
    rows: int = 0
    error: str | None = None
    state: str | None = None


def copy_pieces(url: str, schema: pa.Schema, pieces: Sequence[tuple[int, CopyPiece]]) -> Iterator[Outcome]:
    """Load the numbered pieces over one connection, each in one transaction with the record that it is loaded.

    Ends with the first piece that fails, because its build then fails.
    """
    import adbc_driver_manager

    place = pieces[0][0] if pieces else 0
    try:
        with connect(url) as connection:
            with connection.cursor() as cursor:
                for setting in _SETTINGS:
                    cursor.execute(setting)
                # Before the first snapshot: a publish does not wait for sessions that only load.
                cursor.execute(START_LOADING)
            connection.commit()
            for place, piece in pieces:
                yield Outcome(place, _copy(connection, schema, piece))
    except adbc_driver_manager.Error as error:
        yield Outcome(place, error=str(error).strip(), state=error.sqlstate or "")


def _copy(connection: Any, schema: pa.Schema, piece: CopyPiece) -> int:
    with connection.cursor() as cursor:
        cursor.execute(piece.claim)
        if cursor.fetchone() is not None:
            # Rows and record are one transaction. Another attempt at this piece waits for us at its claim.
            cursor.adbc_ingest(piece.table, _rows(schema, piece), mode="append", db_schema_name=piece.schema)
    connection.commit()
    return piece.rows


def _rows(schema: pa.Schema, piece: CopyPiece) -> pa.RecordBatchReader:
    import fsspec
    import pyarrow as pa
    import pyarrow.parquet as pq

    files, path = fsspec.core.url_to_fs(piece.uri)

    def batches() -> Iterator[pa.RecordBatch]:
        with files.open(path, "rb") as file:
            # Spark may write times as nanoseconds, which end in 2262. All of its times fit into microseconds.
            parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
            for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=[piece.group], columns=schema.names):
                yield batch.cast(schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def in_task(url: str, schema: pa.Schema, shares: Sequence[Sequence[tuple[int, CopyPiece]]]) -> Any:
    """A function for `mapInArrow` over the numbers of shares: it loads its share and returns the outcomes as rows."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                outcomes = list(copy_pieces(url, schema, shares[number]))
                columns = zip(
                    *[(outcome.place, outcome.rows, outcome.error, outcome.state) for outcome in outcomes], strict=True
                )
                types = (pa.int32(), pa.int64(), pa.string(), pa.string())
                yield pa.RecordBatch.from_arrays(
                    [pa.array(list(column), kind) for column, kind in zip(columns, types, strict=True)],
                    names=["place", "rows", "error", "state"],
                )

    return run


OUTCOMES = "place INT, rows BIGINT, error STRING, state STRING"
