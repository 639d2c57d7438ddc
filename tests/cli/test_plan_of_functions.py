"""`varve plan` on a project of which a function was edited that a query calls, and no SQL file."""

from __future__ import annotations

import datetime as dt
import difflib
import importlib
import json
from typing import TYPE_CHECKING

import psycopg
from typer.testing import CliRunner

from tests.support.project import commands_on
from varve.catalog.catalog import Catalog
from varve.catalog.code.decision import Decision
from varve.catalog.code.deployments import Deployments
from varve.cli.app import app
from varve.cli.plan import planning
from varve.dagster.assets.datasets import dataset_asset, graph_of
from varve.dagster.assets.sql_assets import assets_of
from varve.dagster.assets.sql_folders import loaded
from varve.model.batch import StagedBatch
from varve.model.dataset import Dataset
from varve.model.partitions.dimension import StaticDimension
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from varve.planning.graph import Graph
    from varve.services.settings import Settings

TILLS = """\
CREATE DATASET shop.tills (price DOUBLE COMMENT 'euros, with tax')
  COMMENT 'One row per sale.'
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-01', END '2026-11-04')
  INSERT (day = CAST(t AS DATE))
EXTERNAL;
"""
SALES = """\
CREATE DATASET shop.{name}
  COMMENT 'One row per sale.'
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-01', END '2026-11-04')
  LET today = CAST(t AS DATE)
  INSERT (day = today)
AS
SELECT {price} AS price FROM shop.tills WHERE day = today;
"""
PRICES = """\
import varve


@varve.function(returns="DOUBLE")
def net(price):
    return price / 1.25
"""


def test_a_change_of_a_function_is_a_change_of_what_calls_it(
    settings: Settings, fresh_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings.home_dir
    monkeypatch.setenv("VARVE_POSTGRES_URL", fresh_database)
    monkeypatch.setenv("VARVE_DAGSTER_POSTGRES_URL", fresh_database)
    monkeypatch.setattr(planning.console, "width", 200)
    assets = tmp_path / "own_functions"
    assets.mkdir()
    files = {
        "tills.sql": TILLS, "net.sql": SALES.format(name="net", price="net(price)"),
        "gross.sql": SALES.format(name="gross", price="price"), "prices.py": PRICES,
    }  # fmt: skip
    for name, text in files.items():
        (assets / name).write_text(text)

    def graph() -> Graph:
        return graph_of(assets_of(loaded(assets), assets))

    deployed = graph()
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        Catalog(connection).ensure_schema()
        for name, dataset in deployed.datasets.items():
            code, source = deployed.code_versions[name], deployed.sources[name]
            Deployments(connection).deploy(dataset, code, source, Decision.of_policy(dataset), by="ann")
            publish(Catalog(connection), dataset, code)
    commands_on(deployed, monkeypatch)
    assert json.loads(varve("plan", "--json"))["changes"]["datasets"] == []
    (assets / "prices.py").write_text(PRICES.replace("1.25", "1.19"))
    commands_on(graph(), monkeypatch)
    (change,) = json.loads(varve("plan", "--json"))["changes"]["datasets"]
    assert (change["dataset"], change["kind"]) == ("shop.net", "changed")
    shown = varve("plan")
    assert "~ shop.net: changed" in shown
    assert "---     return price / 1.25" in shown
    assert "+--     return price / 1.19" in shown


FUNCTIONS = """\
from rates_of_shop import rate


def revenue(spark, scope, tills):
    return tills.selectExpr(f"sum(price) * {rate()} as cents")
"""
RATES = "def rate():\n    return {rate}\n"
OF_PYTHON = """\
CREATE DATASET shop.revenue (cents DOUBLE)
  COMMENT 'One row per day.'
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-01', END '2026-11-04')
  LET today = CAST(t AS DATE)
  INSERT (day = today)
PYTHON 'functions_of_shop:revenue' USING tills AS (SELECT price FROM shop.tills WHERE day = today);
"""


def test_a_diff_shows_what_was_edited_where_it_is_in_a_module_that_is_only_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "functions_of_shop.py").write_text(FUNCTIONS)
    assets = tmp_path / "assets_of_shop"
    assets.mkdir()
    (assets / "revenue.sql").write_text(OF_PYTHON)
    (assets / "tills.sql").write_text(TILLS)
    diffs = []
    for rate in (1, 2):
        (tmp_path / "rates_of_shop.py").write_text(RATES.format(rate=rate))
        diffs.append(graph_of(assets_of(loaded(assets), assets)).sources["shop.revenue"].splitlines())
    changed = [line for line in difflib.unified_diff(*diffs, lineterm="", n=0) if line[:2] in {"--", "+-"}]
    assert [line for line in changed if "return" in line] == ["---     return 1", "+--     return 2"]
    assert "-- # of rates_of_shop.py:" in diffs[1]


def test_the_source_of_a_python_dataset_has_what_it_needs_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "helping_tills.py").write_text("RATE = 3\n\n\ndef unused():\n    return 1\n")
    (tmp_path / "rating_tills.py").write_text(
        "from helping_tills import RATE\n\n\ndef rate(context):\n    return RATE  # as it is\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    function = importlib.import_module("rating_tills").rate
    tills = Partitioning((StaticDimension("till", ("a",)),))
    rates = Dataset("shop.rates", tills, Schema((Column("rate", ColumnType.INT),)), "lake", "Rates.")
    assert dataset_asset(rates)(function).source == (
        "def rate(context):\n    return RATE  # as it is\n\n\n# of helping_tills.py:\nRATE = 3\n"
    )


def publish(catalog: Catalog, dataset: Dataset, code: str) -> None:
    """Publish a batch of the first day, which this code has made."""
    day = PartitionKey.of(day=dt.date(2026, 11, 1))
    build = catalog.begin(dataset, [day], run_id="run", code_version=code)
    catalog.staged(build, [StagedBatch(day, "/nowhere", 1, 1, 1)])
    try:
        catalog.publish(build)
    finally:
        catalog.release(build)


def varve(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output
