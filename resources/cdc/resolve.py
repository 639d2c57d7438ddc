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

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pipeline_defs.cdc.table import NeedsResnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from pipeline_defs.cdc.event import Counts
    from pipeline_defs.model.schema import Column

# Columns of our own beside those of the table, which may have any name.
WEIGHT, GONE, REASON, UNFIT = "__weight", "__gone", "__reason", "__unfit"
NO_KEY = "its key was not sent whole, or has no such value in the lake"
CONNECTED = "connected by its key with an event that cannot be decided"


@dataclass(frozen=True, slots=True)
class Shape:
    """What a resolver must know of a table.

    Attributes:
        name: for messages.
        columns: the data columns, by their name in the dataset.
        sources: the name of each column in events, where it is another.
        key: by which rows are told apart; empty: by nothing, rows are counted.
        ignore_null_updates: whether an update that sends NULL leaves the value as it is.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    sources: tuple[tuple[str, str], ...] = ()
    ignore_null_updates: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the data columns."""
        return tuple(column.name for column in self.columns)

    def kind(self, name: str) -> str:
        """The Spark type of a column."""
        return next(str(column.type).lower() for column in self.columns if column.name == name)

    def source(self, name: str) -> str:
        """The name of a column in events."""
        return dict(self.sources).get(name, name)


@dataclass(frozen=True)
class Resolution:
    """What becomes of a table.

    Attributes:
        before: the rows that the events are about, as they were, each as often as it was there.
        after: the same rows as they are now.
        replaced: given any part of the table that holds whole partitions, that part without the rows of `before`; with
            `after` it is the part as it is now.
        quarantined: the events that could not be decided, with `reason`; None where there are none.
    """

    before: DataFrame
    after: DataFrame
    replaced: Callable[[DataFrame], DataFrame]
    quarantined: DataFrame | None = None


def resolve(base: DataFrame, events: DataFrame, shape: Shape, counts: Counts) -> Resolution:
    """What the events make of `base`, whose data columns it may have with others beside them.

    `counts` may say too much of what makes a batch difficult, never too little. Raises NeedsResnapshot where a table
    without a key would lose a row that it does not have.
    """
    from resources.cdc.general import resolve_general

    if counts.truncates:
        emptied, events = _after_truncate(events)
        if emptied:
            resolved = resolve(base.limit(0), events, shape, _untruncated(counts))
            return Resolution(base.select(*shape.names), resolved.after, lambda part: part.limit(0),
                              resolved.quarantined)  # fmt: skip
    if not shape.key:
        return _resolve_multiset(base, events, shape)
    simple = not counts.masked and not counts.moves
    path = _resolve_rows if simple else resolve_general
    state, undecided = path(base, events, shape)
    held = None
    if undecided is not None:
        held = connected(events, shape, undecided)
        rest = events.join(held.select("commitLsn", "seq"), ["commitLsn", "seq"], "left_anti")
        state, still = path(base, rest, shape)
        assert still is None, "what is connected with nothing undecided can be decided"
    return _by_key(base, state, shape, held)


def column_of(images: tuple[str, str], name: str) -> SparkColumn:
    """The text of a column in an image, given by its arrays of names and values; NULL also where it is absent."""
    from pyspark.sql import functions as F  # noqa: N812

    names, values = images
    return F.get(values, F.array_position(names, name).cast("int") - 1)


NEW, OLD_KEY, OLD = ("columnNames", "columnValues"), ("oldKeyNames", "oldKeyValues"), ("oldNames", "oldValues")


def typed(text: SparkColumn, kind: str) -> SparkColumn:
    """PostgreSQL's text as a value; NULL where it has no such value (infinity as a date)."""
    if kind == "binary":
        from pyspark.sql import functions as F  # noqa: N812

        return F.when(text.startswith("\\x"), F.unhex(F.substring(text, 3, 2**31 - 1)))
    return text if kind == "string" else text.try_cast(kind)


def key_column(name: str) -> str:
    """The name of a key column among the columns of an operation."""
    return f"__k_{name}"


def joined(left: DataFrame, right: DataFrame, pairs: Sequence[tuple[str, str]], how: str) -> DataFrame:
    """A join in which NULL equals NULL: a key may have it."""
    condition = reduce(
        lambda one, other: one & other, [left[f"`{mine}`"].eqNullSafe(right[f"`{theirs}`"]) for mine, theirs in pairs]
    )
    return left.join(right, condition, how)


