"""Pictures of every page of the console, and of Dagster's, with the flights data.

`VARVE_SCREENSHOTS=docs/images pytest --slow tests/e2e/test_demo.py` writes those that the documents show.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from playwright.sync_api import expect

from tests.e2e.browsing import opened_page
from tests.e2e.project import service, wait_until
from varve.services.ports import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.e2e.project import Project
    from varve.catalog.history.rows import PastBatch

DELAYS = "flights.delays"
# A screen of a laptop. Pages of the console are shown whole; of Dagster's, what stands on the screen.
SCREEN = {"width": 1_400, "height": 900}
# Dagster's column of tags has a part of the width that the others leave: a full HD screen has room for a line of them.
WIDE = {"width": 1_920, "height": 900}
# Milliseconds until a page shows what it must, also on a machine that is busy.
PATIENCE = 60_000
# The documents show these.
SHOWN = ("console", "console-partition", "console-dataset", "console-lineage", "runs", "report")


def console_pages(batch: PastBatch, before: PastBatch) -> dict[str, tuple[str, str]]:
    """The address of each page of the console by the name of its picture, and what stands on it."""
    partition, day = urlencode({"path": batch.partition}), batch.partition.partition("/")[0].removeprefix("day=")
    batches = urlencode({"from": before.batch_id, "to": batch.batch_id})
    return {
        "console": ("/", "flights.trailing_delay"),
        "console-dataset": (f"/dataset/{DELAYS}?month=2013-01", "EWR"),
        "console-hours": ("/dataset/flights.weather", "2013"),
        "console-partition": (f"/dataset/{DELAYS}/partition?{partition}", "flights.departures"),
        "console-lineage": (f"/dataset/{DELAYS}/lineage?{partition}", "Made from it"),
        "console-diff": (f"/dataset/{DELAYS}/diff?{partition}&{batches}", "differs"),
        "console-publishes": ("/publishes", DELAYS),
        "console-run": (f"/run/{batch.run_id}", DELAYS),
        "console-environments": ("/environments", "alice"),
        "console-search": (f"/search?q=delays+{day}", f"day={day}"),
    }


def take_pictures(project: Project, batch: PastBatch, before: PastBatch, folder: Path) -> list[Path]:
    """Look at each page, those of a batch and of the one before it too, and return their pictures."""
    kept = Path(os.environ["VARVE_SCREENSHOTS"]) if "VARVE_SCREENSHOTS" in os.environ else None
    with opened_page() as page:
        page.set_viewport_size(SCREEN)
        taken = [
            *_of_the_console(project, page, console_pages(batch, before), folder),
            *_of_dagster(project, page, folder),
        ]
    if kept is not None:
        for picture in taken:
            if picture.stem in SHOWN:
                shutil.copy(picture, kept / picture.name)
    return taken


def _of_the_console(project: Project, page: Page, pages: dict[str, tuple[str, str]], folder: Path) -> list[Path]:
    port, log = free_port(), folder / "console.log"
    with service(project, log, "varve", "console", "--port", str(port)):
        wait_until(lambda: "token=" in log.read_text(), seconds=120, what="the console told its address", log=log)
        wait_until(lambda: _listens(port), seconds=60, what="the console listens", log=log)
        token = (project.settings.home_dir / "console.token").read_text().strip()
        page.goto(f"http://127.0.0.1:{port}/?token={token}")
        taken = []
        for name, (address, says) in pages.items():
            page.goto(f"http://127.0.0.1:{port}{address}")
            expect(page.get_by_role("main").get_by_text(says).first).to_be_visible(timeout=PATIENCE)
            taken.append(folder / f"{name}.png")
            page.screenshot(path=taken[-1], full_page=True)
    return taken


def _of_dagster(project: Project, page: Page, folder: Path) -> list[Path]:
    port, log = free_port(), folder / "webserver.log"
    address, taken = f"http://127.0.0.1:{port}", [folder / f"{name}.png" for name in ("runs", "lineage", "report")]
    words = ("-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(port))
    with service(project, log, "dagster-webserver", *words):
        wait_until(lambda: "Serving dagster-webserver" in log.read_text(), seconds=180, what="Dagster served", log=log)
        wait_until(lambda: _listens(port), seconds=60, what="Dagster listens", log=log)
        page.set_viewport_size(WIDE)
        page.goto(f"{address}/runs")
        expect(page.get_by_text("flights").first).to_be_visible(timeout=PATIENCE)
        page.wait_for_load_state("networkidle")
        page.screenshot(path=taken[0])
        assert runs_on_the_screen(page) >= 10
        page.set_viewport_size(SCREEN)
        page.goto(f"{address}/asset-groups")
        # Its groups may be folded: what they hold is counted.
        expect(page.get_by_text(re.compile(r"Materialize all \(\d+\)")).first).to_be_visible(timeout=PATIENCE)
        page.wait_for_load_state("networkidle")
        page.screenshot(path=taken[1])
        page.goto(f"{address}/assets/varve/report?view=overview")
        expect(page.get_by_text("report").first).to_be_visible(timeout=PATIENCE)
        page.wait_for_load_state("networkidle")
        page.screenshot(path=taken[2])
    return taken


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def runs_on_the_screen(page: Page) -> int:
    """How many runs, with all their tags, can be read without scrolling."""
    links = page.locator("a[href^='/runs/']")
    rows = page.locator("[class*='rowGrid']", has=links)
    boxes = [row.bounding_box() for row in rows.all()]
    return len({round(box["y"]) for box in boxes if box is not None and box["y"] + box["height"] <= WIDE["height"]})
