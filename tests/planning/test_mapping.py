"""Which partitions belong to which, on real calendars: unlike grains and zones, first weeks, and back again."""

from __future__ import annotations

import datetime as dt
from itertools import product

import pendulum
import pytest
from hypothesis import strategies as st

from varve.model.errors import UnknownPartition, VarveError
from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.model.reads import All, Latest, Only
from varve.planning.mapping.dataset_mapping import Dependency, listed

NEW_YORK = "America/New_York"
DAY = TimeDimension(
    "day", Grain.DAY, pendulum.datetime(2013, 1, 1, tz=NEW_YORK), pendulum.datetime(2014, 1, 1, tz=NEW_YORK)
)
HOUR = TimeDimension("hour", Grain.HOUR, DAY.start.in_timezone("UTC"), pendulum.datetime(2014, 1, 1, 5))
WEEK = TimeDimension(
    "week", Grain.WEEK, pendulum.datetime(2012, 12, 31, tz=NEW_YORK), pendulum.datetime(2014, 1, 6, tz=NEW_YORK)
)
ORIGIN = StaticDimension("origin", ("EWR", "JFK", "LGA"))
BY_DAY, BY_HOUR = Partitioning((DAY, ORIGIN)), Partitioning((HOUR,))
BY_WEEK = Partitioning((WEEK, ORIGIN))

ZONES = ("UTC", NEW_YORK, "America/Sao_Paulo", "Asia/Kolkata")
YEARS = dt.datetime(1996, 1, 1), dt.datetime(2025, 1, 1)  # noqa: DTZ001 - hypothesis adds the zone
moments = st.datetimes(*YEARS, timezones=st.just(dt.UTC))


def test_a_day_in_new_york_reads_its_utc_hours_whatever_its_origin() -> None:
    for day, count in ((dt.date(2013, 3, 10), 23), (dt.date(2013, 7, 4), 24), (dt.date(2013, 11, 3), 25)):
        mapped = Dependency(BY_DAY, BY_HOUR).upstream_of(PartitionKey.of(day=day, origin="JFK"))
        assert len(mapped.keys) == count
        assert mapped.nonexistent == ()


def test_the_hours_of_a_day_are_in_order_and_begin_at_its_midnight() -> None:
    mapped = Dependency(BY_DAY, BY_HOUR).upstream_of(PartitionKey.of(day=dt.date(2013, 1, 1), origin="EWR"))
    assert [str(key["hour"]) for key in mapped.keys[:2]] == ["2013-01-01T05", "2013-01-01T06"]
    assert mapped.keys[-1] == PartitionKey.of(hour="2013-01-02T04")


def test_an_hour_is_read_by_every_origin_of_its_day_in_new_york() -> None:
    mapped = Dependency(BY_DAY, BY_HOUR).readers_of(PartitionKey.of(hour="2013-01-02T04"))
    assert [key.path for key in mapped.keys] == [
        "day=2013-01-01/origin=EWR", "day=2013-01-01/origin=JFK", "day=2013-01-01/origin=LGA",
    ]  # fmt: skip


def test_a_week_reads_its_seven_days_of_its_own_origin() -> None:
    mapped = Dependency(BY_WEEK, BY_DAY).upstream_of(PartitionKey.of(week=dt.date(2013, 1, 7), origin="LGA"))
    assert mapped.keys == [PartitionKey.of(day=dt.date(2013, 1, day), origin="LGA") for day in range(7, 14)]
    assert mapped.nonexistent == ()


def test_a_first_week_reads_the_days_there_are_and_tells_the_ones_there_are_not() -> None:
    mapped = Dependency(BY_WEEK, BY_DAY).upstream_of(PartitionKey.of(week=dt.date(2012, 12, 31), origin="LGA"))
    assert mapped.keys == [PartitionKey.of(day=dt.date(2013, 1, day), origin="LGA") for day in range(1, 7)]
    assert listed(mapped.nonexistent) == [PartitionKey.of(day=dt.date(2012, 12, 31), origin="LGA")]


def test_a_last_week_reads_the_days_before_the_end() -> None:
    mapped = Dependency(BY_WEEK, BY_DAY).upstream_of(PartitionKey.of(week=dt.date(2013, 12, 30), origin="EWR"))
    assert [str(key["day"]) for key in mapped.keys] == ["2013-12-30", "2013-12-31"]
    assert len(listed(mapped.nonexistent)) == 5