def connected(events: DataFrame, shape: Shape, undecided: DataFrame) -> DataFrame:
    """The events of the undecided keys (`k_...`, reason) and all that their keys connect them with, with reasons."""
    from pyspark.sql import functions as F  # noqa: N812

    keys = [key_column(name) for name in shape.key]
    pairs = [(key, key) for key in keys]
    touches = keys_of_events(events, shape).localCheckpoint()
    found = undecided.select(*keys).distinct().localCheckpoint()
    size = -1
    while size != (size := found.count()):
        mine = joined(touches, found, pairs, "left_semi").select("commitLsn", "seq").distinct()
        more = touches.join(mine, ["commitLsn", "seq"], "left_semi").select(*keys)
        found = found.unionByName(more).distinct().localCheckpoint()
    reasons = undecided.groupBy(*[F.col(key).alias(f"__u_{key}") for key in keys]).agg(F.max(REASON).alias("reason"))
    of_event = (
        joined(touches, reasons, [(key, f"__u_{key}") for key in keys], "left")
        .groupBy("commitLsn", "seq")
        .agg(F.max("reason").alias("reason"))
    )
    mine = joined(touches, found, pairs, "left_semi").select("commitLsn", "seq").distinct()
    return (
        events.dropDuplicates(["commitLsn", "seq"])
        .join(mine, ["commitLsn", "seq"], "left_semi")
        .join(of_event, ["commitLsn", "seq"], "left")
        .withColumn("reason", F.coalesce("reason", F.lit(CONNECTED)))
        .localCheckpoint()
    )


def old_key(shape: Shape) -> SparkColumn:
    """The key of the row before an event, typed, as a struct of k_..."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.struct(
        *[typed(column_of(OLD_KEY, shape.source(name)), shape.kind(name)).alias(key_column(name)) for name in shape.key]
    )


def new_key(shape: Shape) -> SparkColumn:
    """The key of the row after an event; what is not sent of it (a large value that stays) is as before."""
    from pyspark.sql import functions as F  # noqa: N812

    def text(name: str) -> SparkColumn:
        return F.when(sent(NEW, name), column_of(NEW, name)).otherwise(column_of(OLD_KEY, name))

    return F.struct(*[typed(text(shape.source(name)), shape.kind(name)).alias(key_column(name)) for name in shape.key])


def unfit_key(shape: Shape) -> SparkColumn:
    """Whether a part of a key that an event must have was not sent, or has no value in the lake."""
    from pyspark.sql import functions as F  # noqa: N812

    def unfit(images: tuple[str, str], name: str) -> SparkColumn:
        text = column_of(images, shape.source(name))
        return ~sent(images, shape.source(name)) | (text.isNotNull() & typed(text, shape.kind(name)).isNull())

    def any_of(images: tuple[str, str]) -> SparkColumn:
        return reduce(lambda one, other: one | other, [unfit(images, name) for name in shape.key])

    change = F.col("changeType")
    both = reduce(
        lambda one, other: one | other,
        [unfit(OLD_KEY, name) | (sent(NEW, shape.source(name)) & unfit(NEW, name)) for name in shape.key],
    )
    return F.when(change == "insert", any_of(NEW)).when(change == "delete", any_of(OLD_KEY)).otherwise(both)


def sent(images: tuple[str, str], name: str) -> SparkColumn:
    """Whether an image has a column at all."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.coalesce(F.array_contains(images[0], name), F.lit(False))


def keys_of_events(events: DataFrame, shape: Shape) -> DataFrame:
    """(commitLsn, seq, k_...): each key that an event takes a row from or gives it."""
    from pyspark.sql import functions as F  # noqa: N812

    new, old = new_key(shape), old_key(shape)
    both = (
        F.when(F.col("changeType") == "insert", F.array(new))
        .when(F.col("changeType") == "delete", F.array(old))
        .otherwise(F.array(old, new))
    )
    return events.select("commitLsn", "seq", F.explode(F.array_distinct(both)).alias("k")).select(
        "commitLsn", "seq", "k.*"
    )


def _untruncated(counts: Counts) -> Counts:
    from dataclasses import replace

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


