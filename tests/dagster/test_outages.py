"""A service that is away uses up no attempts: what a run notes of it, and what the next look makes of that."""

import socket
import subprocess
import uuid
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import dagster as dg
import pendulum
import pytest
from pyspark.sql import DataFrame

from tests.dagster import group_run
from tests.dagster.test_sql_assets import materialise
from varve.catalog.catalog import Catalog
from varve.catalog.history.alerts.facts import AlertCatalog
from varve.catalog.planning.facts import CatalogFacts
from varve.dagster.assets.datasets import DatasetAsset, dataset_asset, graph_of
from varve.dagster.definitions import build_defs
from varve.dagster.runs.failures import explained
from varve.model.dataset import StoreKind
from varve.model.errors import NOTHING_LOST, ServiceUnavailable
from varve.model.policy import Policy
from varve.planning.judgement.judgement import Judgement, State
from varve.planning.reconcile import reconcile
from varve.planning.tick import Limits
from varve.stores.open_build import OpenBuild

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.workbench import Workbench
    from varve.model.dataset import Dataset
    from varve.services.settings import Settings

pytestmark = pytest.mark.spark
DAY = group_run.DAYS[0]


def asset_of(body: "Callable[[dg.AssetExecutionContext], object]", store: StoreKind = StoreKind.LAKE) -> DatasetAsset:
    """A dataset without inputs whose function does this."""
    dataset = group_run.datasets(f"away{uuid.uuid4().hex[:8]}")["lake_first"]

    @dataset_asset(replace(dataset, policy=Policy(by_itself=True), store=store))
    def first(context: dg.AssetExecutionContext) -> DataFrame:
        return body(context)  # type: ignore[return-value] - some fail before they have any

    return first


def run(asset: DatasetAsset, **options: object) -> dg.ExecuteInProcessResult:
    job = build_defs([asset]).resolve_implicit_global_asset_job_def()
    return job.execute_in_process(partition_key=DAY, raise_on_error=False, **options)  # type: ignore[arg-type]


def judged(workbench: "Workbench", asset: DatasetAsset, *, later: float = 0.0) -> Judgement:
    """The judgement of the day, so many seconds from now."""
    graph = graph_of([asset])
    now = pendulum.now("UTC").add(seconds=later)
    with closing(workbench.catalog().connection) as connection:
        plan = reconcile(graph, CatalogFacts(connection), now=now, limits=Limits())
    return plan.judgements[asset.dataset.name][f"day={DAY}"]


def notes(workbench: "Workbench", dataset: "Dataset") -> list[tuple[str, bool]]:
    statement = "select failure, outage from varve.batch where dataset = %s order by batch_id"
    with closing(workbench.catalog().connection) as connection:
        return connection.execute(statement, (dataset.name,)).fetchall()


def _rows(context: dg.AssetExecutionContext) -> object:
    session = context.resources.spark.spark_session
    return session.createDataFrame([(1, DAY)], "version INT, day STRING").selectExpr("version", "DATE(day) AS day")


def test_a_spark_that_is_away_uses_up_no_attempt_and_is_told(
    workbench: "Workbench", monkeypatch: pytest.MonkeyPatch
) -> None:
    asset = asset_of(_rows)
    with monkeypatch.context() as patch:
        patch.setenv("VARVE_SPARK_REMOTE", "sc://127.0.0.1:1")
        for _ in range(4):
            assert not run(asset).success
    reasons, outages = zip(*notes(workbench, asset.dataset), strict=True)
    assert outages == (True,) * 4
    assert all("Spark (sc://127.0.0.1:1) cannot be used" in reason for reason in reasons), reasons
    judgement = judged(workbench, asset)
    assert judgement.state is State.BACKING_OFF
    assert judgement.outages == 4
    assert "what it needs was away, full or in use in the last 4 attempts; tried again at" in judgement.reason
    assert judged(workbench, asset, later=601).state is State.DUE
    with closing(workbench.catalog().connection) as connection:
        told = AlertCatalog(connection).outages()
    assert "Spark (sc://127.0.0.1:1) cannot be used" in told[asset.dataset.name]
    assert run(asset).success
    assert judged(workbench, asset).state is State.CURRENT


@pytest.mark.parametrize(
    "body",
    [
        lambda _: socket.create_connection(("127.0.0.1", 1), timeout=5),
        lambda context: context.resources.spark.spark_session.read.parquet("hdfs://nowhere.invalid:1/x"),
    ],
    ids=["of Python", "of Spark"],
)
def test_a_service_that_the_function_asks_itself_is_one_too(
    workbench: "Workbench", body: "Callable[[dg.AssetExecutionContext], object]"
) -> None:
    asset = asset_of(body)
    assert not run(asset).success
    ((reason, outage),) = notes(workbench, asset.dataset)
    assert outage, reason


