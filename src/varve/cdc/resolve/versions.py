"""History: every version of each row with the time in which it was true (slowly changing dimension, type 2).

The stored versions of a key take part as operations of their own, after all events of their transaction. So an event
that comes late finds its place among them: it changes what was true from its LSN to the next version, and nothing after
that. What a transaction made and unmade was true at no time, and versions that say the same become one.

Not here: the state alone (resolve.py, general.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.cdc.resolve.general import ENDS, cell, clashes_of, lives_of, operations_of, spans_of
from varve.cdc.resolve.shape import GONE, REASON, TableShape, among, key_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# After every event of the same transaction.
_AFTER = 2**62


def resolve_versions(base: DataFrame, events: DataFrame, shape: TableShape) -> tuple[DataFrame, DataFrame | None]:
    """All versions of each key that events touch, with their validity, and the keys that are undecided."""
    from pyspark.sql import functions as F  # noqa: N812

    keys = [key_column(name) for name in shape.key]
    operations = operations_of(events.where("changeType <> 'truncate'"), shape).localCheckpoint()
    truncates = events.where("changeType = 'truncate'").select("commitLsn", "seq", "timestamp").distinct()
    touched = operations.select(*keys).distinct()
    if not truncates.isEmpty():
        there = base.select(*[F.col(f"`{name}`").alias(key_column(name)) for name in shape.key])
        touched = touched.unionByName(there).distinct().localCheckpoint()
        operations = operations.unionByName(_emptied(touched, truncates, operations))
    pairs = [(name, key_column(name)) for name in shape.key]
    stored = among(base, touched, pairs, "left_semi", shape)
    spans = spans_of(operations.unionByName(_stored_operations(stored, shape)), keys).localCheckpoint()
    versions = _versions(lives_of(spans), shape).localCheckpoint()
    found = versions.where(f"{REASON} is not null").select(*keys, REASON)
    undecided = found.unionByName(clashes_of(spans, keys))
    known = _merged(versions.where("__known and (valid_to_lsn is null or valid_from_lsn <> valid_to_lsn)"), shape)
    return known.localCheckpoint(), None if undecided.isEmpty() else undecided


def _emptied(touched: DataFrame, truncates: DataFrame, operations: DataFrame) -> DataFrame:
    """A TRUNCATE deletes each key; one that has no row by then loses none."""
    from pyspark.sql import functions as F  # noqa: N812

    known = {"commitLsn", "seq", "at", *touched.columns}
    said = {"sub": F.lit(0), "op": F.lit("D"), "unfit": F.lit(False)}
    return touched.crossJoin(F.broadcast(truncates)).select(
        *[
            F.col("timestamp").try_cast("timestamp").alias("at") if name == "at"
            else F.col(name) if name in known
            else said.get(name, F.lit(None)).cast(operations.schema[name].dataType).alias(name)
            for name in operations.columns
        ]
    )  # fmt: skip


def _stored_operations(stored: DataFrame, shape: TableShape) -> DataFrame:
    """A version begins a row, of which all is known, and ends it where it was ended."""
    from pyspark.sql import functions as F  # noqa: N812

    def operation(kind: str, sub: int, side: str) -> DataFrame:
        told = {
            name: F.struct(F.col(f"`{name}`").alias("v"), F.lit(False).alias("wrong")) for name in shape.names
        }  # fmt: skip
        cells = [(told[name] if kind == "V" else F.when(F.lit(False), told[name])).alias(cell(name)) for name in told]
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
    """What each operation makes of its row, true until the next operation on the key."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    keys = [key_column(name) for name in shape.key]
    place = ("commitLsn", "seq", "sub")
    on_key = Window.partitionBy(*keys).orderBy(*place)
    so_far = Window.partitionBy("life").orderBy(*place).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    told = lives.select(
        *keys, "op",
        F.col("commitLsn").alias("valid_from_lsn"), F.lead("commitLsn").over(on_key).alias("valid_to_lsn"),
        F.col("at").alias("valid_from"), F.lead("at").over(on_key).alias("valid_to"),
        *[F.last(cell(name), ignorenulls=True).over(so_far).alias(cell(name)) for name in shape.names],
    ).where(~F.col("op").isin(*ENDS))  # fmt: skip
    unknown = F.concat_ws(", ", *[F.when(F.col(cell(name)).isNull(), name) for name in shape.names])
    wrong = F.concat_ws(", ", *[F.when(F.col(f"{cell(name)}.wrong"), name) for name in shape.checked])
    return told.select(
        *keys,
        *[F.col(f"{cell(name)}.v").alias(name) for name in shape.names],
        "valid_from_lsn", "valid_to_lsn", "valid_from", "valid_to",
        (unknown == "").alias("__known"),
        # What was so for a while without being known whole is left out; what is so now must be known.
        F.when(F.col("valid_to_lsn").isNull() & (unknown != ""), F.concat(F.lit("nothing is known of "), unknown))
        .when(wrong != "", F.concat(F.lit("no such value in the lake: "), wrong))
        .alias(REASON),
    )  # fmt: skip


def _merged(versions: DataFrame, shape: TableShape) -> DataFrame:
    """Versions of a key that follow each other and say the same, as one."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    keys = [key_column(name) for name in shape.key]
    ordered = Window.partitionBy(*keys).orderBy("valid_from_lsn")
    says = F.struct(*[F.col(f"`{name}`") for name in shape.names])
    same = F.lag(says).over(ordered).eqNullSafe(says) & (F.lag("valid_to_lsn").over(ordered) == F.col("valid_from_lsn"))
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
