"""The context of a function that is computed without a run: in a preview, and in a test.

Not here: the context of a run, which Dagster makes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import dagster as dg

from varve.dagster.partitions.dynamic_sets import PartitionSets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from varve.model.build import Build


@dataclass(frozen=True)
class UnpublishedRun:
    """What `varve.partitions_of` asks of a run: its partitions. Nothing is locked, staged or published."""

    build: Build

    def of(self, context: object) -> UnpublishedRun:
        """The run is the same whoever asks."""
        del context
        return self

    def sets(self, instance: dg.DagsterInstance) -> PartitionSets:
        """The dynamic sets of the dataset, in an instance that is forgotten: keys that are added go nowhere."""
        return PartitionSets(instance, [self.build.dataset.partitioning])


class HasSession(Protocol):
    """What a function may ask of `context.resources.spark`."""

    @property
    def spark_session(self) -> SparkSession:
        """The session."""
        ...


@dataclass(frozen=True)
class GivenSpark:
    """`context.resources.spark`: a session that is there already."""

    spark_session: SparkSession


def unpublished_context(build: Build, spark: HasSession, landing: object = None) -> dg.AssetExecutionContext:
    """A context with which the function of an asset can be called: `partitions_of(context)` knows the partitions.

    `context.partition_key` is there for one partition, and `context.resources.spark.spark_session` always; `landing` is
    `context.resources.landing`.
    """
    dataset, keys = build.dataset, build.partitions
    return dg.build_asset_context(
        # Without an instance, Dagster enters one of its own until the context is collected. Where the instance around
        # it is closed by then, a dead one is what the process has after that, and no definitions load any more.
        instance=dg.DagsterInstance.ephemeral(),
        partition_key=dataset.partitioning.dagster_key(keys[0]) if len(keys) == 1 else None,
        resources={
            "builds": UnpublishedRun(build),
            "spark": spark,
            **({} if landing is None else {"landing": landing}),
        },
    )
