"""The host of a run is lost, for good or for a while, and Spark's master is killed: the work goes on."""

from __future__ import annotations

import datetime as dt
import json
import urllib.request
from typing import TYPE_CHECKING

import pytest

from resources.partner import FLIGHTS_COLUMNS, send
from tests.deploy.clients import in_the_lake, land
from tests.deploy.processes import twin_of
from tests.e2e.project import flights, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.deploy.processes import Stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_600), pytest.mark.xdist_group("stack")]

LOST, BACK = dt.date(2013, 2, 20), dt.date(2013, 2, 21)
# From the last sign of life of a run whose host is lost until Dagster has it as failed.
MINUTE = dt.timedelta(seconds=60)
RUNS_SECONDS = 1_800


def test_a_run_whose_host_is_lost_fails_within_a_minute_and_its_partitions_are_made_elsewhere(
    stack: Stack, tmp_path: Path
) -> None:
    partner_sends(stack, tmp_path, LOST)
    run = wait_for_a_run(stack, LOST)
    lost = stack.network.hosts["code"]
    stack.network.cut(lost)
    lost.end()
    wait_until_failed(stack, run)
    replace_code_location(stack, "code-2")
    wait_until_published(stack, LOST)
    assert batches_of(stack, run) == 0
    counted = in_the_lake(stack, f"SELECT count(*) FROM flights.departures WHERE day = '{LOST}'")
    assert counted == [[str(len(flights(LOST)))]]


def test_a_machine_that_comes_back_after_its_lease_was_taken_publishes_nothing(stack: Stack, tmp_path: Path) -> None:
    partner_sends(stack, tmp_path, BACK)
    run = wait_for_a_run(stack, BACK)
    away = stack.network.hosts[code_location(stack)]
    stack.network.cut(away)
    wait_until_failed(stack, run)
    replace_code_location(stack, "code-3")
    wait_until_published(stack, BACK)
    stack.network.mend(away)
    refused = f"its lease cannot be renewed: run {run} "
    wait_until(
        lambda: refused in stack.log(away.name).read_text(encoding="utf-8", errors="replace"),
        seconds=300, what="the run of the machine that is back knows that it counts as dead", log=stack.log(away.name),
    )  # fmt: skip
    assert batches_of(stack, run) == 0
    wait_until_published(stack, BACK)


def test_a_master_of_spark_that_was_killed_still_knows_its_applications(stack: Stack) -> None:
    stack.kill("spark-master")
    # As `restart: unless-stopped` does.
    stack.start_service("spark-master")
    stack.wait_until_well("spark-master")
    wait_until(
        lambda: workers_and_applications(stack) == (2, 1), seconds=300, what="the master knows all that it knew",
        log=stack.log("spark-master"),
    )  # fmt: skip
    assert in_the_lake(stack, "SELECT count(*) FROM range(0, 1000, 1, 4)") == [["1000"]]


def partner_sends(stack: Stack, folder: Path, day: dt.date) -> None:
    """The flights of a day."""
    send(folder / "flights" / "departures", str(day), FLIGHTS_COLUMNS, flights(day))
    land(stack, folder)


def wait_for_a_run(stack: Stack, day: dt.date) -> str:
    """Wait until a run is about to make the batch of a day; return the run's id."""
    runs: list[str] = []

    def building() -> bool:
        with stack.connect() as connection:
            # On a stack that has made nothing yet, the first run makes the catalog too.
            if connection.execute("select to_regclass('varve.lease')").fetchone() == (None,):
                return False
            found = connection.execute(
                "select b.run_id from varve.batch b join varve.lease l using (run_id)"
                " where l.taken and l.lost_at is null and b.dataset = 'flights.departures' and b.partition = %s"
                " and b.state in ('building', 'staged')",
                (f"day={day}",),
            ).fetchall()
        runs[:] = [run for (run,) in found]
        return bool(runs)

    wait_until(building, seconds=RUNS_SECONDS, what=f"a run builds {day}", log=stack.log("daemon"))
    return runs[0]


def wait_until_published(stack: Stack, day: dt.date) -> None:
    """Wait until the day has its rows, and no run has anything left to do."""

    def published() -> bool:
        with stack.connect() as connection:
            rows = connection.execute(
                "select b.rows from varve.current c join varve.batch b using (dataset, partition, batch_id)"
                " where c.dataset = 'flights.departures' and c.partition = %s",
                (f"day={day}",),
            ).fetchall()
            if rows != [(len(flights(day)),)]:
                return False
            return connection.execute("select 1 from varve.lease where lost_at is null").fetchone() is None

    wait_until(published, seconds=RUNS_SECONDS, what=f"{day} was published", log=stack.log("daemon"))


def wait_until_failed(stack: Stack, run: str) -> None:
    """Wait until Dagster has the run as failed: not later than a minute after its last sign of life."""
    wait_until(
        lambda: status_of(stack, run) == "FAILURE", seconds=300, what=f"run {run} has failed", log=stack.log("daemon")
    )
    with stack.connect(database="dagster") as connection:
        (failed,) = connection.execute("select to_timestamp(end_time) from runs where run_id = %s", (run,)).fetchall()
    with stack.connect() as connection:
        (alive,) = connection.execute("select renewed_at from varve.lease where run_id = %s", (run,)).fetchall()
        assert failed[0] - alive[0] < MINUTE
        # Whoever wants its partitions gets them.
        locks = "select count(*) from pg_locks where locktype = 'advisory' and granted"
        assert connection.execute(locks).fetchone() == (0,)


def status_of(stack: Stack, run: str) -> str:
    """What Dagster's own records say of a run."""
    with stack.connect(database="dagster") as connection:
        row = connection.execute("select status from runs where run_id = %s", (run,)).fetchone()
    assert row is not None
    return str(row[0])


def batches_of(stack: Stack, run: str) -> int:
    """How many partitions a run has ever made current."""
    with stack.connect() as connection:
        row = connection.execute("select count(*) from varve.publish where run_id = %s", (run,)).fetchone()
    assert row is not None
    return int(row[0])


def workers_and_applications(stack: Stack) -> tuple[int, int]:
    """How many workers and running applications the master has."""
    page = f"http://{stack.network.address('spark-master')}:8080/json/"
    with urllib.request.urlopen(page, timeout=10) as answer:
        state = json.load(answer)
    return state["aliveworkers"], sum(each["state"] == "RUNNING" for each in state["activeapps"])


def code_location(stack: Stack) -> str:
    """The host to which the name of the code location leads."""
    address = stack.network.address("code")
    return next(name for name, host in stack.network.hosts.items() if host.address == address)


def replace_code_location(stack: Stack, name: str) -> None:
    """Another host takes the place and the name of the code location."""
    stack.services = {**stack.services, name: twin_of(stack.services["code"], name)}
    stack.add_host(name, takes_name="code")
    stack.start_service(name)
    stack.wait_until_well(name)
