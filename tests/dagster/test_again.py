"""The same query over the same inputs: a run of the planner reuses the earlier batch; a run by hand computes."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from typer.testing import CliRunner

from tests.dagster.test_sql_assets import files, materialise, project, rows
from tests.support.project import commands_on
from varve.catalog.backfills import Backfills
from varve.cli.app import app
from varve.dagster.assets.datasets import graph_of
from varve.dagster.definitions import build_defs
from varve.model.batch import BatchId
from varve.planning.requested import AGAIN_TAG, FORMER_AGAIN_TAG, PARENT_TAG, RESUME_TAG, RETRY_TAG

if TYPE_CHECKING:
    from tests.support.workbench import Workbench
    from varve.dagster.assets.datasets import DatasetAsset
    from varve.model.dataset import Dataset

__all__ = ["project"]
pytestmark = pytest.mark.spark
DAY, PATH = "2022-03-01", "day=2022-03-01"
# More than Spark Connect can send as one condition that is nested to one side.
MANY = ", ".join(["revenue >= 0", *(f"more_than_{n}: revenue > -{n}" for n in range(1, 80))])


def planned(
    assets: list[DatasetAsset], name: str, *, tag: str = AGAIN_TAG, more: dict[str, str] | None = None
) -> dg.ExecuteInProcessResult:
    """Run one partition with the tags of a run of the planner."""
    job = build_defs(assets).resolve_implicit_global_asset_job_def()
    of_run = {tag: "yes"} | (more or {})
    done = job.execute_in_process(asset_selection=[dg.AssetKey(name.split("."))], partition_key=DAY, tags=of_run)
    assert done.success
    return done


def current(workbench: Workbench, assets: list[DatasetAsset], name: str) -> int:
    (dataset,) = [asset.dataset for asset in assets if asset.dataset.name == name]
    return workbench.current(dataset)[PATH].batch_id.millis


def roll_back(workbench: Workbench, dataset: Dataset, batch: int) -> None:
    """A person makes an earlier batch of the day current."""
    catalog = workbench.catalog()
    key = dataset.partitioning.from_path(PATH)
    build = catalog.lock_partitions(dataset, [key], run_id="rollback")
    catalog.repoint(build, {key: BatchId(batch)})
    catalog.release(build)
    catalog.connection.close()


def test_a_rolled_back_input_brings_the_earlier_batch_back(
    workbench: Workbench, project: tuple[str, list[DatasetAsset]], monkeypatch: pytest.MonkeyPatch
) -> None:
    db, assets = project
    receipts, sales = f"{db}.receipts", f"{db}.sales"
    (source,) = [asset.dataset for asset in assets if asset.dataset.name == receipts]
    assert materialise(assets, receipts, DAY, DAY).success
    first_input = current(workbench, assets, receipts)
    planned(assets, sales)
    first = current(workbench, assets, sales)
    before = rows(workbench, assets, sales)

    # A run by hand of what is current computes it again.
    planned(assets, sales)
    second = current(workbench, assets, sales)
    assert second > first

    # A changed input is computed. Where the input is as before, the newest batch made from it is current again.
    assert materialise(assets, receipts, DAY, DAY).success
    planned(assets, sales)
    third = current(workbench, assets, sales)
    assert third > second
    roll_back(workbench, source, first_input)
    catalog = workbench.catalog()
    # So it is in a run that an earlier version has asked for, which still waited in Dagster's queue.
    run_result = planned(assets, sales, tag=FORMER_AGAIN_TAG)
    assert current(workbench, assets, sales) == second
    assert rows(workbench, assets, sales) == before
    (event,) = run_result.asset_materializations_for_node(f"{db}__sales")
    assert event.metadata["varve/again"].value == "the same code and inputs as before"
    assert event.metadata["varve/batch_id"].value == str(second)
    assert [evaluation.passed for evaluation in run_result.get_asset_check_evaluations()] == [True, True]
    left = catalog.connection.execute(
        "select count(*) from varve.batch where dataset = %s and state not in ('published', 'retired')", (sales,)
    ).fetchone()
    assert left == (0,)
    assert catalog.connection.execute("select count(*) from varve.hold where dataset = %s", (sales,)).fetchone() == (0,)

    # The command shows what the batch was made from.
    commands_on(graph_of(assets), monkeypatch)
    monkeypatch.setenv("VARVE_UI_URL", "http://dagster.shop.example/")
    program, *words = shlex.split(str(event.metadata["varve/show"].value))
    assert program == "varve"
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    (trace,) = json.loads(result.output)["partitions"]
    page = f"http://dagster.shop.example/runs/{trace['run']}"
    assert trace["run_url"] == page
    assert page in CliRunner().invoke(app, words).output
    assert trace["is_current"]
    assert trace["code_is_the_same"]
    assert trace["inputs"] == [
        {"source": receipts, "partition": PATH, "version": str(first_input), "now": str(first_input)},
    ]  # fmt: skip
    shown = CliRunner().invoke(app, ["show", receipts, f"day={DAY}", "--batch", str(first_input)])
    assert f"{sales} {PATH} batch {second} was made from it (published)" in " ".join(shown.output.split())
    refused = CliRunner().invoke(app, ["show", sales, "--batch", "17"])
    assert f"{sales}: no batch 17." in str(refused.exception)

    # A backfill's mark says that the data is wrong, so nothing is reused.
    Backfills(catalog.connection).add({sales: [PATH]}, reason="wrong", owner="me")
    planned(assets, sales)
    assert current(workbench, assets, sales) > third
    catalog.connection.close()


@pytest.mark.parametrize(
    ("expected", "comes_back"), [("revenue > 1", False), (MANY, True)], ids=["broken", "many hold"]
)
def test_an_earlier_batch_comes_back_only_where_it_is_as_is_expected_now(
    workbench: Workbench, project: tuple[str, list[DatasetAsset]], expected: str, *, comes_back: bool
) -> None:
    db, assets = project
    receipts, sales = f"{db}.receipts", f"{db}.sales"
    (source,) = [asset.dataset for asset in assets if asset.dataset.name == receipts]
    assert materialise(assets, receipts, DAY, DAY).success
    first_input = current(workbench, assets, receipts)
    planned(assets, sales)
    first = current(workbench, assets, sales)
    assert materialise(assets, receipts, DAY, DAY).success
    planned(assets, sales)
    later = current(workbench, assets, sales)
    roll_back(workbench, source, first_input)
    stricter = files(db, f"default.{db}_dumps", expected)
    (before,) = [asset for asset in assets if asset.dataset.name == sales]
    (after,) = [asset for asset in stricter if asset.dataset.name == sales]
    # No batch is out of date by another expectation alone.
    assert graph_of(assets).code_versions[sales] == graph_of(stricter).code_versions[sales]
    assert before.checks != after.checks
    job = build_defs(stricter).resolve_implicit_global_asset_job_def()
    done = job.execute_in_process(
        asset_selection=[dg.AssetKey(sales.split("."))], partition_key=DAY, tags={AGAIN_TAG: "yes"},
        raise_on_error=False,
    )  # fmt: skip
    assert done.success == comes_back
    assert current(workbench, assets, sales) == (first if comes_back else later)


@pytest.mark.parametrize("damage", ["deleted", "cut"])
def test_an_earlier_batch_that_somebody_has_deleted_or_damaged_is_computed_again(
    workbench: Workbench, project: tuple[str, list[DatasetAsset]], damage: str
) -> None:
    db, assets = project
    receipts, sales = f"{db}.receipts", f"{db}.sales"
    (source,) = [asset.dataset for asset in assets if asset.dataset.name == receipts]
    (computed,) = [asset.dataset for asset in assets if asset.dataset.name == sales]
    assert materialise(assets, receipts, DAY, DAY).success
    first_input = current(workbench, assets, receipts)
    planned(assets, sales)
    before = rows(workbench, assets, sales)
    folder = Path(workbench.current(computed)[PATH].location.removeprefix("file:"))
    assert materialise(assets, receipts, DAY, DAY).success
    planned(assets, sales)
    later = current(workbench, assets, sales)
    roll_back(workbench, source, first_input)
    if damage == "deleted":
        shutil.rmtree(folder)
    else:
        (file,) = folder.glob("*.parquet")
        file.write_bytes(file.read_bytes()[:400])
    planned(assets, sales)
    assert current(workbench, assets, sales) > later
    assert rows(workbench, assets, sales) == before


def test_who_executes_a_run_of_a_sensor_again_asks_by_hand_though_its_tags_come_with_it(
    workbench: Workbench, project: tuple[str, list[DatasetAsset]]
) -> None:
    db, assets = project
    sales = f"{db}.sales"
    assert materialise(assets, f"{db}.receipts", DAY, DAY).success
    for _ in range(2):
        planned(assets, sales)
    second = current(workbench, assets, sales)
    planned(assets, sales, more={PARENT_TAG: "a run"})
    third = current(workbench, assets, sales)
    assert third > second
    # Dagster's daemon asks for nothing else than the run did that failed.
    planned(assets, sales, more={PARENT_TAG: "a run", RETRY_TAG: "1"})
    assert current(workbench, assets, sales) == second
    planned(assets, sales, more={PARENT_TAG: "a run", RESUME_TAG: "true"})
    assert current(workbench, assets, sales) == third


def test_a_run_by_hand_computes(workbench: Workbench, project: tuple[str, list[DatasetAsset]]) -> None:
    db, assets = project
    assert materialise(assets, f"{db}.receipts", DAY, DAY).success
    for _ in range(2):
        assert materialise(assets, f"{db}.sales", DAY, DAY).success
    catalog = workbench.catalog()
    made = catalog.connection.execute("select count(*) from varve.batch where dataset = %s", (f"{db}.sales",))
    assert made.fetchone() == (2,)
    catalog.connection.close()
