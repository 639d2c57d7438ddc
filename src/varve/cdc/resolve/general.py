"""The general method to resolve events: for events that leave columns out, and for rows whose key changes.

A key belongs to one row after another. Each such span begins with an insert, with an update that moves a row to the
key, or with the row of the base; it ends with a delete or with an update that moves the row away. The life of a row is
the chain of its spans over all keys that it had. Chains are found by pointer doubling, which takes as many rounds as
the length of the longest chain has binary digits. In each column a row has the last value that an event of its life
sent.

Not here: the simple method (resolve.py), tables without a key (multiset.py).
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from varve.cdc.resolve.shape import (
    GONE,
    NEW,
    NO_KEY,
    REASON,
    TableShape,
    among,
    column_of,
    joined,
    key_column,
    new_key,
    old_key,
    sent,
    typed,
    unfit_key,
)
from varve.services.spark import checkpointed
from varve.stores.frames import JSON_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

# Operations: B: the row of the base; V: a stored version; I, U, D: insert, update, delete; X, M: moves away and to.
ENDS = ("D", "X")


def resolve_general(base: DataFrame, events: DataFrame, shape: TableShape) -> tuple[DataFrame, DataFrame | None]:
    """The state of each key in the events (k_..., columns, gone, reason), and the undecided keys (None without any)."""
    keys = [key_column(name) for name in shape.key]
    operations = checkpointed(operations_of(events, shape))
    touched = operations.select(*keys).distinct()
    pairs = [(name, key_column(name)) for name in shape.key]
    base_rows = among(base, touched, pairs, "left_semi", shape)
    spans = checkpointed(spans_of(operations.unionByName(_base_operations(base_rows, shape)), keys))
    state = checkpointed(_state(lives_of(spans), spans.select(*keys).distinct(), shape))
    with_reason = state.where(f"{REASON} is not null").select(*keys, REASON)
    undecided = with_reason.unionByName(clashes_of(spans, keys))
    return state, None if undecided.isEmpty() else undecided


def clashes_of(spans: DataFrame, keys: list[str]) -> DataFrame:
    """The keys to which a row moved while another row had them, whatever came later; and keys that were not sent."""
    from pyspark.sql import functions as F  # noqa: N812

    clash = F.lit("its new key belongs to another row")
    reason = F.when(F.col("unfit"), F.lit(NO_KEY)).otherwise(clash).alias(REASON)
    return spans.where("clash or unfit").select(*keys, reason)


def cell(name: str) -> str:
    """The name of the column with an operation's value of a table column; its value is NULL where none was sent."""
    return f"__c_{name}"


def operations_of(events: DataFrame, shape: TableShape) -> DataFrame:
    """The operations of the events: one row for each key that an event affects.

    Each value is computed once, in a projection of its own. Inlined wherever they are used, they made a plan that took
    8 s to compile for a single event on a busy machine; now it takes less than half.
    """
    from pyspark.sql import functions as F  # noqa: N812

    def operation(key: str, sub: int, kind: str) -> SparkColumn:
        return F.struct(F.col(key).alias("key"), F.lit(sub).alias("sub"), F.lit(kind).alias("op"))

    values = events.select(
        "commitLsn",
        "seq",
        F.col("timestamp").try_cast("timestamp").alias("at"),
        F.col("changeType").alias("change"),
        new_key(shape).alias("new"),
        old_key(shape).alias("old"),
        unfit_key(shape).alias("unfit"),
        *[column_of(NEW, shape.source(name)).alias(f"__t_{name}") for name in shape.names],
        *[sent(NEW, shape.source(name)).alias(f"__s_{name}") for name in shape.names],
    )
    steps = (
        F.when(F.col("change") == "insert", F.array(operation("new", 1, "I")))
        .when(F.col("change") == "delete", F.array(operation("old", 0, "D")))
        .when(F.col("new").eqNullSafe(F.col("old")), F.array(operation("new", 1, "U")))
        .otherwise(F.array(operation("old", 0, "X"), operation("new", 1, "M")))
    )

    checked = frozenset(shape.checked)

    def sent_value(name: str) -> SparkColumn:
        text = F.col(f"`__t_{name}`")
        value = typed(text, shape.kind(name))
        wrong = text.isNotNull() & value.isNull() if name in checked else F.lit(False)
        cell_value = F.struct(value.alias("v"), wrong.alias("wrong"))
        return F.when(F.col(f"`__s_{name}`") & ~F.col("step.op").isin(*ENDS), cell_value)

    return values.withColumn("step", F.explode(steps)).select(
        "commitLsn",
        "seq",
        "at",
        F.col("step.sub").alias("sub"),
        F.col("step.op").alias("op"),
        "unfit",
        "step.key.*",
        *[sent_value(name).alias(cell(name)) for name in shape.names],
    )


