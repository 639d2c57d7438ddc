"""The sums of the lake, computed by Spark in one read of the current batches.

Not here: the texts that are hashed (canonical_text.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.cdc.verify.canonical_text import LONG, SHOWN, lake_row, lake_text
from varve.cdc.verify.slices import Sum
from varve.model.schema import ColumnType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from varve.cdc.verify.slices import Comparison, Texts
    from varve.model.schema import Column

_SLICE, _HASH = "__slice", "__hash"


def lake_sums(frame: DataFrame, comparison: Comparison, partition_by: Mapping[str, str]) -> tuple[dict[int, Sum], int]:
    """The sum of each slice that has rows, and how many rows lie in another partition than `partition_by` says.

    `partition_by` has a Spark SQL expression for each partition column.
    """
    from pyspark.sql import functions as F  # noqa: N812

    row = lake_row([(column, lake_text(column)) for column, _ in comparison.columns])
    misplaced = F.lit(False)
    for name, expression in partition_by.items():
        expected = F.expr(expression).cast(frame.schema[name].dataType)
        misplaced |= ~expected.eqNullSafe(F.col(f"`{name}`"))
    hashed = frame.select(
        _slice(comparison).alias(_SLICE),
        F.conv(F.substring(F.md5(row), 1, 16), 16, -10).cast("bigint").alias(_HASH),
        misplaced.cast("int").alias("misplaced"),
    )
    # A sum of two halves stays a machine number; one of decimals of 38 digits takes several times as long.
    sums = hashed.groupBy(_SLICE).agg(
        F.count("*").alias("rows"),
        F.sum(F.shiftright(_HASH, 32)).alias("high"),
        F.sum(F.col(_HASH).bitwiseAND(F.lit(0xFFFFFFFF))).alias("low"),
        F.sum("misplaced").alias("misplaced"),
    )
    rows = sums.collect()
    slices = {row[_SLICE]: Sum(row["rows"], (row["high"] << 32) + row["low"]) for row in rows}
    return slices, sum(row["misplaced"] for row in rows)


def lake_rows(frame: DataFrame, comparison: Comparison, slices: Sequence[int]) -> list[Texts]:
    """The texts of the rows of some slices."""
    texts = [
        _shown(column, lake_text(column)).alias(f"c{place}") for place, (column, _) in enumerate(comparison.columns)
    ]
    return [tuple(row) for row in frame.where(_slice(comparison).isin(list(slices))).select(*texts).collect()]


def _slice(comparison: Comparison) -> SparkColumn:
    from pyspark.sql import functions as F  # noqa: N812

    if comparison.by_remainder:
        ((column, _),) = comparison.key_columns
        return F.pmod(F.col(f"`{column.name}`").cast("bigint"), F.lit(comparison.slices)).cast("int")
    key = lake_row([(column, lake_text(column)) for column, _ in comparison.key_columns])
    return F.conv(F.substring(F.md5(key), 1, comparison.digits), 16, 10).cast("int")


def _shown(column: Column, text: SparkColumn) -> SparkColumn:
    """The text, or the beginning of a long one with its length in bytes and its hash."""
    from pyspark.sql import functions as F  # noqa: N812

    if column.type not in {ColumnType.STRING, ColumnType.BINARY}:
        return text
    long = F.concat(
        F.substring(text, 1, SHOWN), F.lit("... ("), F.octet_length(text).cast("string"), F.lit(" bytes, md5 "),
        F.md5(text), F.lit(")"),
    )  # fmt: skip
    return F.when(F.octet_length(text) > LONG, long).otherwise(text)
