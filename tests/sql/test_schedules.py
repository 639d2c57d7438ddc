"""SCHEDULE, CATCHUP and REBUILD WITHIN in the header: what they declare, and what cannot be said so."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from varve.model.partitions.schedule import Schedule
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile, SqlErrors
from varve.sql.syntax.formatting import formatted

if TYPE_CHECKING:
    from varve.model.policy import Policy

PARIS = "PARTITIONED BY (day STRING)\nFOR t IN TIMESERIES(CRON '@daily', START '2022-03-01', TIMEZONE 'Europe/Paris')\n"
DAYS = PARIS + "LET day = DATE_FORMAT(t, 'yyyy-MM-dd')\n"
STORES = "PARTITIONED BY (store STRING)\nFOR store IN ('Paris', 'Detroit')\n"
CARRIERS = "PARTITIONED BY (carrier STRING)\nFOR carrier IN DYNAMIC 'carriers'\n"
QUERY = "AS SELECT s.n FROM shop.sales s WHERE s.day = :day"
CONSTANT = "AS SELECT 1 AS n"


def policy(clauses: str, *, dimensions: str = DAYS, body: str = QUERY) -> Policy:
    upstream = f"CREATE DATASET shop.sales (n INT)\n{DAYS}EXTERNAL"
    reader = f"CREATE DATASET shop.out (n INT)\n{dimensions}{clauses}\n{body}"
    sources = [SourceFile("sales.sql", upstream), SourceFile("out.sql", reader)]
    return compiled(sources, {})["shop.out"].dataset.policy


@pytest.mark.parametrize(
    ("clause", "dimensions", "schedule"),
    [
        ("SCHEDULE '@daily'", STORES, Schedule("@daily")),
        ("schedule '@daily'", CARRIERS, Schedule("@daily")),
        ("SCHEDULE '0 6 * * 1-5' TIMEZONE 'America/New_York'", STORES, Schedule("0 6 * * 1-5", "America/New_York")),
        ("SCHEDULE '@daily'", DAYS, Schedule("@daily", "Europe/Paris")),
        ("SCHEDULE '@daily' TIMEZONE 'UTC'", DAYS, Schedule("@daily", "UTC")),
        ("SCHEDULE '@hourly'", "", Schedule("@hourly")),
    ],
)
def test_a_schedule_belongs_to_the_dataset(clause: str, dimensions: str, schedule: Schedule) -> None:
    declared = policy(clause, dimensions=dimensions, body=CONSTANT)
    assert declared.schedule == schedule
    assert not declared.by_itself, "it runs at its ticks, and not as soon as it can"


def test_windows_of_the_past_and_changes_of_inputs_are_left_alone_where_the_file_says_so() -> None:
    assert policy("").catchup
    assert policy("CATCHUP ON").catchup
    assert not policy("CATCHUP OFF").catchup
    assert policy("").rebuild_within is None
    declared = policy("ON UPSTREAM CHANGE REBUILD WITHIN 36 HOURS OF shop.sales")
    assert (declared.rebuild_within, declared.rebuild_within_of) == (dt.timedelta(hours=36), ("shop.sales",))
    declared = policy("ON UPSTREAM CHANGE REBUILD WITHIN 1 DAY")
    assert (declared.rebuild_within, declared.rebuild_within_of) == (dt.timedelta(days=1), ())


def test_their_words_may_be_names_of_columns() -> None:
    text = "CREATE DATASET shop.out (schedule INT, catchup INT)\nEXPECT some: schedule > 0 AND catchup > 0\nEXTERNAL"
    dataset = compiled([SourceFile("out.sql", text)], {})["shop.out"].dataset
    assert dataset.schema.names == ("schedule", "catchup")


def test_the_clauses_are_laid_out_on_lines() -> None:
    clauses = "on upstream change rebuild within 1 day of shop.sales catchup off schedule '@daily' timezone 'UTC'"
    lines = formatted(SourceFile("out.sql", f"CREATE DATASET shop.out (n INT)\n{DAYS}{clauses}\n{QUERY}")).splitlines()
    assert lines[lines.index("  CATCHUP OFF") - 1 :][:3] == [
        "  ON UPSTREAM CHANGE REBUILD WITHIN 1 DAY OF shop.sales",
        "  CATCHUP OFF",
        "  SCHEDULE '@daily' TIMEZONE 'UTC'",
    ]


@pytest.mark.parametrize(
    ("clause", "dimensions", "body", "place", "message"),
    [
        ("SCHEDULE '@daily'", DAYS, "EXTERNAL", "5:1", "SCHEDULE is for what is computed, and this dataset only arriv"),
        ("CATCHUP OFF", DAYS, "EXTERNAL", "5:1", "CATCHUP is for what is computed, and this dataset only arrives"),
        ("SCHEDULE 'at noon'", STORES, CONSTANT, "4:10", "its schedule: "),
        ("SCHEDULE '@daily' TIMEZONE 'Mars/Base'", STORES, CONSTANT, "4:28", "Mars/Base"),
        ("SCHEDULE @daily", STORES, CONSTANT, "4:10", "expected a cron expression or a shorthand between quotes"),
        ("CATCHUP OFF", STORES, CONSTANT, "4:1", "CATCHUP is about windows of time"),
        ("CATCHUP MAYBE", DAYS, QUERY, "5:9", "ON"),
        ("ON UPSTREAM CHANGE REBUILD WITHIN 1 DAY", STORES, CONSTANT, "4:35", "REBUILD WITHIN is about windows of tim"),
        ("ON UPSTREAM CHANGE REBUILD WITHIN 1 DAY OF shop.sale", DAYS, QUERY, "5:44", "Did you mean shop.sales?"),
    ],
)
def test_what_cannot_be_said_is_told_at_its_place(
    clause: str, dimensions: str, body: str, place: str, message: str
) -> None:
    with pytest.raises(SqlErrors) as raised:
        policy(clause, dimensions=dimensions, body=body)
    (problem,) = raised.value.problems
    assert str(problem).startswith(f"out.sql:{place}: ")
    assert message in str(problem)
