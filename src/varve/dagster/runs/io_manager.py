"""The IO manager of both stores: inputs are pinned batches, an output is staged, verified and published.

A thin face: naming, writing and publishing are the stores' (varve/stores), locks and traces the build's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dagster as dg
import pendulum

from varve.catalog.traces import ReusedBatches, Traces
from varve.dagster.internal import add_partition_metadata, step_of
from varve.dagster.runs import atomic_publish as group
from varve.dagster.runs.failures import as_dagster_failure, explained
from varve.model.batch import Input
from varve.model.errors import NOTHING_LOST, ExpectationFailed, MissingUpstream, VarveError, some
from varve.model.partitions.windows import WindowState, window_state
from varve.planning.wait_policy import verdict
from varve.stores.expectations import audit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from varve.dagster.runs.builds import Builds
    from varve.model.batch import Batch, StagedBatch
    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.model.partitions.key import PartitionKey
    from varve.planning.graph import Edge
    from varve.stores.open_build import OpenBuild


_NOT_OVER = {WindowState.OPEN, WindowState.UPCOMING}


class StoreIOManager(dg.IOManager):
    """Reads exactly the batches that are current when the run begins; publishes all partitions of a run at once."""

    def __init__(self, builds: Builds) -> None:
        self._builds = builds

    def load_input(self, context: dg.InputContext) -> DataFrame:
        """The partitions of the upstream dataset that this run's partitions read, at their current batches."""
        with as_dagster_failure():
            opened = self._builds.of(context)
            upstream = self._builds.dataset(context.asset_key)
            try:
                edge = self._builds.graph.edge(opened.build.dataset, upstream)
                ahead = group.kept_back(self._builds, upstream)
                batches = pin(opened, edge, self._builds.members(step_of(context).instance, edge), ahead)
                return self._builds.store(upstream, opened.catalog).read(upstream, batches, edge.columns)
            except VarveError as error:
                self._builds.abandon(opened, str(error))
                raise

    def handle_output(self, context: dg.OutputContext, obj: DataFrame | ReusedBatches) -> None:
        """Stage and verify the frame, and publish it: alone, or with all of the run as its last (atomic_publish.py).

        Or put batches back in force that hold the same.
        """
        with as_dagster_failure():
            opened = self._builds.of(context)
            if isinstance(obj, ReusedBatches):
                self._put_back(context, opened, obj)
                return
            step, build, ready = step_of(context), opened.build, [opened]
            try:
                with explained(opened, self._builds.settings):
                    if opened.rejected is not None:
                        opened.rejected.staged = self._staged_rejected(opened.rejected, opened, obj)
                    opened.staged = self._staged(opened, obj)
                    ready = group.complete(self._builds, opened)
                    if ready:
                        group.publish(self._builds, ready)
                    else:
                        context.log.info("%s is staged, to be published with %s", build, ", ".join(opened.together))
            except BaseException as error:
                # What breaks an expectation is left to be looked at.
                for each in ready:
                    self._builds.abandon(each, str(error), discard=not isinstance(error, ExpectationFailed))
                raise
            for batch in opened.staged:
                key = build.dataset.partitioning.to_dagster(batch.partition)
                add_partition_metadata(step, context.asset_key, key, metadata(opened, batch))
            for each in ready:
                if each.build.dataset.rejected_of:
                    report_rejected(context, each)
            for each in ready:
                self._builds.close(each)

    def _staged(self, opened: OpenBuild, frame: DataFrame) -> Sequence[StagedBatch]:
        build, store = opened.build, self._builds.store(opened.build.dataset, opened.catalog)
        staged = store.stage(build, frame)
        opened.catalog.staged(build, staged)
        store.verify(build, staged)
        audit(store, build, staged)
        for look in opened.pre_publish_checks:
            look()
        return staged

    def _staged_rejected(self, rejected: OpenBuild, opened: OpenBuild, frame: DataFrame) -> Sequence[StagedBatch]:
        """The rejected rows of a landing build, staged: a batch for each of its partitions, empty where it has none."""
        from varve.stores.frames import arrow_schema, spark_schema

        dataset = rejected.build.dataset
        columns = (*dataset.schema.columns, *dataset.partition_columns)
        rows = opened.rejected_rows
        table = arrow_schema(columns).empty_table() if rows is None else rows
        for key in rejected.build.partitions:
            rejected.build.reads(key, Input(opened.build.dataset.name, key.path, str(opened.build.batch_id)))
        return self._staged(rejected, frame.sparkSession.createDataFrame(table, spark_schema(columns)))

    def _put_back(self, context: dg.OutputContext, opened: OpenBuild, again: ReusedBatches) -> None:
        """Point at batches that hold what would have been computed."""
        build, step = opened.build, step_of(context)
        try:
            # What follows from inputs is not left alone when they change again.
            as_dagster_failure = "the same code and inputs as before"
            store = self._builds.store(build.dataset, opened.catalog)
            store.republish(replace(build, holds=False), again.batches, reason=as_dagster_failure)
            Traces(opened.catalog.connection).forget(build)
        except BaseException as error:
            self._builds.abandon(opened, str(error))
            raise
        keys = {partition.path: build.dataset.partitioning.to_dagster(partition) for partition in build.partitions}
        for batch in again.batches:
            about = metadata_of(build.dataset, batch) | {"varve/again": as_dagster_failure}
            add_partition_metadata(step, context.asset_key, keys[batch.partition], about)
        self._builds.close(opened)


