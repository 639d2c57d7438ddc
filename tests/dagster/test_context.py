"""`RunPartitions`, what a body may ask about its partitions; tests/e2e/test_partition_kinds.py does so in a run."""

from __future__ import annotations

import datetime as dt
from itertools import islice
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from varve.dagster.assets.context import RunPartitions, in_order
from varve.dagster.partitions.dynamic_sets import PartitionSets
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import VarveError
from varve.model.partitions.dimension import Dimension, DynamicDimension, StaticDimension, TimeDimension
from varve.model.partitions.key import PartitionKey, plain
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from varve.model.partitions.key import Value

NEW_YORK = "America/New_York"
DAY = TimeDimension.of("day", "@daily", "2013-01-01", "2014-01-01", timezone=NEW_YORK)
HOUR = TimeDimension.of("hour", "@hourly", "2013-01-01", "2014-01-01", timezone=NEW_YORK)


class Position(PartitionKey):
    """A key with several fields and a text form of its own."""

    x: float
    y: float

    def __str__(self) -> str:
        return f"at {self.x}"


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


def running(instance: dg.DagsterInstance, dimensions: Sequence[Dimension], *values: Sequence[Value]) -> RunPartitions:
    """Return a run of the partitions with these values."""
    columns = Schema((Column("text", ColumnType.STRING, "anything"),))
    dataset = Dataset("shop.rows", Partitioning(tuple(dimensions)), columns, StoreKind.LAKE, "Rows.")
    keys = in_order(dataset, map(dataset.partitioning.key, values))
    return RunPartitions(dataset, keys, PartitionSets(instance, [dataset.partitioning]))


def test_a_run_of_one_partition_has_its_key(instance: dg.DagsterInstance) -> None:
    origin = StaticDimension("origin", ("JFK", "EWR"))
    run = running(instance, (DAY, origin), (dt.date(2013, 1, 5), "EWR"))
    assert run.key == PartitionKey.of(day=dt.date(2013, 1, 5), origin="EWR")


def test_a_run_of_several_has_no_one_key_and_says_so(instance: dg.DagsterInstance) -> None:
    run = running(instance, (DAY,), (dt.date(2013, 1, 5),), (dt.date(2013, 1, 6),))
    with pytest.raises(VarveError, match=r"shop\.rows: the run computes 2 partitions, day=2013-01-05, day=2013-01-06;"):
        _ = run.key


@pytest.mark.parametrize(("day", "hours"), [((1, 5), 24), ((3, 10), 23), ((11, 3), 25)])
def test_the_window_of_a_day_is_as_long_as_the_day(
    instance: dg.DagsterInstance, day: tuple[int, int], hours: int
) -> None:
    run = running(instance, (DAY,), (dt.date(2013, *day),))
    assert run.window.end.timestamp() - run.window.start.timestamp() == hours * 3_600
    assert run.window.start.timezone_name == NEW_YORK


def test_the_window_of_several_is_from_the_first_start_to_the_last_end(instance: dg.DagsterInstance) -> None:
    repeated = ("2013-11-03T01-0500", "2013-11-03T00", "2013-11-03T01")
    run = running(instance, (HOUR,), *[(hour,) for hour in repeated])
    assert (run.window.start.isoformat(), run.window.end.isoformat()) == (
        "2013-11-03T00:00:00-04:00", "2013-11-03T02:00:00-05:00",
    )  # fmt: skip
    # The hour that the clock shows twice has two partitions, in order.
    assert [key["hour"] for key in run.keys] == ["2013-11-03T00", "2013-11-03T01", "2013-11-03T01-0500"]


def test_the_past_is_newest_first_with_the_same_other_keys_back_to_the_beginning(instance: dg.DagsterInstance) -> None:
    origin = StaticDimension("origin", ("JFK", "EWR"))
    run = running(instance, (DAY, origin), (dt.date(2013, 1, 4), "EWR"), (dt.date(2013, 1, 5), "EWR"))
    assert list(run.past()) == [
        PartitionKey.of(day=dt.date(2013, 1, day), origin="EWR") for day in (3, 2, 1)
    ]  # fmt: skip


