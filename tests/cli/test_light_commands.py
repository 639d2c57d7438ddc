"""Commands that say what there is, and what is to be done, of a project: without Dagster's imports."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pendulum
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.cli.shop import Shop
from tests.stores.warehouse.test_roles import pooler
from tests.support.project import ROOT
from tests.support.workbench import Workbench
from varve.catalog.catalog import Catalog
from varve.cli.context import chosen_graph
from varve.cli.plan.open_plan import opened_plan
from varve.cli.plan.why import why, why_of
from varve.dagster.assets.datasets import DatasetAsset
from varve.dagster.assets.sql_assets import assets_of
from varve.dagster.assets.sql_folders import sql_datasets
from varve.dagster.discovery import graph_of_folder
from varve.dagster.instance import open_instance
from varve.dagster.runs.storage_tables import opened_tables
from varve.model.partitions.key import PartitionKey
from varve.planning.reconcile import Limits, Planner
from varve.project import Project
from varve.services.postgres import connect, dagster_libpq_url

if TYPE_CHECKING:
    from varve.services.settings import Settings

REVENUE = """EXPECT paid: revenue > 0
AS SELECT product, SUM(price) AS revenue FROM shop.sales WHERE sales.day = today GROUP BY product"""
IN_PYTHON = """
from pathlib import Path

import varve

REVENUE = varve.sql_datasets(Path(__file__).parent)["shop.revenue"].dataset
BEST = varve.Dataset("shop.best", REVENUE.partitioning, REVENUE.schema, varve.StoreKind.LAKE, "The dearest product.")


@varve.asset(BEST, reads={"revenue": REVENUE})
def best(revenue):
    return revenue.orderBy("revenue").limit(1)