def pin(
    opened: OpenBuild, edge: Edge, members: Members | None = None, ahead: Mapping[str, Batch] | None = None
) -> list[Batch]:
    """The current batches of a dataset that the build reads, recorded in its trace; and what it goes without.

    Those in `ahead`, which will be published with the build, come before what is current. Raises MissingUpstream with
    the partitions that have none, where the build would wait for them. Partitions that lie outside the upstream's
    dimensions are not missing: a first week has fewer days.
    """
    build, upstream = opened.build, edge.upstream
    needed = {partition: edge.dependency.upstream_of(partition, members=members).keys for partition in build.partitions}
    wanted = sorted({key for keys in needed.values() for key in keys})
    current = {**opened.catalog.current(upstream.name, wanted), **(ahead or {})}
    if missing := sorted({key for keys in _waited_for(build, edge, needed, current) for key in keys}):
        texts = [upstream.partitioning.to_dagster(key) for key in missing]
        raise MissingUpstream(
            f"{build.dataset} {some(build.partitions, limit=2)} reads {len(wanted)} partitions of {upstream}, of which "
            f"{len(missing)} have no batch yet: {some(missing)}. {NOTHING_LOST} Materialise them first: "
            f"dagster asset materialize --select {(upstream.rejected_of or upstream.name).replace('.', '/')} "
            + (f"--partition '{texts[0]}'" if len(texts) == 1 else f"--partition-range '{texts[0]}...{texts[-1]}'")
        )
    for partition, keys in needed.items():
        for key in keys:
            if key.path in current:
                build.reads(partition, Input(upstream.name, key.path, str(current[key.path].batch_id)))
            else:
                build.goes_without(partition, f"{upstream.name} {key.path}")
    return [current[key.path] for key in wanted if key.path in current]


def _waited_for(
    build: Build, edge: Edge, needed: Mapping[PartitionKey, Sequence[PartitionKey]], current: Mapping[str, Batch]
) -> Iterator[list[PartitionKey]]:
    """For each partition that still waits what it waits for."""
    time = build.dataset.partitioning.time
    for partition, every in needed.items():
        keys = _begun(build, partition, every, edge, current)
        missing = [key for key in keys if key.path not in current]
        ends = time.window(partition[time.name]).end if time is not None else None
        there = len(keys) - len(missing)
        if not verdict(edge.wait, wanted=len(keys), there=there, window_end=ends, now=pendulum.now("UTC")).ready:
            yield missing


