"""The input and the result of a resolver, and expressions over events that all resolvers share.

Not here: the methods to resolve (resolve.py, general.py, multiset.py, versions.py).
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

# Names of our own columns, unlikely as names of a table's columns.
WEIGHT, GONE, REASON, UNFIT = "__weight", "__gone", "__reason", "__unfit"
NO_KEY = "its key was not sent whole, or has no such value in the lake"
# The rows and the key of an event: the columns with the arrays of names and of values.
NEW, OLD_KEY, OLD = ("columnNames", "columnValues"), ("oldKeyNames", "oldKeyValues"), ("oldNames", "oldValues")


@dataclass(frozen=True, slots=True)
class TableShape:
    """The description of a table for a resolver.

    Attributes:
        name: the name of the dataset, for messages.
        columns: the data columns, with their names in the dataset.
        sources: pairs of a column and its name in events, where the names differ.
        key: the columns of the key; without any, rows are counted.
        ignore_null_updates: whether an update that sends NULL leaves the value as it is.
        history: whether every version of a row is kept, with the time in which it was true.
        places: the partition columns, where the base has them.
        few: whether the keys of the events are few enough to broadcast them, so that the table is not shuffled.
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
        """The data columns that cannot hold every text. Only these are checked, to keep plans of wide tables short."""
        return tuple(column.name for column in self.columns if column.type != ColumnType.STRING)

    @property
    def stored(self) -> tuple[str, ...]:
        """The names of all columns of the dataset except its partition columns."""
        return (*self.names, *(column.name for column in VALIDITY)) if self.history else self.names

    def kind(self, name: str) -> str:
        """The Spark type of a column."""
        return next(str(column.type).lower() for column in self.columns if column.name == name)

    def source(self, name: str) -> str:
        """The name of a column in events."""
        return dict(self.sources).get(name, name)


@dataclass(frozen=True)
class Resolution:
    """The result of resolving the events of a table.

    Attributes:
        before: the old rows of the keys in the events, with their partition columns; a duplicate row appears as often.
        after: the new rows of these keys.
        replaced: a function that takes whole partitions of the table and returns them without the rows of `before`;
            together with `after` these are the new partitions.
        quarantined: the events that could not be decided, with `reason`; None where there are none.
    """

    before: DataFrame
    after: DataFrame
    replaced: Callable[[DataFrame], DataFrame]
    quarantined: DataFrame | None = None


def column_of(images: tuple[str, str], name: str) -> SparkColumn:
    """The text of a column in an event, from its arrays of names and values; NULL where the column is absent."""
    from pyspark.sql import functions as F  # noqa: N812

    names, values = images
    return F.get(values, F.array_position(names, name).cast("int") - 1)


def typed(text: SparkColumn, kind: str) -> SparkColumn:
    """PostgreSQL's text as a value of a type; NULL where the type has no such value (infinity as a date)."""
    from pyspark.sql import functions as F  # noqa: N812

    if kind == "binary":
        return F.when(text.startswith("\\x"), F.unhex(F.substring(text, 3, 2**31 - 1)))
    if kind in {"date", "timestamp", "timestamp_ntz"}:
        # Spark reads a bare number as a year, although some connectors write days so, and ignores the BC of a date.
        return F.when(text.like("____-__-__" if kind == "date" else "____-__-__%"), text.try_cast(kind))
    return text if kind == "string" else text.try_cast(kind)


def key_column(name: str) -> str:
    """The name of a key column among the columns of an operation."""
    return f"__k_{name}"


def joined(left: DataFrame, right: DataFrame, pairs: Sequence[tuple[str, str]], how: str) -> DataFrame:
    """A join in which NULL equals NULL, because a key may contain NULL."""
    condition = reduce(
        lambda first, second: first & second,
        [left[f"`{left_name}`"].eqNullSafe(right[f"`{right_name}`"]) for left_name, right_name in pairs],
    )
    return left.join(right, condition, how)


def among(left: DataFrame, keys: DataFrame, pairs: Sequence[tuple[str, str]], how: str, shape: TableShape) -> DataFrame:
    """A join with the keys of the events, which are broadcast where they are few."""
    from pyspark.sql import functions as F  # noqa: N812

    return joined(left, F.broadcast(keys) if shape.few else keys, pairs, how)


def old_key(shape: TableShape) -> SparkColumn:
    """The key of the row before an event, typed, as a struct of k_..."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.struct(
        *[typed(column_of(OLD_KEY, shape.source(name)), shape.kind(name)).alias(key_column(name)) for name in shape.key]
    )


def new_key(shape: TableShape) -> SparkColumn:
    """The key of the row after an event, typed, as a struct of k_...; values that were not sent are those before."""
    from pyspark.sql import functions as F  # noqa: N812

    def text(name: str) -> SparkColumn:
        return F.when(sent(NEW, name), column_of(NEW, name)).otherwise(column_of(OLD_KEY, name))

    return F.struct(*[typed(text(shape.source(name)), shape.kind(name)).alias(key_column(name)) for name in shape.key])


def unfit_key(shape: TableShape) -> SparkColumn:
    """Whether a part of a key that an event needs was not sent, or has no value of the lake's type."""
    from pyspark.sql import functions as F  # noqa: N812

    def unfit(images: tuple[str, str], name: str) -> SparkColumn:
        text = column_of(images, shape.source(name))
        return ~sent(images, shape.source(name)) | (text.isNotNull() & typed(text, shape.kind(name)).isNull())

    def any_of(images: tuple[str, str]) -> SparkColumn:
        return reduce(lambda first, second: first | second, [unfit(images, name) for name in shape.key])

    change = F.col("changeType")
    both = reduce(
        lambda first, second: first | second,
        [unfit(OLD_KEY, name) | (sent(NEW, shape.source(name)) & unfit(NEW, name)) for name in shape.key],
    )
    return F.when(change == "insert", any_of(NEW)).when(change == "delete", any_of(OLD_KEY)).otherwise(both)


def sent(images: tuple[str, str], name: str) -> SparkColumn:
    """Whether a column was sent at all."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.coalesce(F.array_contains(images[0], name), F.lit(False))


def keys_of_events(events: DataFrame, shape: TableShape) -> DataFrame:
    """(commitLsn, seq, k_...): each key that an event affects, before or after the change."""
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