"""
TOTALS = "AS SELECT SUM(revenue) AS total FROM shop.revenue WHERE revenue.day BETWEEN DATE_SUB(today, 1) AND today"
RUN = """
import json, sys
from typer.testing import CliRunner
from varve.cli.app import app
done = CliRunner().invoke(app, sys.argv[1:])
if done.exception is not None: raise done.exception
print(json.dumps({"output": done.output, "dagster": "dagster" in sys.modules}))
"""


@pytest.fixture
def shop(tmp_path: Path, settings: Settings, fresh_database: str, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("VARVE_POSTGRES_URL", fresh_database)
    monkeypatch.setenv("VARVE_DAGSTER_POSTGRES_URL", fresh_database)
    home = tmp_path / "dagster"
    home.mkdir()
    shutil.copy(ROOT / "dagster.yaml", home)
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    ours = settings.model_copy(update={"postgres_url": fresh_database, "dagster_postgres_url": fresh_database})
    shop = Shop.at(tmp_path, Workbench(ours, None), monkeypatch)  # type: ignore[arg-type]
    shop.sql("revenue", REVENUE)
    shop.sql("totals", TOTALS, store="WAREHOUSE")
    # A module that a dataset may name declares none.
    (shop.assets / "colours.py").write_text("import decimal\n\ndef red(frame):\n    return frame\n")
    (shop.assets / "best.py").write_text(IN_PYTHON.replace("shop.", f"{shop.db}."))
    return shop


def alone(shop: Shop, *words: str) -> dict[str, Any]:
    """A command in a process of its own: what it printed, and whether it has imported Dagster."""
    words = tuple(word.replace("shop.", f"{shop.db}.") for word in words)
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words], cwd=shop.root, env=dict(os.environ), capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_plan_why_and_graph_import_no_dagster_and_say_the_same_as_with_it(shop: Shop, settings: Settings) -> None:
    with open_instance(shop.workbench.settings), connect(shop.workbench.settings) as connection:
        catalog = Catalog(connection)
        catalog.ensure_schema()
    commands = [["graph"], ["check"], ["graph", "--format", "json"], ["why", "shop.totals", "day=2026-11-02", "--json"],
                ["why", "shop.best", "day=2026-11-02", "--json"], ["plan", "--json"]]  # fmt: skip
    for words in commands:
        light = alone(shop, *words)
        assert not light["dagster"], words
        assert light["output"] == shop.run(*words).output
    assert f"{shop.db}.totals" in light["output"]


def test_the_graph_is_that_of_dagsters_assets(shop: Shop) -> None:
    shop.sql("taken", "REJECT UP TO 3 ROWS INTO shop.refused\nEXTERNAL;", columns="(id INT, product STRING)")
    shop.sql("wrong", "AS SELECT nobody FROM shop.sales WHERE sales.day = today")
    files = sql_datasets(shop.assets)
    assert [broken.name for broken in files.broken] == [f"{shop.db}.wrong"]
    graph = graph_of_folder(shop.assets, files)
    declared = [asset for asset in assets_of(files, shop.assets) if isinstance(asset, DatasetAsset)]
    assert {asset.dataset.name for asset in declared} == graph.datasets.keys()
    assert {f"{shop.db}.refused", f"{shop.db}.best"} < graph.datasets.keys()
    for asset in declared:
        specs = [asset.asset] if isinstance(asset.asset, dg.AssetSpec) else [*asset.asset.specs]
        assert [".".join(spec.key.path) for spec in specs] == [asset.dataset.name]
        reads = {".".join(dependency.asset_key.path) for dependency in specs[0].deps}
        assert reads == {edge.upstream.name for edge in graph.edges[asset.dataset.name]}
        if isinstance(asset.asset, dg.AssetsDefinition):
            assert specs[0].code_version == graph.code_versions[asset.dataset.name]


def test_a_partition_is_judged_by_what_it_reads_alone_as_by_a_plan_of_everything(shop: Shop) -> None:
    sales, revenue = shop.asset("sales").dataset, f"{shop.db}.revenue"
    key = PartitionKey.of(day=dt.date(2026, 11, 2))
    with open_instance(shop.workbench.settings), connect(shop.workbench.settings) as connection:
        catalog = Catalog(connection)
        catalog.ensure_schema()
        # A run is on what it reads.
        catalog.begin(sales, [key], run_id="0a1b2c3d", code_version="")
        with opened_plan() as opened:
            judgements = opened.plan().judgements
            of_all = why_of(shop.asset("revenue").dataset, key, opened, judgements)
            judged = (
                Planner(chosen_graph(), Limits(), keep_settled=True, only={sales.name, revenue})
                .tick(opened.facts, None, now=pendulum.now("UTC"), members=opened.members, codes=opened.facts.codes)
                .judgements
            )
            seen = opened.overview().judgements
        assert why(revenue, ["day=2026-11-02"]) == of_all
    assert [each["state"] for each in of_all["reads"]] == ["in flight"]
    assert judgements[sales.name]
    assert all(judged[name] == judgements[name] for name in (sales.name, revenue))
    assert {name: {path: each.state for path, each in paths.items()} for name, paths in seen.items()} == {
        name: {path: each.state for path, each in paths.items()} for name, paths in judgements.items()
    }


def test_the_tables_of_dagsters_storage_say_what_dagster_says(shop: Shop) -> None:
    ours = Project.find(shop.root).settings
    finished = {dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED}

    def unfinished() -> bool:
        with opened_tables(ours) as tables:
            assert tables is not None
            return tables.has_unfinished_runs()

    with open_instance(ours) as instance:
        assert not unfinished()
        run = instance.create_run_for_job(nothing)
        instance.add_dynamic_partitions("of/a~set", ["b", "a"])
        with opened_tables(ours) as tables:
            assert tables is not None
            assert tables.keys_of_set("of/a~set") == instance.get_dynamic_partitions("of/a~set") == ["b", "a"]
        for status in dg.DagsterRunStatus:
            with connect(ours) as connection:
                connection.execute("update runs set status = %s where run_id = %s", [status.value, run.run_id])
            assert unfinished() is (status not in finished)
    home = Path(os.environ["DAGSTER_HOME"])
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    with opened_tables(ours) as tables:
        assert tables is None


def test_a_look_at_dagsters_storage_through_a_pooler_leaves_its_sessions_as_they_were(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Project.find(shop.root).settings
    with open_instance(ours) as instance:
        instance.add_dynamic_partitions("some", ["b"])
    storage = dagster_libpq_url(ours)
    user = str(conninfo_to_dict(storage)["user"])
    names = ("default_transaction_read_only", "statement_timeout", "search_path", "TimeZone", "row_security")
    with pooler(storage, user) as url, psycopg.connect(url, autocommit=True, prepare_threshold=None) as dagsters:
        before = [dagsters.execute(f"show {name}".encode()).fetchone() for name in names]
        monkeypatch.setenv("VARVE_DAGSTER_POSTGRES_URL", url)
        with opened_tables(Project.find(shop.root).settings) as tables:
            assert tables is not None
            assert tables.keys_of_set("some") == ["b"]
        assert [dagsters.execute(f"show {name}".encode()).fetchone() for name in names] == before


@dg.job
def nothing() -> None: ...


def test_the_help_costs_what_typer_costs() -> None:
    """It took a second of a processor: the costs' command imported psycopg for the names of its options."""
    heavy = {"psycopg", "dagster", "pyspark", "pendulum", "sqlglot", "pyarrow", "pydantic", "numpy"}
    code = f"import sys; import varve.cli.app; print(*sorted({heavy!r} & set(sys.modules)))"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert imported.stdout.strip() == ""
