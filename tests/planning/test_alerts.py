"""What people are told of: what is late, which conditions hold, when it is quiet, and what a message says."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pendulum
import pytest
from hypothesis import given
from hypothesis import strategies as st

from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import VarveError
from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.model.partitions.own_calendar import Calendar
from varve.model.partitions.partitioning import Partitioning
from varve.model.policy import Policy
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.arrivals.arrivals import Rejected
from varve.planning.arrivals.landing_file import RejectionKind
from varve.planning.judgement.judgement import Judgement, State
from varve.planning.operations.conditions import (
    AlertFacts,
    AlertIdentity,
    AlertKind,
    CaptureFacts,
    DiskFacts,
    FailedExpectation,
    ProjectionFacts,
    conditions,
)
from varve.planning.operations.digest import AlertMessage, digest
from varve.planning.operations.freshness import LOOKED_BACK, FreshnessFacts, expected_partitions, late_windows
from varve.planning.operations.quiet_hours import QuietHours

ZURICH = "Europe/Zurich"
ROWS = Schema((Column("n", ColumnType.BIGINT),))
TWO_HOURS = Policy(fresh_within=dt.timedelta(hours=2))
DAY = TimeDimension.of("day", "@daily", "2026-01-01", timezone=ZURICH)
DAILY = Dataset("t.daily", Partitioning((DAY,)), ROWS, StoreKind.LAKE, "", policy=TWO_HOURS)
SHOPS = replace(DAILY, name="t.shops", partitioning=Partitioning((DAY, StaticDimension("shop", ("Bern", "Chur")))))
WHOLE = replace(DAILY, name="t.whole", partitioning=Partitioning())


def at(text: str, zone: str = ZURICH) -> float:
    instant = pendulum.parse(text, tz=zone)
    assert isinstance(instant, pendulum.DateTime)
    return instant.timestamp()


def late(now: str, *existing: str, others: bool = True, dataset: Dataset = DAILY) -> list[str]:
    facts = FreshnessFacts(existing, others=others)
    return [window.window for window in late_windows(dataset, facts, None, at(now))]


def all_but(now: str, *missing: str) -> list[str]:
    paths = [path for paths in expected_partitions(DAILY, None, at(now)).values() for path in paths]
    return [path for path in paths if path not in missing]


@pytest.mark.parametrize(
    ("now", "is_late"),
    [
        ("2026-06-11T00:00:00", False),
        ("2026-06-11T01:59:59", False),
        ("2026-06-11T02:00:00", True),
        # A day of 25 hours ends when the clock of its zone says so; two hours later are two hours later.
        ("2026-10-26T01:59:59", False),
        ("2026-10-26T02:00:00", True),
    ],
)
def test_a_window_is_late_when_its_time_after_its_end_is_over(now: str, is_late: bool) -> None:  # noqa: FBT001
    yesterday = pendulum.from_timestamp(at(now), tz=ZURICH).subtract(days=1).to_date_string()
    missing = f"day={yesterday}"
    assert late(now, *all_but(now, missing)) == ([missing] if is_late else [])


def test_history_that_nobody_ever_loaded_is_not_late() -> None:
    now = "2026-06-11T12:00"
    assert late(now, others=False) == ["day=2026-06-10"]
    assert late(now, "day=2026-06-08", others=False) == ["day=2026-06-09", "day=2026-06-10"]
    assert len(late(now, others=True)) == LOOKED_BACK


def test_a_window_is_late_where_some_of_its_partitions_are_missing() -> None:
    now = at("2026-06-11T12:00")
    facts = FreshnessFacts({"day=2026-06-10/shop=Bern"})
    (window,) = late_windows(SHOPS, facts, None, now)
    assert str(window) == ("1 of 2 partitions are not there, late since 2026-06-11 00:00 UTC: day=2026-06-10/shop=Chur")


def test_windows_outside_the_series_or_past_their_retention_are_not_late() -> None:
    ended = replace(DAILY, partitioning=Partitioning((replace(DAY, end=pendulum.datetime(2026, 2, 1, tz=ZURICH)),)))
    assert late("2026-06-11T12:00", "day=2026-01-31", others=False, dataset=ended) == []
    kept = replace(DAILY, policy=replace(TWO_HOURS, retention=dt.timedelta(days=3)))
    assert late("2026-06-11T12:00", dataset=kept) == ["day=2026-06-08", "day=2026-06-09", "day=2026-06-10"]


def test_without_windows_it_counts_from_the_last_publish() -> None:
    published = at("2026-06-11T12:00")

    def windows(hours: float) -> list[str]:
        return [
            str(x) for x in late_windows(WHOLE, FreshnessFacts(published=published), None, published + hours * 3600)
        ]

    assert windows(2) == []
    assert windows(2.01) == ["not published anew, late since 2026-06-11 12:00 UTC"]
    assert [str(window) for window in late_windows(WHOLE, FreshnessFacts(), None, published)] == ["never published"]


def test_each_kind_of_condition_holds_where_its_facts_say_so_and_keeps_its_identity() -> None:
    now = at("2026-06-11T12:00")
    rejected = Rejected("/in/a.csv", RejectionKind.CONTENT, "no  header", now, now)
    facts = AlertFacts(
        now,
        {DAILY.name: DAILY},
        freshness={DAILY.name: FreshnessFacts()},
        rejected=[(DAILY.name, rejected), (DAILY.name, replace(rejected, kind=RejectionKind.EARLY, uri="/in/b.csv"))],
        judgements={
            DAILY.name: {
                "day=2026-06-01": Judgement(State.FAILED, "3 attempts failed"),
                "day=2026-06-02": Judgement(State.BACKING_OFF, "tried again later"),
                "day=2026-06-03": Judgement(State.CURRENT, ""),
                # While it is tried once more, it is the same outage.
                "day=2026-06-05": Judgement(State.IN_FLIGHT, "run 1 is on it", outages=3),
                "day=2026-06-06": Judgement(State.BACKING_OFF, "tried again later", outages=7),
                "day=2026-06-07": Judgement(State.BACKING_OFF, "tried again later", outages=2),
            }
        },
        # The last two are as they should be by now: one was judged so, the other one needs no judgement any more.
        expectations=[
            FailedExpectation(DAILY.name, f"day=2026-06-{day}", "Expectation a (n > 0)") for day in ("02", "03", "04")
        ],
        outages={DAILY.name: "Spark cannot be used."},
        captures=[
            CaptureFacts(DAILY.name, "stopped", "a column was renamed", 2),
            CaptureFacts(DAILY.name, "running", behind_since=now - 901),
            CaptureFacts(DAILY.name, "running", "the source lacks a column"),
        ],
        projections=[
            ProjectionFacts(DAILY.name, "Hive table", "behind", now - 901),
            ProjectionFacts(DAILY.name, "Iceberg table", "hidden", None),
        ],
        disks=[DiskFacts("home", 95, 100, "one"), DiskFacts("lake", 50, 100, "one")],
        daemon_seen=now - 901,
    )
    held = conditions(facts)
    assert {tuple(map(str, identity)) for identity in held} == {
        ("not fresh", "t.daily", "day=2026-06-10"),
        ("rejected arrival", "t.daily", "/in/a.csv"),
        ("given up", "t.daily", "day=2026-06-01"),
        ("service away", "t.daily", ""),
        ("expectation fails", "t.daily", "day=2026-06-02"),
        ("capture lags", "t.daily", "stopped"),
        ("capture lags", "t.daily", "quarantine"),
        ("capture lags", "t.daily", "behind"),
        ("capture lags", "t.daily", "waits"),
        ("projection lags", "t.daily", "Hive table"),
        ("projection lags", "t.daily", "Iceberg table"),
        ("disk nearly full", "", "home"),
        ("daemon has not ticked", "", ""),
    }
    assert held[AlertIdentity(AlertKind.REJECTED, "t.daily", "/in/a.csv")].text == "not taken (content): no header"
    assert held[AlertIdentity(AlertKind.DISK, "", "home")].text.startswith("95 % of 0.0 GB on one are in use")
    assert held[AlertIdentity(AlertKind.AWAY, "t.daily", "")].text == (
        "2 partitions tried 7 times in a row: what it needs was away, full or in use. Spark cannot be used."
    )
    assert facts.known_kinds == set(AlertKind)
    # Later they are the same ones, though their texts may differ; of datasets that are not declared nothing is told.
    assert set(conditions(replace(facts, now=now + 60))) == set(held)
    assert {identity.dataset for identity in conditions(replace(facts, datasets={}, freshness={}, judgements={}))} == {
        ""
    }
    # What one dataset lacks mutes no other one: nothing of it begins, and what could be told of it stays.
    unjudged = replace(facts, unjudged={DAILY.name})
    assert {kind for kind, _, _ in held} - {kind for kind, _, _ in conditions(unjudged)} == {
        AlertKind.GIVEN_UP, AlertKind.AWAY, AlertKind.EXPECTATION,
    }  # fmt: skip
    assert unjudged.known_kinds == set(AlertKind)
    by_judgements = (AlertKind.GIVEN_UP, AlertKind.AWAY, AlertKind.EXPECTATION)
    assert unjudged.unknown == {(kind, DAILY.name) for kind in by_judgements}
    assert AlertKind.EXPECTATION not in {kind for kind, _, _ in conditions(replace(facts, judgements=None))}
    unread = replace(facts, captures=[CaptureFacts(DAILY.name, "running", unread="the lake is away")])
    assert {subject for kind, _, subject in conditions(unread) if kind is AlertKind.CAPTURE} == {"log"}
    assert unread.unknown == {(AlertKind.CAPTURE, DAILY.name)}
    assert conditions(AlertFacts(now, {})) == {}
    assert AlertFacts(now, {}).known_kinds == {AlertKind.CALENDAR}


@pytest.mark.parametrize(
    ("text", "now", "until"),
    [
        ("22:00-07:00 Europe/Zurich", "2026-06-10T21:59:59", None),
        ("22:00-07:00 Europe/Zurich", "2026-06-10T22:00", "2026-06-11T07:00"),
        ("22:00-07:00 Europe/Zurich", "2026-06-11T06:59", "2026-06-11T07:00"),
        ("22:00-07:00 Europe/Zurich", "2026-06-11T07:00", None),
        ("12:00-13:00 Europe/Zurich", "2026-06-11T12:30", "2026-06-11T13:00"),
        # 02:30 is skipped on the 29th of March and shown twice on the 25th of October.
        ("22:00-02:30 Europe/Zurich", "2026-03-29T01:59", "2026-03-29T03:30"),
        ("22:00-02:30 Europe/Zurich", "2026-10-25T02:29+02:00", "2026-10-25T02:30+02:00"),
        ("22:00-02:30 Europe/Zurich", "2026-10-25T02:29+01:00", None),
        ("22:00-07:00", "2026-06-10T23:30+02:00", None),
    ],
)
def test_it_is_quiet_between_two_times_of_the_clock(text: str, now: str, until: str | None) -> None:
    end = QuietHours.of(text).until(pendulum.from_timestamp(at(now)))
    assert (None if end is None else end.timestamp()) == (None if until is None else at(until))


@pytest.mark.parametrize(("day", "hours"), [("2026-06-10", 9), ("2026-03-28", 8), ("2026-10-24", 10)])
def test_a_night_is_quiet_as_long_as_the_clock_makes_it(day: str, hours: int) -> None:
    quiet = QuietHours.of("22:00-07:00 Europe/Zurich")
    begin = at(f"{day}T12:00")
    minutes = [begin + 60 * minute for minute in range(24 * 60)]
    assert sum(quiet.until(pendulum.from_timestamp(minute)) is not None for minute in minutes) == hours * 60


@given(st.integers(0, 1439), st.integers(0, 1439), st.integers(int(at("2026-01-01")), int(at("2027-01-01"))))
def test_quiet_hours_end_and_are_over_then(begin: int, end: int, now: int) -> None:
    if begin == end:
        return
    quiet = QuietHours(begin, end, ZURICH)
    if (until := quiet.until(pendulum.from_timestamp(now))) is not None:
        assert now < until.timestamp() <= now + 25 * 3_600
        assert quiet.until(until) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("22-7", "'22-7' are no quiet hours. Write for example 22:00-07:00 Europe/Zurich."),
        ("24:00-07:00", "are no quiet hours"),
        ("07:00-07:00", "begin when they end"),
        ("22:00-07:00 Europe/Zuerich", "'Europe/Zuerich' is no time zone"),
        ("22:00-07:00 ../../etc/passwd", "is no time zone"),
    ],
)
def test_quiet_hours_that_are_none_are_refused(text: str, message: str) -> None:
    with pytest.raises(VarveError) as error:
        QuietHours.of(text)
    assert message in str(error.value)


def test_many_at_once_are_one_message() -> None:
    identity = AlertIdentity(AlertKind.NOT_FRESH, "t.daily", "day=2026-06-10")
    opened = AlertMessage(1, "opened", identity, "not there", at("2026-06-11T02:00"))
    closed = replace(opened, event="closed", at=at("2026-06-11T03:00"))
    assert digest([opened, closed]) == (
        "Varve: 1 opened, 1 closed",
        (
            "opened 2026-06-11 00:00 UTC: not fresh t.daily day=2026-06-10: not there\n"
            "closed 2026-06-11 01:00 UTC: not fresh t.daily day=2026-06-10"
        ),
    )
    title, body = digest([opened] * 100)
    assert title == "Varve: 100 opened"
    assert body.splitlines()[-1] == "and 70 more; `varve alerts --all` lists them."


def test_a_calendar_of_ones_own_that_runs_out_is_told_before_nothing_is_planned_any_more() -> None:
    days = Calendar.of_weekdays("trading", dt.date(2026, 1, 1), dt.date(2026, 12, 30))
    open_end = TimeDimension.of("day", days, "2026-01-01", timezone=ZURICH)
    closed = TimeDimension.of("day", days, "2026-01-01", "2026-12-01", timezone=ZURICH)
    datasets = {
        name: replace(DAILY, name=name, partitioning=Partitioning((dimension,)))
        for name, dimension in (("t.open", open_end), ("t.closed", closed), ("t.daily", DAY))
    }

    def told(now: str) -> list[str]:
        return [condition.text for condition in conditions(AlertFacts(at(now), datasets)).values()]

    assert told("2026-11-30T23:59:59") == []
    (text,) = told("2026-12-01T00:00:00")
    assert text.startswith("the last window of calendar trading ends at 2026-12-31 00:00 Europe/Zurich; nothing is ")
    assert "has ended at 2026-12-31" in told("2027-01-10T00:00:00")[0]
    more = Calendar.of_weekdays("trading", dt.date(2026, 1, 1), dt.date(2027, 12, 31))
    datasets["t.open"] = replace(DAILY, partitioning=Partitioning((replace(open_end, tiling=more),)))
    assert told("2026-12-01T00:00:00") == []