def test_what_spark_says_while_it_writes_is_told_as_that(workbench: "Workbench", settings: "Settings") -> None:
    dataset = asset_of(_rows).dataset
    with closing(workbench.catalog().connection) as connection:
        catalog = Catalog(connection)
        opened = OpenBuild(
            catalog.begin(dataset, [dataset.partitioning.from_dagster(DAY)], run_id="r", code_version=""), catalog
        )
        with pytest.raises(ServiceUnavailable) as refused, explained(opened, settings):
            workbench.spark.read.parquet("hdfs://nowhere.invalid:8020/lake").collect()
        catalog.fail(opened.build, "away")
        catalog.release(opened.build)
    assert str(refused.value).startswith(f"{opened.build}: a service that Spark needs cannot be reached: ")
    assert "nowhere.invalid" in str(refused.value)
    assert NOTHING_LOST in str(refused.value)


def test_readers_who_keep_a_view_for_long_use_up_no_attempt(
    workbench: "Workbench", monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pg_dump holds each view until it ends: three runs meanwhile had given the partition up."""
    monkeypatch.setenv("VARVE_PUBLISH_SECONDS", "0.5")
    asset = asset_of(_rows, StoreKind.WAREHOUSE)
    assert run(asset).success
    with closing(workbench.catalog().connection) as reader, reader.transaction():
        reader.execute(f"select from {asset.dataset.name}".encode())
        for _ in range(4):
            assert not run(asset).success
        reasons, outages = zip(*notes(workbench, asset.dataset)[1:], strict=True)
    assert outages == (True,) * 4
    assert all("was in use for longer than" in reason for reason in reasons), reasons
    assert run(asset).success
    assert judged(workbench, asset).state is State.CURRENT


@pytest.fixture
def full_disk(tmp_path: "Path", workbench: "Workbench", monkeypatch: pytest.MonkeyPatch) -> "Iterator[Path]":
    """A lake on a disk of one megabyte, which somebody's file fills: that file."""
    lake = tmp_path / "lake"
    lake.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "tmpfs", lake], check=True, timeout=30)
    try:
        monkeypatch.setenv("VARVE_LAKE_ROOT", str(lake))
        filler = lake / "somebody-elses.bin"
        with suppress(OSError), filler.open("wb", buffering=0) as opened:
            while opened.write(b"\0" * 4096):
                pass
        yield filler
    finally:
        # The disk goes, and with it the metadata to which the catalog, which other tests share, would go on pointing.
        with closing(workbench.catalog().connection) as connection:
            connection.execute("delete from varve.iceberg_table where written_location like %s", (f"%{lake}/%",))
        subprocess.run(["umount", "--lazy", lake], check=True, timeout=30)


def test_a_full_disk_uses_up_no_attempt_and_what_waits_goes_on_when_there_is_room(
    workbench: "Workbench", full_disk: "Path"
) -> None:
    asset = asset_of(_rows)
    for _ in range(4):
        assert not run(asset).success
    reasons, outages = zip(*notes(workbench, asset.dataset), strict=True)
    assert outages == (True,) * 4
    assert all("the disk under the lake is full. Nothing was published" in reason for reason in reasons), reasons
    assert judged(workbench, asset).state is State.BACKING_OFF
    assert judged(workbench, asset, later=601).state is State.DUE
    full_disk.unlink()
    assert run(asset).success
    assert judged(workbench, asset).state is State.CURRENT


def test_a_run_of_many_partitions_that_finds_the_disk_full_is_halved(workbench: "Workbench", full_disk: "Path") -> None:
    """Fewer of them may fit: it is no outage, and counts against none of them."""
    assert full_disk.stat().st_size > 0
    asset = asset_of(_rows)
    done = materialise([asset], asset.dataset.name, *group_run.DAYS[:2])
    assert not done.success
    ((_, first), (_, second)) = notes(workbench, asset.dataset)
    assert (first, second) == (False, False)
    assert judged(workbench, asset, later=601).together == 1


def test_a_range_whose_ends_are_the_wrong_way_round_is_told(workbench: "Workbench") -> None:
    asset = asset_of(_rows)
    before, after = group_run.DAYS[:2]
    failed = materialise([asset], asset.dataset.name, after, before)
    said = str(failed.failure_data_for_node(asset.dataset.name.replace(".", "__")))
    assert f"no partition lies in the range {after}...{before}. {NOTHING_LOST} Name the earlier end first." in said
    assert notes(workbench, asset.dataset) == []


def test_three_failures_of_the_partition_itself_still_give_it_up(workbench: "Workbench") -> None:
    def body(context: dg.AssetExecutionContext) -> object:
        raise ValueError(f"no rates for {context.partition_key}")

    asset = asset_of(body)
    for _ in range(3):
        assert not run(asset).success
    assert [outage for _, outage in notes(workbench, asset.dataset)] == [False] * 3
    assert judged(workbench, asset).state is State.FAILED
