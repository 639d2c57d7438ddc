"""The rows of landing files as a Spark frame, read by this process or by Spark's workers.

Not here: one file (varve/sources/formats), and which files a run reads (landing.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.model.errors import BadInput
from varve.model.partitions.key import plain
from varve.sources import formats
from varve.sources.formats import tasks
from varve.sources.formats.file_reading import BadFile
from varve.sources.formats.tasks import BadRows, FilePiece
from varve.sources.landing.bad_rows import all_bad_rows
from varve.sources.landing.declared_file import blamed, raise_all, reading_of, source_of
from varve.stores.frames import arrow_schema, spark_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey
    from varve.sources.formats.checks import RowProblem
    from varve.sources.formats.file_reading import FileReading
    from varve.sources.landing.inspected import Inspected
    from varve.sources.landing.tolerance import Tolerance

# How many bytes are worth a task of their own, and the largest number of tasks.
_BYTES_A_TASK = 4 << 20
_MOST_TASKS = 1_000
# The cost of opening a file, as the number of bytes that could be read in that time.
_BYTES_TO_OPEN = 64 << 10


def frame_of(
    spark: SparkSession,
    dataset: Dataset,
    files: Mapping[PartitionKey, Sequence[Inspected]],
    tolerance: Tolerance | None,
    *,
    bytes_for_spark: int,
) -> DataFrame:
    """The rows of these files; rejected rows go to `tolerance`.

    With more than `bytes_for_spark` in them Spark's workers read the files, else this process does.

    Raises BadInput where this process reads the files and rows are refused, or more rows than are tolerated.
    """
    columns = (*dataset.schema.columns, *dataset.partition_columns)
    schema, reading = arrow_schema(columns), reading_of(dataset)
    pieces = [
        FilePiece(source_of(dataset, file.uri), tuple(plain(value) for value in key.values), file.size)
        for key, files_of_partition in files.items()
        for file in files_of_partition
    ]
    if sum(piece.size for piece in pieces) <= bytes_for_spark:
        rows = _table(dataset, pieces, reading, schema, tolerance)
        # Spark does not accept a table without batches.
        return spark.createDataFrame(rows if rows.num_rows else [], spark_schema(columns))
    from pyspark import cloudpickle

    # With all modules of the package.
    cloudpickle.register_pickle_by_value(formats)  # type: ignore[no-untyped-call]
    shares = _shares(pieces)
    numbers = spark.range(0, len(shares), 1, len(shares))
    if tolerance is None:
        return numbers.mapInArrow(tasks.in_task(shares, reading, schema), spark_schema(columns))
    # The files are read twice: a job returns only one table, and the good rows must not wait in memory.
    tolerance.look(numbers, shares, reading)
    return numbers.mapInArrow(tasks.in_task(shares, reading, schema, without_rejected=True), spark_schema(columns))


def _table(
    dataset: Dataset, pieces: Sequence[FilePiece], reading: FileReading, schema: pa.Schema, tolerance: Tolerance | None
) -> pa.Table:
    import pyarrow as pa

    batches: list[pa.RecordBatch] = []
    errors: list[BadInput] = []
    for piece in pieces:
        rejected: list[RowProblem] | None = None if tolerance is None else []
        try:
            batches += tasks.file_batches(piece, reading, schema, rejected)
            if tolerance is not None and rejected:
                tolerance.add(piece, rejected)
        except (BadRows, BadFile):
            errors.append(all_bad_rows(dataset, piece.source))
        except BadInput as error:
            errors.append(BadInput(str(error), partitions=blamed(dataset, piece.source.uri)))
    raise_all(errors)
    return pa.Table.from_batches(batches, schema)


def _shares(pieces: Sequence[FilePiece]) -> list[list[FilePiece]]:
    """The pieces in about equal shares, each the work of one task."""
    size = sum(piece.size + _BYTES_TO_OPEN for piece in pieces)
    count = max(1, min(size // _BYTES_A_TASK, len(pieces), _MOST_TASKS))
    shares_of_pieces: list[list[FilePiece]] = [[] for _ in range(count)]
    for number, piece in enumerate(sorted(pieces, key=lambda piece: -piece.size)):
        shares_of_pieces[number % count].append(piece)
    return shares_of_pieces
