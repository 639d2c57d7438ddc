"""Steps that Dagster tries again within their run, as a RetryPolicy of their asset has it: each attempt builds anew."""

import os
import signal
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tests.dagster import attempts_run
from tests.support.dagster_home import make_dagster_home
from tests.support.workbench import Workbench
from varve.catalog.history.history import History
from varve.catalog.traces import Traces
from varve.dagster.assets.datasets import DatasetAsset, dataset_asset
from varve.dagster.definitions import build_defs
from varve.dagster.driver import RUN_CONFIG
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import StaticDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.requested import PARTITION_TAG
from varve.stores.lake.store import LakeStore

pytestmark = pytest.mark.spark
LETTERS = Partitioning((StaticDimension("letter", ("a", "b")),))
N = Schema((Column("n", ColumnType.BIGINT),))


class Shop:
    """A dataset, and one that reads it: its function calls `during` at each attempt, which may fail."""

    def __init__(self, workbench: Workbench, during: Callable[["Shop", int], None], **about: Any) -> None:
        db = f"r{uuid.uuid4().hex[:8]}"
        self.workbench, self.attempts = workbench, 0
        source = Dataset(f"{db}.source", LETTERS, N, StoreKind.LAKE, "")
        self.source = source

        @dataset_asset(source)
        def make_source(context: dg.AssetExecutionContext) -> Any:
            return context.resources.spark.spark_session.sql("select 1L as n, 'a' as letter")

        @dataset_asset(Dataset(f"{db}.reader", LETTERS, N, StoreKind.LAKE, ""), reads={"rows": source}, about=about)
        def reader(context: dg.AssetExecutionContext, rows: Any) -> Any:
            self.attempts += 1
            during(self, self.attempts)
            return rows

        self.assets: list[DatasetAsset] = [make_source, reader]
        self.reader = reader.dataset

    def run(self, dataset: Dataset, instance: dg.DagsterInstance | None = None) -> dg.ExecuteInProcessResult:
        job = build_defs(self.assets).resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            asset_selection=[dg.AssetKey(dataset.name.split("."))], partition_key="a", run_config=RUN_CONFIG,
            raise_on_error=False, instance=instance,
        )  # fmt: skip

    def current(self, dataset: Dataset) -> Any:
        return self.workbench.current(dataset)["letter=a"]


def test_an_attempt_after_another_one_reads_what_is_current_by_then_and_its_trace_has_nothing_of_the_first(
    workbench: Workbench,
) -> None:
    def during(shop: Shop, attempt: int) -> None:
        if attempt == 1:
            assert shop.run(shop.source).success
            raise RuntimeError("a service of the function's own was away")

    shop = Shop(workbench, during, retry_policy=dg.RetryPolicy(max_retries=2))
    assert shop.run(shop.source).success
    assert shop.run(shop.reader).success
    assert shop.attempts == 2
    with closing(workbench.catalog().connection) as connection:
        (trace,) = Traces(connection).of(shop.reader.name, shop.current(shop.reader).batch_id)
        assert [read.version for read in trace.inputs] == [str(shop.current(shop.source).batch_id)]
        # One run that goes well is no failure of the partition, however many attempts it took.
        assert [batch.state for batch in History(connection).batches(shop.reader.name)] == ["published"]


def test_an_attempt_after_one_whose_session_was_ended_has_a_session_of_its_own(workbench: Workbench) -> None:
    def during(shop: Shop, attempt: int) -> None:
        if attempt == 1:
            with closing(workbench.catalog().connection) as connection:
                connection.execute(
                    "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name like %s",
                    (f"varve {shop.reader}%",),
                )
            raise RuntimeError("the machine of the server was started again")

    shop = Shop(workbench, during, retry_policy=dg.RetryPolicy(max_retries=2))
    assert shop.run(shop.source).success
    assert shop.run(shop.reader).success


def test_what_fails_at_every_attempt_of_its_run_is_one_failure(workbench: Workbench) -> None:
    def during(shop: Shop, attempt: int) -> None:
        raise RuntimeError(f"attempt {attempt}")

    shop = Shop(workbench, during, retry_policy=dg.RetryPolicy(max_retries=2))
    assert shop.run(shop.source).success
    assert not shop.run(shop.reader).success
    assert shop.attempts == 3
    with closing(workbench.catalog().connection) as connection:
        (batch,) = History(connection).batches(shop.reader.name)
    assert (batch.state, batch.failure) == ("failed", "RuntimeError: attempt 3")


@pytest.mark.parametrize(("letter", "failing"), [("a", 2), ("b", 3)], ids=["the last works", "none works"])
def test_attempts_that_have_a_process_each_are_one_run_too(
    workbench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, letter: str, failing: int
) -> None:
    make_dagster_home(tmp_path / "home")
    monkeypatch.setenv(attempts_run.FAILING, str(failing))
    with dg.DagsterInstance.from_config(str(tmp_path / "home")) as instance:
        result = dg.execute_job(
            dg.reconstructable(attempts_run.job), instance, tags={PARTITION_TAG: letter}, raise_on_error=False
        )
    assert result.success is (failing < 3)
    with closing(workbench.catalog().connection) as connection:
        batches = History(connection).batches(attempts_run.DATASET.name, [f"letter={letter}"])
    of_the_last = ("published", None) if result.success else ("failed", "RuntimeError: attempt 3")
    assert [(batch.state, batch.failure) for batch in batches] == [of_the_last]


def cancel(instance: dg.DagsterInstance) -> None:
    """What *Terminate* in Dagster's UI does to the only run, which is in this process."""
    (run,) = instance.get_runs()
    instance.report_run_canceling(run)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)


@pytest.mark.parametrize("moment", ["in the function", "while its rows are written"])
def test_who_cancels_a_run_ends_it_though_its_asset_would_be_tried_again(
    moment: str, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:

        def during(shop: Shop, attempt: int) -> None:
            if moment == "in the function":
                cancel(instance)

        def stage(*words: Any) -> Any:
            cancel(instance)

        shop = Shop(workbench, during, retry_policy=dg.RetryPolicy(max_retries=2, delay=0.1))
        assert shop.run(shop.source).success
        if moment == "while its rows are written":
            monkeypatch.setattr(LakeStore, "stage", stage)
        result = shop.run(shop.reader, instance)
        assert not result.success
        (run,) = instance.get_runs()
        assert run.status is dg.DagsterRunStatus.CANCELED
        assert shop.attempts == 1
        # A function that is interrupted itself is asked for once more by Dagster, and refused before it begins.
        retried = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_UP_FOR_RETRY)
        assert len(retried) == (1 if moment == "in the function" else 0)
        (failed,) = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
        assert "somebody has cancelled it" in str(failed.get_dagster_event().step_failure_data.user_failure_data)
    assert workbench.current(shop.reader) == {}
