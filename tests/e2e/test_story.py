"""A partner's file does not come, comes broken, and is corrected: the daemon, a webhook, Dagster's UI, the console."""

from __future__ import annotations

import datetime as dt
import json
import re
import socket
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.browsing import served
from tests.e2e.project import service, wait_until
from tests.support.webhook import listening_webhook
from varve.cli.init import write_project

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.project import Project

# For each of the waits; a machine that is shared with others may need most of it.
SECONDS = 300
# The one window has ended long ago: what is not there is late from the first look on.
ORDERS = """CREATE DATASET partner.orders (id BIGINT, price DECIMAL(10, 2))
  COMMENT 'As the partner sends them.'
  STORED IN LAKE
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '{day}', END '{after}')
  LET day = CAST(t AS DATE)
  FRESH WITHIN 2 HOURS
EXTERNAL;
"""
REPORT = "__anonymous_asset_job_report"
CHECKS = """
{ assetNodeOrError(assetKey: {path: ["partner", "orders"]}) { ... on AssetNode {
    assetChecksOrError { ... on AssetChecks { checks {
        name executionForLatestMaterialization { status evaluation { description } }
    } } } } } }
"""


@dataclass(frozen=True)
class Screens:
    """What a person looks at: Dagster's UI and the console, over HTTP."""

    dagster: str
    console: str

    def check(self, name: str) -> tuple[str, str]:
        """The state of a check of the orders as Dagster's pages get it, and its sentence."""
        request = urllib.request.Request(  # noqa: S310 - our own address
            f"{self.dagster}/graphql", json.dumps({"query": CHECKS}).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            node: dict[str, Any] = json.load(answer)["data"]["assetNodeOrError"]
        (check,) = [each for each in node["assetChecksOrError"]["checks"] if each["name"] == name]
        last = check["executionForLatestMaterialization"]
        if last is None or last["evaluation"] is None:
            return "", ""
        return last["status"], last["evaluation"]["description"]

    def shown(self) -> str:
        """The text of the console's first page."""
        # The link gives a browser its cookie, and leads on.
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with browser.open(self.console, timeout=60) as answer:
            return " ".join(re.sub(r"<[^>]*>", " ", answer.read().decode()).split())


@pytest.fixture
def shop(project: Project, tmp_path: Path) -> Project:
    """A project as `varve init` begins one, with one dataset that a partner sends."""
    folder = tmp_path / "shop"
    write_project(folder)
    for file in (folder / "assets").glob("*.*"):
        if file.name != "__init__.py":
            file.unlink()
    day = dt.datetime.now(dt.UTC).date() - dt.timedelta(days=3)
    text = ORDERS.format(day=day, after=day + dt.timedelta(days=1))
    (folder / "assets" / "orders.sql").write_text(text, encoding="utf-8")
    found = replace(project.with_databases("story"), root=folder)
    return found.having(alerts_seconds=2, alerts_disk_percent=100).with_dagster_home(tmp_path / "dagster")


@contextmanager
def screens(shop: Project, folder: Path) -> Iterator[Screens]:
    """The daemon, Dagster's web server and the console, all of them real."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    log = folder / "console.log"
    with served(shop, folder) as dagster, service(shop, log, "varve", "console", "--port", port):
        wait_until(lambda: bool(_links(log)), seconds=SECONDS, what="the console printed its link", log=log)
        yield Screens(dagster, _links(log)[0])


def _links(log: Path) -> list[str]:
    return re.findall(r"http://\S+", log.read_text(encoding="utf-8").replace("\n", " "))


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_a_file_that_does_not_come_comes_broken_and_is_corrected_is_told_of_once_each(
    shop: Project, tmp_path: Path
) -> None:
    orders = Path(shop.settings.landing) / "partner" / "orders"
    orders.mkdir(parents=True)
    day = dt.datetime.now(dt.UTC).date() - dt.timedelta(days=3)

    def send(text: str) -> None:
        beside = orders / f".{day}"
        beside.write_text(text, encoding="utf-8")
        beside.replace(orders / f"{day}.csv")

    def until(what: str, condition: Callable[[], bool]) -> None:
        wait_until(condition, seconds=SECONDS, what=what, log=tmp_path / "daemon.log")

    def report() -> None:
        """The checks of the report, as the daemon makes them every ten minutes."""
        launched = deployed.run("-m", "dagster", "job", "launch", "-w", "workspace.yaml", "-j", REPORT)
        assert launched.code == 0, launched.output

    with listening_webhook() as team:
        deployed = shop.having(alerts=json.dumps({"team": team.url}))
        started = deployed.run("-m", "dagster", "sensor", "start", "--start-all", "-w", "workspace.yaml")
        assert started.code == 0, started.output
        with screens(deployed, tmp_path) as seen:
            # Nothing has come, and its two hours are over.
            until("the team was told that the day is late", lambda: len(team.received) >= 1)
            assert [line.split(": ")[1] for line in team.lines] == [f"not fresh partner.orders day={day}"]
            report()
            until("Dagster says so", lambda: seen.check("fresh")[0] == "FAILED")
            assert str(day) in seen.check("fresh")[1]
            assert "1 open alert" in seen.shown()
            # It comes, with a column that nobody has declared.
            send("id,amount\n1,2.50\n")
            until("the team was told of the broken file", lambda: len(team.lines) >= 2)
            assert re.search(rf"opened .*: rejected arrival partner\.orders .*{day}\.csv", team.lines[1])
            report()
            until("Dagster says so", lambda: seen.check("every_arrival_is_taken")[0] == "FAILED")
            until("the console says so", lambda: "2 open alerts" in seen.shown())
            # It is corrected.
            send("id,price\n1,2.50\n2,3.50\n")
            until("the rows were published", lambda: len(deployed.current("partner.orders")) == 1)
            until("both alerts were closed", lambda: len(team.lines) >= 4)
            report()
            until("Dagster says that it is fresh", lambda: seen.check("fresh")[0] == "SUCCEEDED")
            until("and that it is taken", lambda: seen.check("every_arrival_is_taken")[0] == "SUCCEEDED")
            until("the console says so", lambda: "open alert" not in seen.shown())
    (batch,) = deployed.current("partner.orders").values()
    assert batch.rows == 2
    # Each has begun once and ended once, in this order, and there was nothing else.
    told = [re.match(r"(opened|closed) .* UTC: (not fresh|rejected arrival) ", line) for line in team.lines]
    assert [match.groups() if match else None for match in told[:2]] == [
        ("opened", "not fresh"), ("opened", "rejected arrival"),
    ]  # fmt: skip
    assert {match.groups() if match else None for match in told[2:]} == {
        ("closed", "not fresh"), ("closed", "rejected arrival"),
    }  # fmt: skip
    assert len(told) == 4
