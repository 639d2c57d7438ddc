"""Two projects as two code locations of one daemon, over one catalog: partitions flow from the one to the other."""

from __future__ import annotations

import datetime as dt
import json
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from dagster import RunsFilter

from tests.documents.pages import blocks
from tests.e2e.browsing import served
from tests.e2e.project import wait_until
from varve.cli.init import write_project
from varve.dagster.automation.requesting import PROJECT_TAG

if TYPE_CHECKING:
    from tests.e2e.project import Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]

(WORKSPACE, DIVIDED) = [block for block in blocks("yaml") if block.page == "docs/projects.md"]
SECONDS = 300
TODAY = dt.datetime.now(dt.UTC).date()
DAYS = [TODAY - dt.timedelta(days=number) for number in (3, 2, 1)]
SALES = f"""CREATE DATASET shop.sales (product STRING, cents BIGINT)
  COMMENT 'One row per sale.'
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '{DAYS[0]}')
  LET day = CAST(t AS DATE)
EXTERNAL;
"""
BEST = f"""CREATE DATASET bureau.best
  COMMENT 'The dearest sale of the last two days.'
  STORED IN WAREHOUSE
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '{DAYS[1]}')
  LET today = CAST(t AS DATE)
  INSERT (day = today)
AS SELECT MAX(sales.cents) AS cents FROM shop.sales WHERE sales.day BETWEEN today - INTERVAL 1 DAY AND today;
"""
ASSETS = """
{ assetNodes { assetKey { path } isExecutable repository { location { name } } dependedByKeys { path } } }
"""


@pytest.fixture
def projects(project: Project, tmp_path: Path) -> dict[str, Project]:
    """Both, as `varve init` begins them, with a dataset each; the workspace is that of the documents."""
    home = project.with_databases("projects").with_dagster_home(tmp_path / "dagster")
    config = yaml.safe_load((tmp_path / "dagster" / "dagster.yaml").read_text())
    (tmp_path / "dagster" / "dagster.yaml").write_text(
        yaml.safe_dump(_merged(config, yaml.safe_load(DIVIDED.text.replace("/srv/shop", str(tmp_path / "shop")))))
    )
    found = {}
    for name in ("shop", "bureau"):
        write_project(tmp_path / name)
        for file in (tmp_path / name / "assets").glob("*.*"):
            if file.name != "__init__.py":
                file.unlink()
        found[name] = replace(home, root=tmp_path / name)
    (tmp_path / "shop" / "assets" / "sales.sql").write_text(SALES)
    (tmp_path / "workspace.yaml").write_text(WORKSPACE.text)
    return found


def send(shop: Project, day: dt.date, *cents: int) -> None:
    folder = Path(shop.settings.landing) / "shop" / "sales"
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f".{day}"
    beside.write_text("product,cents\n" + "".join(f"pen,{each}\n" for each in cents))
    beside.replace(folder / f"{day}.csv")


def best(bureau: Project) -> dict[dt.date, int]:
    with bureau.catalog() as catalog:
        if "bureau.best" not in {name for name, *_ in catalog.declared()}:
            return {}
        return dict(catalog.connection.execute("select day, cents from bureau.best").fetchall())


def test_two_code_locations_over_one_catalog(projects: dict[str, Project], tmp_path: Path) -> None:
    shop, bureau = projects["shop"], projects["bureau"]
    for day in DAYS:
        send(shop, day, 100)
    shop.must_materialize("shop/sales", partition=str(DAYS[0]))
    imported = bureau.varve("import", "shop.sales")
    assert imported.code == 0, imported.output
    (bureau.root / "assets" / "best.sql").write_text(BEST)
    both = replace(shop, root=tmp_path)
    for name in projects:
        started = both.run("-m", "dagster", "sensor", "start", "--start-all", "-w", "workspace.yaml", "-l", name)
        assert started.code == 0, started.output
    log = tmp_path / "daemon.log"
    with served(both, tmp_path) as address:
        wait_until(
            lambda: best(bureau) == {DAYS[1]: 100, DAYS[2]: 100}, seconds=SECONDS, what="the days are there", log=log
        )
        # A correction of the first day reaches the one day that reads it, and no other.
        before = bureau.current("bureau.best")
        send(shop, DAYS[0], 100, 900)
        wait_until(lambda: best(bureau)[DAYS[1]] == 900, seconds=SECONDS, what="the correction is there", log=log)
        after = bureau.current("bureau.best")
        assert {path for path in after if after[path] != before[path]} == {f"day={DAYS[1]}"}
        # One graph in Dagster: each asset is run where it belongs, and what is read has its own node nowhere else.
        nodes = asked(address)["assetNodes"]
        by_key = {".".join(node["assetKey"]["path"]): node for node in nodes}
        located = {key: node["repository"]["location"]["name"] for key, node in by_key.items() if node["isExecutable"]}
        assert located == {
            "shop.sales": "shop", "bureau.best": "bureau",
            "varve.report.shop": "shop", "varve.report.bureau": "bureau",
        }  # fmt: skip
        assert [".".join(key["path"]) for key in by_key["shop.sales"]["dependedByKeys"]] == ["bureau.best"]
    with bureau.dagster() as instance:
        runs = instance.get_runs(RunsFilter(tags={PROJECT_TAG: ["shop", "bureau"]}))
    asked_by = {(next(iter(run.asset_selection or ())).path[0], run.tags[PROJECT_TAG]) for run in runs}
    assert asked_by == {("shop", "shop"), ("bureau", "bureau")}
    for each in projects.values():
        done = each.varve("doctor")
        assert "All is well" in done.told, done.output
        assert each.varve_json("plan")["changes"]["datasets"] == []


def asked(address: str) -> Any:
    request = urllib.request.Request(  # noqa: S310 - our own address
        f"{address}/graphql", json.dumps({"query": ASSETS}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return json.load(answer)["data"]


def _merged(ours: Any, more: Any) -> Any:
    if not (isinstance(ours, dict) and isinstance(more, dict)):
        return more
    return {**ours, **more, **{key: _merged(ours[key], more[key]) for key in ours.keys() & more.keys()}}
