"""COPY of spooled parquet into period tables, one piece at a time; runs in this process and in Spark's Python workers.

Sent to the workers by value: nothing of Varve need be installed there, only pyarrow, fsspec and the ADBC driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.services.sessions import FIRST_NAMES, NO_LIMIT, settings_statement
from varve.stores.warehouse.tables.notes import START_LOADING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

_BATCH_ROWS = 65_536
# Texts, which go to the workers with the functions.
_SETTINGS = (NO_LIMIT, FIRST_NAMES, settings_statement())


@dataclass(frozen=True)
class CopyPiece:
    """One row group of a parquet file: what one transaction loads.

    Attributes:
        claim: the statement that notes the piece as loaded; it returns no row where it is noted already.
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
    """What became of a piece: the rows in its table now, or the server's words with their SQLSTATE."""

    place: int
    rows: int = 0
    error: str | None = None
    state: str | None = None


def copy_pieces(url: str, schema: pa.Schema, pieces: Sequence[tuple[int, CopyPiece]]) -> Iterator[Outcome]:
    """Load the numbered pieces over one connection, each in a transaction of its own with the note that it is loaded.

    Ends with the first that fails: its build fails whole.
    """
    import adbc_driver_manager
    import adbc_driver_postgresql.dbapi as adbc

    place = pieces[0][0] if pieces else 0
    try:
        with adbc.connect(url) as connection:
            with connection.cursor() as cursor:
                for setting in _SETTINGS:
                    cursor.execute(setting)
                # Before its first snapshot: a publish waits for no session that only loads.
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
            # Rows and note together, or neither. Another attempt at this piece waits for us at the note.
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
            # Spark may write instants in nanoseconds, which end in 2262; every one of its instants fits microseconds.
            parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
            for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=[piece.group], columns=schema.names):
                yield batch.cast(schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def in_task(url: str, schema: pa.Schema, dealt: Sequence[Sequence[tuple[int, CopyPiece]]]) -> Any:
    """A function for `mapInArrow` over the numbers of the shares: loads its share, returns the outcomes as rows."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                outcomes = list(copy_pieces(url, schema, dealt[number]))
                columns = zip(*[(one.place, one.rows, one.error, one.state) for one in outcomes], strict=True)
                types = (pa.int32(), pa.int64(), pa.string(), pa.string())
                yield pa.RecordBatch.from_arrays(
                    [pa.array(list(column), kind) for column, kind in zip(columns, types, strict=True)],
                    names=["place", "rows", "error", "state"],
                )

    return run


OUTCOMES = "place INT, rows BIGINT, error STRING, state STRING"
