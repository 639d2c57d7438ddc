"""The stack of deploy/compose as processes: files of two days arrive, and readers of both stores see what was sent.

Every command, variable and health check is the kit's (processes.py); executors have requirements-executor.txt alone.
"""

from __future__ import annotations

import datetime as dt
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import s3fs
from psycopg import sql

from resources.partner import FLIGHTS_COLUMNS, PLANES_COLUMNS, WEATHER_COLUMNS, planes, send, weather_by_hour
from tests.deploy.processes import Stack
from tests.documents.pages import blocks
from tests.e2e.project import days, flights, hours_of, wait_until
from tests.support.environment import clean_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_600)]

FIRST, SECOND, *LATER = DAYS = days(dt.date(2013, 4, 1), 22)
# What the page types into containers: the service, and the words after it.
SWITCHED_ON = [
    shlex.split(command.partition(" exec ")[2])
    for block in blocks("console") if block.runner == "tests/deploy/test_stack.py"
    for command in block.commands if " exec " in command
]  # fmt: skip
ORIGINS = ("EWR", "JFK", "LGA")
# A client that has never heard of Varve.
READER = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
print(json.dumps([list(map(str, row)) for row in spark.sql(sys.argv[2]).collect()]))
"""


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """All services, up and well, with the sensors that docs/deploy.md switches on."""
    assert {command[0] for command in SWITCHED_ON} == {"daemon"}
    folder = Path(tempfile.mkdtemp(prefix="varve-kit-"))
    folder.chmod(0o755)
    found = Stack.of(folder)
    try:
        found.start()
        for service, *command in SWITCHED_ON:
            done = found.run(service, *command)
            assert done.returncode == 0, done.stdout
        yield found
    finally:
        found.stop()
        shutil.rmtree(folder, ignore_errors=True)


def land(stack: Stack, local: Path) -> None:
    """The partner puts what is in a local folder into the bucket."""
    environment = stack.environment(stack.services["bucket"])
    bucket = s3fs.S3FileSystem(
        key=environment["AWS_ACCESS_KEY_ID"], secret=environment["AWS_SECRET_ACCESS_KEY"],
        endpoint_url=environment["AWS_ENDPOINT_URL"], use_listings_cache=False,
    )  # fmt: skip
    for file in sorted(local.rglob("*.csv")):
        bucket.put_file(file, f"varve/landing/{file.relative_to(local)}")


def admin(stack: Stack) -> psycopg.Connection:
    """The server's administrator, in Varve's database."""
    return psycopg.connect(stack.environment(stack.services["roles"])["VARVE_POSTGRES_URL"], autocommit=True)


def published(stack: Stack) -> dict[str, int]:
    """How many partitions each dataset has."""
    with admin(stack) as connection:
        if connection.execute("select to_regclass('varve.current')").fetchone() == (None,):
            return {}
        counted = connection.execute("select dataset, count(*) from varve.current group by 1").fetchall()
    return dict(counted)


def in_the_lake(stack: Stack, query: str) -> list[list[str]]:
    """The rows of a query, by any client of the stack's Spark."""
    remote = stack.environment(stack.services["code"])["VARVE_SPARK_REMOTE"]
    done = subprocess.run(
        [sys.executable, "-c", READER, remote, query], env=clean_environment(), cwd="/", capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows: list[list[str]] = json.loads(done.stdout)
    return rows


def as_reader(stack: Stack, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query in the warehouse, as the role of readers, with a password over TCP."""
    with admin(stack) as connection:
        connection.execute(sql.SQL("alter role varve_reader password {}").format(sql.Literal("readers")))
    address = stack.addresses["postgres"]
    with psycopg.connect(f"postgresql://varve_reader:readers@{address}/varve") as reader:
        return reader.execute(query.encode()).fetchall()


def test_files_of_two_days_become_what_readers_count(stack: Stack, tmp_path: Path) -> None:
    # Weather of one of the two days: each hour costs dozens of requests of the S3 server.
    hours = hours_of(FIRST)
    observed = weather_by_hour(hours)
    for day in (FIRST, SECOND):
        send(tmp_path / "flights" / "departures", str(day), FLIGHTS_COLUMNS, flights(day))
    for hour in hours:
        send(tmp_path / "flights" / "weather", hour, WEATHER_COLUMNS, observed[hour])
    send(tmp_path / "flights" / "fleet", "2013", PLANES_COLUMNS, planes())
    land(stack, tmp_path)
    wanted = {
        "flights.departures": 2, "flights.weather": len(hours), "flights.delays": len(ORIGINS), "flights.fleet": 1,
        "flights.monthly_fleet": 12,
    }  # fmt: skip
    wait_until(
        lambda: wanted.items() <= published(stack).items(),
        seconds=1_200, what=f"{wanted} were published", log=stack.log("daemon"),
    )  # fmt: skip

    counted = in_the_lake(stack, "SELECT day, count(*) FROM flights.departures GROUP BY day ORDER BY day")
    assert counted == [[str(day), str(len(flights(day)))] for day in (FIRST, SECOND)]
    assert in_the_lake(stack, "SELECT count(*) FROM flights.fleet") == [[str(len(planes()))]]
    assert as_reader(stack, "select count(distinct month) from flights.monthly_fleet") == [(12,)]
    # The web server answers as a person's browser asks it.
    health = stack.services["webserver"].health
    assert stack.run("webserver", *health).returncode == 0


def test_files_that_executors_read_need_no_varve_there(stack: Stack, tmp_path: Path) -> None:
    for day in LATER:
        send(tmp_path / "flights" / "departures", str(day), FLIGHTS_COLUMNS, flights(day))
    # More than this process would read itself.
    assert sum(file.stat().st_size for file in tmp_path.rglob("*.csv")) > 1 << 20
    land(stack, tmp_path)
    wait_until(
        lambda: published(stack).get("flights.departures") == len(DAYS),
        seconds=900, what="all days were published", log=stack.log("daemon"),
    )  # fmt: skip
    counted = in_the_lake(stack, "SELECT day, count(*) FROM flights.departures GROUP BY day ORDER BY day")
    assert counted == [[str(day), str(len(flights(day)))] for day in DAYS]