def _begun(
    build: Build, partition: PartitionKey, keys: Sequence[PartitionKey], edge: Edge, current: Mapping[str, Batch]
) -> Sequence[PartitionKey]:
    """What a partition waits for: where its window is not over, nothing whose window is not over either."""
    time, theirs = build.dataset.partitioning.time, edge.upstream.partitioning.time
    now = pendulum.now("UTC").timestamp()
    if time is None or theirs is None or window_state(time, time.start_of(partition[time.name]), now) not in _NOT_OVER:
        return keys
    return [
        key
        for key in keys
        if key.path in current or window_state(theirs, theirs.start_of(key[theirs.name]), now) not in _NOT_OVER
    ]


def metadata(opened: OpenBuild, batch: StagedBatch) -> dict[str, Any]:
    """What Dagster shows of one published partition, under its standard keys where it has one."""
    without = opened.build.missing.get(batch.partition, set())
    growth = opened.build.growth.get(batch.partition)
    return {
        **_described(opened.build.dataset, batch),
        "varve/batch_id": dg.MetadataValue.text(str(opened.build.batch_id)),
        "varve/files": batch.files,
        "varve/inputs": len(opened.build.inputs.get(batch.partition, ())),
        **({"varve/parts": len(batch.parts), "varve/reason": growth.reason} if growth is not None else {}),
        **({"varve/missing": dg.MetadataValue.json(sorted(without))} if without else {}),
        **_rejected(opened, batch),
    }


def _rejected(opened: OpenBuild, batch: StagedBatch) -> dict[str, Any]:
    """How many rows of a landing partition were rejected, where some may be."""
    into = opened.build.dataset.reject_into
    if into is None or opened.rejected is None:
        return {}
    rows = sum(each.rows for each in opened.rejected.staged if each.partition == batch.partition)
    return {"varve/rejected_rows": rows, "varve/rejected_at_most": into.at_most, "varve/rejected_into": into.dataset}


def report_rejected(context: dg.OutputContext, opened: OpenBuild) -> None:
    """Tell Dagster of each published partition of rejected rows: no step of its own makes them."""
    dataset = opened.build.dataset
    # Keys of two dimensions carry both; where another step publishes, its keys are others.
    keys = {str(key): key for key in context.asset_partition_keys}
    for batch in opened.staged:
        key = dataset.partitioning.to_dagster(batch.partition)
        context.log_event(
            dg.AssetMaterialization(
                dg.AssetKey([dataset.db, dataset.table]),
                description=f"rejected rows of {dataset.rejected_of}",
                partition=keys.get(key, key),
                metadata=metadata(opened, batch),
            )
        )


def metadata_of(dataset: Dataset, batch: Batch) -> dict[str, Any]:
    """The same of a batch that was there already."""
    return {
        **_described(dataset, batch),
        "varve/batch_id": dg.MetadataValue.text(str(batch.batch_id)),
        "varve/inputs": len(batch.inputs),
    }


def _described(dataset: Dataset, batch: StagedBatch | Batch) -> dict[str, Any]:
    place = batch.location if "/" in batch.location else f"{dataset.db}_periods.{batch.location}"
    return {
        "dagster/partition_row_count": batch.rows,
        "dagster/table_name": dataset.name,
        "dagster/uri": place,
        "varve/bytes": batch.size,
        **({"varve/content": dg.MetadataValue.text(batch.content)} if batch.content else {}),
    }


def store_io_manager(description: str = "Stages, verifies and publishes batches.") -> dg.IOManagerDefinition:
    """The IO manager of a store as Dagster takes it; the store is the one that each dataset names."""

    @dg.io_manager(required_resource_keys={"builds"}, description=description)
    def varve_io_manager(context: dg.InitResourceContext) -> StoreIOManager:
        return StoreIOManager(context.resources.builds)

    return varve_io_manager
