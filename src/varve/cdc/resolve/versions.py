"""History: every version of each row with the time in which it was true (slowly changing dimension, type 2).

The stored versions of a key become operations of their own, after all events of their transaction. So a late event
finds its place among them: it changes the rows from its LSN to the next version, and nothing after that. A row that
exists only within a transaction gets no version, and neighbouring versions with the same values become one.

Not here: resolving only the present rows (resolve.py, general.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.cdc.resolve.general import ENDS, cell, clashes_of, lives_of, operations_of, spans_of
from varve.cdc.resolve.shape import GONE, REASON, TableShape, among, key_column
from varve.services.spark import checkpointed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A sequence number after every event of the same transaction.
_AFTER = 2**62


def resolve_versions(base: DataFrame, events: DataFrame, shape: TableShape) -> tuple[DataFrame, DataFrame | None]:
    """All versions of each key in the events, with their validity, and the undecided keys (None: there are none)."""
    from pyspark.sql import functions as F  # noqa: N812

    keys = [key_column(name) for name in shape.key]
    operations = checkpointed(operations_of(events.where("changeType <> 'truncate'"), shape))
    truncates = events.where("changeType = 'truncate'").select("commitLsn", "seq", "timestamp").distinct()
    touched = operations.select(*keys).distinct()
    if not truncates.isEmpty():
        base_keys = base.select(*[F.col(f"`{name}`").alias(key_column(name)) for name in shape.key])
        touched = checkpointed(touched.unionByName(base_keys).distinct())
        operations = operations.unionByName(_emptied(touched, truncates, operations))
    pairs = [(name, key_column(name)) for name in shape.key]
    stored = among(base, touched, pairs, "left_semi", shape)
    spans = checkpointed(spans_of(operations.unionByName(_stored_operations(stored, shape)), keys))
    versions = checkpointed(_versions(lives_of(spans), shape))
    with_reason = versions.where(f"{REASON} is not null").select(*keys, REASON)
    undecided = with_reason.unionByName(clashes_of(spans, keys))
    merged = _merged(versions.where("__known and (valid_to_lsn is null or valid_from_lsn <> valid_to_lsn)"), shape)
    return checkpointed(merged), None if undecided.isEmpty() else undecided


def _emptied(touched: DataFrame, truncates: DataFrame, operations: DataFrame) -> DataFrame:
    """The operations of TRUNCATEs: a delete of each key, which has no effect on a key without a row."""
    from pyspark.sql import functions as F  # noqa: N812

    kept_columns = {"commitLsn", "seq", "at", *touched.columns}
    constants = {"sub": F.lit(0), "op": F.lit("D"), "unfit": F.lit(False)}
    return touched.crossJoin(F.broadcast(truncates)).select(
        *[
            F.col("timestamp").try_cast("timestamp").alias("at") if name == "at"
            else F.col(name) if name in kept_columns
            else constants.get(name, F.lit(None)).cast(operations.schema[name].dataType).alias(name)
            for name in operations.columns
        ]
    )  # fmt: skip


def _stored_operations(stored: DataFrame, shape: TableShape) -> DataFrame:
    """The operations of stored versions: each begins a row with all values, and ends it where its validity ends."""
    from pyspark.sql import functions as F  # noqa: N812

    def operation(kind: str, sub: int, side: str) -> DataFrame:
        cell_values = {
            name: F.struct(F.col(f"`{name}`").alias("v"), F.lit(False).alias("wrong")) for name in shape.names
        }  # fmt: skip
        cells = [
            (cell_values[name] if kind == "V" else F.when(F.lit(False), cell_values[name])).alias(cell(name))
            for name in cell_values
        ]
        return stored.where(f"valid_{side}_lsn is not null").select(
            F.col(f"valid_{side}_lsn").alias("commitLsn"),
            F.lit(_AFTER).cast("bigint").alias("seq"),
            F.col(f"valid_{side}").alias("at"),
            F.lit(sub).alias("sub"),
            F.lit(kind).alias("op"),
            F.lit(False).alias("unfit"),
            *[F.col(f"`{name}`").alias(key_column(name)) for name in shape.key],
            *cells,
        )

    return operation("V", 1, "from").unionByName(operation("D", 0, "to"))


def _versions(lives: DataFrame, shape: TableShape) -> DataFrame:
    """The version that each operation makes of its row, valid until the next operation on the key."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    keys = [key_column(name) for name in shape.key]
    place = ("commitLsn", "seq", "sub")
    on_key = Window.partitionBy(*keys).orderBy(*place)
    so_far = Window.partitionBy("life").orderBy(*place).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    valued = lives.select(
        *keys, "op",
        F.col("commitLsn").alias("valid_from_lsn"), F.lead("commitLsn").over(on_key).alias("valid_to_lsn"),
        F.col("at").alias("valid_from"), F.lead("at").over(on_key).alias("valid_to"),
        *[F.last(cell(name), ignorenulls=True).over(so_far).alias(cell(name)) for name in shape.names],
    ).where(~F.col("op").isin(*ENDS))  # fmt: skip
    unknown = F.concat_ws(", ", *[F.when(F.col(cell(name)).isNull(), name) for name in shape.names])
    misfits = F.concat_ws(", ", *[F.when(F.col(f"{cell(name)}.wrong"), name) for name in shape.checked])
    return valued.select(
        *keys,
        *[F.col(f"{cell(name)}.v").alias(name) for name in shape.names],
        "valid_from_lsn", "valid_to_lsn", "valid_from", "valid_to",
        (unknown == "").alias("__known"),
        # A past version with unknown values is left out; the present version must be known completely.
        F.when(F.col("valid_to_lsn").isNull() & (unknown != ""), F.concat(F.lit("nothing is known of "), unknown))
        .when(misfits != "", F.concat(F.lit("no such value in the lake: "), misfits))
        .alias(REASON),
    )  # fmt: skip


def _merged(versions: DataFrame, shape: TableShape) -> DataFrame:
    """Versions of a key that follow each other with the same values are merged into one."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    keys = [key_column(name) for name in shape.key]
    ordered = Window.partitionBy(*keys).orderBy("valid_from_lsn")
    row_values = F.struct(*[F.col(f"`{name}`") for name in shape.names])
    same = F.lag(row_values).over(ordered).eqNullSafe(row_values) & (
        F.lag("valid_to_lsn").over(ordered) == F.col("valid_from_lsn")
    )
    first = F.when(F.coalesce(same, F.lit(False)), 0).otherwise(1)
    grouped = versions.withColumn("__first", first).withColumn(
        "__run", F.sum("__first").over(ordered.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    )
    ends = F.max_by(F.struct("valid_to_lsn", "valid_to"), "valid_from_lsn").alias("__end")
    merged = grouped.groupBy(*keys, "__run").agg(
        *[F.first(f"`{name}`").alias(name) for name in shape.names],
        F.min("valid_from_lsn").alias("valid_from_lsn"),
        F.min_by("valid_from", "valid_from_lsn").alias("valid_from"),
        ends,
    )
    columns = [*keys, *[f"`{name}`" for name in shape.names], "valid_from_lsn", "__end.valid_to_lsn", "valid_from",
               "__end.valid_to"]  # fmt: skip
    return merged.select(*columns, F.lit(False).alias(GONE), F.lit(None).cast("string").alias(REASON))
