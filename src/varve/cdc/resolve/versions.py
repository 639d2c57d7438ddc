"""History: every version of each row with the time in which it was true (slowly changing dimension, type 2).

The stored versions of a key become operations of their own, after all events of their transaction. So a late event
finds its place among them: it changes the rows from its LSN to the next version, and nothing after that. Of the last
transaction they come after the events that are applied: files may bring more of it. A row that exists only within a
transaction gets no version, and neighbouring versions with the same values become one.

What is not decided before a TRUNCATE holds up nothing behind it, as every row begins anew there.

Not here: resolving only the present rows (resolve.py, general.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.cdc.resolve.general import (
    ENDS,
    cell,
    clashes_of,
    known_cell,
    lives_of,
    operations_of,
    reason_of,
    spans_of,
    unknown_of,
)
from varve.cdc.resolve.shape import GONE, REASON, TableShape, among, joined, key_column, named, with_epoch
from varve.services.spark import checkpointed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A sequence number after every event of the same transaction.
_AFTER = 2**62
# The places of a stored version's end and begin, after what one event does.
_END, _BEGIN = 2, 3


def resolve_versions(base: DataFrame, events: DataFrame, shape: TableShape) -> tuple[DataFrame, DataFrame | None]:
    """All versions of each key in the events, with their validity, and the undecided keys (None: there are none).

    With TRUNCATEs among the events, a key is undecided in one EPOCH between them.
    """
    keys = [key_column(name) for name in shape.key]
    operations = checkpointed(operations_of(events.where("changeType <> 'truncate'"), shape))
    truncates = events.where("changeType = 'truncate'").select("commitLsn", "seq", "timestamp").distinct()
    touched = operations.select(*keys).distinct()
    is_truncated = not truncates.isEmpty()
    if is_truncated:
        touched = checkpointed(touched.unionByName(_ended(base, truncates, shape)).distinct())
        operations = operations.unionByName(_emptied(touched, truncates, operations))
    pairs = [(name, key_column(name)) for name in shape.key]
    stored = among(base, touched, pairs, "left_semi", shape)
    spans = checkpointed(spans_of(operations.unionByName(_stored_operations(stored, shape)), keys))
    versions = checkpointed(_versions(lives_of(spans), shape))
    place = ["commitLsn", "seq"]
    with_reason = versions.where(f"{REASON} is not null").selectExpr(
        *map(named, keys), "valid_from_lsn AS commitLsn", "__seq AS seq", REASON
    )
    undecided = with_reason.unionByName(clashes_of(spans, [*keys, *place]))
    undecided = (with_epoch(undecided, events) if is_truncated else undecided).drop(*place)
    merged = _merged(versions.where("__known and (valid_to_lsn is null or valid_from_lsn <> valid_to_lsn)"), shape)
    if shape.applied[0] >= 0:
        merged = merged.unionByName(_unmade(touched, merged, shape))
    return checkpointed(merged), None if undecided.isEmpty() else undecided


def _unmade(touched: DataFrame, merged: DataFrame, shape: TableShape) -> DataFrame:
    """The keys that have no version any more, as the rest of a transaction has unmade what its first part had made."""
    from pyspark.sql import functions as F  # noqa: N812

    keys = [key_column(name) for name in shape.key]
    left = touched.select(*[F.col(key).alias(f"__t_{key}") for key in keys])
    return joined(left, merged, [(f"__t_{key}", key) for key in keys], "left_anti").select(*[
        F.col(f"__t_{name}").alias(name) if name in keys
        else F.lit(True if name == GONE else None).cast(merged.schema[name].dataType).alias(name)
        for name in merged.columns
    ])  # fmt: skip


def _ended(base: DataFrame, truncates: DataFrame, shape: TableShape) -> DataFrame:
    """The keys of the stored rows that a TRUNCATE ends; none where it is applied already."""
    from pyspark.sql import functions as F  # noqa: N812

    lsns = F.broadcast(truncates.select(F.col("commitLsn").alias("__lsn")).distinct())
    # Of the last transaction that was applied it may come after rows that this has made.
    is_true_then = F.expr(
        f"(valid_from_lsn < __lsn OR valid_from_lsn = __lsn AND __lsn = {shape.applied[0]}) "
        "AND (valid_to_lsn IS NULL OR valid_to_lsn > __lsn)"
    )
    keys = [F.col(named(name)).alias(key_column(name)) for name in shape.key]
    return base.join(lsns, is_true_then, "left_semi").select(*keys)


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
    lsn, seq = shape.applied

    def operation(kind: str, sub: int, side: str) -> DataFrame:
        value = "{}" if kind == "V" else "CASE WHEN false THEN {} END"
        return stored.where(f"valid_{side}_lsn is not null").selectExpr(
            f"valid_{side}_lsn AS commitLsn",
            f"CASE WHEN valid_{side}_lsn = {lsn}L THEN {seq}L ELSE {_AFTER}L END AS seq",
            f"valid_{side} AS at",
            f"{sub} AS sub",
            f"'{kind}' AS op",
            "false AS unfit",
            *[f"{named(name)} AS {named(key_column(name))}" for name in shape.key],
            *[f"{value.format(known_cell(name))} AS {named(cell(name))}" for name in shape.names],
        )

    return operation("V", _BEGIN, "from").unionByName(operation("D", _END, "to"))


def _versions(lives: DataFrame, shape: TableShape) -> DataFrame:
    """The version that each operation makes of its row, valid until the next operation on the key."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    keys = [key_column(name) for name in shape.key]
    place = ("commitLsn", "seq", "sub")
    on_key = Window.partitionBy(*keys).orderBy(*place)
    so_far = Window.partitionBy("life").orderBy(*place).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    valued = lives.select(
        *keys, "op", F.col("seq").alias("__seq"),
        F.col("commitLsn").alias("valid_from_lsn"), F.lead("commitLsn").over(on_key).alias("valid_to_lsn"),
        F.col("at").alias("valid_from"), F.lead("at").over(on_key).alias("valid_to"),
        *[F.last(named(cell(name)), ignorenulls=True).over(so_far).alias(cell(name)) for name in shape.names],
    ).where(~F.col("op").isin(*ENDS))  # fmt: skip
    return valued.selectExpr(
        *[named(key) for key in keys],
        *[f"{named(cell(name))}.v AS {named(name)}" for name in shape.names],
        "__seq", "valid_from_lsn", "valid_to_lsn", "valid_from", "valid_to",
        f"{unknown_of(shape)} = '' AS __known",
        # A past version with unknown values is left out; the present version must be known completely.
        f"{reason_of(shape, 'valid_to_lsn IS NULL')} AS {REASON}",
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
