"""The Dagster UI as a person uses it: two days chosen in the browser become a backfill, and both are published."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest
from dagster import DagsterRunStatus
from playwright.sync_api import Page, expect

from tests.e2e.browsing import opened_page, served
from tests.e2e.project import flights, wait_until
from varve.dagster.automation.report import KEY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.project import Project

pytestmark = pytest.mark.ui

FIRST, SECOND = dt.date(2013, 1, 10), dt.date(2013, 1, 11)


@pytest.fixture(scope="module")
def deployed(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Databases of its own: runs that other tests kill stay "started" for Dagster, and take places in its queue."""
    found = project.with_databases("ui").with_dagster_home(tmp_path_factory.mktemp("ui") / "dagster")
    found.send_flights(FIRST, SECOND)
    return found


@pytest.fixture(scope="module")
def ui(deployed: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the web server; the daemon runs beside it."""
    with served(deployed, tmp_path_factory.mktemp("logs")) as address:
        yield address


@pytest.fixture
def page() -> Iterator[Page]:
    with opened_page() as found:
        yield found


def test_two_days_chosen_in_the_browser_are_backfilled_and_published(
    deployed: Project, ui: str, page: Page, tmp_path: Path
) -> None:
    page.goto(f"{ui}/assets/flights/departures?view=partitions")

    page.locator("button", has_text="Materialize").first.click()
    dialog = page.get_by_role("dialog").filter(has_text="Launch")
    box = dialog.get_by_role("textbox").first
    box.fill(f"[{FIRST}...{SECOND}]")
    box.press("Enter")
    launch = dialog.get_by_role("button", name="Launch backfill")
    expect(launch).to_be_enabled()
    launch.click()
    expect(dialog).to_be_hidden()

    wait_until(lambda: _published(deployed), seconds=300, what="both days were published")
    wait_until(lambda: _succeeded(deployed), seconds=120, what="the backfill's run had succeeded")
    page.goto(f"{ui}/assets/flights/departures?view=partitions&partition={FIRST}")
    rows = deployed.current("flights.departures")[f"day={FIRST}"].rows
    assert rows == len(flights(FIRST))
    expect(page.get_by_text("dagster/partition_row_count").first).to_be_visible()
    page.screenshot(path=tmp_path / "departures.png", full_page=True)
    assert (tmp_path / "departures.png").stat().st_size > 10_000

    # The report over all datasets, drawn by the same web server and daemon.
    page.goto(f"{ui}/assets/varve/report")
    page.locator("button", has_text="Materialize").first.click()
    wait_until(lambda: _reported(deployed), seconds=300, what="the report was drawn")
    page.goto(f"{ui}/assets/varve/report?view=overview")
    expect(page.get_by_text("varve/over time").first).to_be_visible()
    page.screenshot(path=tmp_path / "report.png", full_page=True)


def _published(project: Project) -> bool:
    return {f"day={FIRST}", f"day={SECOND}"} <= set(project.current("flights.departures"))


def _reported(project: Project) -> bool:
    with project.dagster() as instance:
        return instance.get_latest_materialization_event(KEY) is not None


def _succeeded(project: Project) -> bool:
    batch = project.current("flights.departures")[f"day={FIRST}"]
    with project.dagster() as instance:
        run = instance.get_run_by_id(batch.run_id)
    assert run is not None
    assert "dagster/backfill" in run.tags
    return run.status is DagsterRunStatus.SUCCESS
