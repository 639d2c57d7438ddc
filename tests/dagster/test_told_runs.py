"""A run reports what it did: partitions that it would leave out fail it by name, and failures are in the catalog."""

import datetime as dt
import uuid
from typing import Any

import dagster as dg
import pendulum
import pytest
from pyspark.sql import DataFrame

from tests.support.workbench import Workbench
from varve.catalog.catalog import Catalog
from varve.catalog.history.history import History
from varve.dagster.assets.datasets import DatasetAsset, dataset_asset
from varve.dagster.definitions import build_defs
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.policy import Policy
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.requested import PARTITIONS_TAG, RANGE_END_TAG, RANGE_START_TAG

pytestmark = pytest.mark.spark

DAY = TimeDimension.of("day", "@daily", "2026-11-01")


def in_days(number: int) -> dt.date:
    """The day that is so many days after today."""
    return pendulum.now("UTC").date() + dt.timedelta(days=number)


def asset(compute: Any, *, dimension: TimeDimension = DAY, policy: Policy | None = None) -> DatasetAsset:
    """Return the asset of a new dataset with this body."""
    dataset = Dataset(
        f"told{uuid.uuid4().hex[:8]}.days", Partitioning((dimension,)), Schema((Column("n", ColumnType.BIGINT),)),
        StoreKind.LAKE, "", policy=policy or Policy(),
    )  # fmt: skip
    return dataset_asset(dataset)(compute)


def run(days_asset: DatasetAsset, first: object, last: object) -> dg.ExecuteInProcessResult:
    job = build_defs([days_asset]).resolve_implicit_global_asset_job_def()
    return job.execute_in_process(
        asset_selection=[dg.AssetKey(days_asset.dataset.name.split("."))],
        tags={"dagster/asset_partition_range_start": str(first), "dagster/asset_partition_range_end": str(last)},
        raise_on_error=False,
    )


def failures(workbench: Workbench, days_asset: DatasetAsset) -> dict[str, str]:
    """Return why the last batch of each partition failed, as `varve why` prints it."""
    catalog = workbench.catalog()
    try:
        listed = History(catalog.connection).batches(days_asset.dataset.name, None)
        return {batch.partition: batch.failure for batch in listed if batch.failure}
    finally:
        catalog.connection.close()


def compute(context: dg.AssetExecutionContext) -> DataFrame:
    spark: Any = context.resources.spark.spark_session
    return spark.sql(f"select 1 as n, explode(array({_days()})) as day")  # type: ignore[no-any-return]


def _days() -> str:
    return ", ".join(f"date '{in_days(-1 - count)}'" for count in range(2))


def test_a_range_that_covers_the_open_window_fails_by_name_and_writes_nothing(workbench: Workbench) -> None:
    days_asset = asset(compute)
    done = run(days_asset, in_days(-1), in_days(0))
    assert not done.success
    (reason,) = set(failures(workbench, days_asset).values())
    assert f"day={in_days(0)}: its window is open until {in_days(1)} 00:00 UTC" in reason
    assert workbench.current(days_asset.dataset) == {}
    assert run(days_asset, in_days(-2), in_days(-1)).success
    assert len(workbench.current(days_asset.dataset)) == 2


def test_a_run_by_hand_over_several_partitions_shows_which() -> None:
    days_asset = asset(compute)
    job = build_defs([days_asset]).resolve_implicit_global_asset_job_def()
    first = in_days(-2)
    with dg.DagsterInstance.ephemeral() as instance:
        tags = {RANGE_START_TAG: str(first), RANGE_END_TAG: str(in_days(-1))}
        assert job.execute_in_process(instance=instance, tags=tags).success
        (found,) = instance.get_runs()
    assert found.tags[PARTITIONS_TAG] == f"{first}...{in_days(-1)} (2 partitions)"


def test_a_partition_whose_retention_is_over_is_refused_by_name(workbench: Workbench) -> None:
    days_asset = asset(compute, policy=Policy(retention=dt.timedelta(days=3)))
    definition = (
        build_defs([days_asset])
        .resolve_asset_graph()
        .get(dg.AssetKey(days_asset.dataset.name.split(".")))
        .partitions_def
    )
    assert definition is not None
    shown = definition.get_partition_keys()
    # Dagster lists no partitions that would be missing for ever: exactly those that the planner keeps.
    assert shown == [str(in_days(-days)) for days in (3, 2, 1)]
    done = run(days_asset, "2026-11-10", "2026-11-10")
    assert not done.success
    assert workbench.current(days_asset.dataset) == {}


def broken(context: dg.AssetExecutionContext) -> DataFrame:
    raise ValueError(f"no rate for {context.partition_keys[0]}")


def wrong(context: dg.AssetExecutionContext) -> DataFrame:
    spark: Any = context.resources.spark.spark_session
    return spark.sql("select nothing_of_the_kind")  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("body", "expected_message"), [(broken, "ValueError: no rate for"), (wrong, "nothing_of_the_kind")]
)
def test_what_failed_a_step_before_its_output_is_in_the_catalog(
    workbench: Workbench, body: Any, expected_message: str
) -> None:
    days_asset = asset(body)
    assert not run(days_asset, in_days(-1), in_days(-1)).success
    assert list(failures(workbench, days_asset)) == [f"day={in_days(-1)}"]
    assert expected_message in failures(workbench, days_asset)[f"day={in_days(-1)}"]
    # The locks of the failed run are free, so that the next run is another attempt.
    catalog = workbench.catalog()
    assert Catalog(catalog.connection).in_flight(days_asset.dataset.name) == set()
    catalog.connection.close()
