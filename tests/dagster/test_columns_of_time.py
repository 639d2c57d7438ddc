"""Datasets whose series has several partition columns, under Dagster: dumps of Hive, landing files, SQL and Python.

Both stores, the sensors and the commands. What each query reads is compared with Spark in tests/sql/test_soundness.py.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.dagster.test_without_partitions import Shop
from varve.services.postgres import warehouse_url

if TYPE_CHECKING:
    from tests.support.workbench import Workbench

pytestmark = pytest.mark.spark

SERIES = "t IN TIMESERIES(INTERVAL 1 HOUR, START '2022-03-31T22', END '2022-04-01T02')"
FILES = {
    # What others write into the metastore, hour by hour; their month is a text with a leading zero.
    "clicks.sql": f"""
CREATE DATASET {{db}}.clicks (shop STRING, n INT)
PARTITIONED BY (year INT, month INT, day INT, hour INT)
FOR {SERIES}
INSERT (year = YEAR(t), month = MONTH(t), day = DAY(t), hour = HOUR(t))
EXTERNAL OPTIONS (source = 'table', table = 'default.{{db}}_dumps');
""",
    "visits.sql": f"""
CREATE DATASET {{db}}.visits (n INT)
STORED IN WAREHOUSE
PARTITIONED BY (day STRING, hour STRING)
FOR {SERIES}
INSERT (day = DATE_FORMAT(t, 'yyyy-MM-dd'), hour = DATE_FORMAT(t, 'HH'))
EXTERNAL OPTIONS (files = 'day={{{{day}}}}/hour={{{{hour}}}}/*.csv');
""",
    # Days of hours, in the warehouse, with the start of the window as a moment and a number.
    "daily.sql": """
CREATE DATASET {db}.daily
STORED IN WAREHOUSE
PARTITIONED BY (at TIMESTAMP, second BIGINT)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-31', END '2022-04-02')
LET pd = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (at = t, second = UNIX_TIMESTAMP(t))
AS SELECT c.shop, SUM(c.n) AS clicks, MAX(v.n) AS visits
FROM {db}.clicks c JOIN {db}.visits v ON v.day = pd AND CAST(v.hour AS INT) = c.hour
WHERE c.year = YEAR(t) AND c.month = MONTH(t) AND c.day = DAY(t)
GROUP BY c.shop;
""",
    "hourly.py": """
from pathlib import Path

import varve
from varve import Column, ColumnType, Dataset, Partitioning, Schema, StoreKind

CLICKS = varve.sql_datasets(Path(__file__).parent)["{db}.clicks"].dataset
HOURS = Dataset(
    name="{db}.hours",
    partitioning=Partitioning(CLICKS.partitioning.dimensions),
    schema=Schema((Column("n", ColumnType.BIGINT, "clicks of all shops"),)),
    store=StoreKind.LAKE,
    comment="Clicks of an hour.",
)


@varve.asset(HOURS, reads={{"clicks": CLICKS}})
def hours(context, clicks):
    run = varve.partitions_of(context)
    assert all(key["hour"] in (22, 23, 0, 1) for key in run.keys)
    hours = clicks.where(run.where).groupBy("year", "month", "day", "hour")
    return hours.agg({{"n": "sum"}}).withColumnRenamed("sum(n)", "n")
