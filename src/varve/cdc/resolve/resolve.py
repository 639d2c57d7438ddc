"""What a batch of events makes of a table: exact, in Spark, the DataFrame API only.

Three ways, chosen by the batch's own counts. Full rows whose keys stay: the last event of each key wins, one shuffle of
the events. Events that leave columns out or give rows new keys: the life of every row is followed through its keys, and
each column has the last value that was sent in it (general.py). Tables without a key: sums of rows, + for new images
and - for old ones.

An event that cannot be decided is set aside with its reason and with all events of the batch that its keys are
connected with; their rows stay as they were, and the next batch tries again with what came since.

Not here: which partitions are written anew (apply.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from varve.cdc.resolve.general import resolve_general
from varve.cdc.resolve.multiset import resolve_multiset
from varve.cdc.resolve.shape import (
    GONE,
    NEW,
    NO_KEY,
    REASON,
    UNFIT,
    Resolution,
    TableShape,
    among,
    column_of,
    joined,
    key_column,
    keys_of_events,
    new_key,
    old_key,
    typed,
    unfit_key,
)
from varve.cdc.resolve.versions import resolve_versions

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from varve.cdc.event import Counts

# Keys of so many events are sent to every task; those of more would not fit beside its other work.
_FEW = 1_000_000
CONNECTED = "connected by its key with an event that cannot be decided"


def resolve(base: DataFrame, events: DataFrame, shape: TableShape, counts: Counts) -> Resolution:
    """What the events make of `base`, whose data columns it may have with others beside them.

    `counts` may say too much of what makes a batch difficult, never too little. Raises NeedsResnapshot where a table
    without a key would lose a row that it does not have.
    """
    if shape.ignore_null_updates:
        events, counts = _without_nulls(events, shape), replace(counts, masked=counts.masked + counts.updates)
    shape = replace(shape, few=counts.events <= _FEW)
    if counts.truncates and not shape.history:
        emptied, events = _after_truncate(events)
        if emptied:
            resolved = resolve(base.limit(0), events, shape, _untruncated(counts))
            return Resolution(base.select(*shape.names, *shape.places), resolved.after, lambda part: part.limit(0),
                              resolved.quarantined)  # fmt: skip
    if not shape.key:
        return resolve_multiset(base, events, shape)
    simple = not counts.masked and not counts.moves
    path = resolve_versions if shape.history else _resolve_rows if simple else resolve_general
    state, undecided = path(base, events, shape)
    held = None
    if undecided is not None:
        held = connected(events, shape, undecided)
        rest = events.join(held.select("commitLsn", "seq"), ["commitLsn", "seq"], "left_anti")
        state, still = path(base, rest, shape)
        assert still is None, "what is connected with nothing undecided can be decided"
    return _by_key(base, state, shape, held)


def connected(events: DataFrame, shape: TableShape, undecided: DataFrame) -> DataFrame:
    """The events of the undecided keys (`k_...`, reason) and all that their keys connect them with, with reasons."""
    from pyspark.sql import functions as F  # noqa: N812

    keys = [key_column(name) for name in shape.key]
    pairs = [(key, key) for key in keys]
    # A TRUNCATE is about no key; it is never held back.
    events = events.where("changeType <> 'truncate'")
    touches = keys_of_events(events, shape).localCheckpoint()
    found = undecided.select(*keys).distinct().localCheckpoint()
    size = -1
    while size != (size := found.count()):
        mine = joined(touches, found, pairs, "left_semi").select("commitLsn", "seq").distinct()
        more = touches.join(mine, ["commitLsn", "seq"], "left_semi").select(*keys)
        found = found.unionByName(more).distinct().localCheckpoint()
    reasons = undecided.groupBy(*[F.col(key).alias(f"__u_{key}") for key in keys]).agg(F.min(REASON).alias("reason"))
    of_event = (
        joined(touches, reasons, [(key, f"__u_{key}") for key in keys], "left")
        .groupBy("commitLsn", "seq")
        .agg(F.min("reason").alias("reason"))
    )
    mine = joined(touches, found, pairs, "left_semi").select("commitLsn", "seq").distinct()
    return (
        events.dropDuplicates(["commitLsn", "seq"])
        .join(mine, ["commitLsn", "seq"], "left_semi")
        .join(of_event, ["commitLsn", "seq"], "left")
        .withColumn("reason", F.coalesce("reason", F.lit(CONNECTED)))
        .localCheckpoint()
    )


def _without_nulls(events: DataFrame, shape: TableShape) -> DataFrame:
    """Updates without the columns in which they send NULL, which are then as columns that were not sent."""
    from pyspark.sql import functions as F  # noqa: N812

    names, values = NEW
    key = F.array(*[F.lit(shape.source(name)) for name in shape.key])

    def stays(at: SparkColumn) -> SparkColumn:
        return F.get(values, at).isNotNull() | F.array_contains(key, F.get(names, at))

    kept = {
        name: F.when(F.col("changeType") == "update", F.filter(name, lambda _, at: stays(at))).otherwise(F.col(name))
        for name in NEW
    }
    return events.withColumns(kept)


def _untruncated(counts: Counts) -> Counts:
    return replace(counts, truncates=0)


def _after_truncate(events: DataFrame) -> tuple[bool, DataFrame]:
    """Whether the table was emptied, and the events after the last time that it was."""
    from pyspark.sql import functions as F  # noqa: N812

    place = F.struct("commitLsn", "seq")
    last = events.where("changeType = 'truncate'").agg(F.max(place).alias("last")).first()
    if last is None or last["last"] is None:
        return False, events
    lsn, seq = last["last"]["commitLsn"], last["last"]["seq"]
    later = (F.col("commitLsn") > lsn) | ((F.col("commitLsn") == lsn) & (F.col("seq") > seq))
    return True, events.where(later)


def _resolve_rows(base: DataFrame, events: DataFrame, shape: TableShape) -> tuple[DataFrame, DataFrame | None]:
    """Full rows whose keys stay: the last event of each key says all. Shuffles events only."""
    from pyspark.sql import functions as F  # noqa: N812

    del base
    keys = [key_column(name) for name in shape.key]
    cells = {name: f"__t_{name}" for name in shape.names}
    key = F.when(F.col("changeType") == "delete", old_key(shape)).otherwise(new_key(shape))
    told = events.select(
        F.struct("commitLsn", "seq").alias("place"),
        (F.col("changeType") == "delete").alias(GONE),
        *[column_of(NEW, shape.source(name)).alias(text) for name, text in cells.items()],
        key.alias("key"),
        unfit_key(shape).alias(UNFIT),
    ).select("*", "key.*")
    # Spark sorts to aggregate texts; shuffled first, it sorts once instead of before and after (2.4 s, 1.8 s).
    final = (
        told.repartition(*keys)
        .groupBy(*keys)
        .agg(F.max_by(F.struct(GONE, *cells.values()), "place").alias("last"), F.max(UNFIT).alias(UNFIT))
        .select(*keys, UNFIT, "last.*")
    )
    values = {name: typed(F.col(f"`{text}`"), shape.kind(name)) for name, text in cells.items()}
    misfits = [F.when(F.col(f"`{cells[name]}`").isNotNull() & values[name].isNull(), name) for name in shape.checked]
    wrong = F.concat_ws(", ", *misfits)
    state = final.select(
        *keys,
        *[value.alias(name) for name, value in values.items()],
        GONE,
        F.when(F.col(UNFIT), F.lit(NO_KEY))
        .when(~F.col(GONE) & (wrong != ""), F.concat(F.lit("no such value in the lake: "), wrong))
        .alias(REASON),
    ).localCheckpoint()
    return state, _undecided(state, shape)


def _undecided(state: DataFrame, shape: TableShape) -> DataFrame | None:
    found = state.where(f"{REASON} is not null").select(*[key_column(name) for name in shape.key], REASON)
    return None if found.isEmpty() else found


def _by_key(base: DataFrame, state: DataFrame, shape: TableShape, held: DataFrame | None) -> Resolution:
    """`state`: for each key that events touched its row, or that it is gone."""
    pairs = [(name, key_column(name)) for name in shape.key]
    keys = state.select(*[key_column(name) for name in shape.key])
    keys = keys.distinct() if shape.history else keys
    return Resolution(
        before=among(base, keys, pairs, "left_semi", shape).select(*shape.stored, *shape.places),
        after=state.where(f"not {GONE}").select(*shape.stored),
        replaced=lambda part: among(part, keys, pairs, "left_anti", shape),
        quarantined=held,
    )
