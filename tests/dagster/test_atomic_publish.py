"""Runs that publish all their datasets at once: at one instant for every reader, or nothing of the run."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import dagster as dg
import psycopg
import pytest
from dagster._core.definitions.reconstruct import build_reconstructable_job  # noqa: TID251 - runs again from a failure
from pyspark.sql import DataFrame

from tests.dagster import group_run
from tests.dagster.group_run import FAILING, KILLING, TABLES, VERSION
from tests.stores.warehouse.test_retries import without_spark
from tests.support.project import ROOT
from varve.catalog.history.history import History
from varve.dagster.partitions.definitions import dataset_partitions_def
from varve.dagster.runs import atomic_publish
from varve.model.errors import MissingUpstream, VarveError
from varve.services.postgres import warehouse_url

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.workbench import Workbench
    from varve.catalog.catalog import Catalog
    from varve.model.dataset import Dataset
    from varve.services.settings import Settings
    from varve.stores.store import Store


@pytest.fixture
def db(workbench: Workbench) -> str:
    del workbench
    return f"g{uuid.uuid4().hex[:8]}"


def run(db: str, version: int, monkeypatch: pytest.MonkeyPatch, **tags: str | None) -> dg.ExecuteInProcessResult:
    monkeypatch.setenv(VERSION, str(version))
    return group_run.job(db).execute_in_process(tags=group_run.tags(**tags), raise_on_error=False)


def failure_text(result: dg.ExecuteInProcessResult | dg.JobExecutionResult) -> str:
    return str([event.event_specific_data for event in result.all_events if event.is_step_failure])


def current_batches(workbench: Workbench, db: str) -> dict[str, set[int]]:
    """Return the versions that each dataset shows, read as its readers would read it."""
    catalog = workbench.catalog()
    try:
        versions_by_table = {}
        for name, dataset in group_run.datasets(db).items():
            batches = list(catalog.current(dataset.name).values())
            rows = workbench.store(dataset, catalog).read(dataset, batches).collect()
            assert len(rows) in {0, len(group_run.DAYS)}
            versions_by_table[name] = {row["version"] for row in rows}
        return versions_by_table
    finally:
        catalog.connection.close()


def left_behind(catalog: Catalog, db: str) -> list[tuple[str, ...]]:
    """Return the period tables that belong to no current batch."""
    return catalog.connection.execute(
        "select tablename from pg_tables where schemaname = %s and tablename not in "
        "(select location from varve.current join varve.batch using (dataset, partition, batch_id))",
        (f"{db}_periods",),
    ).fetchall()


@pytest.mark.spark
def test_readers_see_all_datasets_of_a_run_change_at_one_instant(
    workbench: Workbench, settings: Settings, catalog: Catalog, db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(db, 1, monkeypatch).success
    done = threading.Event()
    both = f"select (select max(version) from {db}.shown_first), (select max(version) from {db}.shown_last)"

    def read() -> set[tuple[int, ...]]:
        seen: set[tuple[int, ...]] = set()
        with psycopg.connect(warehouse_url(settings), autocommit=True) as opened:
            while not done.is_set() or not seen:
                seen.update(opened.execute(both.encode()).fetchall())
        return seen

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        try:
            assert run(db, 2, monkeypatch).success
        finally:
            done.set()
        assert reading.result(60) <= {(1, 1), (2, 2)}
    assert current_batches(workbench, db) == {name: {2} for name in TABLES}
    # By the catalog's record of both stores, a reader as of any time sees all of the run or nothing.
    instants = catalog.connection.execute(
        "select count(distinct p.published_at), count(distinct p.dataset) from varve.publication p "
        "where p.dataset like %s group by run_id",
        (f"{db}.%",),
    ).fetchall()
    assert instants == [(1, 3), (1, 3)]
    # The batches were made from what the run itself has staged, not from what was current when it began.
    traced = catalog.connection.execute(
        "select distinct i ->> 2 = c.batch_id::text from varve.current x join varve.batch b "
        "using (dataset, partition, batch_id), jsonb_array_elements(b.inputs) i join varve.current c "
        "on c.dataset = i ->> 0 and c.partition = i ->> 1 where x.dataset like %s",
        (f"{db}.%",),
    ).fetchall()
    assert traced == [(True,)]
    go_back(workbench, db)
    assert current_batches(workbench, db) == {name: {1} for name in TABLES}


@pytest.mark.spark
def test_an_asset_of_ones_own_reads_what_the_run_has_staged(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[int]] = {}
    days, at_once = dataset_partitions_def(group_run.datasets(db)["shown_first"]), dg.BackfillPolicy.single_run()

    @dg.asset(ins={"rows": dg.AssetIn([db, "lake_first"])})
    def of_lake(rows: DataFrame) -> None:
        seen["lake"] = [row["version"] for row in rows.collect()]

    @dg.asset(partitions_def=days, backfill_policy=at_once, ins={"rows": dg.AssetIn([db, "shown_first"])})
    def of_warehouse(rows: DataFrame) -> None:
        seen["warehouse"] = [row["version"] for row in rows.collect()]

    for version in (1, 2):
        monkeypatch.setenv(VERSION, str(version))
        job = group_run.job(db, of_lake, of_warehouse)
        result = job.execute_in_process(tags=group_run.tags(), raise_on_error=False)
        assert result.success, failure_text(result)
        assert seen == {"lake": [version] * 2, "warehouse": [version] * 2}


def go_back(workbench: Workbench, db: str) -> None:
    """Roll back no dataset where the data of one batch is gone; then roll back all of them at one instant."""
    catalog = workbench.catalog()
    try:
        returns = {}
        for dataset in group_run.datasets(db).values():
            keys = [dataset.partitioning.from_path(path) for path in catalog.current(dataset.name)]
            build = catalog.lock_partitions(dataset, keys, run_id="going back")
            batches = History(catalog.connection).batches(dataset.name)
            first = min(batch.batch_id for batch in batches if batch.state == "retired")
            returns[dataset.name] = build, list(History(catalog.connection).batch(dataset.name, first).values())
        last = group_run.datasets(db)["shown_last"].name
        gone = {**returns, last: (returns[last][0], [replace(batch, location="gone") for batch in returns[last][1]])}

        def store_of(dataset: Dataset) -> Store:
            return workbench.store(dataset, catalog)

        with pytest.raises(MissingUpstream, match="gone"):
            atomic_publish.republish(catalog, gone, store_of, reason="wrong")
        assert current_batches(workbench, db) == {name: {2} for name in TABLES}
        atomic_publish.republish(catalog, returns, store_of, reason="wrong")
        instants = catalog.connection.execute(
            "select count(distinct published_at), count(distinct dataset) from varve.publication "
            "where dataset like %s and kind = 'rollback'",
            (f"{db}.%",),
        ).fetchone()
        assert instants == (1, 3)
    finally:
        catalog.connection.execute("select pg_advisory_unlock_all()")
        catalog.connection.close()


@pytest.mark.spark
def test_where_a_step_fails_nothing_of_the_run_is_published_and_it_must_run_whole_again(
    workbench: Workbench, catalog: Catalog, db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(db, 1, monkeypatch, together=None).success
    monkeypatch.setenv(FAILING, "shown_last")
    monkeypatch.setenv(VERSION, "2")
    whole = build_reconstructable_job("tests.dagster.group_run", "job", (db,))
    with dg.instance_for_test() as instance:
        with dg.execute_job(whole, instance, tags=group_run.tags()) as failed:
            assert "shown_last fails as it was told to" in failure_text(failed)
        assert current_batches(workbench, db) == {name: {1} for name in TABLES}
        assert left_behind(catalog, db) == []
        monkeypatch.delenv(FAILING)
        again = dg.ReexecutionOptions.from_failure(failed.run_id, instance)
        half = dg.execute_job(whole, instance, tags=group_run.tags(), reexecution_options=again)
        # A retry that is refused is no attempt: with three of them the partition would be given up for one failure.
        statement = "select count(distinct run_id) from varve.batch where dataset = %s and state = 'failed'"
        assert catalog.connection.execute(statement, (f"{db}.shown_last",)).fetchone() == (1,)
        with half:
            assert f"is not to compute {db}.lake_first, {db}.shown_first" in failure_text(half)
    assert current_batches(workbench, db) == {name: {1} for name in TABLES}
    assert run(db, 3, monkeypatch).success
    assert current_batches(workbench, db) == {name: {3} for name in TABLES}


@pytest.mark.spark
def test_a_run_that_is_killed_before_its_last_publish_shows_nothing_of_itself(
    workbench: Workbench, settings: Settings, db: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # This time all datasets are of one store.
    db = f"lake_{db}"
    assert run(db, 1, monkeypatch).success
    # The test needs a Spark server with a metastore of its own.
    own = {
        "VARVE_HOME": str(tmp_path), "VARVE_POSTGRES_URL": warehouse_url(settings), "VARVE_LAKE_ROOT": settings.lake,
        "VARVE_SPARK_MASTER": "local[2]",
    }  # fmt: skip
    killed = subprocess.run(
        [sys.executable, "-m", "tests.dagster.group_run", db], cwd=ROOT, check=False,
        env={**without_spark(), **own, VERSION: "2", KILLING: "shown_last"}, capture_output=True, text=True,
        timeout=240,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert current_batches(workbench, db) == {name: {1} for name in TABLES}
    assert run(db, 3, monkeypatch).success
    assert current_batches(workbench, db) == {name: {3} for name in TABLES}


def test_a_group_is_refused_where_it_could_not_be_kept_back() -> None:
    both, first_only = {"a.one", "a.other"}, {"a.one"}
    assert atomic_publish.members({}, both, first_only) == []
    assert atomic_publish.members({atomic_publish.TAG: "together"}, both, both) == ["a.one", "a.other"]
    with pytest.raises(VarveError, match=r"is not to compute a\.other.*dg\.in_process_executor"):
        atomic_publish.members({atomic_publish.TAG: "together"}, both, first_only)
    with pytest.raises(VarveError, match=r"varve/publish is 'all'; it may be 'together'"):
        atomic_publish.members({atomic_publish.TAG: "all"}, first_only, first_only)
