"""The sums of the lake, computed by Spark in one read of the current batches.

Not here: what is added up (row_numbers.py), and the texts that rows are compared by (canonical_text.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.cdc.verify.canonical_text import LONG, SHOWN, lake_text
from varve.cdc.verify.row_numbers import PRIME, TURNED, lake_number
from varve.cdc.verify.slices import Sum
from varve.model.schema import ColumnType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from varve.cdc.verify.slices import Comparison, Texts
    from varve.model.schema import Column

_SLICE, _NUMBER = "__slice", "__number"
_ADDED_UP = f"sum({_NUMBER} * ({_NUMBER} ^ {TURNED}L) % {PRIME}L)"


def lake_sums(frame: DataFrame, comparison: Comparison, partition_by: Mapping[str, str]) -> tuple[dict[int, Sum], int]:
    """The sum of each slice that has rows, and how many rows lie in another partition than `partition_by` says.

    `partition_by` has a Spark SQL expression for each partition column.
    """
    from pyspark.sql import functions as F  # noqa: N812

    misplaced = F.lit(False)
    for name, expression in partition_by.items():
        expected = F.expr(expression).cast(frame.schema[name].dataType)
        misplaced |= ~expected.eqNullSafe(F.col(f"`{name}`"))
    number = F.expr(lake_number([column for column, _ in comparison.columns]))
    numbered = frame.select(
        number.alias(_NUMBER), (_slice(comparison) if comparison.key else F.lit(None)).alias(_SLICE),
        misplaced.cast("int").alias("misplaced"),
    )  # fmt: skip
    if not comparison.key:
        numbered = numbered.withColumn(_SLICE, _of_number(F.col(_NUMBER), comparison))
    sums = numbered.groupBy(_SLICE).agg(
        F.count("*").alias("rows"), F.expr(_ADDED_UP).alias("numbers"), F.sum("misplaced").alias("misplaced")
    )
    rows = sums.collect()
    return {row[_SLICE]: Sum(row["rows"], row["numbers"]) for row in rows}, sum(row["misplaced"] for row in rows)


def lake_rows(frame: DataFrame, comparison: Comparison, slices: Sequence[int]) -> list[Texts]:
    """The texts of the rows of some slices."""
    texts = [
        _shown(column, lake_text(column)).alias(f"c{place}") for place, (column, _) in enumerate(comparison.columns)
    ]
    return [tuple(row) for row in frame.where(_slice(comparison).isin(list(slices))).select(*texts).collect()]


def _slice(comparison: Comparison) -> SparkColumn:
    from pyspark.sql import functions as F  # noqa: N812

    return _of_number(F.expr(lake_number([column for column, _ in comparison.key_columns])), comparison)


def _of_number(number: SparkColumn, comparison: Comparison) -> SparkColumn:
    """The slice, by the number of the key."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.pmod(number, F.lit(comparison.slices)).cast("int")


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
