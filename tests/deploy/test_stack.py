"""The stack of deploy/compose on hosts of its own: files of two days arrive, and readers see what was sent.

Every command, variable and health check is the kit's (processes.py); executors have requirements-executor.txt alone.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from resources.partner import FLIGHTS_COLUMNS, PLANES_COLUMNS, WEATHER_COLUMNS, planes, send, weather_by_hour
from tests.deploy.clients import in_the_lake, in_the_warehouse, land, published
from tests.e2e.project import days, flights, hours_of, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.deploy.processes import Stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_600), pytest.mark.xdist_group("stack")]

FIRST, SECOND, *LATER = DAYS = days(dt.date(2013, 4, 1), 22)
ORIGINS = ("EWR", "JFK", "LGA")


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
    assert in_the_warehouse(stack, "select count(distinct month) from flights.monthly_fleet") == [(12,)]
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
