"""Windows of random crons and durations, where clocks move: they tile time, and each has a key of its own."""

from __future__ import annotations

import datetime as dt

import pendulum
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from varve.model.errors import VarveError
from varve.model.partitions.calendar import Every, Tiling, calendar_of
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.zone import DAY, stretch

ZONES = (
    "America/New_York",
    "America/Los_Angeles",
    "America/Sao_Paulo",
    "America/Havana",
    "Australia/Lord_Howe",
    "Europe/Paris",
    "Africa/Casablanca",
    "Asia/Kolkata",
    "Asia/Tehran",
    "Pacific/Apia",
    "America/St_Johns",
    "UTC",
)
SINCE, UNTIL = (int(pendulum.datetime(year, 1, 1).timestamp()) for year in (1995, 2036))


@st.composite
def crons(draw: st.DrawFn) -> str:
    """Cron expressions of every kind of field."""
    minute = draw(st.sampled_from(("0", "30", "*/7", "*/8", "15,45", "59", "*/15", "*")) | st.integers(0, 59).map(str))
    hour = draw(st.sampled_from(("*", "*", "0", "2", "*/6", "0,11", "1-3", "23")))
    day = draw(st.sampled_from(("*", "*", "*", "1", "15", "29", "31", "*/10")))
    month = draw(st.sampled_from(("*", "*", "*/3", "3,11", "2") if day != "31" else ("*", "*/2")))
    weekday = draw(st.sampled_from(("*", "*", "0", "1", "1-5", "1#2")))
    return f"{minute} {hour} {day} {month} {weekday}"


@st.composite
def durations(draw: st.DrawFn) -> Every:
    minutes = draw(st.sampled_from((7, 8, 90, 480, 1_440, 2_880, 10_080)) | st.integers(1, 20_000))
    anchor = draw(st.datetimes(dt.datetime(2000, 1, 1), dt.datetime(2020, 1, 1)))  # noqa: DTZ001 - given a zone below
    return Every(dt.timedelta(minutes=minutes), pendulum.instance(anchor.replace(microsecond=0), tz="UTC"))


tilings: st.SearchStrategy[Tiling] = st.one_of(crons(), durations())


@st.composite
def moments(draw: st.DrawFn, zone: str) -> int:
    """Instants of random years, most of them near a move of the clock."""
    at = draw(st.integers(SINCE, UNTIL))
    near = draw(st.sampled_from((True, True, False)))
    return stretch(zone, at).start + draw(st.integers(-2 * DAY, 2 * DAY)) if near else at


@settings(max_examples=150)
@given(tilings, st.sampled_from(ZONES), st.data())
def test_windows_tile_time_without_gap_or_overlap(tiling: Tiling, zone: str, data: st.DataObject) -> None:
    calendar = calendar_of(tiling, zone)
    at = data.draw(moments(zone))
    start, end = calendar.floor(at), calendar.following(at)
    assert start <= at < end
    assert calendar.floor(start) == calendar.floor(end - 1) == start
    assert calendar.following(start) == calendar.following(end - 1) == calendar.floor(end) == end
    assert calendar.following(start - 1) == start


@settings(max_examples=150)
@given(tilings, st.sampled_from(ZONES), st.data())
def test_each_window_has_a_key_of_its_own_that_reads_back(tiling: Tiling, zone: str, data: st.DataObject) -> None:
    calendar = calendar_of(tiling, zone)
    start = calendar.floor(data.draw(moments(zone)))
    dimension = TimeDimension("time", tiling, pendulum.from_timestamp(start, tz=zone))
    starts = [start]
    for _ in range(30):
        starts.append(calendar.following(starts[-1]))
    values = [dimension.value_at(at) for at in starts]
    texts = [dimension.text_at(at) for at in starts]
    assert len(set(values)) == len(set(texts)) == len(starts)
    assert [dimension.start_of(value) for value in values] == starts
    assert [dimension.parse(text) for text in texts] == values
    assert all(type(value) is dimension.value_type for value in values)


