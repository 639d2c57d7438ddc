"""Calendars of one's own: trading days, 4-4-5 weeks and school terms, with gaps, as tilings like any other."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from typing import Any

import pendulum
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.documents.pages import blocks
from tests.model.test_calendar import ZONES
from varve.model.errors import OutsideDimension, UnknownPartition, VarveError
from varve.model.partitions.calendar import calendar_of, clock, first_from, last_end
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.own_calendar import Calendar, CalendarError, changed_windows
from varve.model.partitions.partitioning import Partitioning
from varve.model.partitions.time_columns import TimeColumn
from varve.model.partitions.windows import kept_from, there_from, why_not_there, windows_by_key
from varve.model.schema import ColumnType

HOLIDAYS = (dt.date(2026, 11, 26), dt.date(2026, 12, 25))
NYSE = Calendar.of_weekdays("nyse", dt.date(2026, 1, 2), dt.date(2026, 12, 31), without=HOLIDAYS)
FISCAL = Calendar.of_weeks("fiscal", dt.date(2026, 2, 1), [4, 4, 5] * 4)
TRADING = TimeDimension("day", NYSE, pendulum.datetime(2026, 1, 2, tz="America/New_York"))


def instant(text: str) -> int:
    return int(pendulum.parse(text, tz="America/New_York").timestamp())  # type: ignore[union-attr]


@st.composite
def calendars(draw: st.DrawFn) -> Calendar:
    """Windows of random lengths with random gaps, or none, around a change of clocks, in minutes or in days."""
    unit = draw(st.sampled_from((dt.timedelta(minutes=30), dt.timedelta(hours=7), dt.timedelta(days=1))))
    at = dt.datetime(2018, draw(st.integers(1, 12)), draw(st.integers(1, 28)))  # noqa: DTZ001 - a wall
    windows = []
    for gap, length in draw(st.lists(st.tuples(st.integers(0, 3), st.integers(4, 9)), min_size=1, max_size=30)):
        windows.append((at + gap * unit, at + (gap + length) * unit))
        at = windows[-1][1]
    return Calendar.of("drawn", windows)


@settings(max_examples=150)
@given(calendars(), st.sampled_from(ZONES), st.data())
def test_every_moment_is_in_one_window_or_in_one_gap(calendar: Calendar, zone: str, data: st.DataObject) -> None:
    windows = calendar_of(calendar, zone)
    first, last = windows.extent
    at = data.draw(st.integers(first - 90_000, last + 90_000))
    start, end = windows.floor(at), windows.following(at)
    assert start <= at < end
    assert windows.floor(start) == windows.floor(end - 1) == start
    assert windows.following(start) == windows.following(end - 1) == windows.floor(end) == end
    # It is a window exactly where the list has it.
    wall = clock(zone, at)
    held = any(begin <= wall.replace(fold=0) < until for begin, until in calendar.windows)
    # Bounds are meant the first time where the clock shows them twice.
    assert windows.begins(start) == held or wall.fold
    assert windows.next_start(at) == next((s for s in _starts(calendar, zone) if s > at), windows.next_start(last))
    before = [s for s in _starts(calendar, zone) if s < at]
    assert windows.previous_start(at) == (before[-1] if before else windows.previous_start(first))
    assert windows.following(first_from(windows, at)) > at or at >= last
    assert last_end(windows, at) <= at


def _starts(calendar: Calendar, zone: str) -> list[int]:
    windows = calendar_of(calendar, zone)
    return [start for begin, _ in calendar.windows for start in windows.starts(begin)]


@settings(max_examples=150)
@given(calendars(), st.sampled_from(ZONES), st.data())
def test_runs_are_the_windows_of_a_span_and_nothing_between_them(
    calendar: Calendar, zone: str, data: st.DataObject
) -> None:
    windows = calendar_of(calendar, zone)
    starts = _starts(calendar, zone)
    low, high = sorted(data.draw(st.tuples(st.sampled_from(starts), st.sampled_from(starts))))
    runs = windows.runs(low, high)
    walked = []
    for begin, end in runs:
        at = begin
        while at < end:
            walked.append(at)
            at = windows.following(at)
        assert at == end
    assert walked == [start for start in starts if low <= start < high]
    assert all(end < begin for (_, end), (begin, _) in pairwise(runs))


@settings(max_examples=100)
@given(calendars(), st.sampled_from(ZONES))
def test_each_window_has_a_key_of_its_own_that_reads_back_everywhere(calendar: Calendar, zone: str) -> None:
    starts = _starts(calendar, zone)
    dimension = TimeDimension("time", calendar, pendulum.from_timestamp(starts[0], tz=zone))
    dimension.check()
    product = Partitioning((dimension,))
    keys = list(dimension.keys())
    assert [dimension.start_of(key) for key in keys] == starts
    assert len(set(keys)) == len(starts) == product.count()
    assert [dimension.parse(dimension.text_at(start)) for start in starts] == keys
    for key in list(product.keys()):
        assert product.from_path(key.path) == key
        assert product.from_dagster(product.to_dagster(key)) == key


@given(calendars())
def test_the_text_of_a_calendar_is_the_calendar(calendar: Calendar) -> None:
    again = Calendar.parse(calendar.name, calendar.text)
    assert again == calendar
    assert again.digest == calendar.digest


def test_a_file_has_a_window_a_line_with_comments_and_times() -> None:
    text = "# Sessions\n2026-11-25\n2026-11-27T09:30, 2026-11-27T13:00  # a short day\n\n2026-11-30 2026-12-02\n"
    calendar = Calendar.parse("sessions", text)
    assert calendar.text == "2026-11-25\n2026-11-27T09:30:00, 2026-11-27T13:00:00\n2026-11-30, 2026-12-02\n"
    days = TimeDimension("at", calendar, pendulum.datetime(2026, 11, 25))
    assert list(days.keys(now=pendulum.datetime(2027, 1, 1))) == [
        "2026-11-25T00:00", "2026-11-27T09:30", "2026-11-30T00:00",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("2026-11-23\n2026-11-23\n", 2, "line 2: the window from 2026-11-23 overlaps the one from 2026-11-23"),
        ("2026-11-23, 2026-12-01\n2026-11-30\n", 2, "to 2026-12-01; a moment belongs to one window at most"),
        ("2026-11-24\n2026-11-23\n", 2, "line 2: 2026-11-23 comes after 2026-11-24; sort the windows"),
        ("# x\n2026-11-24, 2026-11-24\n", 2, "the end 2026-11-24 is not after the start 2026-11-24"),
        ("2026-02-30\n", 1, "'2026-02-30' is no date; write a day, 2026-11-23, or a start and an end"),
        ("2026-11-27T09:30\n", 1, "has a time, but no end"),
        ("2026-11-27 2026-11-28 open\n", 1, "is no window"),
        ("2026-11-27T09:30Z 2026-11-27T10:00Z\n", 1, "without a zone: the zone is that of the series"),
        ("# nothing\n", 1, "it has no windows; write one a line"),
    ],
)
def test_a_text_that_is_no_calendar_is_refused_at_its_place(text: str, line: int, problem: str) -> None:
    with pytest.raises(CalendarError, match=problem) as refused:
        Calendar.parse("nyse", text)
    assert str(refused.value).startswith("calendar nyse")
    assert text.count("\n", 0, refused.value.offset) + 1 == line


@pytest.mark.parametrize(
    ("calendar", "problem"),
    [
        (Calendar.of_days("nyse", [dt.date(2026, 1, 5), dt.date(2026, 1, 2)]), "window 2: .*sort the windows"),
        (Calendar.of_days("nyse", []), "it has no windows"),
        (Calendar.of_days("N Y", [dt.date(2026, 1, 5)]), "a name is lower-case letters"),
    ],
)
def test_a_dimension_refuses_a_calendar_that_is_none(calendar: Calendar, problem: str) -> None:
    with pytest.raises(VarveError, match=f"dimension day: calendar .*{problem}"):
        TimeDimension("day", calendar, pendulum.datetime(2026, 1, 5)).check()


@pytest.mark.parametrize(
    ("start", "problem"),
    [
        ("2026-01-03", "the nearest are 2026-01-02T00:00:00 and 2026-01-05T00:00:00"),
        ("2025-12-31", "its first window begins at 2026-01-02T00:00:00"),
        ("2027-01-04", "its last window begins at 2026-12-31T00:00:00: add windows to the calendar"),
        ("2026-01-05T10:00", "the nearest are 2026-01-05T00:00:00 and 2026-01-06T00:00:00"),
    ],
)
def test_a_start_that_begins_no_window_names_those_that_do(start: str, problem: str) -> None:
    with pytest.raises(VarveError, match=f"is not on a boundary of its windows \\(calendar nyse\\); {problem}"):
        TimeDimension.of("day", NYSE, start, timezone="America/New_York").check()


@pytest.mark.parametrize(
    ("text", "error", "problem"),
    [
        ("2026-11-26", UnknownPartition, "no window holds it: the nearest start at 2026-11-25 and 2026-11-27"),
        ("2027-01-04", UnknownPartition, "the last one of the calendar starts at 2026-12-31: add windows to it"),
        ("2025-12-31", UnknownPartition, "the first one of the calendar starts at 2026-01-02"),
        ("thanksgiving", UnknownPartition, "its keys look like 2026-01-02"),
    ],
)
def test_a_day_of_a_gap_is_no_key(text: str, error: type[VarveError], problem: str) -> None:
    with pytest.raises(error, match=problem):
        TRADING.parse(text)


def test_a_window_before_the_start_of_a_dataset_is_outside_of_it() -> None:
    later = TimeDimension.of("day", NYSE, "2026-06-01", timezone="America/New_York")
    with pytest.raises(OutsideDimension, match="runs from 2026-06-01 to 2026-12-31, the last window of calendar nyse"):
        later.parse("2026-01-02")


def test_over_a_weekend_and_a_holiday_there_is_the_last_trading_day_and_no_open_one() -> None:
    # The week of Thanksgiving: Thursday is a holiday, so that Wednesday is over and Friday not yet there.
    for moment, complete, with_open, ahead in (
        ("2026-11-23T12:00", "2026-11-20", "2026-11-23", "2026-11-24"),
        ("2026-11-26T12:00", "2026-11-25", "2026-11-25", "2026-11-27"),
        ("2026-11-27T00:00", "2026-11-25", "2026-11-27", "2026-11-30"),
        ("2026-11-29T23:59", "2026-11-27", "2026-11-27", "2026-11-30"),
    ):
        now = pendulum.parse(moment, tz="America/New_York")
        assert isinstance(now, pendulum.DateTime)
        last = [str(list(TRADING.reaching(offset).keys(now=now))[-1]) for offset in range(3)]
        assert last == [complete, with_open, ahead], moment


@given(st.integers(instant("2026-01-05"), instant("2026-12-30")), st.integers(0, 3))
def test_a_window_is_a_partition_from_the_moment_that_is_told(at: int, end_offset: int) -> None:
    dimension = TRADING.reaching(end_offset)
    now = pendulum.from_timestamp(at)
    until = dimension.known_until(now)
    for start in list(_starts(NYSE, "America/New_York"))[5:]:
        assert (start < until) == (there_from(dimension, start) <= at)


def test_retention_keeps_whole_windows_and_begins_with_one() -> None:
    now = float(instant("2026-11-23T12:00"))
    # Eight days back from Monday is a Sunday: the first window that is kept is the Monday after it.
    assert kept_from(TRADING, dt.timedelta(days=8), now) == instant("2026-11-16")
    assert "its window begins at 2026-11-27 00:00" in why_not_there(TRADING, instant("2026-11-27"), now)


def test_retention_of_hours_goes_by_the_sessions_of_a_day_too() -> None:
    sessions = Calendar.parse("sessions", "2026-11-23T09:30, 2026-11-23T13:00\n2026-11-23T13:00, 2026-11-23T16:00")
    time = TimeDimension.of("session", sessions, "2026-11-23T09:30", timezone="America/New_York")
    for now, kept in (
        ("2026-11-23T15:59", "2026-11-23T09:30"),
        # Three hours after its end, and not only at midnight.
        ("2026-11-23T16:00", "2026-11-23T13:00"),
    ):
        assert kept_from(time, dt.timedelta(hours=3), float(instant(now))) == instant(kept), now


def test_a_year_of_4_4_5_weeks_is_364_days_without_a_gap() -> None:
    windows = calendar_of(FISCAL, "UTC")
    assert [(end - start).days for start, end in FISCAL.windows] == [28, 28, 35] * 4
    assert windows.runs(*windows.extent) == [windows.extent]


def put(calendar: Calendar, day: str, *windows: tuple[str, str]) -> Calendar:
    """The calendar with these windows in the place of what begins on that day."""
    kept = [window for window in calendar.windows if window[0].date() != dt.date.fromisoformat(day)]
    added = [(dt.datetime.fromisoformat(start), dt.datetime.fromisoformat(end)) for start, end in windows]
    return Calendar.of(calendar.name, sorted([*kept, *added]))


BLACK_FRIDAY = ("2026-11-27T09:30", "2026-11-27T13:00")
CHRISTMAS_EVE = ("2026-12-24", "2026-12-24T13:00")
SHORT = put(NYSE, "2026-11-27", BLACK_FRIDAY)
FOUND_LATER = ("2026-11-28T09:30", "2026-11-28T12:00")
DATED = (TimeColumn("day", "%Y-%m-%d", ColumnType.DATE),)
OF_MONTHS = (TimeColumn("month", "%Y-%m"),)
EXPIRIES = Calendar.of_days("expiries", [dt.date(2026, 10, 16), dt.date(2026, 11, 20)])


@pytest.mark.parametrize(
    ("before", "after", "columns", "problem"),
    [
        # A holiday that is added or taken out, and another year: every key that both have is the same day.
        (NYSE, Calendar.of_weekdays("nyse", dt.date(2026, 1, 2), dt.date(2027, 12, 31)), (), ""),
        (FISCAL, Calendar.of_weeks("fiscal", dt.date(2026, 2, 1), [4, 4, 5] * 8), (), ""),
        (FISCAL, Calendar.of_weeks("fiscal", dt.date(2026, 2, 1), [4, 5, 4] * 4), (), "begin in 2026-03 were others"),
        (NYSE, FISCAL, (), "Its windows were calendar nyse, UTC, and are calendar fiscal, UTC now"),
        # An early close, and one that is taken back, also where nothing else in the month or the calendar is irregular.
        (NYSE, put(NYSE, "2026-12-24", CHRISTMAS_EVE), (), "begin in 2026-12 were others"),
        (put(NYSE, "2026-12-24", CHRISTMAS_EVE), NYSE, (), "begin in 2026-12 were others"),
        (SHORT, NYSE, DATED, "begin in 2026-11 were others"),
        (SHORT, put(SHORT, "2026-12-24", CHRISTMAS_EVE), DATED, "begin in 2026-12 were others"),
        (SHORT, put(NYSE, "2026-11-27", ("2026-11-27T10:00", "2026-11-27T13:00")), DATED, "in 2026-11 were others"),
        # One window more, in a month that has had an irregular one and in a calendar that has had none; and one less.
        (SHORT, put(SHORT, "2026-11-28", FOUND_LATER), DATED, ""),
        (NYSE, put(NYSE, "2026-11-28", FOUND_LATER), DATED, ""),
        (put(SHORT, "2026-11-28", FOUND_LATER), SHORT, DATED, ""),
        # Keys that are texts say when a session begins: one that begins later is another partition.
        (SHORT, put(NYSE, "2026-11-27", ("2026-11-27T10:00", "2026-11-27T13:00")), (), ""),
        (SHORT, put(NYSE, "2026-11-27", BLACK_FRIDAY, ("2026-11-27T18:00", "2026-11-27T20:00")), (), ""),
        (SHORT, put(NYSE, "2026-11-27", ("2026-11-27T09:30", "2026-11-27T14:00")), (), "in 2026-11 were others"),
        # Keys that are months are other days when the day moves.
        (EXPIRIES, put(EXPIRIES, "2026-11-20", ("2026-11-19", "2026-11-20")), OF_MONTHS, "in 2026-11 were others"),
        (EXPIRIES, put(EXPIRIES, "2026-12-18", ("2026-12-18", "2026-12-19")), OF_MONTHS, ""),
    ],
)
def test_a_calendar_that_grows_keeps_its_partitions_and_one_that_moves_does_not(
    before: Calendar, after: Calendar, columns: tuple[TimeColumn, ...], problem: str
) -> None:
    series = [
        TimeDimension("day", tiling, pendulum.datetime(2026, 1, 2), columns=columns) for tiling in (before, after)
    ]
    changed = changed_windows(
        before.cut("UTC"), after.cut("UTC"), (windows_by_key(series[0]), windows_by_key(series[1]))
    )
    assert problem in changed
    assert bool(changed) == bool(problem)
    assert before.digest != after.digest


def test_a_calendar_that_an_earlier_version_has_kept_is_compared_by_the_months_of_irregular_windows() -> None:
    moved, later = put(NYSE, "2026-11-27", ("2026-11-27T09:30", "2026-11-27T14:00")), put(SHORT, "2026-11-02")
    assert "that begin in 2026-11 were others" in changed_windows(SHORT.cut("UTC"), moved.cut("UTC"))
    assert changed_windows(SHORT.cut("UTC"), later.cut("UTC")) == ""
    assert "Its windows were calendar nyse, UTC" in changed_windows(NYSE.cut("UTC"), SHORT.cut("UTC"))


def test_the_example_of_the_documents_makes_the_calendars_that_it_names() -> None:
    (block,) = [block for block in blocks("python") if block.runner == "tests/model/test_own_calendar.py"]
    names: dict[str, Any] = {}
    exec(block.text, names)  # noqa: S102 - the documents are ours
    names["DAY"].check()
    assert list(names["DAY"].keys(now=pendulum.datetime(2026, 11, 28, tz="America/New_York")))[-3:] == [
        dt.date(2026, 11, 24), dt.date(2026, 11, 25), dt.date(2026, 11, 27),
    ]  # fmt: skip
    assert Calendar.parse("nyse", names["FILE"]) == names["NYSE"]
    assert [len(names[name].windows) for name in ("FISCAL", "TERMS")] == [12, 2]


def test_a_calendar_reaches_over_today() -> None:
    today = pendulum.now("America/New_York").start_of("day")
    first, last = today.subtract(days=20).date(), today.add(days=400).date()
    calendar = Calendar.of_weekdays("now", first, last)
    begin = calendar.windows[0][0]
    dimension = TimeDimension.of("day", calendar, begin.date().isoformat(), timezone="America/New_York")
    keys = list(dimension.keys())
    expected = [today.subtract(days=back).date() for back in range(20, 0, -1)]
    assert keys == [day for day in expected if day.weekday() < 5]
