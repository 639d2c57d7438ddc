"""The same query asked of the same inputs again: the planner's runs put the earlier batch back; people's compute."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from typer.testing import CliRunner

from tests.dagster.test_sql_assets import materialise, project, rows
from tests.support.project import commands_on
from varve.catalog.backfills import Backfills
from varve.cli.app import app
from varve.dagster.assets.datasets import graph_of
from varve.dagster.definitions import build_defs
from varve.model.batch import BatchId
from varve.planning.requested import AGAIN_TAG

if TYPE_CHECKING:
    from tests.conftest import Workbench
    from varve.dagster.assets.datasets import DatasetAsset

__all__ = ["project"]
pytestmark = pytest.mark.spark
DAY, PATH = "2022-03-01", "day=2022-03-01"


def planned(found: list[DatasetAsset], name: str) -> dg.ExecuteInProcessResult:
    """As the planner asks for it."""
    job = build_defs(found).resolve_implicit_global_asset_job_def()
    done = job.execute_in_process(
        asset_selection=[dg.AssetKey(name.split("."))], partition_key=DAY, tags={AGAIN_TAG: "yes"}
    )
    assert done.success
    return done


def current(workbench: Workbench, found: list[DatasetAsset], name: str) -> int:
    (dataset,) = [each.dataset for each in found if each.dataset.name == name]
    return workbench.current(dataset)[PATH].batch_id.millis


def test_a_rolled_back_input_brings_the_earlier_batch_back(
    workbench: Workbench, project: tuple[str, list[DatasetAsset]], monkeypatch: pytest.MonkeyPatch
) -> None:
    db, found = project
    receipts, sales = f"{db}.receipts", f"{db}.sales"
    (source,) = [each.dataset for each in found if each.dataset.name == receipts]
    assert materialise(found, receipts, DAY, DAY).success
    first_input = current(workbench, found, receipts)
    planned(found, sales)
    first = current(workbench, found, sales)
    before = rows(workbench, found, sales)

    # Asked for again while it is in force: somebody wants it computed.
    planned(found, sales)
    second = current(workbench, found, sales)
    assert second > first

    # Another input: computed. The input as it was: the newest batch that was made from it is back.
    assert materialise(found, receipts, DAY, DAY).success
    planned(found, sales)
    third = current(workbench, found, sales)
    assert third > second
    catalog = workbench.catalog()
    key = source.partitioning.from_path(PATH)
    build = catalog.take(source, [key], run_id="rollback")
    catalog.repoint(build, {key: BatchId(first_input)})
    catalog.release(build)
    done = planned(found, sales)
    assert current(workbench, found, sales) == second
    assert rows(workbench, found, sales) == before
    (event,) = done.asset_materializations_for_node(f"{db}__sales")
    assert event.metadata["varve/again"].value == "the same code and inputs as before"
    assert event.metadata["varve/batch_id"].value == str(second)
    assert [each.passed for each in done.get_asset_check_evaluations()] == [True]
    left = catalog.connection.execute(
        "select count(*) from varve.batch where dataset = %s and state not in ('published', 'retired')", (sales,)
    ).fetchone()
    assert left == (0,)
    assert catalog.connection.execute("select count(*) from varve.hold where dataset = %s", (sales,)).fetchone() == (0,)

    # What it was made from, for people.
    commands_on(graph_of(found), monkeypatch)
    said = CliRunner().invoke(app, ["show", sales, f"day={DAY}", "--batch", str(second), "--json"])
    assert said.exit_code == 0, said.output
    (trace,) = json.loads(said.output)["partitions"]
    assert trace["in_force"]
    assert trace["code_is_the_same"]
    assert trace["inputs"] == [
        {"source": receipts, "partition": PATH, "version": str(first_input), "now": str(first_input)},
    ]  # fmt: skip
    shown = CliRunner().invoke(app, ["show", receipts, f"day={DAY}", "--batch", str(first_input)])
    assert f"{sales} {PATH} batch {second} was made from it (published)" in " ".join(shown.output.split())
    refused = CliRunner().invoke(app, ["show", sales, "--batch", "17"])
    assert f"{sales}: no batch 17." in str(refused.exception)

    # A mark says that the data is wrong, whatever it was made from.
    Backfills(catalog.connection).add({sales: [PATH]}, reason="wrong", owner="me")
    planned(found, sales)
    assert current(workbench, found, sales) > third
    catalog.connection.close()


def test_a_run_by_hand_computes(workbench: Workbench, project: tuple[str, list[DatasetAsset]]) -> None:
    db, found = project
    assert materialise(found, f"{db}.receipts", DAY, DAY).success
    for _ in range(2):
        assert materialise(found, f"{db}.sales", DAY, DAY).success
    catalog = workbench.catalog()
    made = catalog.connection.execute("select count(*) from varve.batch where dataset = %s", (f"{db}.sales",))
    assert made.fetchone() == (2,)
    catalog.connection.close()