@settings(max_examples=100)
@given(durations(), st.sampled_from(ZONES), st.data())
def test_windows_of_a_duration_last_as_long_unless_they_are_of_whole_days(
    every: Every, zone: str, data: st.DataObject
) -> None:
    calendar = calendar_of(every, zone)
    at = data.draw(moments(zone))
    seconds = every.duration.total_seconds()
    length = calendar.following(at) - calendar.floor(at)
    assume(zone != "Pacific/Apia")
    assert length == seconds if seconds % DAY else abs(length - seconds) <= 7_200


@pytest.mark.parametrize(
    ("cron", "zone", "day", "count"),
    [
        ("@hourly", "America/New_York", "2024-03-10", 23),
        ("@hourly", "America/New_York", "2024-11-03", 25),
        ("@hourly", "America/Los_Angeles", "2023-11-05", 25),
        ("@hourly", "America/Sao_Paulo", "2018-11-04", 23),
        ("@hourly", "America/Sao_Paulo", "2018-02-17", 25),
        # Half an hour less and more: hours stay on the hour. It never shows two, so the hour from one lasts 90 minutes.
        ("@hourly", "Australia/Lord_Howe", "2024-10-06", 23),
        ("@hourly", "Australia/Lord_Howe", "2024-04-07", 24),
        ("*/30 * * * *", "Australia/Lord_Howe", "2024-10-06", 47),
        ("*/30 * * * *", "Australia/Lord_Howe", "2024-04-07", 49),
        # The minutes start again with each hour.
        ("*/7 * * * *", "UTC", "2024-06-10", 9 * 24),
        ("*/8 * * * *", "UTC", "2024-06-10", 8 * 24),
        ("0 0,11 * * *", "America/New_York", "2024-03-10", 2),
        # Once a day, also where the clock skips half past two or shows half past one twice.
        ("30 2 * * *", "America/New_York", "2024-03-10", 1),
        ("30 1 * * *", "America/New_York", "2024-11-03", 1),
    ],
)
def test_a_day_has_as_many_windows_as_its_clock_shows(cron: str, zone: str, day: str, count: int) -> None:
    days = TimeDimension.of("day", "@daily", "2010-01-01", timezone=zone)
    window = days.window(days.parse(day))
    calendar, at, starts = calendar_of(cron, zone), int(window.start.timestamp()) - 1, []
    while (at := calendar.following(at)) < window.end.timestamp():
        starts.append(at)
    assert len(starts) == count


def test_every_counts_from_its_anchor() -> None:
    hours = Every(dt.timedelta(hours=8), pendulum.datetime(2024, 1, 1, 10, 35))
    shifts = TimeDimension("shift", hours, pendulum.datetime(2024, 1, 1, 10, 35), pendulum.datetime(2024, 1, 2, 10, 35))
    shifts.check()
    assert list(shifts.keys()) == ["2024-01-01T10:35", "2024-01-01T18:35", "2024-01-02T02:35"]


@pytest.mark.parametrize(
    ("tiling", "zone", "problem"),
    [
        ("0 0 31 2 *", "UTC", "names no day that any calendar has"),
        ("61 * * * *", "UTC", "cron '61 \\* \\* \\* \\*' is not understood"),
        ("* * *", "UTC", "is not understood"),
        ("0 0 * * * 0", "UTC", "found 6"),
        ("noon", "UTC", "is not understood"),
        ("@daily", "Mars/Olympus", "time zone 'Mars/Olympus' is unknown"),
        (Every(dt.timedelta(0), pendulum.datetime(2024, 1, 1)), "UTC", "one or more whole seconds"),
        (Every(dt.timedelta(seconds=0.5), pendulum.datetime(2024, 1, 1)), "UTC", "one or more whole seconds"),
        (Every(dt.timedelta(days=-1), pendulum.datetime(2024, 1, 1)), "UTC", "one or more whole seconds"),
        (Every(pendulum.duration(months=1), pendulum.datetime(2024, 1, 1)), "UTC", "write a cron"),
        (Every(dt.timedelta(days=1), pendulum.datetime(2024, 1, 1, microsecond=5)), "UTC", "a whole second"),
    ],
)
def test_a_tiling_that_is_none_is_refused_with_its_reason(tiling: Tiling, zone: str, problem: str) -> None:
    with pytest.raises(VarveError, match=problem):
        calendar_of(tiling, zone)
