"""The context of a Python dataset's function in a test: `revenue(context_for(revenue, partition=...), orders=frame)`.

Not here: the context of a run, which Dagster makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from varve.dagster.assets.unpublished import unpublished_context
from varve.model.batch import BatchId
from varve.model.build import Build
from varve.model.errors import VarveError
from varve.stores.frames import spark_frame
from varve.testing.partitions import partition_keys
from varve.testing.session import in_zone_of_runs, spark_session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.dagster.assets.datasets import DatasetAsset
    from varve.model.partitions.key import PartitionKey
    from varve.testing.partitions import Partition


class TestSpark:
    """`context.resources.spark`: the session of the test, opened on first use."""

    __test__ = False

    def __init__(self, session: SparkSession | None) -> None:
        self._session = in_zone_of_runs(session) if session else None

    @property
    def spark_session(self) -> SparkSession:
        """The session that was given, or else that of `varve.testing.spark_session`."""
        if self._session is None:
            self._session = spark_session()
        return self._session


class TestLanding:
    """`context.resources.landing`: there is no landing folder in a test."""

    __test__ = False

    def read(self, context: object) -> None:
        """Raise VarveError: the rows of such a dataset are the inputs of those that read it."""
        del context
        raise VarveError("a test has no landing folder; give the rows of a landing dataset to what reads it.")


def context_for(
    asset: DatasetAsset, *, partition: Partition | Sequence[Partition], spark: SparkSession | None = None
) -> dg.AssetExecutionContext:
    """A context with which the function of an asset can be called: `partitions_of(context)` knows the partitions.

    `context.partition_key` is there for one partition, and `context.resources.spark.spark_session` always.

    Args:
        asset: what `@varve.asset` made of the function.
        partition: `{"day": "2026-11-01"}`, or a list of them.
        spark: the session; by default `spark_session()`.

    Raises UnknownPartition for a partition that the dataset does not have.
    """
    dataset = asset.dataset
    keys = partition_keys(dataset, partition)
    build = Build(dataset, keys, BatchId(0), "test", {}, code_version=asset.code_version)
    return unpublished_context(build, TestSpark(spark), TestLanding())


def called(
    asset: DatasetAsset, keys: Sequence[PartitionKey], frames: Mapping[str, DataFrame], spark: SparkSession
) -> DataFrame:
    """The rows that the function of an asset returns, called with its context and its inputs as Dagster would.

    `frames` are its inputs by the names of their datasets. Raises BadInput where it returns no DataFrame of Spark.
    """
    definition = asset.asset
    assert isinstance(definition, dg.AssetsDefinition)
    inputs = {name: frames[".".join(key.path)] for name, key in definition.keys_by_input_name.items()}
    returned = definition(context_for(asset, partition=list(keys), spark=spark), **inputs)
    rows = returned.value if isinstance(returned, dg.Output) else returned
    return spark_frame(rows, f"{asset.dataset}: its function")
