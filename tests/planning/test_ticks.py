"""Which windows the ticks of any schedule complete, over days of 23 and 25 hours and schedules that fit nothing."""

from __future__ import annotations

import itertools

import pendulum
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planning.shapes import times
from varve.model.partitions.calendar import calendar_of
from varve.model.partitions.dimension import TimeDimension
from varve.planning.schedule_ticks import completed

NEW_YORK = "America/New_York"
HOURS = TimeDimension.of("hour", "@hourly", "2024-01-01", timezone=NEW_YORK)
DAYS = TimeDimension.of("day", "@daily", "2024-01-01", timezone=NEW_YORK)


def at_tick(dimension: TimeDimension, schedule: str, tick: str, timezone: str = NEW_YORK) -> list[str]:
    moment = pendulum.parse(tick, tz=timezone)
    assert isinstance(moment, pendulum.DateTime)
    before = pendulum.from_timestamp(calendar_of(schedule, timezone).previous_start(int(moment.timestamp())))
    return list(map(str, completed(dimension, before, moment)))


@pytest.mark.parametrize(("tick", "count"), [("2024-03-11", 23), ("2024-03-12", 24), ("2024-11-04", 25)])
def test_a_daily_tick_completes_all_hours_of_its_day(tick: str, count: int) -> None:
    completed_keys = at_tick(HOURS, "@daily", tick)
    assert len(set(completed_keys)) == len(completed_keys) == count


def test_an_hourly_tick_completes_a_day_once() -> None:
    ticks = [f"2024-06-10T{hour:02}" for hour in range(1, 24)]
    assert [at_tick(DAYS, "@hourly", tick) for tick in ticks] == [[]] * 23
    assert at_tick(DAYS, "@hourly", "2024-06-11T00") == ["2024-06-10"]


def test_a_schedule_that_fits_no_window_completes_those_that_ended_since_its_last_tick() -> None:
    assert at_tick(HOURS, "35 */2 * * *", "2024-06-10T10:35") == ["2024-06-10T08", "2024-06-10T09"]
    assert at_tick(DAYS, "@daily", "2024-06-11", "UTC") == ["2024-06-09"]


def test_nothing_outside_the_dimension_is_completed() -> None:
    short = TimeDimension.of("hour", "@hourly", "2024-06-10T05:00", "2024-06-10T07:00")
    assert at_tick(short, "@daily", "2024-06-11", "UTC") == ["2024-06-10T05", "2024-06-10T06"]
    assert at_tick(short, "@daily", "2024-06-10", "UTC") == []
    assert at_tick(short, "@daily", "2024-06-12", "UTC") == []


@settings(max_examples=60)
@given(
    times(),
    st.sampled_from(("@daily", "@hourly", "35 */5 * * *", "0 0 * * 1", "*/45 * * * *")),
    st.sampled_from(("UTC", NEW_YORK)),
)
def test_the_ticks_of_any_schedule_complete_each_window_once(
    dimension: TimeDimension, schedule: str, zone: str
) -> None:
    calendar = calendar_of(schedule, zone)
    ticks = [calendar.floor(int(pendulum.datetime(2024, 3, 8).timestamp()))]
    while ticks[-1] < pendulum.datetime(2024, 3, 13).timestamp():
        ticks.append(calendar.following(ticks[-1]))
    moments = [pendulum.from_timestamp(tick) for tick in ticks]
    completed_keys = [
        value for before, tick in itertools.pairwise(moments) for value in completed(dimension, before, tick)
    ]
    ended = [
        value
        for value in dimension.keys(now=pendulum.datetime(2024, 4, 1))
        if ticks[0] < dimension.window(value).end.timestamp() <= ticks[-1]
    ]
    # With `end_offset` windows are there before they end.
    assert dimension.end_offset or completed_keys == ended


def test_a_window_that_is_a_partition_before_it_ends_is_completed_when_it_ends() -> None:
    tick = pendulum.datetime(2024, 3, 5)
    days = TimeDimension.of("day", "@daily", "2024-03-01").reaching(2)
    assert list(map(str, completed(days, tick.subtract(days=1), tick))) == ["2024-03-04"]
    assert completed(days, tick, tick.add(hours=6)) == []
