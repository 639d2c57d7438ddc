"""The Dagster UI as a person uses it: two days chosen in the browser become a backfill, and both are published."""

from __future__ import annotations

import datetime as dt
import socket
import urllib.request
from typing import TYPE_CHECKING
from urllib.error import URLError

import pytest
from dagster import DagsterRunStatus
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.e2e.project import flights, service, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.project import Project

pytestmark = pytest.mark.ui

FIRST, SECOND = dt.date(2013, 1, 10), dt.date(2013, 1, 11)
# A page that has just been opened may take its time on a busy machine.
expect.set_options(timeout=60_000)


@pytest.fixture(scope="module")
def deployed(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Databases of its own: runs that other tests kill stay "started" for Dagster, and take places in its queue."""
    found = project.with_databases("ui").with_dagster_home(tmp_path_factory.mktemp("ui") / "dagster")
    found.send_flights(FIRST, SECOND)
    return found


@pytest.fixture(scope="module")
def ui(deployed: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the web server; the daemon runs beside it."""
    folder = tmp_path_factory.mktemp("logs")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address, log = f"http://127.0.0.1:{port}", folder / "webserver.log"
    with (
        service(deployed, folder / "daemon.log", "dagster-daemon", "run", "-w", "workspace.yaml"),
        service(deployed, log, "dagster-webserver", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(port)),
    ):
        wait_until(lambda: _answers(address), seconds=120, what="the web server answered", log=log)
        yield address


@pytest.fixture
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path="/usr/bin/chromium",
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser) -> Page:
    found = browser.new_page(viewport={"width": 1400, "height": 900})
    found.set_default_timeout(60_000)
    # The first visit asks for a survey, whose dialog swallows all clicks; sometimes it opens under another one.
    found.add_init_script("localStorage.setItem('communityNux', 'true')")
    return found


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/server_info", timeout=5) as answer:  # noqa: S310 - our own address
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


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


def _published(project: Project) -> bool:
    return {f"day={FIRST}", f"day={SECOND}"} <= set(project.current("flights.departures"))


def _succeeded(project: Project) -> bool:
    batch = project.current("flights.departures")[f"day={FIRST}"]
    with project.dagster() as instance:
        run = instance.get_run_by_id(batch.run_id)
    assert run is not None
    assert "dagster/backfill" in run.tags
    return run.status is DagsterRunStatus.SUCCESS