def _base_operations(base_rows: DataFrame, shape: TableShape) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    return base_rows.select(
        F.lit(-1).cast("bigint").alias("commitLsn"),
        F.lit(-1).cast("bigint").alias("seq"),
        F.lit(None).cast("timestamp").alias("at"),
        F.lit(0).alias("sub"),
        F.lit("B").alias("op"),
        F.lit(False).alias("unfit"),
        *[F.col(f"`{name}`").alias(key_column(name)) for name in shape.key],
        *[F.struct(F.col(f"`{name}`").alias("v"), F.lit(False).alias("wrong")).alias(cell(name))
          for name in shape.names],
    )  # fmt: skip


def spans_of(operations: DataFrame, keys: list[str]) -> DataFrame:
    """Each operation with its span, and whether it clashes with another row, and whether it ends its row."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    ordered = Window.partitionBy(*keys).orderBy("commitLsn", "seq", "sub")
    place = F.struct("commitLsn", "seq", "sub")
    # An event that arrived twice is kept once.
    operations = operations.withColumn("__again", F.lag(place).over(ordered).eqNullSafe(place)).where("not __again")
    before = F.lag("op").over(ordered)
    alive = before.isNotNull() & ~before.isin(*ENDS)
    so_far = ordered.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    stored = F.concat(F.lit("b"), F.to_json(F.struct("commitLsn", *keys), JSON_OPTIONS))
    own = F.when(F.col("op").isin("B", "V"), stored).otherwise(_event_span("sub"))
    started = (
        operations.drop("__again")
        .withColumn("begins", ~alive | F.col("op").isin("I", "M", "B", "V"))
        .withColumn("clash", alive & (F.col("op") == "M"))
    )
    return started.withColumn("span", F.last(F.when(F.col("begins"), own), ignorenulls=True).over(so_far)).withColumn(
        "ends", F.col("op").isin(*ENDS) | F.coalesce(F.lead("begins").over(ordered), F.lit(False))
    )


def _event_span(sub: str) -> SparkColumn:
    from pyspark.sql import functions as F  # noqa: N812

    return F.concat_ws(".", F.col("commitLsn"), F.col("seq"), F.col(sub) if sub == "sub" else F.lit(sub))


def lives_of(spans: DataFrame) -> DataFrame:
    """Each operation with the life of its row, which is named by the first span of the chain."""
    from pyspark.sql import functions as F  # noqa: N812

    links = checkpointed(spans.where("op = 'X'").select(_event_span("1").alias("at"), F.col("span").alias("root")))
    while True:
        further = links.select(F.col("at").alias("root"), F.col("root").alias("beyond"))
        longer = checkpointed(links.join(further, "root", "left"))
        if longer.where("beyond is not null").isEmpty():
            break
        links = longer.select("at", F.coalesce("beyond", "root").alias("root"))
    return spans.join(links.withColumnRenamed("at", "span"), "span", "left").withColumn(
        "life", F.coalesce("root", "span")
    )


def _state(lives: DataFrame, touched: DataFrame, shape: TableShape) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    keys = [key_column(name) for name in shape.key]
    place = F.struct("commitLsn", "seq", "sub")
    rows = (
        lives.groupBy("life")
        .agg(
            F.max_by(F.struct("ends", *keys), place).alias("last"),
            *[
                F.max_by(cell(name), F.when(F.col(cell(name)).isNotNull(), place)).alias(cell(name))
                for name in shape.names
            ],
        )
        .where("not last.ends")
    )
    unknown = F.concat_ws(", ", *[F.when(F.col(cell(name)).isNull(), name) for name in shape.names])
    misfits = F.concat_ws(", ", *[F.when(F.col(f"{cell(name)}.wrong"), name) for name in shape.checked])
    living = rows.select(
        *[F.col(f"last.{key}").alias(key) for key in keys],
        *[F.col(f"{cell(name)}.v").alias(name) for name in shape.names],
        F.lit(False).alias(GONE),
        F.when(unknown != "", F.concat(F.lit("nothing is known of "), unknown))
        .when(misfits != "", F.concat(F.lit("no such value in the lake: "), misfits))
        .alias(REASON),
    )
    gone = joined(
        touched.select(*[F.col(key).alias(f"__t_{key}") for key in keys]),
        living, [(f"__t_{key}", key) for key in keys], "left_anti",
    )  # fmt: skip
    type_of_column = {column.name: str(column.type).lower() for column in shape.columns}
    absent = gone.select(
        *[F.col(f"__t_{key}").alias(key) for key in keys],
        *[F.lit(None).cast(kind).alias(name) for name, kind in type_of_column.items()],
        F.lit(True).alias(GONE),
        F.lit(None).cast("string").alias(REASON),
    )
    return reduce(lambda first, second: first.unionByName(second), [living, absent])
