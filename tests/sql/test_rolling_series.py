"""`TIMESERIES(..., LAST 30 DAYS)`: a series without START, whose windows are the last ones that are complete."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import dagster as dg
import pendulum
import pytest

from varve.dagster.partitions.definitions import dataset_partitions_def
from varve.dagster.partitions.sets_sensor import fill
from varve.model.partitions.windows import kept_from, why_not_there
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile, SqlErrors
from varve.sql.syntax.formatting import formatted

if TYPE_CHECKING:
    from varve.model.dataset import Dataset

TEXT = """CREATE DATASET shop.recent (n INT)
PARTITIONED BY (at STRING)
FOR t IN TIMESERIES({})
LET at = DATE_FORMAT(t, "yyyy-MM-dd'T'HH:mm")
AS SELECT 1 AS n;
"""


def recent(arguments: str) -> Dataset:
    return compiled([SourceFile("recent.sql", TEXT.format(arguments))], {})["shop.recent"].dataset


@pytest.mark.parametrize(
    ("arguments", "windows"),
    [
        ("INTERVAL 1 DAY, LAST 30 DAYS", 30),
        ("interval 1 day, last 1 day, timezone 'America/New_York'", 1),
        ("INTERVAL 1 HOUR, LAST 2 DAYS, TIMEZONE 'Asia/Kolkata'", 48),
        ("INTERVAL 1 WEEK, LAST 4 WEEKS", 4),
        ("CRON '0 6 * * *', LAST 10 DAYS", 10),
        ("INTERVAL 90 MINUTES, LAST 3 HOURS, ANCHOR '2024-01-01'", 2),
        ("INTERVAL 1 DAY, LAST 2 YEARS", 732),
    ],
)
def test_the_windows_are_the_last_that_are_complete(arguments: str, windows: int) -> None:
    dataset = recent(arguments)
    time = dataset.partitioning.time
    assert time is not None
    for now in (pendulum.now("UTC"), pendulum.now("UTC").add(days=400, hours=5)):
        at = now.timestamp()
        starts = [time.start_of(value) for value in time.keys(now=now)]
        there = [start for start in starts if not why_not_there(time, start, at, dataset.policy.retention)]
        # In a zone whose clocks change a day may have 23 or 25 hours.
        assert abs(len(there) - windows) <= ("HOUR" in arguments and "Kolkata" not in arguments)
        assert there == starts[-len(there) :]
        assert time.calendar.following(there[-1]) == time.calendar.floor(int(at))


@pytest.mark.parametrize(
    ("arguments", "windows"),
    [
        ("INTERVAL 1 MONTH, LAST 1 MONTH", 1),
        ("INTERVAL 1 MONTH, LAST 3 MONTHS", 3),
        ("INTERVAL 1 MONTH, LAST 1 YEAR", 12),
        ("INTERVAL 1 MONTH, LAST 5 YEARS, TIMEZONE 'America/New_York'", 60),
        ("CRON '0 0 1 * *', LAST 2 MONTHS, TIMEZONE 'Asia/Kolkata'", 2),
        ("INTERVAL 1 QUARTER, LAST 2 QUARTERS", 2),
        ("INTERVAL 3 MONTHS, LAST 9 MONTHS", 3),
        ("INTERVAL 1 YEAR, LAST 2 YEARS", 2),
        ("INTERVAL 1 DAY, LAST 2 DAYS, TIMEZONE 'America/New_York'", 2),
        ("INTERVAL 1 DAY, LAST 30 DAYS, TIMEZONE 'America/New_York'", 30),
        ("INTERVAL 1 WEEK, LAST 4 WEEKS, TIMEZONE 'Europe/Berlin'", 4),
    ],
)
def test_there_are_as_many_as_it_says_on_any_day(arguments: str, windows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In long and in short months, in leap years, and where the clock has just gone forward or back."""
    for year in range(2023, 2029):
        for month, day in ((1, 2), (2, 28), (3, 1), (3, 5), (3, 13), (4, 1), (5, 31), (8, 1), (11, 7), (12, 31)):
            now = pendulum.datetime(year, month, day, 17)
            monkeypatch.setattr(pendulum, "now", lambda timezone="UTC", now=now: now.in_timezone(timezone))
            dataset = recent(arguments)
            time, retention = dataset.partitioning.time, dataset.policy.retention
            assert time is not None
            assert retention is not None
            kept = kept_from(time, retention, now.timestamp())
            starts = [time.start_of(value) for value in time.keys(now=now)]
            assert len([start for start in starts if start >= kept]) == windows, now


def test_dagster_has_the_same_windows() -> None:
    keys = dataset_partitions_def(recent("INTERVAL 1 DAY, LAST 30 DAYS")).get_partition_keys()
    today = dt.datetime.now(dt.UTC).date()
    assert len(keys) == 30
    assert keys[-1].startswith((today - dt.timedelta(days=1)).isoformat())


