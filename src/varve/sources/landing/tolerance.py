"""The tolerance of a landing dataset: its rejected rows are counted by partition, and kept for their own dataset.

Not here: which rows are rejected (varve/sources/formats), and publishing them (varve/dagster/runs/io_manager.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from varve.model.errors import NOTHING_LOST, BadInput, counted, some
from varve.sources.formats import tasks
from varve.stores.frames import arrow_schema, spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from varve.model.dataset import Dataset
    from varve.sources.formats.checks import RowProblem
    from varve.sources.formats.file_reading import FileReading
    from varve.sources.formats.tasks import FilePiece

_TOLD = 5
# How many rows are counted beyond the limit, for the message.
_COUNTED = 1_000


@dataclass
class Tolerance:
    """The rejected rows of one run.

    Attributes:
        dataset: the landing dataset.
        into: the dataset of its rejected rows.
        at_most: how many rows of a partition may be rejected.
        rows: the rejected rows, as rows of `into` with their partition columns.
    """

    dataset: Dataset
    into: Dataset
    at_most: int
    rows: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, dataset: Dataset) -> Tolerance | None:
        """The tolerance of a dataset; None where it has none, so that one refused value refuses its file."""
        into = dataset.rejected_dataset()
        return None if into is None or dataset.reject_into is None else cls(dataset, into, dataset.reject_into.at_most)

    @property
    def _schema(self) -> pa.Schema:
        return arrow_schema((*self.into.schema.columns, *self.into.partition_columns))

    @property
    def _names(self) -> list[str]:
        return [column.name for column in self.into.partition_columns]

    @property
    def _limit(self) -> int:
        return self.at_most + _COUNTED

    def add(self, piece: FilePiece, problems: Iterable[RowProblem]) -> None:
        """Add the problems of a file as rejected rows. Raises BadInput where its partition has too many."""
        key = dict(zip(self._names, piece.values, strict=True))
        self._add([{**row, **key} for row in tasks.rows_of(piece, problems)])

    def look(self, numbers: DataFrame, shares: Sequence[Sequence[FilePiece]], reading: FileReading) -> None:
        """Find the rejected rows of all files with Spark's workers.

        Raises BadInput where a partition has too many. A file that is bad as a whole fails the job; `explain_bad_row`
        then finds the file.
        """
        task = tasks.rejected_in_task(shares, reading, self._schema, self._names, self._limit)
        columns = spark_schema((*self.into.schema.columns, *self.into.partition_columns))
        self._add(numbers.mapInArrow(task, columns).toArrow().to_pylist())

    def table(self) -> pa.Table:
        """The rejected rows, in the order of partitions, files and lines."""
        import pyarrow as pa

        names = [*self._names, "file"]
        ordered = sorted(self.rows, key=lambda row: ([str(row[name]) for name in names], row["line"]))
        return pa.Table.from_pylist(ordered, self._schema)

    def _add(self, rows: list[dict[str, Any]]) -> None:
        self.rows += rows
        by_partition: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.rows:
            by_partition.setdefault(tuple(row[name] for name in self._names), []).append(row)
        # An earlier partition that has too many was told of when its rows were added.
        for key in {tuple(row[name] for name in self._names): None for row in rows}:
            if len(by_partition[key]) > self.at_most:
                raise self._too_many(by_partition[key])

    def _too_many(self, rows: Sequence[dict[str, Any]]) -> BadInput:
        files = list(dict.fromkeys(row["file"] for row in rows))
        unit = "row" if files[0].endswith((".parquet", ".avro")) else "line"
        shown_rows = some(
            [
                f"{unit} {row['line']}: {f'column {name}: ' if (name := row['column_name']) else ''}{row['reason']}"
                for row in rows
                if row["file"] == files[0]
            ][:_TOLD],
        )
        count = f"{len(rows):,}{' or more' if len(rows) >= self._limit else ''}"
        other_files = f" and of {counted(len(files) - 1, 'file')} beside it" if len(files) > 1 else ""
        more = " and more" if len(rows) > _TOLD else ""
        return BadInput(
            f"{files[0]} ({self.dataset}): {count} rows of it{other_files} cannot be read as declared, more than the "
            f"{self.at_most:,} that go into {self.into}: {shown_rows}{more}. {NOTHING_LOST} "
            "Ask the partner to send it again; when it arrives its partition runs by itself. Or raise the limit of "
            f"REJECT UP TO, and run varve backfill start {self.dataset}."
        )