def test_a_day_is_read_by_the_one_week_that_holds_it() -> None:
    mapped = Dependency(BY_WEEK, BY_DAY).readers_of(PartitionKey.of(day=dt.date(2013, 1, 6), origin="EWR"))
    assert mapped.keys == [PartitionKey.of(week=dt.date(2012, 12, 31), origin="EWR")]


def test_a_week_of_utc_overlaps_eight_days_of_new_york() -> None:
    weeks = Partitioning((TimeDimension("week", Grain.WEEK, pendulum.datetime(2013, 1, 7)),))
    mapped = Dependency(weeks, Partitioning((DAY,))).upstream_of(PartitionKey.of(week=dt.date(2013, 1, 14)))
    assert [str(key["day"]) for key in mapped.keys] == [f"2013-01-{day}" for day in range(13, 21)]


def test_a_dimension_that_only_the_other_side_has_matches_all_of_its_keys() -> None:
    mapped = Dependency(Partitioning((DAY,)), BY_DAY).upstream_of(PartitionKey.of(day=dt.date(2013, 1, 5)))
    assert [key["origin"] for key in mapped.keys] == ["EWR", "JFK", "LGA"]
    everything = Dependency(Partitioning((ORIGIN,)), BY_DAY).upstream_of(PartitionKey.of(origin="EWR"))
    assert len(everything.keys) == 365
    assert {key["origin"] for key in everything.keys} == {"EWR"}


def test_a_static_key_that_the_other_side_has_not_maps_to_nothing_that_exists() -> None:
    fewer = Partitioning((StaticDimension("origin", ("EWR",)),))
    mapped = Dependency(Partitioning((ORIGIN,)), fewer).upstream_of(PartitionKey.of(origin="LGA"))
    assert mapped.keys == []
    assert listed(mapped.nonexistent) == [PartitionKey.of(origin="LGA")]


def test_what_is_mapped_to_is_the_product_of_the_dimensions_in_order() -> None:
    stores = StaticDimension("store", ("Paris", "Detroit"))
    mapped = Dependency(Partitioning((WEEK,)), Partitioning((DAY, stores))).upstream_of(
        PartitionKey.of(week=dt.date(2013, 1, 7))
    )
    days = [dt.date(2013, 1, day) for day in range(7, 14)]
    assert mapped.keys == [PartitionKey.of(day=day, store=store) for day, store in product(days, ("Paris", "Detroit"))]


def test_a_dataset_without_partitions_is_read_whole_and_reads_all_that_it_says() -> None:
    nothing, days, whole = Partitioning(), Partitioning((DAY,)), PartitionKey.of()
    day = PartitionKey.of(day=dt.date(2013, 1, 2))
    now = dt.datetime(2013, 1, 4, 12, tzinfo=dt.UTC)

    read_by_days = Dependency(days, nothing)
    read_by_days.check()
    assert read_by_days.upstream_of(day).keys == [whole]
    assert [key.path for key in read_by_days.readers_of(whole, now=now).keys] == [
        "day=2013-01-01", "day=2013-01-02", "day=2013-01-03",
    ]  # fmt: skip

    with pytest.raises(VarveError, match=r"share nothing with a dataset without partitions.*\{'day': All\(\)\}"):
        Dependency(nothing, days).check()
    reads_days = Dependency(nothing, days, {"day": All()})
    reads_days.check()
    assert len(reads_days.upstream_of(whole, now=now).keys) == 3
    assert reads_days.readers_of(day).keys == [whole]
    assert Dependency(nothing, days, {"day": Latest()}).upstream_of(whole, now=now).keys == [
        PartitionKey.of(day=dt.date(2013, 1, 3))
    ]
    assert Dependency(nothing, days, {"day": Only((dt.date(2013, 1, 1),))}).readers_of(day).keys == []

    both = Dependency(nothing, nothing)
    both.check()
    assert (both.upstream_of(whole).keys, both.readers_of(whole).keys) == ([whole], [whole])


def test_the_key_of_a_dataset_without_partitions_is_spelled_all_everywhere() -> None:
    nothing = Partitioning()
    nothing.check()
    (only,) = nothing.keys()
    assert (only, only.path, str(only), nothing.count()) == (PartitionKey.of(), "all", "all", 1)
    assert nothing.from_path("all") == nothing.from_dagster("all") == only
    # In Dagster there is no key.
    assert (nothing.dagster_key(only), nothing.folds) == (None, {})
    for refuse in (nothing.from_path, nothing.from_dagster):
        with pytest.raises(UnknownPartition, match="'day=2013-01-01'"):
            refuse("day=2013-01-01")
    with pytest.raises(UnknownPartition, match="must name the columns day"):
        Partitioning((DAY,)).from_path("all")
