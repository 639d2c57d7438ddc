"""Files arrive and everything that follows happens by itself: the sensors alone, and under Dagster's real daemon."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from dagster import DagsterRun, DagsterRunStatus, RunsFilter
from rich.console import Console

from assets.flights import DELAYS, DEPARTURES, WEATHER
from pipeline_defs.definitions import graph
from tests.e2e.project import days, flights, hours_of, service, wait_until
from tests.support.project import PROJECT
from varve.catalog.planning.facts import CatalogFacts, living
from varve.catalog.rejected import RejectedArrivals
from varve.cli.batches import doctor
from varve.cli.plan import heat, why
from varve.cli.servers import services
from varve.dagster.automation.arrival_checks import arrival_check
from varve.dagster.automation.report import listed
from varve.dagster.automation.report import look as look_at_all
from varve.dagster.automation.sensors import REASON_TAG, arrival_sensor, downstream_sensor
from varve.model.batch import Input, StagedBatch
from varve.planning.judgement.judgement import State
from varve.planning.reconcile import reconcile
from varve.planning.requested import FULL_REASON_TAG, RANGE_END_TAG, RANGE_START_TAG
from varve.planning.run_requests import landing_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.e2e.project import Project
    from varve.catalog.catalog import Catalog
    from varve.model.dataset import Dataset

FIRST = dt.date(2013, 4, 1)
ORIGINS = ("EWR", "JFK", "LGA")


@pytest.fixture
def sensing(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """An empty catalog and landing folder, which this process' sensors look at."""
    found = project.with_databases(f"sensing_{uuid.uuid4().hex[:8]}")
    with found.here():
        monkeypatch.setenv("VARVE_BACKOFF_SECONDS", "0")
        yield found
        monkeypatch.undo()


def look(sensor: dg.SensorDefinition, cursor: str | None = None) -> tuple[list[dg.RunRequest], str | None]:
    """One tick: the runs asked for and the new cursor."""
    with dg.DagsterInstance.ephemeral() as instance, dg.build_sensor_context(instance, cursor=cursor) as context:
        result = sensor(context)
    if isinstance(result, dg.SkipReason):
        assert "Nothing was looked at" not in str(result.skip_message)
        return [], None
    assert isinstance(result, dg.SensorResult), result
    return list(result.run_requests or []), result.cursor


def arrivals(cursor: str | None = None) -> tuple[list[dg.RunRequest], str]:
    """One tick of the arrival sensor."""
    requests, after = look(arrival_sensor(graph, PROJECT), cursor)
    assert after is not None
    return requests, after


def downstream() -> list[dg.RunRequest]:
    """One tick of the downstream sensor."""
    return look(downstream_sensor(graph, PROJECT))[0]


def key_of(request: dg.RunRequest) -> str | tuple[str, str]:
    """The partition asked for, or the ends of the range."""
    return request.partition_key or (request.tags[RANGE_START_TAG], request.tags[RANGE_END_TAG])


def publish(catalog: Catalog, dataset: Dataset, inputs: dict[str, set[Input]]) -> None:
    """What a run leaves in the catalog, without the data."""
    keys = [dataset.partitioning.from_dagster(key) for key in inputs]
    build = catalog.begin(dataset, keys, run_id=str(uuid.uuid4()), code_version="")
    build.inputs = dict(zip(keys, inputs.values(), strict=True))
    catalog.staged(build, [StagedBatch(key, "/nowhere", 1, 1, 1) for key in keys])
    catalog.publish(build)
    catalog.release(build)


def publish_arrived(project: Project, dataset: Dataset) -> None:
    """Publish every partition of the dataset from the file that has arrived for it."""
    with project.catalog() as catalog:
        for path, fingerprint in catalog.arrivals(dataset.name).items():
            key = dataset.partitioning.to_dagster(dataset.partitioning.from_path(path))
            publish(catalog, dataset, {key: {Input(landing_source(dataset), path, fingerprint)}})


def fail(project: Project, dataset: Dataset, key: str) -> None:
    """What a run that fails leaves in the catalog."""
    with project.catalog() as catalog:
        build = catalog.begin(dataset, [dataset.partitioning.from_dagster(key)], run_id="failing", code_version="")
        catalog.fail(build, "a test failed it")


