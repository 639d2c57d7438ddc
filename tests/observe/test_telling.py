"""Runs that end without a word: whoever finds them tells of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.catalog.test_planning import DAILY, GRAPH, begin, day, finish
from tests.observe.openlineage import problems
from varve.catalog.catalog import Catalog
from varve.catalog.living.killed_builds import KilledBuild, KilledBuilds
from varve.dagster.runs.builds.telling import Telling, tell_killed
from varve.observe.lineage.moves import tell_moves
from varve.planning.graph import Graph
from varve.stores.open_build import OpenBuild

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from varve.model.batch import BatchId
    from varve.services.settings import Settings

RUN = "0b0e2a52-4a1c-4d2e-9c35-54ac5f2a1c11"


def found_by_a_tick_or_a_sweep(catalog: Catalog) -> None:
    assert KilledBuilds(catalog.connection).fail() == 2


def found_by_a_rerun(catalog: Catalog) -> None:
    catalog.release(catalog.begin(DAILY, [day(1), day(2)], run_id="rerun", code_version="c1"))


@pytest.mark.parametrize("found", [found_by_a_tick_or_a_sweep, found_by_a_rerun])
def test_a_killed_run_is_told_as_failed_once_whoever_has_found_it(
    settings: Settings, fresh_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    found: Callable[[Catalog], None],
) -> None:  # fmt: skip
    sent = tmp_path / "events"
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(sent))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        catalog = Catalog(connection)
        catalog.ensure_schema()
        with psycopg.connect(fresh_database, autocommit=True) as killed:
            build = Catalog(killed).begin(DAILY, [day(1), day(2)], run_id=RUN, code_version="c1")
            telling = Telling(GRAPH, settings)
            telling.began(OpenBuild(build, Catalog(killed)))
            telling.close()
            tell_killed(GRAPH, connection, settings)
            assert [json.loads(line)["eventType"] for line in sent.read_text().splitlines()] == ["START", "START"]
        while catalog.in_flight(DAILY.name):
            # Its session ends a moment after its connection.
            connection.execute("select pg_sleep(0.05)")
        found(catalog)
        # Without a receiver, and with none of its datasets, nobody has told.
        tell_killed(Graph({}, {}, {}), connection, settings)
        with monkeypatch.context() as patched:
            patched.setenv("OPENLINEAGE_DISABLED", "true")
            tell_killed(GRAPH, connection, settings)
        KilledBuilds(catalog.connection).forget_old()
        for _ in range(2):
            tell_killed(GRAPH, connection, settings)
    events = [json.loads(line) for line in sent.read_text(encoding="utf-8").splitlines()]
    assert [event["eventType"] for event in events] == ["START", "START", "FAIL", "FAIL"]
    assert [event["run"]["runId"] for event in events[:2]] == [event["run"]["runId"] for event in events[2:]]
    assert "killed" in events[-1]["run"]["facets"]["errorMessage"]["message"]
    assert [problem for event in events for problem in problems(event)] == []


def test_who_dies_while_he_tells_of_a_killed_run_leaves_it_to_another_and_nobody_tells_beside_him(
    fresh_database: str,
) -> None:
    with (
        psycopg.connect(fresh_database, autocommit=True) as first,
        psycopg.connect(fresh_database, autocommit=True) as second,
    ):
        catalog = Catalog(first)
        catalog.ensure_schema()
        with psycopg.connect(fresh_database, autocommit=True) as killed:
            build = Catalog(killed).begin(DAILY, [day(1), day(2)], run_id=RUN, code_version="c1")
        while catalog.in_flight(DAILY.name):
            first.execute("select pg_sleep(0.05)")
        assert KilledBuilds(second).fail() == 2
        expected = [(DAILY.name, build.batch_id, [day(1).path, day(2).path])]

        def told(builds: list[KilledBuild]) -> list[tuple[str, BatchId, list[str]]]:
            return [(each.dataset, each.batch_id, list(each.paths)) for each in builds]

        def dies_while_telling() -> None:
            with KilledBuilds(first).untold([DAILY.name]) as builds:
                assert told(builds) == expected
                with KilledBuilds(second).untold([DAILY.name]) as beside:
                    assert beside == []
                raise RuntimeError

        with pytest.raises(RuntimeError):
            dies_while_telling()
        with KilledBuilds(second).untold([DAILY.name]) as builds:
            assert told(builds) == expected
        with KilledBuilds(first).untold([DAILY.name]) as builds:
            assert builds == []


def test_a_killed_run_of_which_nobody_has_told_for_long_is_forgotten(fresh_database: str) -> None:
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        catalog = Catalog(connection)
        catalog.ensure_schema()
        catalog.connection.execute(
            "insert into varve.killed (dataset, partition, batch_id, noted_at) "
            "values ('p.daily', 'day=1', 1, now() - interval '8 days'), ('p.daily', 'day=1', 2, now())"
        )
        KilledBuilds(catalog.connection).forget_old()
        assert connection.execute("select batch_id from varve.killed").fetchall() == [(2,)]


def test_what_is_rolled_back_and_withdrawn_is_told(
    settings: Settings, fresh_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = tmp_path / "events"
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(sent))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        catalog = Catalog(connection)
        catalog.ensure_schema()
        keys, builds = (day(1), day(2)), []
        for _ in range(2):
            builds.append(begin(catalog, DAILY, *keys))
            finish(catalog, builds[-1])
        first, second = [build.batch_id for build in builds]
        build = catalog.lock_partitions(DAILY, keys, run_id="rollback-1 by ann")
        targets = {day(1): first}
        with connection.transaction():
            catalog.repoint(build, targets, reason="by mistake", at=catalog.instant())
        catalog.release(build)
        tell_moves(GRAPH, connection, settings.project, "rollback-1 by ann")
    events = [json.loads(line) for line in sent.read_text(encoding="utf-8").splitlines()]
    told = [event["run"]["facets"]["varve_partition"] for event in events]
    assert [(facet["partition"], facet["publish"], facet["replaced"] == str(second)) for facet in told] == [
        (day(1).path, "rolled back", True), (day(2).path, "withdrawn", True),
    ]  # fmt: skip
    assert events[0]["outputs"][0]["facets"]["version"]["datasetVersion"] == str(first)
    assert "version" not in events[1]["outputs"][0]["facets"]
    # The event of what became current has its batch everywhere, and that of a partition without one the batch it had.
    assert [facet["batchId"] for facet in told] == [str(first), str(second)]
    outputs = [event["outputs"][0]["outputFacets"]["subset"]["outputCondition"]["partitions"] for event in events]
    assert [partition["identifier"] for (partition,) in outputs] == [str(first), str(second)]
    assert len({event["run"]["runId"] for event in events}) == 2
    assert {event["eventType"] for event in events} == {"COMPLETE"}
    assert [problem for event in events for problem in problems(event)] == []
