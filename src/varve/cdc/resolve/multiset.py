"""Tables without a usable key: rows are counted, +1 for each new row of an event and -1 for each old row.

Not here: tables whose rows are identified by a key (resolve.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.cdc.captured_table import NeedsResnapshot
from varve.cdc.resolve.shape import (
    NEW,
    OLD,
    UNFIT,
    WEIGHT,
    Resolution,
    TableShape,
    among,
    named,
    sent_of,
    texts_of,
    typed,
)
from varve.services.spark import checkpointed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame


def resolve_multiset(base: DataFrame, events: DataFrame, shape: TableShape) -> Resolution:
    """Resolve by counting rows: +1 for each new row, -1 for each old row. Order does not matter, duplicates stay."""
    from pyspark.sql import functions as F  # noqa: N812

    once = events.dropDuplicates(["commitLsn", "seq"])

    def images(image: tuple[str, str], kinds: Sequence[str], weight: int) -> DataFrame:
        events_of_kinds = once.where(F.col("changeType").isin(*kinds))
        texts = {name: f"get(__texts, {place})" for place, name in enumerate(shape.names)}
        values = {name: typed(text, shape.kind(name)) for name, text in texts.items()}
        wrong = [f"{texts[name]} IS NOT NULL AND {values[name]} IS NULL" for name in shape.checked]
        unfit = " OR ".join(["array_contains(__sent, false)", *wrong])
        return events_of_kinds.selectExpr(
            f"{texts_of(image, shape)} AS __texts", f"{sent_of(image, shape)} AS __sent"
        ).selectExpr(
            *[f"{value} AS {named(name)}" for name, value in values.items()],
            f"CAST({weight} AS BIGINT) AS {WEIGHT}",
            f"{unfit} AS {UNFIT}",
        )

    plus = images(NEW, ("insert", "update"), 1)
    changes = checkpointed(plus.unionByName(images(OLD, ("delete", "update"), -1)))
    if unfit := changes.where(UNFIT).count():
        raise NeedsResnapshot(
            f"{shape.name}: {unfit} events of this table without a usable key lack a column of their rows, or have a "
            "value that the lake cannot hold. Nothing was applied; the dataset serves its last exact state. Is the "
            "table REPLICA IDENTITY FULL, and declared with types that hold its values? Then: varve cdc resnapshot "
            f"{shape.name}"
        )
    net = checkpointed(changes.groupBy(*shape.names).agg(F.sum(WEIGHT).alias(WEIGHT)).where(f"{WEIGHT} <> 0"))

    def counted(part: DataFrame) -> DataFrame:
        weighted = part.select(*shape.names, F.lit(1).cast("bigint").alias(WEIGHT)).unionByName(net)
        return weighted.groupBy(*shape.names).agg(F.sum(WEIGHT).alias(WEIGHT)).where(f"{WEIGHT} <> 0")

    touched = net.select(*[F.col(name).alias(f"__n_{name}") for name in shape.names])
    pairs = [(name, f"__n_{name}") for name in shape.names]
    before = checkpointed(among(base, touched, pairs, "left_semi", shape).select(*shape.names, *shape.places))
    total = checkpointed(counted(before))
    if missing := total.where(f"{WEIGHT} < 0").count():
        raise NeedsResnapshot(
            f"{shape.name}: the events take away {missing} rows that the dataset does not have: an event was lost, or "
            "somebody else wrote the dataset. Nothing was applied. Take a new snapshot: varve cdc resnapshot "
            f"{shape.name}"
        )
    after = total.withColumn(WEIGHT, F.explode(F.sequence(F.lit(1).cast("bigint"), F.col(WEIGHT)))).drop(WEIGHT)
    return Resolution(
        before=before,
        after=after,
        replaced=lambda part: among(part, touched, pairs, "left_anti", shape),
    )
