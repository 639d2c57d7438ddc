"""A dump of Hive of 400 days, by year, month, day and hour: a day reads exactly the hours that Spark itself opens."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from varve.model.partitions.key import PartitionKey
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from varve.sql.sql_asset import SqlAsset

FIRST, DAYS = dt.date(2024, 12, 1), 400
DUMPS = """
CREATE DATASET kafka.clicks (n INT)
PARTITIONED BY (year INT, month INT, day INT, hour INT)
FOR t IN TIMESERIES(INTERVAL 1 HOUR, START '2024-12-01', END '2026-01-05')
INSERT (year = YEAR(t), month = MONTH(t), day = DAY(t), hour = HOUR(t))
EXTERNAL OPTIONS (source = 'table', table = 'dumps.clicks');
"""
DAILY = """
CREATE DATASET kafka.daily_{name} (n BIGINT)
PARTITIONED BY (day DATE)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2024-12-01', END '2026-01-05', TIMEZONE '{zone}')
LET pd = CAST(t AS DATE)
INSERT (day = pd)
ALLOW FULL SCAN
AS SELECT SUM(n) AS n FROM kafka.clicks WHERE {condition}
"""
# The moment of an hour of the dump, as a query makes it of its columns.
AT = "TO_TIMESTAMP(CONCAT(year, LPAD(month, 2, '0'), LPAD(day, 2, '0'), ' ', LPAD(hour, 2, '0')), 'yyyyMMdd HH')"
CONDITIONS = {
    "parts": ("UTC", "year = YEAR(pd) AND month = MONTH(pd) AND day = DAY(pd)"),
    "trailing": ("UTC", "MAKE_DATE(year, month, day) BETWEEN DATE_SUB(pd, 2) AND pd AND year >= YEAR(DATE_SUB(pd, 2))"),
    # A day of New York, of which the dump in UTC has 23, 24 or 25 hours.
    "new_york": (
        "America/New_York",
        f"{AT} >= t AND {AT} < t_end AND year BETWEEN YEAR(pd) AND YEAR(DATE_ADD(pd, 1))",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def files() -> dict[str, SqlAsset]:
    texts = {"clicks": DUMPS} | {
        f"daily_{name}": DAILY.format(name=name, zone=zone, condition=condition)
        for name, (zone, condition) in CONDITIONS.items()
    }
    return dict(compiled([SourceFile(f"{name}.sql", text) for name, text in texts.items()], {}))


def read(files: dict[str, SqlAsset], name: str, day: dt.date) -> set[str]:
    """The paths that a day reads, as planned."""
    dependency = files[f"kafka.daily_{name}"].dependency("kafka.clicks")
    return {key.path for key in dependency.upstream_of(PartitionKey.of(day=day)).keys}


def test_each_of_400_days_reads_its_24_hours(files: dict[str, SqlAsset]) -> None:
    dependency = files["kafka.daily_parts"].dependency("kafka.clicks")
    keys = [PartitionKey.of(day=FIRST + dt.timedelta(days=place)) for place in range(DAYS)]
    for key, mapped in zip(keys, dependency.upstream_of_each(keys), strict=True):
        day = key["day"]
        assert isinstance(day, dt.date)
        assert [hour.path for hour in mapped.keys] == [
            f"year={day.year}/month={day.month}/day={day.day}/hour={hour}" for hour in range(24)
        ]
    mapped = dependency.readers_of(PartitionKey.of(year=2025, month=3, day=9, hour=6))
    assert [key.path for key in mapped.keys] == ["day=2025-03-09"]


@pytest.mark.parametrize(("day", "hours"), [((2025, 3, 9), 23), ((2025, 11, 2), 25), ((2025, 11, 3), 24)])
def test_a_day_of_new_york_reads_as_many_hours_as_it_has(
    files: dict[str, SqlAsset], day: tuple[int, int, int], hours: int
) -> None:
    assert len(read(files, "new_york", dt.date(*day))) == hours


@pytest.mark.spark
@pytest.mark.parametrize(
    "places", [(31, 98, 336), pytest.param((30, 31, 98, 100, 336, 337, 399), marks=pytest.mark.slow)], ids=len
)
def test_a_day_reads_exactly_what_spark_opens_of_400_days_of_dumps(
    spark: SparkSession, tmp_path: Path, files: dict[str, SqlAsset], places: Sequence[int]
) -> None:
    """The first day of a year and both days on which New York's clocks change; `make torture` has their neighbours."""
    from pyspark.sql import functions as F  # noqa: N812

    one = tmp_path / "one"
    spark.createDataFrame([(1,)], "n int").coalesce(1).write.parquet(str(one))
    (parquet,) = one.glob("*.parquet")
    dump = tmp_path / "dump"
    for place in range(DAYS):
        day = FIRST + dt.timedelta(days=place)
        for hour in range(24):
            folder = dump / f"year={day.year}" / f"month={day.month}" / f"day={day.day}" / f"hour={hour}"
            folder.mkdir(parents=True)
            (folder / "part.parquet").hardlink_to(parquet)
    columns = "n int, year int, month int, day int, hour int"
    table = spark.read.schema(columns).option("basePath", str(dump)).parquet(str(dump))
    days = [FIRST + dt.timedelta(days=place) for place in places]
    for name, (zone, condition) in CONDITIONS.items():
        for day in days:
            scope = files[f"kafka.daily_{name}"].scopes.of(PartitionKey.of(day=day)).values
            text = condition.replace("t_end", f"TIMESTAMP '{scope['t_end']}'").replace("pd", f"DATE '{day}'")
            text = text.replace(">= t ", f">= TIMESTAMP '{scope['t']}' ")
            # Every file has a row, and all conditions are on partition columns: these are the files that Spark opens.
            names = table.where(text).select(F.input_file_name()).distinct().collect()
            opened = {unquote(file).split("/dump/")[1].rpartition("/")[0] for (file,) in names}
            assert opened, (name, zone, day)
            assert read(files, name, day) == opened, (name, zone, day)
