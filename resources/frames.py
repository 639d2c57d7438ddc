"""The schema of Varve in the words of Spark and Arrow, and a frame made to fit its dataset.

Not here: PostgreSQL's types (warehouse/types.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline_defs.model.errors import NOTHING_LOST, BadInput
from pipeline_defs.model.schema import Column, ColumnType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from pipeline_defs.model.partition import PartitionKey
    from resources.store import Build

# Casts that lose nothing; any other difference between a frame and its declaration is refused by name.
_WIDENS = {
    ("tinyint", "INT"), ("smallint", "INT"), ("tinyint", "BIGINT"), ("smallint", "BIGINT"), ("int", "BIGINT"),
    ("tinyint", "DOUBLE"), ("smallint", "DOUBLE"), ("int", "DOUBLE"), ("float", "DOUBLE"), ("void", "*"),
}  # fmt: skip


def spark_schema(columns: Iterable[Column]) -> str:
    """The columns as a Spark DDL string, all nullable, with their comments."""
    return ", ".join(f"`{column.name}` {column.type}" for column in columns)


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """The columns as Spark writes them to parquet: timestamps in microseconds, UTC."""
    import pyarrow as pa

    types = {
        ColumnType.STRING: pa.string(),
        ColumnType.BOOLEAN: pa.bool_(),
        ColumnType.INT: pa.int32(),
        ColumnType.BIGINT: pa.int64(),
        ColumnType.DOUBLE: pa.float64(),
        ColumnType.DATE: pa.date32(),
        ColumnType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    }
    return pa.schema([pa.field(column.name, types[column.type]) for column in columns])


def conform(build: Build, frame: DataFrame) -> DataFrame:
    """The frame with exactly the dataset's data columns, then its partition columns, in the declared order and types.

    A build of one partition may leave the partition columns out; they are then added. Raises BadInput with every
    column that is missing, unknown or of a type that does not widen to the declared one.
    """
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    dataset = build.dataset
    if len(build.partitions) == 1:
        (only,) = build.partitions
        for column in dataset.partition_columns:
            if column.name not in frame.columns:
                frame = frame.withColumn(column.name, F.lit(only[column.name]).cast(column.type.lower()))
    declared = (*dataset.schema.columns, *dataset.partition_columns)
    if problems := _differences(declared, frame.schema):
        raise BadInput(f"{build}: the frame does not fit the declaration. {' '.join(problems)} {NOTHING_LOST}")
    return frame.select(
        *[F.col(f"`{column.name}`").cast(column.type.lower()).alias(column.name) for column in declared]
    )


def in_partitions(partitions: Sequence[PartitionKey]) -> SparkColumn:
    """Whether a row lies in one of the partitions; never NULL."""
    from pyspark.sql import functions as F  # noqa: N812

    names = [name for name, _ in partitions[0].fields]
    if len(partitions) == 1:
        condition = F.lit(True)  # noqa: FBT003
        for name, value in partitions[0].fields:
            condition = condition & F.col(f"`{name}`").eqNullSafe(F.lit(value))
        return condition
    # One IN over the joined spelling: a disjunction of thousands of conjunctions takes the analyzer minutes.
    spelt = F.concat_ws("\x1f", *[F.col(f"`{name}`").cast("string") for name in names])
    wanted = ["\x1f".join(str(value) for value in partition.values) for partition in partitions]
    return F.coalesce(spelt.isin(wanted), F.lit(False))  # noqa: FBT003


def _differences(declared: Sequence[Column], found: StructType) -> list[str]:
    types = {field.name: field.dataType.simpleString() for field in found.fields}
    problems = []
    if missing := [f"{column.name} {column.type}" for column in declared if column.name not in types]:
        problems.append(f"Missing: {', '.join(missing)}.")
    names = {column.name for column in declared}
    if unknown := [f"{name} {kind}" for name, kind in types.items() if name not in names]:
        problems.append(f"Not declared: {', '.join(unknown)}.")
    problems.extend(
        f"{column.name} is declared {column.type}, found {types[column.name].upper()}."
        for column in declared
        if column.name in types and not _fits(types[column.name], column.type)
    )
    return problems


def _fits(found: str, declared: ColumnType) -> bool:
    return found == declared.lower() or (found, declared.value) in _WIDENS or (found, "*") in _WIDENS
