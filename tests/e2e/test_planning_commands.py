"""`varve why`, `plan` and `backfill` as a user types them, on a catalog that runs have left behind."""

from __future__ import annotations

import datetime as dt
import re
import uuid
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from assets.flights import DELAYS, DEPARTURES, WEATHER, WEEKLY_DELAYS
from pipeline_defs.definitions import graph
from tests.e2e.project import hours_of
from varve.cli.app import app
from varve.dagster.instance import dagster_home
from varve.model.batch import Input, StagedBatch
from varve.model.errors import VarveError

if TYPE_CHECKING:
    from tests.e2e.project import Project
    from varve.catalog.catalog import Catalog
    from varve.model.dataset import Dataset

FIRST = dt.date(2013, 1, 1)
ORIGINS = ("EWR", "JFK", "LGA")

pytestmark = pytest.mark.slow


def publish(catalog: Catalog, dataset: Dataset, keys: list[str]) -> None:
    """What a run leaves in the catalog, without the data."""
    listed = [dataset.partitioning.from_dagster(key) for key in keys]
    build = catalog.begin(dataset, listed, run_id=str(uuid.uuid4()), code_version="")
    for key in listed:
        for edge in graph.edges[dataset.name]:
            wanted = edge.dependency.upstream_of(key).keys
            for path, batch in catalog.current(edge.upstream.name, wanted).items():
                build.reads(key, Input(edge.upstream.name, path, str(batch.batch_id)))
    catalog.staged(build, [StagedBatch(key, "/nowhere", 1, 1, 1) for key in listed])
    catalog.publish(build)
    catalog.release(build)


@pytest.fixture(scope="module")
def left(project: Project) -> Project:
    """The first day, whole; of the second its departures only."""
    found = project.with_databases(f"planned_{uuid.uuid4().hex[:8]}")
    with found.catalog() as catalog:
        publish(catalog, DEPARTURES, ["2013-01-01", "2013-01-02"])
        publish(catalog, WEATHER, hours_of(FIRST))
        publish(catalog, DELAYS, [f"{FIRST}|{origin}" for origin in ORIGINS])
    return found


def test_why_says_what_a_partition_waits_for_and_what_it_is_made_from(left: Project) -> None:
    current = left.varve_json("why", "flights.delays", "day=2013-01-01", "origin=EWR")
    assert (current["state"], len(current["reads"]), len(current["made_from"])) == ("current", 25, 25)
    waiting = left.varve("why", "flights.delays", "day=2013-01-02", "origin=EWR")
    assert waiting.code == 0, waiting.output
    assert "flights.weather: 0 of 24 there; waits for 24" in waiting.told
    unknown = left.varve("why", "flights.delays", "day=2015-01-02", "origin=EWR")
    assert unknown.code == 1
    assert "'2015-01-02' lies outside dimension day" in unknown.told


def test_show_says_which_of_what_a_partition_reads_is_there(left: Project) -> None:
    shown = left.varve("show", "flights.delays", "day=2013-01-02", "origin=EWR")
    assert shown.code == 0, shown.output
    assert re.search(r"- flights\.departures/day=2013-01-02 +batch \d+", shown.told)
    assert re.search(r"- flights\.weather/hour=2013-01-02T05 +missing", shown.told)


def test_plan_counts_every_dataset_by_state(left: Project) -> None:
    found = {one["dataset"]: one["states"] for one in left.varve_json("plan")["datasets"]}
    assert found["flights.delays"]["current"] == 3
    assert found["flights.weekly_delays"]["waiting"] == 3
    shown = left.varve("plan")
    assert shown.code == 0, shown.output
    assert "flights.departures" in shown.told


def test_a_backfill_is_planned_started_paused_and_cancelled(left: Project) -> None:
    words = ["backfill", "start", "flights.departures", "--from", "2013-01-01", "--to", "2013-01-01"]
    planned = left.varve_json(*words, "--downstream", "all", "--dry-run")
    assert planned["backfill"] is None
    assert {one["dataset"]: len(one["partitions"]) for one in planned["datasets"]} == {
        DEPARTURES.name: 1, DELAYS.name: 3, WEEKLY_DELAYS.name: 3, "flights.trailing_delay": 21,
    }  # fmt: skip
    assert left.varve_json("backfill", "list") == []
    started = left.varve_json(*words, "--downstream", "flights.delays", "--reason", "wrong clocks")
    number = str(started["backfill"])
    assert (
        left.varve_json("why", "flights.delays", "day=2013-01-01", "origin=EWR")["marks"][0]["reason"] == "wrong clocks"
    )
    assert left.varve("backfill", "pause", number).code == 0
    assert left.varve_json("backfill", "list")[0]["left"] == {DEPARTURES.name: 1, DELAYS.name: 3}
    assert left.varve_json("why", "flights.delays", "day=2013-01-01", "origin=EWR")["state"] == "on hold"
    cancelled = left.varve("backfill", "cancel", number)
    assert "is cancelled; 0 of 4 partitions done" in cancelled.told
    assert left.varve_json("why", "flights.delays", "day=2013-01-01", "origin=EWR")["state"] == "current"
    again = left.varve("backfill", "resume", number)
    assert (again.code, "is cancelled. Nothing was changed" in again.told) == (1, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["flights.nothing"], "no dataset 'flights.nothing'; there are fleet.planes, flights."),
        (["flights.delays", "--from", "2014-06-01"], "'2014-06-01' lies outside dimension day"),
        (["flights.delays", "--from", "2013-01-05", "--to", "2013-01-02"], "has no partition in that range"),
        (["flights.delays", "carrier=AA"], "has no column carrier; its columns are day, origin"),
        (["flights.delays", "--to", "2013-01-01", "--downstream", "flights.weather"], "not downstream of what is"),
        (["flights.delays", "--downstream", "flights.nothing"], "no dataset flights.nothing"),
    ],
)  # fmt: skip
def test_a_backfill_of_what_is_not_there_is_refused_in_words(
    left: Project, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    # The command sets them; here they must go again.
    monkeypatch.setenv("DAGSTER_HOME", str(dagster_home(left.settings)))
    monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", "100")
    with left.here():
        done = CliRunner().invoke(app, ["backfill", "start", *words, "--dry-run"])
    assert isinstance(done.exception, VarveError), done.output
    assert said in str(done.exception)
