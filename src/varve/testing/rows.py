"""Rows of a test as the table of a dataset, with its types; and the rows of a frame as a test compares them.

Not here: which of them a run reads (sql.py).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from varve.model.batch import BatchId
from varve.model.build import Build
from varve.model.errors import BadInput, nearest
from varve.model.partitions.key import Interval, PartitionKey, plain
from varve.model.schema import Kind
from varve.stores.frames import arrow_schema, arrow_type, conform, spark_schema

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

    from varve.model.dataset import Dataset
    from varve.model.schema import Column

_WHOLE = {Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT}
# What a test may give as the rows of a dataset.
Rows: TypeAlias = "Iterable[Mapping[str, Any]] | DataFrame | pd.DataFrame"


def frame_of(spark: SparkSession, dataset: Dataset, given: Rows) -> DataFrame:
    """The rows as the dataset's table: its data columns, then its partition columns, typed.

    A column that a row leaves out is NULL; a partition column must be there. Raises BadInput for what the dataset
    cannot hold, with the row and the column.
    """
    if isinstance(given, _spark_frame()):
        return conform(_build_of(dataset), given)
    columns = dataset.read_columns()
    rows = [_checked(dataset, place, row) for place, row in enumerate(_records(given), 1)]
    return spark.createDataFrame(_table(dataset, columns, rows), spark_schema(columns))


def rows_of_frame(frame: DataFrame, first: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The rows, sorted by the columns `first` and then by the others; timestamps are in UTC and say so."""
    rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
    names = [*first, *(name for name in frame.columns if name not in first)]
    return sorted(rows, key=lambda row: [_sortable(row[name]) for name in names])


def _spark_frame() -> type[DataFrame]:
    from pyspark.sql import DataFrame

    return DataFrame


def _records(given: Iterable[Mapping[str, Any]] | pd.DataFrame) -> Iterable[Mapping[str, Any]]:
    import pandas as pd

    if not isinstance(given, pd.DataFrame):
        if not isinstance(given, Iterable) or isinstance(given, str | Mapping):
            raise BadInput(f"{given!r} are no rows: give a list of dicts, empty where there is none, or a DataFrame.")
        return given
    records: list[Mapping[str, Any]] = given.astype(object).where(given.notna(), None).to_dict("records")
    return records


def _build_of(dataset: Dataset, partitions: Sequence[PartitionKey] = ()) -> Build:
    return Build(dataset, tuple(partitions), BatchId(0), "test", {})


def as_written(dataset: Dataset, partitions: Sequence[PartitionKey], frame: DataFrame) -> DataFrame:
    """A frame as a store would take it from a run of these partitions. Raises BadInput where it would not."""
    return conform(_build_of(dataset, partitions), frame)


def _checked(dataset: Dataset, place: int, row: object) -> Mapping[str, Any]:
    names = [column.name for column in dataset.read_columns()]
    if not isinstance(row, Mapping):
        raise BadInput(f"{dataset}, row {place} is {row!r}: write a row as a dict of {', '.join(names)}.")
    for name in row:
        if name not in names:
            raise BadInput(
                f"{dataset}, row {place}: there is no column {name!r}.{nearest(str(name), names)} It has "
                f"{', '.join(names)}."
            )
    for column in dataset.read_columns():
        if row.get(column.name) is None and not column.nullable:
            what = "the partition column" if column in dataset.partition_columns else "the column"
            raise BadInput(f"{dataset}, row {place}: {what} {column.name} has no value; give one.")
    return row


def _table(dataset: Dataset, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> Any:
    import pyarrow as pa

    arrays = []
    for column in columns:
        values = []
        for place, row in enumerate(rows, 1):
            try:
                value = _typed(row.get(column.name), column.type.kind)
                # One by one, so that the row can be named.
                pa.array([value], arrow_type(column.type))
            except (pa.ArrowException, ValueError, ArithmeticError, TypeError) as error:
                raise BadInput(
                    f"{dataset}, row {place}: {column.name} is {column.type}, and {row[column.name]!r} is none: {error}"
                ) from None
            values.append(value)
        arrays.append(pa.array(values, arrow_type(column.type)))
    return pa.Table.from_arrays(arrays, schema=arrow_schema(columns))


def _typed(value: Any, kind: Kind) -> Any:
    """A value as Arrow takes it for a column of this kind; texts of dates, instants and decimals are read."""
    if isinstance(value, PartitionKey | Interval):
        return plain(value)
    if isinstance(value, str) and kind is Kind.DATE:
        return dt.date.fromisoformat(value)
    if isinstance(value, str) and kind in {Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ}:
        value = dt.datetime.fromisoformat(value)
    if isinstance(value, dt.datetime) and kind is Kind.TIMESTAMP:
        return value if value.tzinfo else value.replace(tzinfo=dt.UTC)
    if kind is Kind.DECIMAL and isinstance(value, str | int | float) and not isinstance(value, bool):
        return Decimal(str(value))
    if kind in _WHOLE and isinstance(value, float):
        if not value.is_integer():
            raise ValueError("it would be rounded")
        return int(value)
    return value


def _sortable(value: Any) -> tuple[int, Any]:
    """Whatever a row holds, in an order of its own: values that cannot be compared by their text, NULL first."""
    if value is None:
        return (0, 0)
    if isinstance(value, bool | int | float | Decimal):
        return (1, value) if value == value else (2, 0)  # noqa: PLR0124 - NaN is not itself
    return (3, value.isoformat() if isinstance(value, dt.date | dt.datetime) else str(value))
