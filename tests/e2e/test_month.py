"""A month of files in any order under Dagster's real daemon, and under two of them by mistake."""

from __future__ import annotations

import datetime as dt
import random
import sys
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from dagster import DagsterRunStatus
from psycopg import sql

from pipeline_defs.definitions import graph
from tests.e2e.project import days, flights, hours_of, service, wait_until
from tests.support.project import PROJECT
from varve.dagster.automation.reconciling import looked_up
from varve.model.dataset import StoreKind
from varve.planning.judgement.judgement import State
from varve.planning.reconcile import reconcile
from varve.services.settings import ContentHash

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.project import Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2_000)]

FIRST = dt.date(2013, 4, 1)
MONTH = days(FIRST, 30)
# Those with weather too: every partition of a day that has it follows.
WEATHERED = MONTH[:7]
_ENDED = {DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED}
_OVERLAPS = """
    select a.dataset, a.partition, a.batch_id, b.batch_id from varve.batch a
    join varve.batch b using (dataset, partition)
    where a.batch_id < b.batch_id and a.staged_at is not null and b.started_at < a.staged_at
      and b.staged_at is not null
"""


def test_a_month_in_any_order_ends_where_a_clean_rebuild_does(
    project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed = start(project, "month", tmp_path / "month")
    shuffled = random.Random(4).sample(MONTH, len(MONTH))
    resent, broken = shuffled[3], shuffled[20]
    log = tmp_path / "month.log"
    with service(deployed, log, "dagster-daemon", "run", "-w", "workspace.yaml"):
        deployed.send_flights(*shuffled[:12])
        deployed.send_weather(*reversed(WEATHERED[::2]))
        wait_until(lambda: len(departures(deployed)) >= 12, seconds=300, what="the first files were taken", log=log)
        deployed.send_flights(resent, keep=100)
        deployed.send_flights(*shuffled[12:])
        (bad,) = deployed.send_flights(broken)
        bad.write_text(bad.read_text(encoding="utf-8").rstrip("\n") + "\nnot,a,row\n", encoding="utf-8")
        deployed.send_weather(*WEATHERED[1::2])
        wait_until(
            lambda: set(departures(deployed)) == {f"day={day}" for day in MONTH if day != broken},
            seconds=400, what="all files but the broken one were taken", log=log,
        )  # fmt: skip
        deployed.send_flights(broken)
        wait_until(lambda: is_quiet(deployed, len(MONTH)), seconds=600, what="nothing was left to do", log=log)
    assert departures(deployed)[f"day={resent}"] == 100
    assert departures(deployed)[f"day={broken}"] == len(flights(broken))

    clean = start(project, "clean", tmp_path / "clean")
    clean.send_flights(*(day for day in MONTH if day != resent))
    clean.send_flights(resent, keep=100)
    clean.send_weather(*WEATHERED)
    log = tmp_path / "clean.log"
    with service(clean, log, "dagster-daemon", "run", "-w", "workspace.yaml"):
        wait_until(lambda: is_quiet(clean, len(MONTH)), seconds=600, what="the clean rebuild was done", log=log)

    ran = f"runs: {sum(statuses(deployed).values())} in any order, {sum(statuses(clean).values())} at once"
    with capsys.disabled():
        sys.stdout.write(f"\n{ran}\n")
    found, expected = contents(deployed), contents(clean)
    assert set(expected) >= {
        ("flights.delays", f"day={FIRST}/origin=EWR"), ("flights.departures", f"day={broken}"),
        ("flights.weekly_delays", ""),
    }  # fmt: skip
    assert found == expected


def test_two_daemons_by_mistake_build_nothing_twice_at_once_and_forget_nothing(
    project: Project, tmp_path: Path
) -> None:
    deployed = start(project, "twice", tmp_path / "home").having(backoff_seconds=1)
    three = days(FIRST, 3)
    logs = [tmp_path / "one.log", tmp_path / "other.log"]
    deployed.send_flights(*three)
    deployed.send_weather(*three)
    with ExitStack() as both:
        for log in logs:
            both.enter_context(service(deployed, log, "dagster-daemon", "run", "-w", "workspace.yaml"))
        wait_until(lambda: is_quiet(deployed, len(three)), seconds=500, what="nothing was left to do", log=logs[0])
    current = {
        name: set(deployed.current(name)) for name in ("flights.departures", "flights.weather", "flights.delays")
    }
    assert current == {
        "flights.departures": {f"day={day}" for day in three},
        "flights.weather": {f"hour={hour}" for day in three for hour in hours_of(day)},
        "flights.delays": {f"day={day}/origin={origin}" for day in three for origin in ("EWR", "JFK", "LGA")},
    }
    with deployed.catalog() as catalog:
        assert catalog.connection.execute(_OVERLAPS).fetchall() == []


def start(project: Project, name: str, home: Path) -> Project:
    """New databases, with all sensors on."""
    deployed = project.with_databases(name).with_dagster_home(home).having(content_hash=ContentHash.ALWAYS)
    started = deployed.run("-m", "dagster", "sensor", "start", "--start-all", "-w", "workspace.yaml")
    assert started.code == 0, started.output
    return deployed


def departures(project: Project) -> dict[str, int]:
    """The days there are and their rows."""
    return {path: batch.rows for path, batch in project.current("flights.departures").items()}


def statuses(project: Project) -> Counter[DagsterRunStatus]:
    with project.dagster() as instance:
        return Counter(run.status for run in instance.get_runs())


def is_quiet(project: Project, files: int) -> bool:
    """Whether so many days were taken, and no partition is due, in flight, failed or about to change."""
    if len(departures(project)) < files or not set(statuses(project)) <= _ENDED:
        return False
    with project.catalog() as catalog, project.dagster() as instance:
        facts, members = looked_up(graph, catalog.connection, instance, PROJECT.settings)
        plan = reconcile(graph, facts, now=dt.datetime.now(dt.UTC), members=members)
    judged = [one for each in plan.judgements.values() for one in each.values()]
    return all(one.state in {State.CURRENT, State.WAITING, State.MISSING} and not one.pending for one in judged)


def contents(project: Project) -> dict[tuple[str, str], str | None]:
    """The content hash of every partition in the lake; of every view of the warehouse that of the rows it shows."""
    lake = [name for name, dataset in graph.datasets.items() if dataset.store == StoreKind.LAKE]
    found = {(name, path): batch.content for name in lake for path, batch in project.current(name).items()}
    assert None not in found.values()
    with project.catalog() as catalog:
        for name in set(graph.datasets) - set(lake):
            if project.current(name):
                rows = sql.SQL("select md5(string_agg(t::text, chr(10) order by t::text)) from {} t").format(
                    sql.Identifier(*name.split("."))
                )
                found[name, ""] = catalog.connection.execute(rows).fetchone()[0]
    return found
