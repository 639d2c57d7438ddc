"""A project of three datasets that a run publishes together, and a process to run it in that can be killed.

Not here: what it must come to (test_atomic_publish.py).
"""

import os
import signal
import sys
from dataclasses import replace

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tests.support.sales import DAY
from varve.dagster.assets.datasets import DatasetAsset, dataset_asset
from varve.dagster.definitions import build_defs
from varve.dagster.runs.atomic_publish import TAG, TOGETHER
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema

# What the run writes into every row, and the dataset whose step fails or kills the run.
VERSION, FAILING, KILLING = "TEST_GROUP_VERSION", "TEST_GROUP_FAILING", "TEST_GROUP_KILLING"
TABLES = ("lake_first", "shown_first", "shown_last")
DAYS = ("2013-01-05", "2013-01-06")


def datasets(db: str) -> dict[str, Dataset]:
    """Return a dataset of the lake and two that read it, which are of the warehouse unless `db` says lake."""
    schema = Schema((Column("version", ColumnType.INT, "which run has made it"),))
    first = Dataset(f"{db}.lake_first", Partitioning((DAY,)), schema, StoreKind.LAKE, "The rows.")
    shown = replace(first, store=StoreKind.LAKE if db.startswith("lake") else StoreKind.WAREHOUSE)
    return {"lake_first": first, **{name: replace(shown, name=f"{db}.{name}") for name in TABLES[1:]}}


def project(db: str) -> list[DatasetAsset]:
    """Return the assets of the three datasets."""
    datasets_by_name = datasets(db)

    @dataset_asset(datasets_by_name["lake_first"])
    def lake_first(context: dg.AssetExecutionContext) -> DataFrame:
        return _rows(context, "lake_first")

    @dataset_asset(datasets_by_name["shown_first"], reads={"rows": datasets_by_name["lake_first"]})
    def shown_first(context: dg.AssetExecutionContext, rows: DataFrame) -> DataFrame:
        return _checked(context, "shown_first", rows)

    @dataset_asset(
        datasets_by_name["shown_last"],
        reads={"rows": datasets_by_name["lake_first"], "before": datasets_by_name["shown_first"]},
    )
    def shown_last(context: dg.AssetExecutionContext, rows: DataFrame, before: DataFrame) -> DataFrame:
        return _checked(context, "shown_last", rows.join(before, ["day", "version"]))

    return [lake_first, shown_first, shown_last]


@dg.asset
def no_dataset() -> None:
    """An asset that is no dataset; publishing together does not concern it."""


def job(db: str, *own: dg.AssetsDefinition) -> dg.JobDefinition:
    """Return the job of all three datasets, of the asset that is no dataset, and of further ones."""
    whole = dg.define_asset_job("whole", selection="*", executor_def=dg.in_process_executor)
    definitions = dg.Definitions.merge(build_defs(project(db)), dg.Definitions([no_dataset, *own], jobs=[whole]))
    return definitions.resolve_job_def("whole")


def tags(*, together: str | None = TOGETHER) -> dict[str, str]:
    """Return the tags of a run of both days."""
    spans = {"dagster/asset_partition_range_start": DAYS[0], "dagster/asset_partition_range_end": DAYS[-1]}
    return spans if together is None else {**spans, TAG: together}


def _rows(context: dg.AssetExecutionContext, table: str) -> DataFrame:
    if os.environ.get(FAILING) == table:
        raise dg.Failure(f"{table} fails as it was told to", allow_retries=False)
    if os.environ.get(KILLING) == table:
        os.kill(os.getpid(), signal.SIGKILL)
    version = int(os.environ[VERSION])
    session = context.resources.spark.spark_session
    days = session.createDataFrame([(day,) for day in DAYS], "day STRING")
    return days.select(F.lit(version).alias("version"), F.col("day").cast("date").alias("day"))


def _checked(context: dg.AssetExecutionContext, table: str, read: DataFrame) -> DataFrame:
    made = _rows(context, table)
    return made.join(read.select("day", F.col("version").alias("read")), "day").selectExpr("read AS version", "day")


def main() -> None:
    """Run the project of this name in this process; the environment says what fails."""
    done = job(sys.argv[1]).execute_in_process(tags=tags(), raise_on_error=False)
    sys.exit(0 if done.success else 1)


if __name__ == "__main__":
    main()