def test_processes_that_load_it_in_two_months_share_the_set_of_its_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a code server and the pod of a run that it has asked for after the turn of a month."""
    names = set()
    with dg.DagsterInstance.ephemeral() as instance:
        for day, expected in (
            (30, ("2026-11-28T12:00", "2026-11-30T10:30")),
            (33, ("2026-12-01T12:00", "2026-12-03T10:30")),
        ):
            now = pendulum.datetime(2026, 10, 31, 12).add(days=day)
            monkeypatch.setattr(pendulum, "now", lambda timezone="UTC", now=now: now.in_timezone(timezone))
            dataset = recent("INTERVAL 90 MINUTES, LAST 2 DAYS, ANCHOR '2024-01-01'")
            definition = dataset_partitions_def(dataset)
            assert isinstance(definition, dg.DynamicPartitionsDefinition)
            names.add(definition.name)
            fill(instance, dataset)
            keys = instance.get_dynamic_partitions(str(definition.name))
            assert (keys[0], keys[-1], len(keys)) == (*expected, 32)
    assert len(names) == 1


def test_a_series_that_moves_is_the_same_code_as_one_with_a_start() -> None:
    versions = {
        compiled([SourceFile("recent.sql", TEXT.format(arguments))], {})["shop.recent"].code_version
        for arguments in ("INTERVAL 1 DAY, LAST 30 DAYS", "INTERVAL 1 DAY, START '2024-01-01', RETENTION 30 DAYS")
    }
    assert len(versions) == 1


def test_its_layout_says_the_same() -> None:
    once = formatted(SourceFile("recent.sql", TEXT.format("interval 1 day, last 30 days")))
    assert "FOR t IN TIMESERIES(INTERVAL 1 DAY, LAST 30 DAYS)\n" in once
    assert formatted(SourceFile("recent.sql", once)) == once


@pytest.mark.parametrize(
    ("arguments", "place", "message"),
    [
        ("INTERVAL 1 DAY", "3:5", "START is missing; write TIMESERIES(INTERVAL 1 DAY, START '2024-01-01'), or LAST 30"),
        ("INTERVAL 1 DAY, LAST 30 DAYS, START '2024-01-01'", "3:57", "and START too; take one out."),
        ("INTERVAL 1 DAY, LAST 30 DAYS, RETENTION 3 DAYS", "3:61", "and RETENTION too; take one out."),
        ("INTERVAL 1 DAY, LAST -1 DAYS", "3:42", "a whole number from 1, found '-'."),
        ("INTERVAL 1 DAY, LAST 30", "3:44", "expected a unit"),
        ("INTERVAL 90 MINUTES, LAST 3 DAYS", "3:30", "a series with LAST has no START: write ANCHOR '2024-01-01'."),
    ],
)
def test_what_is_no_series_is_told_at_its_place(arguments: str, place: str, message: str) -> None:
    with pytest.raises(SqlErrors) as caught:
        recent(arguments)
    (problem,) = caught.value.problems
    assert (problem.place, message in problem.message) == (f"recent.sql:{place}", True), problem


PLACES = """CREATE DATASET shop.recent (n INT)
PARTITIONED BY (at STRING, place STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, LAST 30 DAYS), p IN ('Rome', 'Oslo')
LET at = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (at = at, place = p)
EXTERNAL;
"""
BY_DAY = """PARTITIONED BY (day STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2024-01-01')
LET today = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (day = today)
"""
FROM = "SELECT SUM(n) AS n FROM shop.recent"


@pytest.mark.parametrize(
    ("reader", "whole"),
    [
        (f"ALLOW FULL SCAN OF shop.recent AS {FROM}", True),
        # A condition on another partition column says nothing of the windows.
        (f"AS {FROM} WHERE recent.place = 'Rome'", True),
        (f"AS {FROM} WHERE recent.at >= '2024-01-05'", False),
        (f"{BY_DAY} AS {FROM} WHERE recent.at = today", False),
        (f"{BY_DAY} ALLOW FULL SCAN OF shop.recent AS {FROM} WHERE n > LENGTH(today)", True),
        (f"AS {FROM} WHERE at = '2024-01-05' UNION ALL {FROM} WHERE place = 'Rome'", True),
    ],
)
def test_it_is_read_whole_where_no_condition_says_which_of_its_windows(reader: str, whole: bool) -> None:  # noqa: FBT001
    sources = [
        SourceFile("recent.sql", PLACES), SourceFile("whole.sql", f"CREATE DATASET shop.whole (n BIGINT) {reader};")
    ]  # fmt: skip
    assert compiled(sources, {})["shop.whole"].dependency("shop.recent").reads_all_windows is whole
