"""Which partitions belong to which, on real calendars: unlike grains and zones, first weeks, and back again."""

from __future__ import annotations

import datetime as dt
from itertools import product

import pendulum
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipeline_defs.model.dimension import StaticDimension, TimeDimension
from pipeline_defs.model.grain import Grain
from pipeline_defs.model.partition import PartitionKey
from pipeline_defs.model.partitioning import Partitioning
from pipeline_defs.planning.mapping import related

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


@st.composite
def partitionings(draw: st.DrawFn) -> Partitioning:
    grain = draw(st.sampled_from(Grain))
    zone = "UTC" if grain is Grain.HOUR else draw(st.sampled_from(ZONES))
    time = TimeDimension(f"time_{grain}", grain, pendulum.datetime(1990, 1, 1, tz=zone))
    others = draw(st.sampled_from(((), (ORIGIN,), (StaticDimension("carrier", ("AA", "UA")),))))
    return Partitioning((time, *others))


def test_a_day_in_new_york_reads_its_utc_hours_whatever_its_origin() -> None:
    for day, count in ((dt.date(2013, 3, 10), 23), (dt.date(2013, 7, 4), 24), (dt.date(2013, 11, 3), 25)):
        found = related(PartitionKey.of(day=day, origin="JFK"), BY_DAY, BY_HOUR)
        assert len(found.existing) == count
        assert found.nonexistent == ()


def test_the_hours_of_a_day_are_in_order_and_begin_at_its_midnight() -> None:
    found = related(PartitionKey.of(day=dt.date(2013, 1, 1), origin="EWR"), BY_DAY, BY_HOUR)
    assert [str(key["hour"]) for key in found.existing[:2]] == ["2013-01-01T05", "2013-01-01T06"]
    assert found.existing[-1] == PartitionKey.of(hour="2013-01-02T04")


def test_an_hour_is_read_by_every_origin_of_its_day_in_new_york() -> None:
    found = related(PartitionKey.of(hour="2013-01-02T04"), BY_HOUR, BY_DAY)
    assert [key.path for key in found.existing] == [
        "day=2013-01-01/origin=EWR", "day=2013-01-01/origin=JFK", "day=2013-01-01/origin=LGA",
    ]  # fmt: skip


def test_a_week_reads_its_seven_days_of_its_own_origin() -> None:
    found = related(PartitionKey.of(week=dt.date(2013, 1, 7), origin="LGA"), BY_WEEK, BY_DAY)
    assert found.existing == tuple(PartitionKey.of(day=dt.date(2013, 1, day), origin="LGA") for day in range(7, 14))
    assert found.nonexistent == ()


def test_a_first_week_reads_the_days_there_are_and_tells_the_ones_there_are_not() -> None:
    found = related(PartitionKey.of(week=dt.date(2012, 12, 31), origin="LGA"), BY_WEEK, BY_DAY)
    assert found.existing == tuple(PartitionKey.of(day=dt.date(2013, 1, day), origin="LGA") for day in range(1, 7))
    assert found.nonexistent == (PartitionKey.of(day=dt.date(2012, 12, 31), origin="LGA"),)


def test_a_last_week_reads_the_days_before_the_end() -> None:
    found = related(PartitionKey.of(week=dt.date(2013, 12, 30), origin="EWR"), BY_WEEK, BY_DAY)
    assert [str(key["day"]) for key in found.existing] == ["2013-12-30", "2013-12-31"]
    assert len(found.nonexistent) == 5


def test_a_day_is_read_by_the_one_week_that_holds_it() -> None:
    found = related(PartitionKey.of(day=dt.date(2013, 1, 6), origin="EWR"), BY_DAY, BY_WEEK)
    assert found.existing == (PartitionKey.of(week=dt.date(2012, 12, 31), origin="EWR"),)


def test_a_week_of_utc_overlaps_eight_days_of_new_york() -> None:
    weeks = Partitioning((TimeDimension("week", Grain.WEEK, pendulum.datetime(2013, 1, 7)),))
    found = related(PartitionKey.of(week=dt.date(2013, 1, 14)), weeks, Partitioning((DAY,)))
    assert [str(key["day"]) for key in found.existing] == [f"2013-01-{day}" for day in range(13, 21)]


def test_a_dimension_that_only_the_other_side_has_matches_all_of_its_keys() -> None:
    found = related(PartitionKey.of(day=dt.date(2013, 1, 5)), Partitioning((DAY,)), BY_DAY)
    assert [key["origin"] for key in found.existing] == ["EWR", "JFK", "LGA"]
    everything = related(PartitionKey.of(origin="EWR"), Partitioning((ORIGIN,)), BY_DAY)
    assert len(everything.existing) == 365
    assert {key["origin"] for key in everything.existing} == {"EWR"}


def test_a_static_key_that_the_other_side_has_not_maps_to_nothing_that_exists() -> None:
    fewer = Partitioning((StaticDimension("origin", ("EWR",)),))
    found = related(PartitionKey.of(origin="LGA"), Partitioning((ORIGIN,)), fewer)
    assert found.existing == ()
    assert found.nonexistent == (PartitionKey.of(origin="LGA"),)


@settings(deadline=None)
@given(partitionings(), partitionings(), moments, st.data())
def test_mapping_down_then_up_covers_the_partition_it_started_from(
    of: Partitioning, to: Partitioning, at: dt.datetime, data: st.DataObject
) -> None:
    assert of.time is not None
    assert to.time is not None
    assume({of.time.grain, to.time.grain} != {Grain.YEAR, Grain.HOUR})  # thousands of hours teach nothing more
    moment = pendulum.instance(at)
    (window,) = of.time.overlapping(pendulum.interval(moment, moment.add(microseconds=1)))
    others = [data.draw(st.sampled_from(list(dimension.keys()))) for dimension in of.dimensions[1:]]
    key = of.key([window, *others])
    down = related(key, of, to).existing
    assert down
    for partition in (down[0], down[-1], down[len(down) // 2]):
        assert key in related(partition, to, of).existing


@settings(deadline=None)
@given(partitionings(), partitionings(), moments)
def test_the_windows_mapped_to_cover_the_window_they_come_from_and_all_touch_it(
    of: Partitioning, to: Partitioning, at: dt.datetime
) -> None:
    assert of.time is not None
    assert to.time is not None
    assume({of.time.grain, to.time.grain} != {Grain.YEAR, Grain.HOUR})
    moment = pendulum.instance(at)
    (value,) = of.time.overlapping(pendulum.interval(moment, moment.add(microseconds=1)))
    window = of.time.window(value)
    mapped = [to.time.window(found) for found in to.time.overlapping(window)]
    assert mapped[0].start <= window.start
    assert window.end <= mapped[-1].end
    assert all(found.start < window.end and window.start < found.end for found in mapped)


def test_what_is_mapped_to_is_the_product_of_the_dimensions_in_order() -> None:
    stores = StaticDimension("store", ("Paris", "Detroit"))
    found = related(PartitionKey.of(week=dt.date(2013, 1, 7)), Partitioning((WEEK,)), Partitioning((DAY, stores)))
    days = [dt.date(2013, 1, day) for day in range(7, 14)]
    assert found.existing == tuple(
        PartitionKey.of(day=day, store=store) for day, store in product(days, ("Paris", "Detroit"))
    )
