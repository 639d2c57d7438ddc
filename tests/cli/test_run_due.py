"""`varve.run_due`: what the sensors ask for, also of files that arrived a moment ago."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from tests.cli.test_environments import DAYS, shop_at_rest  # noqa: F401 - a fixture
from varve.catalog.catalog import Catalog
from varve.catalog.code.deployments import Decision, Deployments
from varve.dagster.discovery import load_project
from varve.dagster.driver import failure_reason
from varve.model.policy import OnCodeChange
from varve.services.postgres import connect

if TYPE_CHECKING:
    from tests.cli.test_environments import Store

pytestmark = pytest.mark.spark


def test_files_that_arrived_a_moment_ago_are_waited_for(
    shop_at_rest: Store,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop, folder = shop_at_rest, shop_at_rest.root / "landing" / shop_at_rest.db / "sales"
    monkeypatch.setenv("VARVE_SETTLE_SECONDS", "1.5")
    shop.send(DAYS[0], ("pen", 100))
    assert f"sales {DAYS[0]}" in shop.run_due()
    assert shop.totals() == {DAYS[0]: 100}
    # One with the name of a file that is still being written keeps nobody waiting for ever.
    monkeypatch.setenv("VARVE_SETTLE_SECONDS", "0.2")
    writing = folder / f"sales_{DAYS[1]}.csv.part"
    writing.write_text("product,cents\n")
    assert shop.run_due() == []


def test_what_a_person_ends_is_no_failure_and_goes_on_with_the_next_call(
    shop_at_rest: Store,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop, staged = shop_at_rest, Catalog.staged

    def interrupted(*given: object, **named: object) -> None:
        monkeypatch.setattr(Catalog, "staged", staged)
        signal.raise_signal(signal.SIGINT)
        staged(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setenv("VARVE_BACKOFF_SECONDS", "0")
    shop.send(DAYS[0], ("pen", 700))
    monkeypatch.setattr(Catalog, "staged", interrupted)
    with pytest.raises(KeyboardInterrupt):
        shop.run_due()
    assert shop.rows(f"select from varve.current where dataset like '{shop.db}.%'") == []
    assert f"sales {DAYS[0]}" in shop.run_due()
    assert shop.totals() == {DAYS[0]: 700}


def test_a_run_waits_for_another_one_that_builds_the_same_partition(
    shop_at_rest: Store,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a sensor and a backfill may ask for the same, each before the other one's run has begun."""
    shop = shop_at_rest
    for day in DAYS[:2]:
        shop.send(day, ("pen", 100))
    shop.run_due()
    shop.send(DAYS[0], ("pen", 7))
    graph = load_project(shop.project).graph
    sales, path = graph.datasets[f"{shop.db}.sales"], f"day={DAYS[0]}"
    repository = shop.project.module(shop.project.definitions).defs.get_repository_def()
    key = dg.AssetKey([shop.db, "sales"])
    job = repository.get_implicit_job_def_for_assets([key])

    def run() -> dg.ExecuteInProcessResult:
        return job.execute_in_process(partition_key=str(DAYS[0]), asset_selection=[key], raise_on_error=False)

    with connect(shop.settings, application="the other run") as connection:
        other = Catalog(connection)
        build = other.begin(sales, [sales.partitioning.from_path(path)], run_id="other", code_version="")
        monkeypatch.setenv("VARVE_WAIT_SECONDS", "0")
        refused = run()
        assert "another run is building" in failure_reason(refused)
        monkeypatch.delenv("VARVE_WAIT_SECONDS")
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(run)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=3)
            other.fail(build, "it was ended")
            other.release(build)
            assert waiting.result(timeout=120).success
            # Other code is deployed while it waits: what this one computes then is not published over that.
            build = other.begin(sales, [sales.partitioning.from_path(path)], run_id="other", code_version="")
            outdated = threads.submit(run)
            with pytest.raises(TimeoutError):
                outdated.result(timeout=3)
            decided = Decision(OnCodeChange.REBUILD, plan=1)
            Deployments(connection).deploy(sales, "of a colleague", "", decided, by="a colleague")
            other.fail(build, "it was ended")
            other.release(build)
            assert "of a colleague" in failure_reason(outdated.result(timeout=120))
            Deployments(connection).deploy(sales, graph.code_versions[sales.name], "", decided, by="this test")
    assert shop.totals() == {DAYS[0]: 100, DAYS[1]: 100}
    shop.run_due()
    assert shop.totals() == {DAYS[0]: 7, DAYS[1]: 100}
