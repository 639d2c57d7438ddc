"""The console: its pages over a real catalog, what it shows of hostile texts, and who may see it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import quote

import pendulum

from tests.cli.console_project import HOSTILE, SCRIPT
from varve.catalog.environments.environments import Environments
from varve.catalog.history.alerts.alerts import Alerts
from varve.dagster.assets.sql_folders import forget_files
from varve.dagster.discovery import load_project
from varve.model.batch import Input
from varve.planning.operations.conditions import AlertIdentity, AlertKind, Condition
from varve.services.postgres import connect

if TYPE_CHECKING:
    from tests.cli.console_project import Console

REJECTED = """
    insert into varve.rejected_arrival (dataset, uri, kind, reason, bytes, stamp, declared)
    values (%s, %s, 'content', %s, 1, '', '')
"""


def test_a_person_walks_from_the_map_to_a_partition_and_to_what_was_made_from_it(console: Console) -> None:
    paris = "day=2026-11-01/store=Paris"
    batch = console.publish("sales", paris, "run-of-paris")
    console.publish("sales", "day=2026-10-31/store=Paris", "of-october")
    console.publish("totals", "day=2026-11-01", "run-of-totals", Input(f"{console.db}.sales", paris, str(batch)))

    overview = console.page("/")
    assert f'<a href="/dataset/{console.db}.sales">' in overview
    assert "current 1" in text_of(overview)
    dataset = console.page(f"/dataset/{console.db}.sales")
    assert "One row per sale." in dataset
    assert "ann@example.com" in dataset
    assert f'Read by <a href="/dataset/{console.db}.totals">' in dataset
    # The newest month is shown, the others are a link away.
    assert "day=2026-10-31" not in dataset
    assert "day=2026-10-31" in console.page(f"/dataset/{console.db}.sales?month=2026-10")

    (link,) = set(
        re.findall(rf'href="(/dataset/{console.db}\.sales/partition\?path=day%3D2026-11-01/store%3DParis)"', dataset)
    )
    partition = console.page(link)
    assert str(batch) in partition
    assert "2.0 kB" in partition
    assert f"varve why {console.db}.sales day=2026-11-01 store=Paris" in partition
    assert f"/dataset/{console.db}.totals/partition?path=day%3D2026-11-01" in partition, "what was made from it"
    readers = console.page(f"/dataset/{console.db}.totals/partition?path=day%3D2026-11-01")
    assert "the same" in readers
    assert link in readers, "what it was made from"
    run = console.page("/run/run-of-paris")
    assert str(batch) in run
    assert "varve rollback --run run-of-paris" in run
    found = console.page(f"/search?q={console.db}+2026-11-01")
    assert link in found
    assert link in console.page(f"/search?q={batch}")
    assert "/run/run-of-totals" in console.page("/search?q=run-of-t")
    assert "varve_partitions" in console.page("/metrics")


def test_what_a_run_would_read_is_told_where_it_is_not_what_the_partition_was_made_from(console: Console) -> None:
    day, sales = "day=2026-11-01", f"{console.db}.sales"
    dataset = load_project(console.project).graph.datasets[sales]
    paths = [path for each in dataset.partitioning.keys() if (path := each.path).startswith(day)]  # noqa: SIM118
    assert len(paths) == 2
    made_from = [Input(sales, path, str(console.publish("sales", path, "first"))) for path in paths]
    console.publish("totals", day, "run-of-totals", *made_from)
    page = f"/dataset/{console.db}.totals/partition?path={quote(day)}"
    assert "Made from" in console.page(page)
    assert "It reads" not in console.page(page)
    console.publish("sales", paths[0], "second")
    assert "It reads" in console.page(page)


def test_environments_stand_beside_each_other(console: Console) -> None:
    assert "There is none." in console.page("/environments")
    with connect(console.project.settings, application="varve test") as connection:
        Environments(connection).create(f"e{console.db}", by="ann")
    assert f"e{console.db}" in console.page("/environments")


def test_no_text_of_others_becomes_part_of_a_page(console: Console) -> None:
    """Keys, comments, run ids, failures and what somebody types, on every page that shows one."""
    batch = console.publish("sales", HOSTILE, f"run {SCRIPT}")
    console.publish("sales", HOSTILE, "later", failure=f"it broke: {SCRIPT}")
    pages = [
        "/", f"/dataset/{console.db}.sales", f"/dataset/{console.db}.sales/partition?path={quote(HOSTILE, safe='')}",
        f"/run/{quote(f'run {SCRIPT}', safe='')}", f"/search?q={quote(SCRIPT)}", f"/search?q={batch}",
    ]  # fmt: skip
    for address in pages:
        shown = console.page(address)
        assert "alert(1)" in shown, f"{address} does not show it at all"
        assert "<script" not in shown.lower(), address
    for address in (f"/dataset/{quote(SCRIPT)}", f"/{quote(SCRIPT)}", f"/run/{quote(SCRIPT)}"):
        assert "<script" not in console.page(address, 404).lower()
    assert "script-src" not in console.browser.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in console.browser.get("/").headers["content-security-policy"]


def test_what_a_person_should_look_at_stands_on_the_first_page(console: Console) -> None:
    """Alerts, arrivals that are not taken, what a tick left out, and files with errors: each with hostile words."""
    console.publish("sales", "day=2026-11-01/store=Paris", "r")
    dataset = f"{console.db}.sales"
    uri = f"/landing/{SCRIPT}.csv"
    with connect(console.project.settings, application="varve test") as connection:
        late = Condition(AlertIdentity(AlertKind.NOT_FRESH, dataset, SCRIPT), f"late: {SCRIPT}")
        Alerts(connection).update([late], list(AlertKind), pendulum.now("UTC").timestamp())
        connection.execute(REJECTED, (dataset, uri, f"not CSV: {SCRIPT}"))
    (console.project.assets / "wrong.sql").write_text(
        f"CREATE DATASET {console.db}.wrong\n  ZONE '{SCRIPT}'\nAS SELECT 1 AS one;"
    )
    load_project.cache_clear()
    forget_files()
    shown = console.page("/")
    assert "<script" not in shown.lower()
    words = text_of(shown)
    for expected in ("1 open alert", f"late: {SCRIPT}", f"not CSV: {SCRIPT}", "Files that cannot be used", "wrong.sql"):
        assert expected in words, expected


def test_what_is_not_there_is_a_page_that_says_what_to_do(console: Console) -> None:
    assert f"there are {console.db}.sales" in text_of(console.page("/dataset/shop.nothing", 404))
    assert "a partition is named" in text_of(console.page(f"/dataset/{console.db}.sales/partition?path=week=1", 404))
    assert "has published nothing" in text_of(console.page("/run/swept-long-ago", 404))
    assert "Nothing is found" in console.page("/search?q=nowhere")
    assert "There is no page /nothing" in text_of(console.page("/nothing", 404))


def test_every_table_says_what_it_is_and_every_colour_has_a_word(console: Console) -> None:
    console.publish("sales", "day=2026-11-01/store=Paris", "r")
    for address in (
        "/",
        f"/dataset/{console.db}.sales",
        f"/dataset/{console.db}.sales/partition?path=day%3D2026-11-01/store%3DParis",
    ):
        shown = console.page(address)
        assert '<html lang="en">' in shown
        assert shown.count("<table>") == shown.count("<caption>")
        assert shown.count("<h1>") == 1
        assert '<label for="q">' in shown
        # Signs without words are hidden from screen readers.
        assert all('aria-hidden="true"' in sign for sign in re.findall(r"<i [^>]*>", shown))


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def text_of(page: str) -> str:
    """What a person reads of a page."""
    parser = _Text()
    parser.feed(page)
    return " ".join(" ".join(parser.parts).split())
