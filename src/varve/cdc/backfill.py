"""The rows of a dataset with columns that were added to its source: what each row has in them, from the events.

Not here: whether a column can be loaded so (added_columns.py), and how later events are resolved (resolve/resolve.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.cdc.added_columns import newly_declared, refused
from varve.cdc.resolve.shape import NEW, is_sent, joined, key_column, new_key, text_of, typed
from varve.model.errors import VarveError
from varve.services.spark import checkpointed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from varve.cdc.capture.positions import Position
    from varve.cdc.captured_table import CapturedTable
    from varve.cdc.resolve.shape import TableShape


@dataclass(frozen=True, slots=True)
class Addition:
    """A column that the dataset declares since its rows were loaded.

    Attributes:
        name: its name in the dataset.
        source: its name in events.
        since: a commit LSN before the one that added it to the source's table.
        missing: the text that rows have in it which were there before; None: NULL.
    """

    name: str
    source: str
    since: int
    missing: str | None


def additions_of(captured: CapturedTable, position: Position) -> tuple[Addition, ...]:
    """The columns to load. Raises NeedsResnapshot as `newly_declared`; VarveError where nothing was captured since."""
    names = newly_declared(captured, position.table, position.declared)
    if names and position.quarantined:
        reason = f"{position.quarantined} events are in quarantine, and what they have in it would be lost"
        raise refused(captured, ", ".join(sorted(map(captured.column, names))), reason)
    columns = {column.name: column for column in position.table.columns} if names else {}
    if absent := sorted(names - set(columns)):
        raise VarveError(
            f"{captured.dataset}: {', '.join(absent)} is declared since its rows were loaded, and nothing was captured "
            f"since. Nothing was changed. Capture first: varve cdc capture {captured.dataset}"
        )
    return tuple(
        Addition(captured.column(name), name, columns[name].since or 0, columns[name].missing) for name in sorted(names)
    )


def filled(events: DataFrame, additions: tuple[Addition, ...]) -> DataFrame:
    """The events, of which each insert from before an ALTER has the value that the ALTER gave to its row.

    An insert sends every column, so one without a column was before it. An update without it leaves it as it is.
    """
    from pyspark.sql import functions as F  # noqa: N812

    for addition in additions:
        lacks = (F.col("changeType") == "insert") & ~F.expr(is_sent(NEW, addition.source))
        values = F.array(F.lit(addition.missing).cast("string"))
        # Both at once: the second reads the names as they were.
        events = events.withColumns({
            "columnNames": F.when(lacks, F.concat("columnNames", F.array(F.lit(addition.source)))).otherwise(
                F.col("columnNames")),
            "columnValues": F.when(lacks, F.concat("columnValues", values)).otherwise(F.col("columnValues")),
        })  # fmt: skip
    return events


def backfilled(
    captured: CapturedTable, base: DataFrame, applied: DataFrame, shape: TableShape, additions: tuple[Addition, ...]
) -> DataFrame:
    """The rows with the columns that were added: from the applied events, or what rows without an event have.

    Raises NeedsResnapshot where an event left such a column out as unchanged, or where its value has no place in the
    lake.
    """
    from pyspark.sql import functions as F  # noqa: N812

    place = F.struct("commitLsn", "seq")
    events = applied.where("changeType in ('insert', 'update')").select(
        place.alias("place"), (F.col("changeType") == "update").alias("update"), F.expr(new_key(shape)).alias("key"),
        *[F.expr(is_sent(NEW, addition.source)).alias(f"__sent{i}") for i, addition in enumerate(additions)],
        *[F.expr(text_of(NEW, addition.source)).alias(f"__text{i}") for i, addition in enumerate(additions)],
    )  # fmt: skip
    for i, addition in enumerate(additions):
        # Whatever is after the first event with the column is after the ALTER, and leaves it out only as unchanged.
        first = events.where(f"__sent{i}").agg(F.min("place").alias("first")).select("first.*").first()
        if first is None or first["commitLsn"] is None:
            continue
        after = (F.col("place.commitLsn") > first["commitLsn"]) | (
            (F.col("place.commitLsn") == first["commitLsn"]) & (F.col("place.seq") > first["seq"])
        )
        if not events.where(after & ~F.col(f"__sent{i}") & F.col("update")).isEmpty():
            raise refused(captured, addition.name, "an update did not send it, as it was large and unchanged")
    keys = [key_column(name) for name in shape.key]
    cells = [f"__{part}{i}" for i in range(len(additions)) for part in ("sent", "text")]
    last = checkpointed(
        events.select("place", "key.*", *cells).groupBy(*keys).agg(F.max_by(F.struct(*cells), "place").alias("last"))
        .select(*keys, "last.*")
    )  # fmt: skip
    rows = joined(base, last, [(name, key_column(name)) for name in shape.key], "left")
    for i, addition in enumerate(additions):
        kind = shape.kind(addition.name)
        missing = F.lit(addition.missing).cast("string")
        text = f"__value{i}"
        rows = rows.withColumn(text, F.when(F.col(f"__sent{i}"), F.col(f"__text{i}")).otherwise(missing))
        if not rows.where(f"{text} IS NOT NULL AND {typed(text, kind)} IS NULL").isEmpty():
            raise refused(captured, addition.name, f"a value of it is none of {kind} in the lake")
        rows = rows.withColumn(addition.name, F.expr(typed(text, kind))).drop(text)
    return rows.drop(*keys, *cells)
