"""The input and the result of a resolver, and expressions over events that all resolvers share.

Expressions are texts of Spark SQL: each function of the DataFrame API is some calls into the JVM, which for 300 columns
took longer than the work itself.

Not here: the methods to resolve (resolve.py, general.py, multiset.py, versions.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import and_
from typing import TYPE_CHECKING

from varve.cdc.captured_table import VALIDITY
from varve.model.schema import ColumnType
from varve.sql.syntax.lexer import quoted
from varve.stores.frames import folded, text_as_decimal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import DataFrame

    from varve.model.schema import Column

# Names of our own columns, unlikely as names of a table's columns.
WEIGHT, GONE, REASON, UNFIT = "__weight", "__gone", "__reason", "__unfit"
# In which part of the events a row is: how many TRUNCATEs were before it.
EPOCH = "__epoch"
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
        usual: the names in the order in which events send them as a rule, of a wide table; none of another.
        few: whether the keys of the events are few enough to broadcast them, so that the table is not shuffled.
        applied: the place (commit LSN, seq) of the last event in a history, where a transaction may go on behind it.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    sources: tuple[tuple[str, str], ...] = ()
    ignore_null_updates: bool = False
    history: bool = False
    places: tuple[str, ...] = ()
    usual: tuple[str, ...] = ()
    few: bool = True
    applied: tuple[int, int] = (-1, -1)

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


def text_of(image: tuple[str, str], name: str) -> str:
    """The text of a column in an event, from its arrays of names and values; NULL where the column is absent."""
    names, values = image
    return f"get({values}, CAST(array_position({names}, {quoted(name)}) AS INT) - 1)"


def is_sent(image: tuple[str, str], name: str) -> str:
    """Whether a column was sent at all."""
    return f"coalesce(array_contains({image[0]}, {quoted(name)}), false)"


def texts_of(image: tuple[str, str], shape: TableShape) -> str:
    """The texts of all columns, in an array of their order; NULL where a column is absent."""
    return _of_columns(image, shape, lambda name: text_of(image, name), lambda at: f"get({image[1]}, {at})",
                       "CAST(NULL AS STRING)")  # fmt: skip


def sent_of(image: tuple[str, str], shape: TableShape) -> str:
    """Which columns were sent, in an array of their order."""
    return _of_columns(image, shape, lambda name: is_sent(image, name), lambda _: "true", "false")


def _of_columns(
    image: tuple[str, str], shape: TableShape, anywhere: Callable[[str], str], at: Callable[[int], str], absent: str
) -> str:
    """An array over all columns: by their places in the usual names, or looked for one by one in other ones.

    To look for each of 300 columns among 300 names costs as much as all the rest of resolving.
    """
    names = [shape.source(name) for name in shape.names]
    sought = f"array({', '.join(anywhere(name) for name in names)})"
    if not shape.usual:
        return sought
    # The first of two columns of one name counts, as it does where one is looked for.
    places = {name: place for place, name in reversed(list(enumerate(shape.usual)))}
    known = ", ".join(at(places[name]) if name in places else absent for name in names)
    usual = ", ".join(quoted(name) for name in shape.usual)
    return f"CASE WHEN {image[0]} = array({usual}) THEN array({known}) ELSE {sought} END"


def typed(text: str, kind: str) -> str:
    """PostgreSQL's text as a value of a type; NULL where the type has no such value (infinity as a date)."""
    if kind == "binary":
        return (
            f"CASE WHEN startswith({text}, {quoted(chr(92) + 'x')}) THEN unhex(substring({text}, 3, {2**31 - 1})) END"
        )
    if kind in {"date", "timestamp", "timestamp_ntz"}:
        # Spark reads a bare number as a year, although some connectors write days so, and ignores the BC of a date.
        if kind != "date":
            return f"CASE WHEN {text} LIKE '____-__-__%' THEN try_cast({text} AS {kind}) END"
        # As isostring, Debezium writes a date with a zone: 2013-01-05Z.
        is_date, day = f"{text} LIKE ANY ('____-__-__', '____-__-__Z')", f"substring({text}, 1, 10)"
        return f"CASE WHEN {is_date} THEN try_cast({day} AS date) END"
    if kind.startswith("decimal"):
        return text_as_decimal(text, kind)
    return text if kind == "string" else f"try_cast({text} AS {kind})"


