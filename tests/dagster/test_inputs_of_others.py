"""What is no dataset reads datasets as Dagster lets it: assets of the project's own, asset checks, ops of a job."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from tests.dagster.test_sql_assets import HEAD, materialise
from varve.dagster.assets.sql_assets import sql_assets
from varve.dagster.definitions import build_defs
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varve.dagster.assets.datasets import DatasetAsset

pytestmark = pytest.mark.spark

DAYS = dg.TimeWindowPartitionsDefinition(
    start="2022-03-01", end="2022-03-05", fmt="%Y-%m-%d", cron_schedule="0 0 * * *"
)
# Three of the four days of both datasets have a batch.
PUBLISHED = {("2022-03-01", 1), ("2022-03-02", 2), ("2022-03-03", 3)}


@pytest.fixture(scope="module", params=["LAKE", "WAREHOUSE"])
def days(request: pytest.FixtureRequest, settings: object) -> tuple[dg.AssetKey, list[DatasetAsset]]:
    """A dataset of days, of which three are published."""
    db = f"o{uuid.uuid4().hex[:8]}"
    head = HEAD.format(db=db, name="days", columns="number INT").replace(
        "PARTITIONED", f"STORED IN {request.param} PARTITIONED"
    )
    text = f"{head} AS SELECT DAY(TO_DATE(today)) AS number"
    assets = sql_assets(compiled([SourceFile("days.sql", text)], {}))
    assert materialise(assets, f"{db}.days", "2022-03-01", "2022-03-03").success
    return dg.AssetKey([db, "days"]), assets


def executed(
    assets: list[DatasetAsset], own: dg.Definitions, *, job: str = "__ASSET_JOB", tags: Mapping[str, str] | None = None,
    selection: list[Any] | None = None,
) -> dg.ExecuteInProcessResult:  # fmt: skip
    """A run of the project's own definitions beside Varve's."""
    defs = dg.Definitions.merge(build_defs(assets), own)
    with dg.DagsterInstance.ephemeral() as instance:
        return defs.resolve_job_def(job).execute_in_process(
            tags=dict(tags or {}), asset_selection=selection, raise_on_error=False, instance=instance
        )


def failure(result: dg.ExecuteInProcessResult) -> str:
    (event,) = [event for event in result.all_events if event.event_type is dg.DagsterEventType.STEP_FAILURE]
    data: Any = event.event_specific_data
    return str(data.user_failure_data.description)


def own_assets(key: dg.AssetKey) -> list[dg.AssetsDefinition]:
    @dg.asset(ins={"days": dg.AssetIn(key)})
    def by_spark(days: DataFrame) -> list[tuple[str, int]]:
        return [(row["day"], row["number"]) for row in days.collect()]

    @dg.asset(ins={"days": dg.AssetIn(key)})
    def by_pandas(days: pd.DataFrame) -> list[tuple[str, int]]:
        assert type(days) is pd.DataFrame
        return list(zip(days["day"], days["number"].tolist(), strict=True))

    @dg.asset(ins={"days": dg.AssetIn(key)})
    def by_arrow(days: pa.Table) -> list[tuple[str, int]]:
        return [(row["day"], row["number"]) for row in days.to_pylist()]

    @dg.multi_asset(outs={"low": dg.AssetOut(), "high": dg.AssetOut()}, ins={"days": dg.AssetIn(key)})
    def both(days) -> tuple[Any, Any]:  # type: ignore[no-untyped-def]
        rows = [(row["day"], row["number"]) for row in days.collect()]
        return rows[:1], rows[1:]

    return [by_spark, by_pandas, by_arrow, both]


def test_an_asset_without_partitions_gets_every_partition_that_has_a_batch(days: tuple[dg.AssetKey, Any]) -> None:
    key, assets = days
    own = own_assets(key)
    names = [dg.AssetKey(name) for name in ("by_spark", "by_pandas", "by_arrow", "low", "high")]
    result = executed(assets, dg.Definitions(assets=own), selection=names)
    assert result.success
    assert set(result.output_for_node("by_spark")) == PUBLISHED
    assert set(result.output_for_node("by_pandas")) == PUBLISHED
    assert set(result.output_for_node("by_arrow")) == PUBLISHED
    assert {*result.output_for_node("both", "low"), *result.output_for_node("both", "high")} == PUBLISHED


def test_an_asset_with_partitions_gets_those_that_its_mapping_names(days: tuple[dg.AssetKey, Any]) -> None:
    key, assets = days
    mapping = dg.TimeWindowPartitionMapping(start_offset=-1, allow_nonexistent_upstream_partitions=True)

    @dg.asset(partitions_def=DAYS, ins={"days": dg.AssetIn(key, partition_mapping=mapping)})
    def trailing(days: DataFrame) -> list[tuple[str, int]]:
        return [(row["day"], row["number"]) for row in days.collect()]

    own = dg.Definitions(assets=[trailing])
    for day, expected in (("2022-03-01", {1}), ("2022-03-03", {2, 3})):
        result = executed(assets, own, selection=[trailing.key], tags={"dagster/partition": day})
        assert result.success
        assert {number for _, number in result.output_for_node("trailing")} == expected
    result = executed(assets, own, selection=[trailing.key], tags={"dagster/partition": "2022-03-04"})
    assert not result.success
    assert failure(result) == (
        f"trailing reads 2 partitions of {'.'.join(key.path)}, of which 1 have no batch yet: day=2022-03-04. "
        "Nothing was read. Materialise them first: dagster asset materialize --select "
        f"{key.to_user_string()} --partition '2022-03-04'"
    )


def test_a_check_and_an_op_get_the_rows(days: tuple[dg.AssetKey, Any]) -> None:
    key, assets = days

    @dg.asset_check(asset=key)
    def numbers_are_days(days: pd.DataFrame) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=bool((days["number"] < 32).all()), metadata={"rows": len(days)})

    @dg.op
    def counted(days: DataFrame) -> int:
        return days.count()

    (dataset_asset,) = assets

    @dg.job(resource_defs=build_defs(assets).resources)
    def counting() -> None:
        counted(dataset_asset.asset.to_source_asset(key))  # type: ignore[union-attr]

    own = dg.Definitions(asset_checks=[numbers_are_days], jobs=[counting])
    checks = dg.define_asset_job("only_checks", dg.AssetSelection.checks(numbers_are_days))
    result = executed(assets, dg.Definitions.merge(own, dg.Definitions(jobs=[checks])), job="only_checks")
    assert result.success
    (evaluation,) = result.get_asset_check_evaluations()
    assert evaluation.passed
    assert evaluation.metadata["rows"].value == 3
    result = executed(assets, own, job="counting")
    assert result.success
    assert result.output_for_node("counted") == 3


def test_an_asset_of_ones_own_cannot_be_stored_as_a_dataset(days: tuple[dg.AssetKey, Any]) -> None:
    key, assets = days
    (dataset_asset,) = assets

    @dg.asset(io_manager_key=dataset_asset.asset.get_io_manager_key_for_asset_key(key))  # type: ignore[union-attr]
    def mine() -> int:
        return 1

    result = executed(assets, dg.Definitions(assets=[mine]), selection=[mine.key])
    assert not result.success
    assert "mine is no dataset of Varve" in failure(result)
