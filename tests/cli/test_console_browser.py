"""The console in a browser as a person uses it, by the keyboard alone and without any script of a page."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pendulum
import pytest
import uvicorn
from playwright.sync_api import Page, expect

from tests.cli.console_project import HOSTILE, SCRIPT, TOKEN
from tests.e2e.browsing import opened_page
from tests.e2e.project import wait_until
from varve.catalog.history.alerts.alerts import Alerts
from varve.model.batch import Input
from varve.planning.operations.conditions import AlertIdentity, AlertKind, Condition
from varve.services.ports import free_port
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.console_project import Console

pytestmark = pytest.mark.ui
PARIS = "day=2026-11-01/store=Paris"


@contextmanager
def served(console: Console) -> Iterator[str]:
    """The address of the console, served as `varve console` does."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(console.app(), port=port, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started, seconds=60, what="the console answered")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(60)


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.textContent || document.activeElement.id").strip())


def tab_to(page: Page, text: str) -> None:
    """Press Tab until the focus is on something with that text, as a person does who has no mouse."""
    for _ in range(80):
        page.keyboard.press("Tab")
        if text in focused(page):
            return
    raise AssertionError(f"no way by the keyboard to {text!r}; the focus is on {focused(page)!r}")


def test_a_person_walks_through_the_console_by_the_keyboard(console: Console, tmp_path: Path) -> None:
    sales, totals = f"{console.db}.sales", f"{console.db}.totals"
    console.publish("sales", PARIS, "first")
    batch = console.publish("sales", PARIS, "second")
    console.publish("sales", "day=2026-11-02/store=Paris", "other")
    console.publish("sales", HOSTILE, f"run {SCRIPT}")
    console.publish("totals", "day=2026-11-01", "third", Input(sales, PARIS, str(batch)))
    with served(console) as address, opened_page() as page:
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.goto(address)
        expect(page.get_by_role("heading", name="Not for everybody")).to_be_visible()
        page.goto(f"{address}/?token={TOKEN}")
        expect(page).to_have_url(f"{address}/")
        page.keyboard.press("Tab")
        assert focused(page) == "To the content", "the first stop leads past the head of the page"
        tab_to(page, sales)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1, name=sales)).to_be_visible()
        # A cell of the calendar: its state is a word for who cannot see it.
        cell = page.get_by_role("row", name="Paris").get_by_role("link", name="current").first
        cell.focus()
        page.screenshot(path=tmp_path / "dataset.png", full_page=True)
        page.keyboard.press("Enter")
        expect(page.get_by_text("made from what is current").or_(page.get_by_text("Run")).first).to_be_visible()
        tab_to(page, "Compare two batches")
        page.keyboard.press("Enter")
        expect(page.get_by_role("table", name="The two batches; what differs is marked")).to_be_visible()
        expect(page.get_by_role("row", name="run").filter(has_text="second")).to_contain_text("differs")
        page.go_back()
        tab_to(page, "Lineage")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Made from it")).to_be_visible()
        page.screenshot(path=tmp_path / "lineage.png", full_page=True)
        tab_to(page, totals)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_contain_text(totals)
        page.get_by_label("Search").focus()
        page.keyboard.type(f"{console.db} 2026-11-01")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Partitions")).to_be_visible()
        tab_to(page, "Publishes")
        page.keyboard.press("Enter")
        expect(page.get_by_role("table")).to_contain_text("second")
        page.goto(f"{address}/dataset/{sales}")
        page.goto(f"{address}/search?q={SCRIPT}")
        assert [text for text in said if "favicon" not in text and "403" not in text] == []
    assert all((tmp_path / name).stat().st_size > 5_000 for name in ("dataset.png", "lineage.png"))


def test_no_page_needs_a_wide_window(console: Console) -> None:
    """What is wide scrolls within the page, which itself does not; so enlarged letters can be read."""
    console.publish("sales", PARIS, "first")
    late = Condition(AlertIdentity(AlertKind.NOT_FRESH, f"{console.db}.sales", "long" * 40), "/".join(["late"] * 40))
    with connect(console.project.settings, application="varve test") as connection:
        Alerts(connection).update([late], [AlertKind.NOT_FRESH], pendulum.now("UTC").timestamp())
    with served(console) as address, opened_page() as page:
        page.set_viewport_size({"width": 480, "height": 900})
        page.goto(f"{address}/?token={TOKEN}")
        expect(page.get_by_text("longlong")).to_be_visible()
        for place in ("/", f"/dataset/{console.db}.sales", "/publishes", "/run/first"):
            page.goto(f"{address}{place}")
            assert page.evaluate("document.documentElement.scrollWidth") <= 480, place
    with connect(console.project.settings, application="varve test") as connection:
        Alerts(connection).update([], [AlertKind.NOT_FRESH], pendulum.now("UTC").timestamp())