def test_the_past_goes_through_the_hour_that_comes_twice(instance: dg.DagsterInstance) -> None:
    run = running(instance, (HOUR,), ("2013-11-03T02",))
    assert [key["hour"] for key in islice(run.past(), 3)] == ["2013-11-03T01-0500", "2013-11-03T01", "2013-11-03T00"]


def test_the_past_before_hours_whose_texts_sort_otherwise_is_before_the_first_of_them(
    instance: dg.DagsterInstance,
) -> None:
    named = TimeDimension("hour", HOUR.tiling, HOUR.start, HOUR.end, key_format="%d.%m.%Y %H%z")
    run = running(instance, (named,), ("01.02.2013 00-0500",), ("31.01.2013 23-0500",))
    assert next(run.past())["hour"] == "31.01.2013 22-0500"
    assert [key["hour"] for key in run.keys] == ["31.01.2013 23-0500", "01.02.2013 00-0500"]


def test_without_time_there_is_no_window(instance: dg.DagsterInstance) -> None:
    run = running(instance, (StaticDimension("origin", ("EWR",)),), ("EWR",))
    with pytest.raises(VarveError, match=r"shop\.rows has no time dimension"):
        run.window  # noqa: B018


def test_the_past_of_a_sequence_is_before_it_in_its_order(instance: dg.DagsterInstance) -> None:
    size = StaticDimension("size", ("small", "large", "huge"))
    run = running(instance, (size, StaticDimension("origin", ("EWR",))), ("huge", "EWR"), ("large", "EWR"))
    assert [key["size"] for key in run.keys] == ["large", "huge"]
    assert list(run.past()) == [PartitionKey.of(size="small", origin="EWR")]


def test_the_past_of_a_set_that_grows_is_what_sorts_before_it(instance: dg.DagsterInstance) -> None:
    loaded = DynamicDimension("upto", "loads", int)
    running(instance, (loaded,), (9,)).add(loaded, [40, 9, 100])
    assert next(running(instance, (loaded,), (100,)).past()) == PartitionKey.of(upto=40)
    assert running(instance, (loaded,), (100,)).previous == PartitionKey.of(upto=40)
    assert list(running(instance, (loaded,), (9,)).past()) == []
    assert running(instance, (loaded,), (9,)).previous is None


@pytest.mark.spark
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("dimensions", "values"),
    [
        ((DAY,), [(dt.date(2013, 1, day),) for day in (1, 2, 3)]),
        ((HOUR,), [("2013-11-03T01",), ("2013-11-03T01-0500",), ("2013-11-03T02",)]),
        ((StaticDimension("level", (20, 3, 1)),), [(20,), (3,), (1,)]),
        ((StaticDimension("cell", (Position(0, 1), Position(0, 2))),), [(Position(0, 1),), (Position(0, 2),)]),
        ((DAY, StaticDimension("odd", ("it's", "50%"))), [(dt.date(2013, 1, 1), odd) for odd in ("it's", "50%")]),
    ],
    ids=["day", "hour", "int", "rich", "product"],
)
def test_where_holds_for_the_rows_of_the_run_and_no_others(
    instance: dg.DagsterInstance,
    spark: SparkSession,
    dimensions: tuple[Dimension, ...],
    values: list[tuple[Value, ...]],
    count: int,
) -> None:
    run = running(instance, dimensions, *values[:count])
    names = ", ".join(f"{column.name} {column.type}" for column in run.dataset.partition_columns)
    rows = [tuple(map(plain, row)) for row in values]
    selected = spark.createDataFrame([*rows, tuple([None] * len(dimensions))], names).where(run.where).collect()
    assert sorted(map(tuple, selected)) == sorted(rows[:count])