""",
}


@pytest.fixture
def shop(tmp_path: Path, workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> Shop:
    db = f"w{uuid.uuid4().hex[:8]}"
    assets = tmp_path / f"{db}_assets"
    assets.mkdir()
    (assets / "__init__.py").write_text("")
    (tmp_path / "varve.toml").write_text(f'assets = "{assets.name}"\n')
    (tmp_path / "dagster.yaml").write_text((Path(__file__).parents[2] / "dagster.yaml").read_text())
    for name, text in FILES.items():
        (assets / name).write_text(text.format(db=db).lstrip())
    monkeypatch.setenv("VARVE_PROJECT", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    return Shop(tmp_path, db, workbench)


def view(shop: Shop, table: str, *columns: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(warehouse_url(shop.workbench.settings)) as connection:
        connection.execute("set timezone to 'Asia/Kathmandu'")
        query = psycopg.sql.SQL("select {} from {} order by {}").format(
            psycopg.sql.SQL(", ").join(map(psycopg.sql.SQL, columns)),  # type: ignore[arg-type]
            psycopg.sql.Identifier(shop.db, table),
            psycopg.sql.SQL(", ").join(map(psycopg.sql.SQL, columns)),  # type: ignore[arg-type]
        )
        return list(connection.execute(query))


def test_dumps_by_year_month_day_and_hour_flow_through_sensors_and_both_stores(shop: Shop) -> None:
    spark, dumps = shop.workbench.spark, f"default.{shop.db}_dumps"
    spark.sql(
        f"CREATE TABLE {dumps} (shop STRING, n INT, year INT, month STRING, day STRING, hour STRING) USING parquet "
        "PARTITIONED BY (year, month, day, hour)"
    )
    hours = [("03", "31", "22", 1), ("03", "31", "23", 2), ("04", "01", "00", 4), ("04", "01", "01", 8)]
    rows = ", ".join(f"('x', {n}, 2022, '{month}', '{day}', '{hour}')" for month, day, hour, n in hours)
    spark.sql(f"INSERT INTO {dumps} VALUES {rows}")
    for month, day, hour, n in hours:
        folder = Path(shop.workbench.settings.landing) / shop.db / "visits" / f"day=2022-{month}-{day}" / f"hour={hour}"
        folder.mkdir(parents=True)
        (folder / "a.csv").write_text(f"n\n{n * 10}\n")
    asked = shop.drive()
    assert {text.split()[0] for text in asked} == {"clicks", "visits", "hours", "daily"}, asked
    assert shop.lake("clicks") == [
        ("x", 1, 2022, 3, 31, 22), ("x", 2, 2022, 3, 31, 23), ("x", 4, 2022, 4, 1, 0), ("x", 8, 2022, 4, 1, 1),
    ]  # fmt: skip
    assert shop.lake("hours") == [
        (1, 2022, 3, 31, 22), (2, 2022, 3, 31, 23), (4, 2022, 4, 1, 0), (8, 2022, 4, 1, 1),
    ]  # fmt: skip
    assert view(shop, "visits", "day", "hour", "n") == [
        ("2022-03-31", "22", 10), ("2022-03-31", "23", 20), ("2022-04-01", "00", 40), ("2022-04-01", "01", 80),
    ]  # fmt: skip
    assert view(shop, "daily", "extract(epoch from at)::bigint", "second", "shop", "clicks", "visits") == [
        (1648684800, 1648684800, "x", 3, 20), (1648771200, 1648771200, "x", 12, 80),
    ]  # fmt: skip
    assert shop.drive() == []

    # One hour is written again: only its day follows.
    spark.sql(
        f"INSERT OVERWRITE {dumps} PARTITION (year = 2022, month = '04', day = '01', hour = '01') VALUES ('x', 9)"
    )
    asked = shop.drive()
    assert sorted(asked) == ["clicks 2022-04-01T01", "daily 2022-04-01", "hours 2022-04-01T01"]
    assert [row[3] for row in view(shop, "daily", "at", "second", "shop", "clicks")] == [3, 13]

    # Commands name the partition by its columns, all of them or some.
    assert "current" in shop.says("why", "shop.clicks", "year=2022", "month=4", "day=1", "hour=1")
    told = shop.says("show", "shop.daily", "at=2022-04-01 00:00:00", "second=1648771200")
    assert "shop.clicks/year=2022/month=4/day=1/hour=1" in told
    assert "year=2022/month=3/day=31" not in told
    tasks = json.loads(shop.says("tasks", "shop.clicks", "month=3", "--json"))["tasks"]
    assert [task["partition"] for task in tasks] == [
        "year=2022/month=3/day=31/hour=23", "year=2022/month=3/day=31/hour=22",
    ]  # fmt: skip
    assert {batch["partition"] for batch in json.loads(shop.says("history", "shop.clicks", "day=1", "--json"))} == {
        "year=2022/month=4/day=1/hour=0", "year=2022/month=4/day=1/hour=1",
    }  # fmt: skip
    marked = json.dumps(
        json.loads(shop.says("backfill", "start", "shop.clicks", "year=2022", "month=3", "--dry-run", "--json"))
    )
    assert [hour for hour in (22, 23, 0, 1) if f"hour={hour}" in marked] == [22, 23], marked
    spark.sql(f"DROP TABLE {dumps}")
