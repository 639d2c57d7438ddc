"""What a resolver is told of a table and what it answers, and the columns of events that all resolvers read.

Not here: the ways to resolve (resolve.py, general.py, multiset.py, versions.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from varve.cdc.captured_table import VALIDITY
from varve.model.schema import ColumnType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from varve.model.schema import Column

# Columns of our own beside those of the table, which may have any name.
WEIGHT, GONE, REASON, UNFIT = "__weight", "__gone", "__reason", "__unfit"
NO_KEY = "its key was not sent whole, or has no such value in the lake"
# The images of an event: the arrays of their columns' names and values.
NEW, OLD_KEY, OLD = ("columnNames", "columnValues"), ("oldKeyNames", "oldKeyValues"), ("oldNames", "oldValues")


@dataclass(frozen=True, slots=True)
class TableShape:
    """What a resolver must know of a table.

    Attributes:
        name: for messages.
        columns: the data columns, by their name in the dataset.
        sources: the name of each column in events, where it is another.
        key: by which rows are told apart; empty: by nothing, rows are counted.
        ignore_null_updates: whether an update that sends NULL leaves the value as it is.
        history: whether every version of a row is kept, with the time in which it was true.
        places: the columns that say in which partition a row lies, where the base has them.
        few: whether the keys of the events may be sent to every task, so that the table is not shuffled.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    sources: tuple[tuple[str, str], ...] = ()
    ignore_null_updates: bool = False
    history: bool = False
    places: tuple[str, ...] = ()
    few: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the data columns."""
        return tuple(column.name for column in self.columns)

    @property
    def checked(self) -> tuple[str, ...]:
        """Those of data columns that do not hold every text: a wide table is mostly of others, and its plan is long."""
        return tuple(column.name for column in self.columns if column.type != ColumnType.STRING)

    @property
    def stored(self) -> tuple[str, ...]:
        """The names of all columns of the dataset that are not of its partitioning."""
        return (*self.names, *(column.name for column in VALIDITY)) if self.history else self.names

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
        before: the rows that the events are about, as they were and where, each as often as it was there.
        after: the same rows as they are now.
        replaced: given any part of the table that holds whole partitions, that part without the rows of `before`; with
            `after` it is the part as it is now.
        quarantined: the events that could not be decided, with `reason`; None where there are none.
    """

    before: DataFrame
    after: DataFrame
    replaced: Callable[[DataFrame], DataFrame]
    quarantined: DataFrame | None = None


def column_of(images: tuple[str, str], name: str) -> SparkColumn:
    """The text of a column in an image, given by its arrays of names and values; NULL also where it is absent."""
    from pyspark.sql import functions as F  # noqa: N812

    names, values = images
    return F.get(values, F.array_position(names, name).cast("int") - 1)


def typed(text: SparkColumn, kind: str) -> SparkColumn:
    """PostgreSQL's text as a value; NULL where it has no such value (infinity as a date)."""
    from pyspark.sql import functions as F  # noqa: N812

    if kind == "binary":
        return F.when(text.startswith("\\x"), F.unhex(F.substring(text, 3, 2**31 - 1)))
    if kind in {"date", "timestamp", "timestamp_ntz"}:
        # Spark takes a bare number for a year, which some connectors write for days, and passes over the BC of a date.
        return F.when(text.like("____-__-__" if kind == "date" else "____-__-__%"), text.try_cast(kind))
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


def among(left: DataFrame, keys: DataFrame, pairs: Sequence[tuple[str, str]], how: str, shape: TableShape) -> DataFrame:
    """A join with the keys of the events, which are few beside a table, or not."""
    from pyspark.sql import functions as F  # noqa: N812

    return joined(left, F.broadcast(keys) if shape.few else keys, pairs, how)


def old_key(shape: TableShape) -> SparkColumn:
    """The key of the row before an event, typed, as a struct of k_..."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.struct(
        *[typed(column_of(OLD_KEY, shape.source(name)), shape.kind(name)).alias(key_column(name)) for name in shape.key]
    )


def new_key(shape: TableShape) -> SparkColumn:
    """The key of the row after an event; what is not sent of it (a large value that stays) is as before."""
    from pyspark.sql import functions as F  # noqa: N812

    def text(name: str) -> SparkColumn:
        return F.when(sent(NEW, name), column_of(NEW, name)).otherwise(column_of(OLD_KEY, name))

    return F.struct(*[typed(text(shape.source(name)), shape.kind(name)).alias(key_column(name)) for name in shape.key])


def unfit_key(shape: TableShape) -> SparkColumn:
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


def keys_of_events(events: DataFrame, shape: TableShape) -> DataFrame:
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