def test_a_file_that_arrives_is_asked_for_and_the_cursor_says_who_was_looked_at(sensing: Project) -> None:
    sensing.send_flights(FIRST)
    before = time.time()
    requests, cursor = arrivals()
    assert [key_of(request) for request in requests] == [str(FIRST)]
    assert requests[0].asset_selection == [dg.AssetKey(["flights", "departures"])]
    assert (requests[0].tags[REASON_TAG], requests[0].tags[FULL_REASON_TAG]) == (
        "arrived",
        f"{FIRST}: departures arrived",
    )
    looked = json.loads(cursor)
    assert set(looked) == {"flights.departures", "flights.weather", "flights.fleet"}
    assert all(before <= at <= time.time() for at in looked.values())


@pytest.mark.parametrize("cursor", [None, '{"flights.departures": [4000000000.0, "2014-01-01"]}', "damaged"])
def test_no_cursor_hides_a_file_however_old_its_time(sensing: Project, cursor: str | None) -> None:
    (file,) = sensing.send_flights(FIRST)
    os.utime(file, (1_000, 1_000))
    requests, _ = arrivals(cursor)
    assert [key_of(request) for request in requests] == [str(FIRST)]


def test_a_look_without_news_asks_under_the_same_key(sensing: Project) -> None:
    sensing.send_flights(FIRST)
    first, cursor = arrivals()
    again, _ = arrivals(cursor)
    # Dagster starts one run for one key, however often it is asked for.
    assert [request.run_key for request in again] == [request.run_key for request in first]


