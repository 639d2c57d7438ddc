"""Hints where a query makes a date, an hour or a text of a window whose zone is not UTC.

Which expressions those are is asked of Spark: what two sessions of different zones give differently.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from varve.cli.app import app
from varve.sql.checks.zones import zone_hints
from varve.sql.syntax.errors import SourceFile
from varve.sql.syntax.header import parse

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

READINGS = """CREATE DATASET valley.readings (value INT) PARTITIONED BY (hour STRING)
FOR t IN TIMESERIES(INTERVAL 1 HOUR, START '2026-11-23T00', TIMEZONE 'Asia/Kathmandu')
LET hour = DATE_FORMAT(t, "yyyy-MM-dd'T'HH") EXTERNAL"""
DAILY = """CREATE DATASET valley.daily PARTITIONED BY (day DATE)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-23'{zone})
LET day = CAST(t AS DATE), first = DATE_FORMAT(t, "yyyy-MM-dd'T'HH")
AS SELECT SUM(value) AS total FROM valley.readings WHERE {condition}
"""
# Each over t, with whether it depends on the session's zone.
EXPRESSIONS = {
    "DATE_FORMAT(t, 'HH')": True, "CAST(t AS DATE)": True, "t::STRING": True, "DATE(t)": True, "TO_DATE(t)": True,
    "DATE_TRUNC('DAY', t)": True, "TRUNC(t, 'MM')": True, "HOUR(t)": True, "DAY(t)": True, "MONTH(t)": True,
    "YEAR(t_end)": True, "QUARTER(t)": True, "DAYOFWEEK(t)": True, "WEEKOFYEAR(t)": True, "EXTRACT(HOUR FROM t)": True,
    "DATE_PART('hour', t)": True, "LAST_DAY(t)": True, "DATE_ADD(t, 1)": True, "CONCAT('a', t)": True, "'a' || t": True,
    "DATE_FORMAT(t - INTERVAL 1 HOUR, 'HH')": True, "CAST((t_end) AS TIMESTAMP_NTZ)": True, "DAYNAME(t)": True,
    "WEEKDAY(t)": True, "DAYOFYEAR(t)": True,
    "UNIX_TIMESTAMP(t)": False, "UNIX_MICROS(t)": False, "t": False, "t - INTERVAL 1 HOUR": False,
    "CAST(t AS BIGINT)": False, "COALESCE(t, t_end)": False, "TIMESTAMPDIFF(HOUR, t, t_end)": False,
}  # fmt: skip


def hinted(condition: str, zone: str = ", TIMEZONE 'Asia/Kathmandu'") -> list[tuple[str, str]]:
    """By place, what is said."""
    text = DAILY.format(zone=zone, condition=condition)
    return [(hint.place, hint.message) for hint in zone_hints(parse(SourceFile("daily.sql", text)))]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_hint_stands_where_the_zone_of_the_session_matters(expression: str) -> None:
    assert bool(hinted(f"hour > CAST(({expression}) AS BINARY)")) is EXPRESSIONS[expression]


@pytest.mark.spark
def test_it_is_spark_that_says_where_it_matters(spark: SparkSession) -> None:
    """The table above, by two sessions."""
    before = spark.conf.get("spark.sql.session.timeZone")
    answers: dict[str, set[str]] = {expression: set() for expression in EXPRESSIONS}
    moments = "TIMESTAMP'2028-12-31 18:15:00Z' AS t, TIMESTAMP'2028-12-31 19:15:00Z' AS t_end"
    try:
        for zone in ("UTC", "Asia/Kathmandu"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            for expression, found in answers.items():
                frame = spark.sql(f"SELECT {expression} AS x FROM (SELECT {moments})")
                # A moment is compared as one, and anything else as its text.
                text = "UNIX_MICROS(x)" if frame.schema["x"].dataType.typeName() == "timestamp" else "x"
                row = frame.selectExpr(f"CAST({text} AS STRING) AS x").first()
                assert row is not None
                found.add(row["x"])
    finally:
        assert before is not None
        spark.conf.set("spark.sql.session.timeZone", before)
    assert {expression: len(found) > 1 for expression, found in answers.items()} == EXPRESSIONS


def test_it_stands_at_the_variable_and_names_the_zone() -> None:
    ((place, message),) = hinted("hour >= DATE_FORMAT(t, 'HH') AND hour < first")
    assert place == "daily.sql:4:78"
    assert "UTC session" in message
    assert "Asia/Kathmandu" in message
    assert "LET" in message


METERS = """CREATE DATASET valley.meters (read_at TIMESTAMP, value INT) PARTITIONED BY (store STRING)
FOR store IN ('a') EXTERNAL"""
# Each condition, with whether a moment is compared with what LET has made in the zone of the series.
CONDITIONS = {
    "DATE(read_at) = day": True, "day = CAST(m.read_at AS DATE)": True, "read_at >= day": True,
    "read_at BETWEEN day AND DATE_ADD(day, 1)": True, "DATE_FORMAT(read_at, 'yyyy') = first": True,
    "read_at > next_day": True, "NOT (DATE(read_at) <> :day)": True,
    "read_at >= t AND read_at < t_end": False, "read_at >= before": False, "value = DAY(day)": False,
    "read_at IS NOT NULL AND value > 2": False, "value IN (SELECT DAY(day))": False,
    "CAST(FROM_UTC_TIMESTAMP(read_at, 'Asia/Kathmandu') AS DATE) = day": False,
    "CAST(CONVERT_TIMEZONE('UTC', 'Asia/Kathmandu', read_at) AS DATE) = day": False,
}  # fmt: skip
OF_MOMENTS = """CREATE DATASET valley.daily PARTITIONED BY (day DATE)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-23'{zone})
LET day = CAST(t AS DATE), first = DATE_FORMAT(t, 'yyyy'), before = t - INTERVAL 1 HOUR, next_day = DATE_ADD(day, 1)
AS SELECT SUM(value) AS total FROM valley.meters AS m WHERE {condition}
"""


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_hint_stands_where_a_moment_is_compared_with_a_day_of_another_zone(condition: str) -> None:
    text = OF_MOMENTS.format(zone=", TIMEZONE 'Asia/Kathmandu'", condition=condition)
    hints = list(zone_hints(parse(SourceFile("daily.sql", text)), {"read_at"}))
    assert len(hints) == CONDITIONS[condition]
    assert all("read_at >= t AND read_at < t_end" in hint.message for hint in hints)
    in_utc = parse(SourceFile("daily.sql", OF_MOMENTS.format(zone=", TIMEZONE 'UTC'", condition=condition)))
    assert list(zone_hints(in_utc, {"read_at"})) == []


def test_check_knows_which_columns_are_moments(tmp_path: Path) -> None:
    (tmp_path / "meters.sql").write_text(METERS)
    zone = ", TIMEZONE 'Asia/Kathmandu'"
    (tmp_path / "daily.sql").write_text(OF_MOMENTS.format(zone=zone, condition="store = 'a' AND DATE(read_at) = day"))
    done = CliRunner().invoke(app, ["check", str(tmp_path), "--no-spark"])
    assert done.exit_code == 0, done.output
    assert "hint: queries run in a UTC session: what read_at is compared with, day, is of" in " ".join(
        done.output.split()
    )
    (tmp_path / "meters.sql").write_text(METERS.replace("read_at TIMESTAMP", "read_at DATE"))
    assert "hint" not in CliRunner().invoke(app, ["check", str(tmp_path), "--no-spark"]).output


IN_UTC, OF_BERLIN = {"hour": {"Etc/UTC"}}, {"hour": {"Europe/Berlin"}}
OF_T = "hour >= DATE_FORMAT(t, \"yyyy-MM-dd'T'HH\")"


@pytest.mark.parametrize(
    ("condition", "zones", "zone", "told"),
    [
        # What a query makes is in UTC, as these windows are; what LET makes is not.
        (OF_T, IN_UTC, "Asia/Kathmandu", ""),
        ("hour > first", IN_UTC, "Asia/Kathmandu", "hour names windows of UTC, and first is of Asia/Kathmandu"),
        ("hour BETWEEN first AND first", IN_UTC, "Asia/Kathmandu", "as of t in the query, which is in UTC."),
        ("hour > first", OF_BERLIN, "Asia/Kathmandu", "what is made in that zone."),
        ("hour > first", OF_BERLIN, "UTC", "hour names windows of Europe/Berlin, and first is of UTC"),
        ("hour > first", IN_UTC, "Zulu", ""),
        ("hour > first", {"hour": {"Asia/Kathmandu"}}, "Asia/Kathmandu", ""),
        # One of the inputs has such windows: which one it is, the name alone does not say.
        ("hour > first", {"hour": {"UTC", "Asia/Kathmandu"}}, "Asia/Kathmandu", ""),
        (OF_T, {"hour": {"UTC", "Asia/Kathmandu"}}, "Asia/Kathmandu", "queries run in a UTC session"),
        ("hour > DATE_FORMAT(TO_UTC_TIMESTAMP(day, 'Asia/Kathmandu'), 'HH')", IN_UTC, "Asia/Kathmandu", ""),
        ("value > 3 AND hour IS NOT NULL", IN_UTC, "Asia/Kathmandu", ""),
    ],
)
def test_a_hint_stands_where_the_windows_of_an_input_are_of_another_zone(
    condition: str, zones: dict[str, set[str]], zone: str, told: str
) -> None:
    text = DAILY.format(zone=f", TIMEZONE '{zone}'", condition=condition)
    hints = [hint.message for hint in zone_hints(parse(SourceFile("daily.sql", text)), (), zones)]
    assert len(hints) == bool(told), hints
    assert all(told in hint for hint in hints), hints


def test_check_knows_the_zones_of_inputs(tmp_path: Path) -> None:
    """The one that is right has no hint, and the one that reads other hours has one."""
    (tmp_path / "readings.sql").write_text(READINGS.replace(", TIMEZONE 'Asia/Kathmandu'", ""))
    daily, zone = tmp_path / "daily.sql", ", TIMEZONE 'America/Santiago'"
    said = []
    for condition in (f"{OF_T} AND hour < DATE_FORMAT(t_end, \"yyyy-MM-dd'T'HH\")", "hour BETWEEN first AND first"):
        daily.write_text(DAILY.format(zone=zone, condition=condition))
        done = CliRunner().invoke(app, ["check", str(tmp_path), "--no-spark"])
        assert done.exit_code == 0, done.output
        said.append(" ".join(done.output.split()))
    assert "hint" not in said[0]
    assert "hint: hour names windows of UTC, and first is of America/Santiago" in said[1]


def test_windows_in_utc_have_no_hints() -> None:
    for zone in ("", ", TIMEZONE 'UTC'", ", TIMEZONE 'Etc/UTC'"):
        assert hinted("hour >= DATE_FORMAT(t, 'HH')", zone) == []


def test_check_prints_hints_and_passes(tmp_path: Path) -> None:
    (tmp_path / "readings.sql").write_text(READINGS)
    condition = "hour >= DATE_FORMAT(t, \"yyyy-MM-dd'T'HH\") AND hour < DATE_FORMAT(t_end, \"yyyy-MM-dd'T'HH\")"
    (tmp_path / "daily.sql").write_text(DAILY.format(zone=", TIMEZONE 'Asia/Kathmandu'", condition=condition))
    done = CliRunner().invoke(app, ["check", str(tmp_path), "--no-spark"])
    assert done.exit_code == 0, done.output
    assert done.output.count("hint: queries run in a UTC session") == 2
    assert "2 SQL datasets, no problems." in done.output
    told = json.loads(CliRunner().invoke(app, ["check", str(tmp_path), "--no-spark", "--json"]).output)
    assert [hint["place"].rpartition("/")[2] for hint in told["hints"]] == ["daily.sql:4:78", "daily.sql:4:123"]
    assert told["problems"] == []


ARRIVING = """CREATE DATASET valley.arriving (value INT) PARTITIONED BY (hour TIMESTAMP)
FOR t IN TIMESERIES(INTERVAL 1 HOUR, START '2026-{start}'{zone})
INSERT (hour = t)
OPTIONS (files = '{files}')
EXTERNAL
"""


@pytest.mark.parametrize(
    ("files", "zone", "start", "is_told"),
    [
        ("{hour:%Y%m%dT%H}.csv", ", TIMEZONE 'Europe/Berlin'", "09-01", True),
        # The clock goes back in every autumn to come, too.
        ("{hour:%Y%m%dT%H}.csv", ", TIMEZONE 'Europe/Berlin'", "11-20", True),
        ("{hour:%Y%m%dT%H%z}.csv", ", TIMEZONE 'Europe/Berlin'", "09-01", False),
        ("{hour}.csv", ", TIMEZONE 'Europe/Berlin'", "09-01", False),
        ("{hour:%Y%m%dT%H}.csv", ", TIMEZONE 'Asia/Kathmandu'", "09-01", False),
        ("{hour:%Y%m%dT%H}.csv", "", "09-01", False),
    ],
)
def test_names_of_files_that_cannot_tell_the_doubled_hour_are_hinted_at(
    tmp_path: Path, *, files: str, zone: str, start: str, is_told: bool
) -> None:
    text = ARRIVING.format(files=files, zone=zone, start=start)
    (tmp_path / "arriving.sql").write_text(text, encoding="utf-8")
    done = CliRunner().invoke(app, ["check", str(tmp_path), "--no-spark"])
    assert done.exit_code == 0, done.output
    assert ("hint" in done.output) is is_told, done.output
    assert ("an hour that the clock shows a second time" in " ".join(done.output.split())) is is_told
