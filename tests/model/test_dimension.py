"""Windows and keys of dimensions: any zone's calendar tiled without gap or overlap, and keys that say what they are."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise

import pendulum
import pytest
from hypothesis import given
from hypothesis import strategies as st

from varve.model.errors import OutsideDimension, UnknownPartition, VarveError
from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.key import PartitionKey, Value
from varve.model.partitions.partitioning import Partitioning

NEW_YORK = "America/New_York"
# Zones whose clocks move at night, at midnight (both ways), by half an hour, by a whole day, at 00:01, and never.
ZONES = (
    NEW_YORK,
    "UTC",
    "Europe/Paris",
    "America/Sao_Paulo",
    "America/Havana",
    "Asia/Beirut",
    "Africa/Cairo",
    "Atlantic/Azores",
    "America/Santiago",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "America/St_Johns",
    "Asia/Kolkata",
)
DAY = TimeDimension(
    "day", Grain.DAY, pendulum.datetime(2013, 1, 1, tz=NEW_YORK), pendulum.datetime(2014, 1, 1, tz=NEW_YORK)
)
HOUR = TimeDimension("hour", Grain.HOUR, pendulum.datetime(2013, 1, 1), pendulum.datetime(2014, 1, 1))
WEEK = TimeDimension("week", Grain.WEEK, pendulum.datetime(2012, 12, 31), pendulum.datetime(2014, 1, 6))
ORIGIN = StaticDimension("origin", ("EWR", "JFK", "LGA"))

# All but control characters, which no key may have.
CHARACTERS = st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"))
YEARS = dt.datetime(1995, 1, 1), dt.datetime(2030, 1, 1)  # noqa: DTZ001 - hypothesis adds the zone
instants = st.datetimes(*YEARS, timezones=st.just(dt.UTC))
members = st.lists(st.text(CHARACTERS, min_size=1), min_size=1, max_size=5, unique=True)


@st.composite
def calendars(draw: st.DrawFn) -> TimeDimension:
    """Time dimensions without end, of every grain in every zone that can have it."""
    grain = draw(st.sampled_from(Grain))
    zone = draw(st.sampled_from(ZONES))
    # A Monday.
    return TimeDimension("time", grain, pendulum.datetime(1990, 1, 1, tz=zone))


def following(dimension: TimeDimension, moment: pendulum.DateTime) -> pendulum.DateTime:
    """The first start of a window after `moment`."""
    return pendulum.from_timestamp(dimension.calendar.following(int(moment.timestamp() // 1)), tz=dimension.timezone)


def overlapping(dimension: TimeDimension, span: pendulum.Interval[pendulum.DateTime]) -> list[Value]:
    """The keys of the windows that share an instant with a span."""
    keys, at = [], dimension.floor(span.start)
    while at < span.end:
        keys.append(dimension.value_at(int(at.timestamp())))
        at = following(dimension, at)
    return keys


def hours_of(day: dt.date) -> list[Value]:
    return overlapping(HOUR, DAY.window(day))


def test_a_day_in_new_york_reads_23_hours_when_clocks_go_forward() -> None:
    hours = hours_of(dt.date(2013, 3, 10))
    assert len(hours) == 23
    assert (hours[0], hours[-1]) == ("2013-03-10T05", "2013-03-11T03")


def test_a_day_in_new_york_reads_25_hours_when_clocks_go_back() -> None:
    hours = hours_of(dt.date(2013, 11, 3))
    assert len(hours) == 25
    assert (hours[0], hours[-1]) == ("2013-11-03T04", "2013-11-04T04")


def test_an_ordinary_day_in_new_york_reads_24_hours() -> None:
    assert len(hours_of(dt.date(2013, 7, 4))) == 24


def test_a_day_whose_midnight_is_skipped_begins_when_the_clocks_have_moved() -> None:
    days = TimeDimension("day", Grain.DAY, pendulum.datetime(2013, 1, 1, tz="America/Sao_Paulo"))
    window = days.window(dt.date(2013, 10, 20))
    assert window.start == pendulum.datetime(2013, 10, 20, 3)
    assert window.end == pendulum.datetime(2013, 10, 21, 2)
    assert len(overlapping(HOUR, window)) == 23


def test_a_day_whose_midnight_comes_twice_begins_with_the_first() -> None:
    days = TimeDimension("day", Grain.DAY, pendulum.datetime(2013, 1, 1, tz="America/Havana"))
    window = days.window(dt.date(2013, 11, 3))
    # In UTC, as Python never finds a time that comes twice equal to one of another zone.
    assert window.start.in_timezone("UTC") == pendulum.datetime(2013, 11, 3, 4)
    assert window.end.in_timezone("UTC") == pendulum.datetime(2013, 11, 4, 5)
    second = pendulum.datetime(2013, 11, 3, 5, 30)
    assert days.floor(second) == days.floor(second.in_timezone("America/Havana")) == window.start
    assert len(overlapping(HOUR, window)) == 25


def test_a_day_that_a_zone_left_out_is_no_key() -> None:
    days = TimeDimension(
        "day",
        Grain.DAY,
        pendulum.datetime(2011, 12, 28, tz="Pacific/Apia"),
        pendulum.datetime(2012, 1, 2, tz="Pacific/Apia"),
    )
    assert list(map(str, days.keys())) == ["2011-12-28", "2011-12-29", "2011-12-31", "2012-01-01"]
    with pytest.raises(UnknownPartition):
        days.parse("2011-12-30")


def test_weeks_begin_on_monday_and_months_and_years_on_their_first() -> None:
    at = pendulum.datetime(2013, 2, 28, 13, 5, 7, 9)
    floors = {grain: TimeDimension("t", grain, pendulum.datetime(1990, 1, 1)).floor(at) for grain in Grain}
    assert floors == {
        Grain.HOUR: pendulum.datetime(2013, 2, 28, 13),
        Grain.DAY: pendulum.datetime(2013, 2, 28),
        Grain.WEEK: pendulum.datetime(2013, 2, 25),
        Grain.MONTH: pendulum.datetime(2013, 2, 1),
        Grain.QUARTER: pendulum.datetime(2013, 1, 1),
        Grain.YEAR: pendulum.datetime(2013, 1, 1),
    }


@given(calendars(), instants)
def test_windows_tile_time_without_gap_or_overlap(calendar: TimeDimension, at: dt.datetime) -> None:
    start = calendar.floor(at)
    end = following(calendar, start)
    assert start.timestamp() <= at.timestamp() < end.timestamp()
    assert calendar.floor(start) == start
    assert calendar.floor(end) == end
    assert calendar.floor(end.subtract(microseconds=1)) == start
    assert following(calendar, calendar.floor(start.subtract(microseconds=1))) == start


@given(calendars(), instants, st.integers(1, 40))
def test_the_windows_that_overlap_a_span_cover_it_end_to_end(
    calendar: TimeDimension, at: dt.datetime, days: int
) -> None:
    span = pendulum.interval(pendulum.instance(at), pendulum.instance(at).add(days=days))
    windows = [calendar.window(key) for key in overlapping(calendar, span)]
    assert all(window.end == next_window.start for window, next_window in pairwise(windows))
    assert windows[0].start <= span.start < windows[0].end
    assert windows[-1].start < span.end <= windows[-1].end


@given(calendars(), instants)
def test_the_text_of_a_key_is_read_back_as_the_key_of_the_same_window(calendar: TimeDimension, at: dt.datetime) -> None:
    instant = pendulum.instance(at)
    key = calendar.holding(instant)
    assert calendar.parse(str(key)) == key
    assert calendar.window(key).start == calendar.floor(at)
    assert calendar.exists(key)


def test_the_keys_of_a_dimension_are_its_windows_in_order() -> None:
    keys = list(DAY.keys())
    assert len(keys) == 365
    assert (keys[0], keys[-1]) == (dt.date(2013, 1, 1), dt.date(2013, 12, 31))
    assert keys == sorted(keys, key=str)
    assert all(DAY.exists(key) for key in keys)


def test_a_dimension_without_end_reaches_to_the_last_whole_window() -> None:
    keys = list(TimeDimension("day", Grain.DAY, pendulum.now("UTC").start_of("day").subtract(days=3)).keys())
    assert len(keys) in {3, 4}  # four where midnight passes during the test


def test_windows_before_start_and_after_end_do_not_exist() -> None:
    assert not DAY.exists(dt.date(2012, 12, 31))
    assert DAY.exists(dt.date(2013, 12, 31))
    assert not DAY.exists(dt.date(2014, 1, 1))


def test_a_key_outside_names_its_dimension_and_how_far_it_reaches() -> None:
    with pytest.raises(UnknownPartition) as refused:
        DAY.parse("2014-01-01")
    assert str(refused.value) == (
        "'2014-01-01' lies outside dimension day, which runs from 2013-01-01, before 2014-01-01 (America/New_York)."
    )


def test_a_text_that_is_no_key_names_its_dimension_and_shows_one() -> None:
    with pytest.raises(UnknownPartition, match="'yesterday' is no key of dimension day; its keys look like 2013-01-01"):
        DAY.parse("yesterday")
    with pytest.raises(UnknownPartition, match="no key of dimension hour; its keys look like 2013-01-01T00"):
        HOUR.parse("2013-01-05 13:00")


def test_a_date_inside_a_week_names_the_week_that_holds_it() -> None:
    with pytest.raises(UnknownPartition, match=r"begins no window of dimension week \(week\); .* starts at 2013-01-07"):
        WEEK.parse("2013-01-09")


def test_a_date_spelt_otherwise_names_the_spelling() -> None:
    with pytest.raises(UnknownPartition, match="its keys look like 2013-01-01"):
        DAY.parse("2013-1-5")


def test_a_start_off_a_boundary_names_the_boundary_before_it() -> None:
    with pytest.raises(VarveError, match=r"dimension week: start 2013-01-02.* not on a boundary.*2012-12-31"):
        TimeDimension("week", Grain.WEEK, pendulum.datetime(2013, 1, 2)).check()


@pytest.mark.parametrize("end", [pendulum.datetime(2012, 1, 1), pendulum.datetime(2013, 1, 1)])
def test_an_end_that_is_not_after_the_start_is_refused(end: pendulum.DateTime) -> None:
    with pytest.raises(VarveError, match=r"dimension day: end .* is not after start 2013-01-01"):
        TimeDimension("day", Grain.DAY, pendulum.datetime(2013, 1, 1), end).check()


def test_hours_of_a_zone_whose_clock_goes_back_have_keys_of_their_own() -> None:
    hours = TimeDimension(
        "hour", Grain.HOUR, pendulum.datetime(2013, 11, 3, tz=NEW_YORK), pendulum.datetime(2013, 11, 3, 3, tz=NEW_YORK)
    )
    hours.check()
    assert list(hours.keys()) == ["2013-11-03T00", "2013-11-03T01", "2013-11-03T01-0500", "2013-11-03T02"]
    first, second = hours.window("2013-11-03T01"), hours.window("2013-11-03T01-0500")
    assert first.end.timestamp() == second.start.timestamp() == pendulum.datetime(2013, 11, 3, 6).timestamp()


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ((), "it has no keys; give a tuple of them"),
        (("EWR", "EWR"), "EWR is given more than once; give each key once"),
        (("EWR", ""), "an empty key is no key; give each key a text"),
        (("EWR", "JFK", "JFK  "), "the keys 'JFK' and 'JFK  ' differ in blanks at the end alone, and a Hive metastore"),
    ],
)
def test_static_keys_must_be_given_unlike_and_not_empty(members: tuple[str, ...], problem: str) -> None:
    with pytest.raises(VarveError, match=f"dimension origin: {problem}"):
        StaticDimension("origin", members).check()


def test_an_unknown_static_key_names_the_ones_there_are() -> None:
    with pytest.raises(UnknownPartition, match="'SFO' is no key of dimension origin, which has EWR, JFK, LGA"):
        ORIGIN.parse("SFO")
    assert not ORIGIN.exists("SFO")
    assert list(ORIGIN.keys()) == ["EWR", "JFK", "LGA"]


def test_a_key_that_looks_like_another_one_says_so() -> None:
    with pytest.raises(UnknownPartition, match=r"It looks like Île, and spells .* as macOS does; write '\\xcele'\.$"):
        StaticDimension("store", ("Île", "Oslo")).parse("I\u0302le")


def test_two_time_dimensions_are_refused() -> None:
    with pytest.raises(VarveError, match=r"dimension hour: more than one time dimension, day and hour"):
        Partitioning((DAY, HOUR)).check()


def test_two_dimensions_of_one_name_are_refused() -> None:
    with pytest.raises(VarveError, match="two dimensions of one name"):
        Partitioning((DAY, StaticDimension("day", ("Monday",)))).check()


def test_dagster_spells_a_key_in_the_order_of_the_dimensions_names() -> None:
    partitioning = Partitioning((DAY, StaticDimension("airport", ("EWR", "JFK"))))
    key = PartitionKey.of(day=dt.date(2013, 1, 5), airport="EWR")
    assert partitioning.to_dagster(key) == "EWR|2013-01-05"
    assert partitioning.from_dagster("EWR|2013-01-05") == key
    assert key.path == "day=2013-01-05/airport=EWR"


def test_a_key_of_the_wrong_number_of_parts_is_refused_with_the_parts_named() -> None:
    partitioning = Partitioning((DAY, ORIGIN))
    with pytest.raises(UnknownPartition, match=r"'2013-01-05' must have 2 parts, day\|origin"):
        partitioning.from_dagster("2013-01-05")
    with pytest.raises(UnknownPartition, match="must name the columns day, origin"):
        partitioning.from_path("day=2013-01-05")


@given(members, st.data())
def test_keys_survive_dagster_and_paths_whatever_their_characters(texts: list[str], data: st.DataObject) -> None:
    partitioning = Partitioning((DAY, StaticDimension("name", tuple(texts))))
    day = data.draw(st.dates(dt.date(2013, 1, 1), dt.date(2013, 12, 31)))
    key = PartitionKey.of(day=day, name=data.draw(st.sampled_from(texts)))
    assert partitioning.from_dagster(partitioning.to_dagster(key)) == key
    assert partitioning.from_path(key.path) == key
    assert partitioning.exists(key)


@given(st.text(CHARACTERS, min_size=1))
def test_a_single_static_dimension_may_even_have_a_bar_in_its_keys(text: str) -> None:
    partitioning = Partitioning((StaticDimension("name", (text,)),))
    key = PartitionKey.of(name=text)
    assert partitioning.from_dagster(partitioning.to_dagster(key)) == key
    assert partitioning.from_path(key.path) == key


def test_windows_of_two_zones_are_unlike_even_where_they_start_at_one_instant() -> None:
    here = TimeDimension.of("hour", "@hourly", "2024-02-29T19:00", timezone=NEW_YORK)
    there = TimeDimension.of("hour", "@hourly", "2024-03-01", timezone="UTC")
    assert here.first == there.first
    assert here != there
    assert here == TimeDimension.of("hour", "@hourly", "2024-02-29T19:00", timezone=NEW_YORK)


@pytest.mark.parametrize("zone", [*ZONES, "Pacific/Auckland", "Pacific/Honolulu"])
@pytest.mark.parametrize("text", ["9999-12-31", "9999-01-01", "0001-01-01", "0001-12-31"])
def test_the_first_and_the_last_year_of_all_are_outside_and_no_defect(zone: str, text: str) -> None:
    for tiling in ("@daily", "0 0 * * *"):
        days = TimeDimension.of("day", tiling, "2024-01-01", "2025-01-01", timezone=zone)
        with pytest.raises(OutsideDimension, match="lies outside dimension day"):
            days.parse(text)
    # On the clock of a zone a year ends earlier or later than in UTC.
    assert str(TimeDimension.of("day", "@daily", "2024-01-01", timezone=zone).parse("9998-12-30")) == "9998-12-30"


def test_a_series_that_begins_later_has_no_window_yet_whatever_it_has_ahead() -> None:
    now = pendulum.datetime(2026, 12, 1)
    for ahead in (0, 1, 4):
        days = TimeDimension.of("day", "@daily", "2027-01-04").reaching(ahead)
        assert list(days.keys(now=now)) == []
    early = TimeDimension.of("day", "@daily", "2026-12-01").reaching(3)
    assert list(map(str, early.keys(now=now))) == ["2026-12-01", "2026-12-02", "2026-12-03"]