def test_a_file_of_an_unknown_partition_is_reported_and_skipped(
    sensing: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    (file,) = sensing.send_flights(FIRST)
    stray, outside = file.with_name("notes.csv"), file.with_name("2015-01-01.csv")
    for unknown in (stray, outside):
        unknown.write_bytes(file.read_bytes())
    requests, cursor = arrivals()
    assert [key_of(request) for request in requests] == [str(FIRST)]
    said = capfd.readouterr().err
    assert f"{stray} is not taken (no key): 'notes' is no key of dimension day" in said
    assert f"{outside} is not taken (outside): '2015-01-01' lies outside dimension day" in said
    arrivals(cursor)
    # Said once, and kept until it goes.
    assert "is not taken" not in capfd.readouterr().err
    assert rejected(sensing) == {stray.name: "no key", outside.name: "outside"}
    stray.unlink()
    outside.rename(outside.with_name("2013-04-03.csv"))
    requests, _ = arrivals(cursor)
    assert {key_of(request) for request in requests} == {str(FIRST), "2013-04-03"}
    assert rejected(sensing) == {}


def test_what_is_rejected_is_shown_by_every_command_and_by_the_check(
    sensing: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    (file,) = sensing.send_flights(FIRST)
    (stray := file.with_name("notes.csv")).write_bytes(file.read_bytes())
    arrivals()
    shown = [heat.heat()["rejected"], services.status()["rejected"], doctor.doctor(None).as_values()["rejected"]]
    for rejections in shown:
        (one,) = rejections
        assert (one["dataset"], one["uri"], one["kind"]) == ("flights.departures", str(stray), "no key")
        assert "'notes' is no key of dimension day" in one["reason"]
    (finding,) = doctor.doctor(None).findings
    assert str(stray) in finding.problem
    heat.show(Console(), heat.heat())
    assert f"rejected (no key): flights.departures {stray}" in " ".join(capfd.readouterr().out.split())
    (check,) = [each for each in (arrival_check(DEPARTURES, PROJECT)(),) if isinstance(each, dg.AssetCheckResult)]
    assert not check.passed
    assert str(stray) in str(check.metadata)
    with dg.DagsterInstance.ephemeral() as instance:
        assert "notes.csv" in listed(look_at_all(graph, instance, PROJECT.settings)[1])
    stray.unlink()
    arrivals()
    assert heat.heat()["rejected"] == []


def test_what_no_sensor_has_looked_at_yet_is_shown_by_the_plan(
    sensing: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    sensing.send_flights(FIRST)
    (seen,) = heat.heat()["unseen"]
    key = f"day={FIRST}"
    assert seen == {"dataset": "flights.departures", "partitions": 1, "files": 1, "first": key, "last": key}
    heat.show(Console(), heat.heat())
    told = " ".join(capfd.readouterr().out.split())
    assert f"arrived: flights.departures {key}: 1 file that the sensor arrivals takes at its next look" in told
    taken_next = f"{FIRST}.csv arrived: the sensor arrivals takes it at its next look, if it is switched on"
    assert why.why("flights.departures", [key])["reason"] == taken_next
    nothing = "nothing has arrived for it that the sensor arrivals has seen"
    assert why.why("flights.departures", ["day=2013-01-02"])["reason"] == nothing
    arrivals()
    assert heat.heat()["unseen"] == []
    assert why.why("flights.departures", [key])["reason"] == "departures arrived"
    # A folder that cannot be listed hides nothing else: the sensor's look at it says so.
    folder = Path(sensing.settings.landing) / "flights" / "departures"
    moved = folder.rename(folder.with_name("departures_moved"))
    folder.write_text("no folder")
    assert heat.heat()["unseen"] == []
    folder.unlink()
    moved.rename(folder)


def test_a_partition_that_is_none_yet_is_explained(sensing: Project) -> None:
    del sensing
    said = why.why("flights.departures", ["day=2013-04-02"])
    assert (said["not_there"], said["rejected"], said["left_out"]) == ("", [], [])


def test_a_bad_file_is_rejected_until_it_is_mended(sensing: Project) -> None:
    good, bad = sensing.send_flights(FIRST, FIRST + dt.timedelta(days=4))
    whole = bad.read_bytes()
    bad.write_bytes(whole[:-5])
    requests, cursor = arrivals()
    assert [key_of(request) for request in requests] == [good.stem]
    assert rejected(sensing) == {bad.name: "content"}
    bad.write_bytes(whole)
    requests, _ = arrivals(cursor)
    assert {key_of(request) for request in requests} == {good.stem, bad.stem}
    assert rejected(sensing) == {}


def test_a_file_that_was_taken_and_is_then_replaced_by_a_bad_one_meets_no_run(sensing: Project) -> None:
    (file,) = sensing.send_flights(FIRST)
    requests, cursor = arrivals()
    assert [key_of(request) for request in requests] == [str(FIRST)]
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    requests, cursor = arrivals(cursor)
    assert requests == []
    assert rejected(sensing) == {file.name: "content"}
    file.write_bytes(whole)
    assert [key_of(request) for request in arrivals(cursor)[0]] == [str(FIRST)]


def test_a_file_that_goes_before_it_is_run_is_not_asked_for_any_more(sensing: Project) -> None:
    first, second = sensing.send_flights(FIRST, FIRST + dt.timedelta(days=4))
    _, cursor = arrivals()
    first.unlink()
    requests, cursor = arrivals(cursor)
    assert [key_of(request) for request in requests] == [second.stem]
    # What was made of a file stays when the file goes.
    publish_arrived(sensing, DEPARTURES)
    second.unlink()
    assert arrivals(cursor)[0] == []
    with sensing.catalog() as catalog:
        assert set(catalog.arrivals("flights.departures")) == {f"day={second.stem}"}


def rejected(project: Project) -> dict[str, str]:
    """What arrived and is not taken: the file's name, and why."""
    with project.catalog() as catalog:
        return {one.uri.rsplit("/", 1)[-1]: str(one.kind) for _, one in RejectedArrivals(catalog.connection).all()}


def test_the_same_content_sent_again_asks_for_nothing(sensing: Project) -> None:
    (file,) = sensing.send_flights(FIRST)
    _, cursor = arrivals()
    publish_arrived(sensing, DEPARTURES)
    assert arrivals(cursor)[0] == []
    beside = file.with_suffix(".again")
    beside.write_bytes(file.read_bytes())
    beside.replace(file)
    assert arrivals(cursor)[0] == []


def test_other_content_is_asked_for_under_another_key(sensing: Project) -> None:
    sensing.send_flights(FIRST)
    (first,), cursor = arrivals()
    publish_arrived(sensing, DEPARTURES)
    sensing.send_flights(FIRST, keep=100)
    (again,), _ = arrivals(cursor)
    assert key_of(again) == str(FIRST)
    assert again.run_key != first.run_key
    assert (again.tags[REASON_TAG], again.tags[FULL_REASON_TAG]) == ("re-sent", f"{FIRST}: departures re-sent")


def test_neighbouring_partitions_are_one_run_over_a_range(sensing: Project) -> None:
    sensing.send_flights(*days(FIRST, 3), FIRST + dt.timedelta(days=5))
    sensing.send_weather(FIRST)
    requests, _ = arrivals()
    listed = hours_of(FIRST)
    assert {key_of(request) for request in requests} == {
        ("2013-04-01", "2013-04-03"), "2013-04-06", (listed[0], listed[-1]),
    }  # fmt: skip
    assert all(request.partition_key is None for request in requests if RANGE_START_TAG in request.tags)


def test_a_file_that_is_still_being_written_waits(sensing: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    (file,) = sensing.send_flights(FIRST)
    file.rename(file.with_suffix(".csv.part"))
    assert arrivals()[0] == []
    sensing.send_flights(FIRST)
    monkeypatch.setenv("VARVE_SETTLE_SECONDS", "3600")
    requests, cursor = arrivals()
    assert requests == []
    monkeypatch.setenv("VARVE_SETTLE_SECONDS", "0")
    assert [key_of(request) for request in arrivals(cursor)[0]] == [str(FIRST)]


def test_a_partition_is_given_up_after_so_many_failures(sensing: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VARVE_ATTEMPTS", "3")
    sensing.send_flights(FIRST)
    cursor, keys = None, set()
    for _ in range(3):
        (request,), cursor = arrivals(cursor)
        keys.add(request.run_key)
        fail(sensing, DEPARTURES, str(FIRST))
    # Each attempt has a key of its own, or Dagster would swallow it.
    assert len(keys) == 3
    assert arrivals(cursor)[0] == []


def test_a_corrected_file_is_asked_for_although_the_former_was_given_up(
    sensing: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VARVE_ATTEMPTS", "2")
    sensing.send_flights(FIRST)
    _, cursor = arrivals()
    for _ in range(2):
        fail(sensing, DEPARTURES, str(FIRST))
    assert arrivals(cursor)[0] == []
    sensing.send_flights(FIRST, keep=100)
    assert [key_of(request) for request in arrivals(cursor)[0]] == [str(FIRST)]


def publish_day(project: Project, hours: Iterable[str]) -> None:
    """Departures of the first day and the weather of these hours, as runs leave them in the catalog."""
    with project.catalog() as catalog:
        publish(catalog, DEPARTURES, {str(FIRST): set()})
        publish(catalog, WEATHER, {hour: set() for hour in hours})


def test_what_is_downstream_waits_for_all_of_its_inputs(sensing: Project) -> None:
    listed = hours_of(FIRST)
    publish_day(sensing, listed[:-1])
    assert downstream() == []
    with sensing.catalog() as catalog:
        publish(catalog, WEATHER, {listed[-1]: set()})
    assert [key_of(request) for request in downstream()] == [(f"{FIRST}|EWR", f"{FIRST}|LGA")]


def test_what_is_downstream_is_given_up_until_an_input_is_published_anew(
    sensing: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VARVE_ATTEMPTS", "1")
    publish_day(sensing, hours_of(FIRST))
    for origin in ORIGINS:
        fail(sensing, DELAYS, f"{FIRST}|{origin}")
    assert downstream() == []
    with sensing.catalog() as catalog:
        publish(catalog, DEPARTURES, {str(FIRST): set()})
    assert [key_of(request) for request in downstream()] == [(f"{FIRST}|EWR", f"{FIRST}|LGA")]


def test_a_sensor_without_its_database_says_so_and_asks_for_nothing(
    sensing: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VARVE_POSTGRES_URL", "postgresql://nobody@127.0.0.1:1/nowhere")
    with dg.DagsterInstance.ephemeral() as instance, dg.build_sensor_context(instance) as context:
        result = arrival_sensor(graph, PROJECT)(context)
    assert isinstance(result, dg.SkipReason)
    assert "PostgreSQL (VARVE_POSTGRES_URL) cannot be reached" in str(result.skip_message)


class TestDaemon:
    """The real daemon, its code server and the runs it launches; a tick comes every 30 seconds."""

    def test_files_become_tables_and_a_corrected_file_changes_exactly_what_reads_it(
        self, project: Project, tmp_path: Path
    ) -> None:
        deployed = project.with_databases("daemon").with_dagster_home(tmp_path / "dagster")
        log = tmp_path / "daemon.log"
        deployed.send_flights(FIRST)
        deployed.send_weather(FIRST)
        half = Path(deployed.settings.landing) / "flights" / "departures" / "2013-04-02.csv.part"
        half.write_text("dep_time,sched_dep", encoding="utf-8")
        started = deployed.run("-m", "dagster", "sensor", "start", "--start-all", "-w", "workspace.yaml")
        assert started.code == 0, started.output

        with service(deployed, log, "dagster-daemon", "run", "-w", "workspace.yaml"):
            wait_until(
                lambda: _delays_follow(deployed, rows=len(flights(FIRST))),
                seconds=300, what="the day's delays were published", log=log,
            )  # fmt: skip
            before = _all_current(deployed)
            assert before["flights.departures"][f"day={FIRST}"].rows == len(flights(FIRST))
            assert set(before["flights.weather"]) == {f"hour={hour}" for hour in hours_of(FIRST)}
            assert before["flights.weekly_delays"] == {}

            deployed.send_flights(FIRST, keep=500)
            wait_until(
                lambda: _delays_follow(deployed, rows=500),
                seconds=300, what="the corrected file reached the day's delays", log=log,
            )  # fmt: skip
            wait_until(lambda: _runs(deployed)[1] == 0, seconds=120, what="no run was left", log=log)
            after = _all_current(deployed)
            statuses, _ = _runs(deployed)

        changed = {(name, path) for name in after for path in _changed(before[name], after[name])}
        assert changed == {
            ("flights.departures", f"day={FIRST}"), *(("flights.delays", f"day={FIRST}/origin={o}") for o in ORIGINS),
        }  # fmt: skip
        # Departures, weather, delays; departures and delays again. The half-written file was never taken.
        assert statuses == Counter({DagsterRunStatus.SUCCESS: 5})
        with deployed.catalog() as catalog:
            assert set(catalog.arrivals("flights.departures")) == {f"day={FIRST}"}

    @pytest.mark.slow
    def test_a_killed_daemon_forgets_nothing_and_builds_nothing_twice(self, project: Project, tmp_path: Path) -> None:
        deployed = project.with_databases("killed").with_dagster_home(tmp_path / "dagster").having(backoff_seconds=1)
        log, three = tmp_path / "daemon.log", days(FIRST, 3)
        deployed.send_flights(three[2], three[0])
        (broken,) = deployed.send_flights(three[1])
        broken.write_text(broken.read_text(encoding="utf-8").rstrip("\n") + "\nnot,a,row\n", encoding="utf-8")
        deployed.send_weather(*reversed(three))
        started = deployed.run("-m", "dagster", "sensor", "start", "--start-all", "-w", "workspace.yaml")
        assert started.code == 0, started.output

        with service(deployed, log, "dagster-daemon", "run", "-w", "workspace.yaml") as daemon:
            wait_until(lambda: _building(deployed), seconds=200, what="a run was building", log=log)
            # With its code server and its runs, in the middle of a build.
            os.killpg(daemon.pid, signal.SIGKILL)
        with service(deployed, log, "dagster-daemon", "run", "-w", "workspace.yaml"):
            wait_until(
                lambda: len(deployed.current("flights.departures")) >= 2,
                seconds=300, what="the files beside the broken one were taken", log=log,
            )  # fmt: skip
            deployed.send_flights(three[1])
            wait_until(
                lambda: len(deployed.current("flights.delays")) == 9, seconds=400, what="all delays were there", log=log
            )
            wait_until(lambda: _runs(deployed)[1] == 0, seconds=200, what="no run was left", log=log)

        current = _all_current(deployed)
        assert {path: batch.rows for path, batch in current["flights.departures"].items()} == {
            f"day={day}": len(flights(day)) for day in three
        }
        with deployed.catalog() as catalog:
            times = catalog.connection.execute(
                "select dataset, partition, count(*) from varve.publication group by 1, 2"
            )
            assert {(name, path): count for name, path, count in times if count > 1} == {}
            plan = reconcile(
                graph, CatalogFacts(catalog.connection), now=dt.datetime.now(dt.UTC), members={"carriers": ()}
            )
        judged = {one.state for name in graph.datasets for one in plan.judgements[name].values()}
        # The week waits for its other days.
        assert judged == {State.CURRENT, State.WAITING}

    @pytest.mark.slow
    def test_runs_that_died_in_their_first_moments_hold_no_place_and_no_partition(
        self, project: Project, tmp_path: Path
    ) -> None:
        deployed = project.with_databases("early").with_dagster_home(tmp_path / "dagster")
        deployed = deployed.having(lease_seconds=10, backoff_seconds=1)
        log, (first, second) = tmp_path / "daemon.log", days(FIRST, 2)
        deployed.send_flights(first)
        started = deployed.run("-m", "dagster", "sensor", "start", "--start-all", "-w", "workspace.yaml")
        assert started.code == 0, started.output
        with deployed.dagster() as instance:
            # As many as the queue has places, of a machine that was lost before they could say anything.
            dead = [instance.add_run(DagsterRun("lost", status=DagsterRunStatus.STARTED)) for _ in range(4)]

        with service(deployed, log, "dagster-daemon", "run", "-w", "workspace.yaml") as daemon:
            wait_until(
                lambda: f"day={first}" in deployed.current("flights.departures"),
                seconds=200, what="there was a place for the first day", log=log,
            )  # fmt: skip
            with deployed.dagster() as instance:
                assert {run.status for run in instance.get_runs(RunsFilter([run.run_id for run in dead]))} == {
                    DagsterRunStatus.FAILURE
                }
            deployed.send_flights(second)
            wait_until(lambda: _starting(deployed), seconds=100, what="the run of the second day was launched", log=log)
            # With its code server, which would have told of it.
            os.killpg(daemon.pid, signal.SIGKILL)
        with service(deployed, log, "dagster-daemon", "run", "-w", "workspace.yaml"):
            wait_until(
                lambda: f"day={second}" in deployed.current("flights.departures"),
                seconds=200, what="the second day was published", log=log,
            )  # fmt: skip
            wait_until(lambda: _runs(deployed)[1] == 0, seconds=100, what="no run was left", log=log)


def _starting(project: Project) -> bool:
    with project.dagster() as instance:
        return bool(instance.get_runs(RunsFilter(statuses=[DagsterRunStatus.STARTING])))


def _building(project: Project) -> bool:
    """Whether a run holds the lock of a partition, and no other is between its launch and its first lock."""
    with project.catalog() as catalog:
        building = bool(living(catalog.connection))
    with project.dagster() as instance:
        statuses = {run.status for run in instance.get_runs()}
    return building and DagsterRunStatus.STARTING not in statuses


def _changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}


def _all_current(project: Project) -> dict[str, dict[str, Any]]:
    with project.catalog() as catalog:
        return {name: dict(catalog.current(name)) for name in graph.datasets}


def _delays_follow(project: Project, *, rows: int) -> bool:
    """Whether all delays of the day are made from a batch of departures with so many rows."""
    current = _all_current(project)
    departures = current["flights.departures"].get(f"day={FIRST}")
    delays = current["flights.delays"].values()
    if departures is None or departures.rows != rows or len(delays) != len(ORIGINS):
        return False
    made_from = Input("flights.departures", f"day={FIRST}", str(departures.batch_id))
    return all(made_from in batch.inputs for batch in delays)


def _runs(project: Project) -> tuple[Counter[DagsterRunStatus], int]:
    """The daemon's runs by status, and how many of them have not ended."""
    with project.dagster() as instance:
        statuses = Counter(run.status for run in instance.get_runs())
    return statuses, sum(count for status, count in statuses.items() if status not in _ENDED)


_ENDED = {DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED}
