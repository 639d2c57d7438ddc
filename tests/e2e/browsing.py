"""The Dagster UI for a test: a web server with its daemon, and a page of Chromium to look at it with."""

from __future__ import annotations

import socket
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.error import URLError

from playwright.sync_api import expect, sync_playwright

from tests.e2e.project import service, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Page

    from tests.e2e.project import Project

# A page that has just been opened may take its time on a busy machine.
expect.set_options(timeout=60_000)


@contextmanager
def served(project: Project, folder: Path, workspace: str | Path = "workspace.yaml") -> Iterator[str]:
    """The address of a web server, beside which the daemon runs; their logs are in `folder`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address, log = f"http://127.0.0.1:{port}", folder / "webserver.log"
    with (
        service(project, folder / "daemon.log", "dagster-daemon", "run", "-w", workspace),
        service(project, log, "dagster-webserver", "-w", workspace, "-h", "127.0.0.1", "-p", str(port)),
    ):
        wait_until(lambda: _answers(address), seconds=120, what="the web server answered", log=log)
        yield address


@contextmanager
def opened_page() -> Iterator[Page]:
    """A page of a new browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium",
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        found = browser.new_page(viewport={"width": 1400, "height": 1200})
        found.set_default_timeout(60_000)
        # The first visit asks for a survey, whose dialog swallows all clicks; sometimes it opens under another one.
        found.add_init_script("localStorage.setItem('communityNux', 'true')")
        yield found
        browser.close()


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/server_info", timeout=5) as answer:  # noqa: S310 - our own address
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False
