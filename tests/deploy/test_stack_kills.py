"""Every service of the stack is lost once in the middle of a run: what readers get is what was sent, by pandas.

What a machine's supervisor does, restarting what has died, the test does. S3 keeps its objects in memory here, so it is
cut off for a while in the place of being killed.
"""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from resources.partner import FLIGHTS_COLUMNS, data_folder, send
from tests.deploy.clients import in_the_lake, land
from tests.deploy.test_stack_losses import wait_for_a_run, wait_until_published
from tests.e2e.project import flights, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.deploy.processes import Stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_600), pytest.mark.xdist_group("stack")]

FIRST = dt.date(2013, 2, 1)
KILLED = ("postgres", "spark-connect", "spark-worker", "spark-master", "metastore", "daemon", "webserver", "code")
AWAY_SECONDS = 20


def sums(day: dt.date) -> list[str]:
    """What pandas makes of the day's flights: how many, their carriers, the sum of delays and of distances."""
    every = pd.read_csv(data_folder() / "flights.csv.zip")
    found = every[(every.year == day.year) & (every.month == day.month) & (every.day == day.day)]
    carriers = found.carrier.nunique()
    return [str(len(found)), str(carriers), str(int(found.dep_delay.sum())), str(int(found.distance.sum()))]


def wait_until_right(stack: Stack, day: dt.date) -> None:
    """Wait until the day was published, and readers of the Hive table have what pandas has."""
    wait_until_published(stack, day)
    query = (
        "SELECT count(*), count(DISTINCT carrier), sum(dep_delay), sum(distance) FROM flights.departures "
        f"WHERE day = '{day}'"
    )
    wanted = sums(day)
    wait_until(lambda: in_the_lake(stack, query) == [wanted], seconds=300, what=f"readers see {day}: {wanted}",
               log=stack.log("daemon"))  # fmt: skip


@pytest.mark.parametrize("name", KILLED)
def test_a_service_that_is_killed_in_the_middle_of_a_run_costs_a_run_at_most(
    stack: Stack, tmp_path: Path, name: str
) -> None:
    day = FIRST + dt.timedelta(days=KILLED.index(name))
    send(tmp_path / "flights" / "departures", str(day), FLIGHTS_COLUMNS, flights(day))
    land(stack, tmp_path)
    wait_for_a_run(stack, day)
    stack.kill(name)
    stack.start_service(name)
    stack.wait_until_well(name)
    if name == "metastore":
        # What was published while it was away is shown by the dataset's next run, or by the nightly sweep: by this one.
        wait_until_published(stack, day)
        swept = stack.run("daemon", "varve", "sweep")
        assert swept.returncode == 0, swept.stdout
    wait_until_right(stack, day)


def test_s3_that_is_away_for_a_while_costs_a_run_at_most(stack: Stack, tmp_path: Path) -> None:
    day = FIRST + dt.timedelta(days=len(KILLED))
    send(tmp_path / "flights" / "departures", str(day), FLIGHTS_COLUMNS, flights(day))
    land(stack, tmp_path)
    wait_for_a_run(stack, day)
    away = stack.network.hosts["s3"]
    stack.network.cut(away)
    time.sleep(AWAY_SECONDS)
    stack.network.mend(away)
    wait_until_right(stack, day)
