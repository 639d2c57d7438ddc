"""A project of one dataset whose step is tried three times, each attempt in a process of its own.

Not here: what it must come to (test_attempts.py).
"""

import os
from typing import Any

import dagster as dg

from varve.dagster.assets.datasets import dataset_asset
from varve.dagster.definitions import build_defs
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import StaticDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema

# At how many attempts the function raises.
FAILING = "TEST_ATTEMPTS_FAILING"
LETTERS = Partitioning((StaticDimension("letter", ("a", "b")),))
DATASET = Dataset("attempts.rows", LETTERS, Schema((Column("n", ColumnType.BIGINT),)), StoreKind.LAKE, "")


def job() -> dg.JobDefinition:
    """Return the job of the dataset, for Dagster to make again in the process of each attempt."""

    @dataset_asset(DATASET, about={"retry_policy": dg.RetryPolicy(max_retries=2)})
    def rows(context: dg.AssetExecutionContext) -> Any:
        frame = context.resources.spark.spark_session.sql(f"select 1L as n, '{context.partition_key}' as letter")
        context.resources.builds.of(context)
        if context.retry_number < int(os.environ[FAILING]):
            raise RuntimeError(f"attempt {context.retry_number + 1}")
        return frame

    only = [dg.AssetKey(DATASET.name.split("."))]
    tried = dg.define_asset_job("tried", selection=only, executor_def=dg.multiprocess_executor)
    definitions = dg.Definitions.merge(build_defs([rows], in_process=False), dg.Definitions(jobs=[tried]))
    return definitions.resolve_job_def("tried")
