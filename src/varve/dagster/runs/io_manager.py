"""The IO manager of both stores: inputs are pinned batches, an output is staged, verified and published.

Not here: naming, writing and publishing (varve/stores), locks and traces (builds).
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg

from varve.catalog.traces import ReusedBatches, Traces
from varve.dagster.internal.steps import add_partition_metadata, step_of
from varve.dagster.runs import atomic_publish
from varve.dagster.runs.batch_metadata import published_metadata, reused_metadata
from varve.dagster.runs.failures import as_dagster_failure, explained
from varve.dagster.runs.inputs.for_others import computes_a_dataset, rows_for_others
from varve.dagster.runs.inputs.pinning import pin
from varve.model.batch import Input
from varve.model.errors import ExpectationFailed, VarveError
from varve.stores.comparison import hash_replaced
from varve.stores.expectations import audit
from varve.stores.frames import spark_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from varve.dagster.runs.builds.builds import Builds
    from varve.model.batch import StagedBatch
    from varve.stores.open_build import OpenBuild


class StoreIOManager(dg.IOManager):
    """Reads exactly the batches that were current when the build began; publishes all partitions of a run at once."""

    def __init__(self, builds: Builds) -> None:
        self._builds = builds

    def load_input(self, context: dg.InputContext) -> DataFrame | Any:
        """Return the rows of the upstream dataset that this run's partitions read, from its current batches."""
        with as_dagster_failure(context):
            if not computes_a_dataset(self._builds, context):
                return rows_for_others(self._builds, context)
            opened = self._builds.of(context)
            upstream = self._builds.dataset(context.asset_key)
            try:
                with explained(opened, self._builds.settings):
                    edge = self._builds.graph.edge(opened.build.dataset, upstream)
                    staged_batches = atomic_publish.kept_back(self._builds.staged(), upstream)
                    batches = pin(opened, edge, self._builds.members(step_of(context).instance, edge), staged_batches)
                    store = self._builds.store(upstream, opened.catalog)
                    if upstream.is_view:
                        # Spark reads when the batch is written: so the files are compared again after that.
                        opened.pre_publish_checks.append(partial(store.refuse_missing, upstream, batches))
                    return store.read(upstream, batches, edge.columns)
            except VarveError as error:
                self._builds.abandon(opened, error, blamed=error.reasons)
                raise

    def handle_output(self, context: dg.OutputContext, obj: DataFrame | ReusedBatches) -> None:
        """Stage, verify and publish the frame, or publish reused batches again.

        A run that publishes its datasets together does so with its last output (atomic_publish.py).
        """
        with as_dagster_failure(context):
            opened = self._builds.of(context)
            if isinstance(obj, ReusedBatches):
                self._publish_reused(context, opened, obj)
                return
            step, build, publishable = step_of(context), opened.build, [opened]
            with contextlib.ExitStack() as publishing:
                try:
                    with explained(opened, self._builds.settings):
                        if opened.rejected is not None:
                            opened.rejected.staged = self._staged_rejected(opened.rejected, opened, obj)
                        opened.staged = self._staged(opened, obj)
                        publishable = atomic_publish.complete(self._builds.staged(), opened)
                        if publishable:
                            publishing.enter_context(self._builds.publishing(opened, context.log))
                            atomic_publish.publish(publishable, self._builds.store)
                        else:
                            context.log.info("%s is staged, to be published with %s", build, ", ".join(opened.together))
                except BaseException as error:
                    if isinstance(error, ExpectationFailed):
                        opened.broken_expectations |= error.broken
                    # Rows that break an expectation are not discarded, so that people can look at them.
                    is_kept = isinstance(error, ExpectationFailed)
                    for open_build in publishable:
                        blamed = getattr(error, "reasons", {}) if open_build is opened else {}
                        self._builds.abandon(open_build, error, discard=not is_kept, blamed=blamed)
                    raise
                key_of = build.dataset.partitioning.dagster_key
                by_key = {key_of(key): values for key, values in published_metadata(opened).items()}
                add_partition_metadata(step, context.asset_key, by_key)
                for open_build in publishable:
                    self._builds.telling.published(open_build)
                    if open_build.build.dataset.rejected_of:
                        report_rejected(context, open_build)
                for open_build in publishable:
                    self._builds.close(open_build)

    def _staged(self, opened: OpenBuild, frame: DataFrame) -> Sequence[StagedBatch]:
        build, store = opened.build, self._builds.store(opened.build.dataset, opened.catalog)
        staged = store.stage(build, spark_frame(frame, f"{build}: its function"))
        opened.catalog.staged(build, staged)
        store.verify(build, staged)
        hash_replaced(store, opened.catalog, build)
        audit(store, build, staged)
        opened.staged = staged
        for check in opened.pre_publish_checks:
            check()
        return staged

    def _staged_rejected(self, rejected: OpenBuild, opened: OpenBuild, frame: DataFrame) -> Sequence[StagedBatch]:
        """Stage the rejected rows of a landing build: a batch for each partition, empty where no row was rejected."""
        from varve.stores.frames import arrow_schema, spark_schema

        dataset = rejected.build.dataset
        columns = (*dataset.schema.columns, *dataset.partition_columns)
        rejected_rows = opened.rejected_rows
        table = arrow_schema(columns).empty_table() if rejected_rows is None else rejected_rows
        for key in rejected.build.partitions:
            rejected.build.reads(key, Input(opened.build.dataset.name, key.path, str(opened.build.batch_id)))
        return self._staged(rejected, frame.sparkSession.createDataFrame(table, spark_schema(columns)))

    def _publish_reused(self, context: dg.OutputContext, opened: OpenBuild, reused: ReusedBatches) -> None:
        """Publish existing batches that hold what would have been computed."""
        build, step = opened.build, step_of(context)
        with self._builds.publishing(opened, context.log):
            try:
                # With `holds` the planner would leave these partitions alone, as after a rollback by a person.
                reason = "the same code and inputs as before"
                store = self._builds.store(build.dataset, opened.catalog)
                store.republish(replace(build, holds=False), reused.batches, reason=reason)
                Traces(opened.catalog.connection).forget(build)
            except BaseException as error:
                self._builds.abandon(opened, error)
                raise
            self._builds.telling.reused(opened, reused.batches)
            keys = {partition.path: build.dataset.partitioning.dagster_key(partition) for partition in build.partitions}
            again = {"varve/again": reason}
            by_key = {keys[batch.partition]: reused_metadata(build.dataset, batch) | again for batch in reused.batches}
            add_partition_metadata(step, context.asset_key, by_key)
            self._builds.close(opened)


def report_rejected(context: dg.OutputContext, opened: OpenBuild) -> None:
    """Report each published partition of rejected rows to Dagster, as no step of its own computes them."""
    dataset = opened.build.dataset
    # Dagster's key objects of two dimensions hold both keys. Where another step publishes, they are not at hand here.
    keys = {str(key): key for key in context.asset_partition_keys} if context.has_asset_partitions else {}
    metadata = published_metadata(opened)
    for batch in opened.staged:
        key = dataset.partitioning.dagster_key(batch.partition)
        context.log_event(
            dg.AssetMaterialization(
                dg.AssetKey([dataset.db, dataset.table]),
                description=f"rejected rows of {dataset.rejected_of}",
                partition=key and keys.get(key, key),
                metadata=metadata[batch.partition],
            )
        )


def store_io_manager(description: str = "Stages, verifies and publishes batches.") -> dg.IOManagerDefinition:
    """Return the IO manager of a store as a Dagster resource; the store is the one that each dataset names."""

    @dg.io_manager(required_resource_keys={"builds"}, description=description)
    def varve_io_manager(context: dg.InitResourceContext) -> StoreIOManager:
        return StoreIOManager(context.resources.builds)

    return varve_io_manager