def named(name: str) -> str:
    """A name as an identifier of Spark."""
    return "`" + name.replace("`", "``") + "`"


def key_column(name: str) -> str:
    """The name of a key column among the columns of an operation."""
    return f"__k_{name}"


def joined(left: DataFrame, right: DataFrame, pairs: Sequence[tuple[str, str]], how: str) -> DataFrame:
    """A join in which NULL equals NULL, because a key may contain NULL."""
    same = [left[f"`{left_name}`"].eqNullSafe(right[f"`{right_name}`"]) for left_name, right_name in pairs]
    return left.join(right, folded(and_, same), how)


def among(left: DataFrame, keys: DataFrame, pairs: Sequence[tuple[str, str]], how: str, shape: TableShape) -> DataFrame:
    """A join with the keys of the events, which are broadcast where they are few."""
    from pyspark.sql import functions as F  # noqa: N812

    return joined(left, F.broadcast(keys) if shape.few else keys, pairs, how)


def with_epoch(places: DataFrame, events: DataFrame) -> DataFrame:
    """The rows, which have a place (commitLsn, seq), with the number of TRUNCATEs among the events before it."""
    from pyspark.sql import functions as F  # noqa: N812

    place = F.struct("commitLsn", "seq")
    truncates = events.where("changeType = 'truncate'").agg(F.collect_set(place).alias("__truncates"))
    epoch = F.size(F.filter("__truncates", lambda truncate: truncate < place))
    return places.crossJoin(F.broadcast(truncates)).withColumn(EPOCH, epoch).drop("__truncates")


def old_key(shape: TableShape) -> str:
    """The key of the row before an event, typed, as a struct of k_..."""
    return _struct((name, typed(text_of(OLD_KEY, shape.source(name)), shape.kind(name))) for name in shape.key)


def new_key(shape: TableShape) -> str:
    """The key of the row after an event, typed, as a struct of k_...; values that were not sent are those before."""

    def text(name: str) -> str:
        return f"CASE WHEN {is_sent(NEW, name)} THEN {text_of(NEW, name)} ELSE {text_of(OLD_KEY, name)} END"

    return _struct((name, typed(text(shape.source(name)), shape.kind(name))) for name in shape.key)


def _struct(values: Iterable[tuple[str, str]]) -> str:
    fields = ", ".join(f"{quoted(key_column(name))}, {value}" for name, value in values)
    return f"named_struct({fields})"


def unfit_key(shape: TableShape) -> str:
    """Whether a part of a key that an event needs was not sent, or has no value of the lake's type."""

    def unfit(image: tuple[str, str], name: str) -> str:
        text = text_of(image, shape.source(name))
        no_value = f"{text} IS NOT NULL AND {typed(text, shape.kind(name))} IS NULL"
        return f"(NOT {is_sent(image, shape.source(name))} OR {no_value})"

    def any_of(image: tuple[str, str]) -> str:
        return " OR ".join(unfit(image, name) for name in shape.key)

    both = " OR ".join(
        f"{unfit(OLD_KEY, name)} OR ({is_sent(NEW, shape.source(name))} AND {unfit(NEW, name)})" for name in shape.key
    )
    return (
        f"CASE WHEN changeType = 'insert' THEN {any_of(NEW)} WHEN changeType = 'delete' THEN {any_of(OLD_KEY)} "
        f"ELSE {both} END"
    )


def keys_of_events(events: DataFrame, shape: TableShape) -> DataFrame:
    """(commitLsn, seq, k_...): each key that an event affects, before or after the change."""
    from pyspark.sql import functions as F  # noqa: N812

    new, old = F.expr(new_key(shape)), F.expr(old_key(shape))
    both = (
        F.when(F.col("changeType") == "insert", F.array(new))
        .when(F.col("changeType") == "delete", F.array(old))
        .otherwise(F.array(old, new))
    )
    return events.select("commitLsn", "seq", F.explode(F.array_distinct(both)).alias("k")).select(
        "commitLsn", "seq", "k.*"
    )
