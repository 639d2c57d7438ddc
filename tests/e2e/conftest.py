"""One home for all end-to-end tests, whose services nobody has started: the first command does.

Its data is the first week of 2013, published once by the commands a user would type.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.e2e.project import Outcome, Project, Reader, days, hours_of

if TYPE_CHECKING:
    from collections.abc import Iterator

# The week of Monday 2012-12-31 has six days in the data.
WEEK = days(dt.date(2013, 1, 1), 6)


@dataclass(frozen=True)
class ColdStart:
    """The very first command of a home: what was up before it, and how it ended."""

    services_before: tuple[bool, bool]
    outcome: Outcome


@pytest.fixture(scope="session")
def project() -> Iterator[Project]:
    """A project with an empty home of its own."""
    with Project.of_its_own("e2e") as found:
        yield found


@pytest.fixture(scope="session")
def cold_start(project: Project) -> ColdStart:
    """Three days of departures, with nothing there but landing files."""
    from varve.services.postgres_server import PostgresServer
    from varve.services.spark_server import SparkServer

    project.send_flights(*WEEK)
    project.send_weather(*WEEK)
    up = PostgresServer(project.settings.home_dir).is_up(), SparkServer(project.settings).remote() is not None
    done = project.materialize_afresh("flights/departures", partitions="2013-01-01...2013-01-03")
    return ColdStart(up, done)


@pytest.fixture(scope="session")
def week(project: Project, cold_start: ColdStart) -> Project:
    """The project with all datasets of the first week published."""
    assert cold_start.outcome.code == 0, cold_start.outcome.output
    project.must_materialize("flights/departures", partitions="2013-01-04...2013-01-06")
    first, last = hours_of(WEEK[0])[0], hours_of(WEEK[-1])[-1]
    project.must_materialize("flights/weather", partitions=f"{first}...{last}")
    project.must_materialize("flights/delays", partition="2013-01-01|EWR")
    project.must_materialize("flights/delays", partitions="2013-01-01|EWR...2013-01-06|LGA")
    project.must_materialize("flights/weekly_delays", partitions="EWR|2012-12-31...LGA|2012-12-31")
    return project


@pytest.fixture(scope="session")
def reader(project: Project, cold_start: ColdStart) -> Iterator[Reader]:
    """A Spark reader whose session lives as long as the tests."""
    assert cold_start.outcome.code == 0, cold_start.outcome.output
    found = Reader(project)
    yield found
    found.close()