def _resolve_rows(base: DataFrame, events: DataFrame, shape: Shape) -> tuple[DataFrame, DataFrame | None]:
    """Full rows whose keys stay: the last event of each key says all. Shuffles events only."""
    from pyspark.sql import functions as F  # noqa: N812

    del base
    keys = [key_column(name) for name in shape.key]
    key = F.when(F.col("changeType") == "delete", old_key(shape)).otherwise(new_key(shape))
    last = F.max_by(F.struct("changeType", *NEW), F.struct("commitLsn", "seq")).alias("last")
    keyed = events.select("commitLsn", "seq", "changeType", *NEW, key.alias("key"), unfit_key(shape).alias("unfit"))
    final = keyed.select("*", "key.*").groupBy(*keys).agg(last, F.max("unfit").alias("unfit")).select("*", "last.*")
    cells = [(name, column_of(NEW, shape.source(name)), shape.kind(name)) for name in shape.names]
    misfits = [F.when(text.isNotNull() & typed(text, kind).isNull(), name) for name, text, kind in cells]
    wrong = F.concat_ws(", ", *misfits)
    gone = F.col("changeType") == "delete"
    state = final.select(
        *keys,
        *[typed(text, kind).alias(name) for name, text, kind in cells],
        gone.alias(GONE),
        F.when(F.col("unfit"), F.lit(NO_KEY))
        .when(~gone & (wrong != ""), F.concat(F.lit("no such value in the lake: "), wrong))
        .alias(REASON),
    ).localCheckpoint()
    return state, _undecided(state, shape)


def _undecided(state: DataFrame, shape: Shape) -> DataFrame | None:
    found = state.where(f"{REASON} is not null").select(*[key_column(name) for name in shape.key], REASON)
    return None if found.isEmpty() else found


def _by_key(base: DataFrame, state: DataFrame, shape: Shape, held: DataFrame | None) -> Resolution:
    """`state`: for each key that events touched its row, or that it is gone."""
    from pyspark.sql import functions as F  # noqa: N812

    pairs = [(name, key_column(name)) for name in shape.key]
    keys = state.select(*[key_column(name) for name in shape.key]).distinct()
    return Resolution(
        before=joined(base, F.broadcast(keys), pairs, "left_semi").select(*shape.names),
        after=state.where(f"not {GONE}").select(*shape.names),
        replaced=lambda part: joined(part, F.broadcast(keys), pairs, "left_anti"),
        quarantined=held,
    )


def _resolve_multiset(base: DataFrame, events: DataFrame, shape: Shape) -> Resolution:
    """Rows are counted: + for each new image, - for each old one. Order does not matter, duplicates stay."""
    from pyspark.sql import functions as F  # noqa: N812

    once = events.dropDuplicates(["commitLsn", "seq"])

    def images(of: tuple[str, str], kinds: Sequence[str], weight: int) -> DataFrame:
        wanted = once.where(F.col("changeType").isin(*kinds))
        texts = {name: column_of(of, shape.source(name)) for name in shape.names}
        absent = [~sent(of, shape.source(name)) for name in shape.names]
        wrong = [texts[name].isNotNull() & typed(texts[name], shape.kind(name)).isNull() for name in shape.names]
        return wanted.select(
            *[typed(texts[name], shape.kind(name)).alias(name) for name in shape.names],
            F.lit(weight).cast("bigint").alias(WEIGHT),
            reduce(lambda one, other: one | other, [*absent, *wrong]).alias(UNFIT),
        )

    plus = images(NEW, ("insert", "update"), 1)
    changes = plus.unionByName(images(OLD, ("delete", "update"), -1)).localCheckpoint()
    if unfit := changes.where(UNFIT).count():
        raise NeedsResnapshot(
            f"{shape.name}: {unfit} events of this table without a usable key lack a column of their rows, or have a "
            "value that the lake cannot hold. Nothing was applied; the dataset serves its last exact state. Is the "
            "table REPLICA IDENTITY FULL, and declared with types that hold its values? Then: varve cdc resnapshot "
            f"{shape.name}"
        )
    net = changes.groupBy(*shape.names).agg(F.sum(WEIGHT).alias(WEIGHT)).where(f"{WEIGHT} <> 0").localCheckpoint()

    def counted(part: DataFrame) -> DataFrame:
        weighted = part.select(*shape.names, F.lit(1).cast("bigint").alias(WEIGHT)).unionByName(net)
        return weighted.groupBy(*shape.names).agg(F.sum(WEIGHT).alias(WEIGHT)).where(f"{WEIGHT} <> 0")

    touched = net.select(*[F.col(name).alias(f"__n_{name}") for name in shape.names])
    pairs = [(name, f"__n_{name}") for name in shape.names]
    before = joined(base, F.broadcast(touched), pairs, "left_semi").select(*shape.names).localCheckpoint()
    total = counted(before).localCheckpoint()
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
        replaced=lambda part: joined(part, F.broadcast(touched), pairs, "left_anti"),
    )
