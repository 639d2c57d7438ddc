"""Builds: what one step of a run holds from its first read to its publish, shared by inputs, landing and outputs.

A build begins with whatever the step touches first, so that what is current is remembered before any input is read.

Not here: the order stage, verify, publish (io_manager.py).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import dagster as dg
import pendulum
import psycopg

from varve.catalog.catalog import Catalog
from varve.catalog.leases import lost
from varve.dagster.internal import (
    heartbeats_of,
    run_assets,
    step_asset,
    step_failures,
    step_identity,
    step_of,
    step_partition_keys,
)
from varve.dagster.leases.heartbeat import Heartbeats
from varve.dagster.partitions.dynamic_sets import PartitionSets
from varve.dagster.runs import atomic_publish as group
from varve.model.errors import NOTHING_LOST, AlreadyBuilding, UnknownPartition, VarveError
from varve.planning.requested import asked_partitions, refused
from varve.services.postgres import connect
from varve.stores.open import open_store
from varve.stores.open_build import OpenBuild

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dagster import DagsterRun

    from varve.dagster.runs.spark import SparkResource
    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.model.partitions.key import PartitionKey
    from varve.planning.graph import Edge, Graph
    from varve.project import Project
    from varve.services.settings import Settings
    from varve.stores.store import Store


class Builds:
    """The open builds of one run, by step."""

    def __init__(self, graph: Graph, spark: SparkResource, settings: Settings) -> None:
        self.graph = graph
        self.settings = settings
        self._spark = spark
        self._open: dict[tuple[str, str], OpenBuild] = {}
        # The steps that have begun a build, which tells of its end itself.
        self._begun: set[str] = set()

    def of(self, context: dg.AssetExecutionContext | dg.InputContext | dg.OutputContext) -> OpenBuild:
        """The build of the step that the context belongs to; begins it. Raises AlreadyBuilding, UnknownPartition."""
        step = step_of(context)
        identity = step_identity(step)
        if identity not in self._open:
            dataset = self.dataset(step_asset(step))
            partitions = sorted(map(dataset.partitioning.from_dagster, step_partition_keys(step)))
            why_not = self._refused(step, dataset, partitions)
            together = group.members(step.dagster_run.tags, *map(self._datasets, run_assets(step)))
            opened = self._begin(step, dataset, partitions)
            opened.together = together
            self._open[identity] = opened
            self._begun.add(step.step.key)
            if (rejected := dataset.rejected_dataset()) is not None:
                try:
                    opened.rejected = self._begin(step, rejected, partitions)
                except BaseException as failure:
                    self.abandon(opened, str(failure))
                    raise
            if why_not:
                error = UnknownPartition(f"{dataset}: {why_not} {NOTHING_LOST} Ask for the others without it.")
                self.abandon(self._open[identity], str(error))
                raise error
        return self._open[identity]

    def _begin(self, step: Any, dataset: Dataset, partitions: Sequence[PartitionKey]) -> OpenBuild:
        catalog = Catalog(connect(self.settings, application=f"varve {dataset} run {step.run_id[:8]}"))
        try:
            catalog.ensure_schema()
            version = self.graph.code_versions.get(dataset.name, "")
            return OpenBuild(catalog.begin(dataset, partitions, run_id=step.run_id, code_version=version), catalog)
        except BaseException as failure:
            catalog.connection.close()
            if isinstance(failure, AlreadyBuilding):
                # It has failed nothing: the other run does what this one was to do.
                self._begun.add(step.step.key)
            raise

    def _refused(self, step: Any, dataset: Dataset, partitions: Sequence[PartitionKey]) -> str:
        return refused(
            dataset,
            asked_partitions(dataset, step.dagster_run.tags),
            partitions,
            now=pendulum.now("UTC").timestamp(),
            members=self.sets(step.instance).members(),
        )

    def dataset(self, key: dg.AssetKey) -> Dataset:
        """The dataset that an asset is."""
        return self.graph.datasets[".".join(key.path)]

    def _datasets(self, keys: Iterable[dg.AssetKey]) -> set[str]:
        """Those of the assets that are datasets; a run may have others."""
        return {name for key in keys if (name := ".".join(key.path)) in self.graph.datasets}

    def sets(self, instance: dg.DagsterInstance) -> PartitionSets:
        """The dynamic sets of all datasets."""
        return PartitionSets(instance, [dataset.partitioning for dataset in self.graph.datasets.values()])

    def members(self, instance: dg.DagsterInstance, edge: Edge) -> Members | None:
        """The members of the dynamic sets that a dependency maps; None where there are none."""
        sets = PartitionSets(instance, [edge.dependency.reader, edge.dependency.upstream])
        return sets.members() if sets.dimensions else None

    def store(self, dataset: Dataset, catalog: Catalog) -> Store:
        """The store in which the dataset's batches lie."""
        return open_store(dataset.store, self.settings, catalog, lambda: self._spark.spark_session)

    def staged(self) -> list[OpenBuild]:
        """The builds that are kept back to be published with others."""
        return [each for opened in self._open.values() if opened.staged for each in opened.with_rejected]

    def close(self, opened: OpenBuild) -> None:
        """End a build: give its locks back, and close its connection.

        The locks would go with the connection, but a moment after it: the server ends a session by itself, and a run
        that begins right then would be refused.
        """
        self._open = {identity: held for identity, held in self._open.items() if held is not opened}
        for remove in opened.cleanups:
            with contextlib.suppress(OSError):
                remove()
        for each in opened.with_rejected:
            with contextlib.suppress(psycopg.Error):
                each.catalog.release(each.build)
            each.catalog.connection.close()

    def abandon(self, opened: OpenBuild, reason: str, *, discard: bool = True) -> None:
        """End a build that will not publish, and (`discard`) remove what it has written, as far as it can be now."""
        # The failure that brought us here is the one to tell; what is left lies where no reader looks.
        for each in opened.with_rejected:
            with contextlib.suppress(psycopg.Error, OSError):
                failed = each.catalog.fail(each.build, reason)
                # A run that is ended right after its publish has failed nothing, and what it wrote is in force.
                if discard and failed:
                    self.store(each.build.dataset, each.catalog).discard(each.build)
        self.close(opened)

    def abandon_all(self, failures: Mapping[str, str] | None = None) -> list[str]:
        """End what a run leaves open: steps that failed before their output, and what was kept back for them.

        `failures` says why steps failed, by their keys. Returns the datasets that were kept back.
        """
        kept_back = [opened.build.dataset.name for opened in self.staged()]
        for (_, step), opened in list(self._open.items()):
            self.abandon(
                opened,
                "another dataset that was to be published with it was not ready when the run ended"
                if opened.staged
                else (failures or {}).get(step) or "the step ended before it had an output, and left no error",
            )
        return kept_back

    def note_failures(self, run: DagsterRun, failures: Mapping[str, str]) -> None:
        """Leave in the catalog why steps failed that never came to begin a build: nobody else would."""
        by_step = {"__".join(key.path): key for key in run.asset_selection or ()}
        for step, reason in failures.items():
            if step in self._begun or step not in by_step or ".".join(by_step[step].path) not in self.graph.datasets:
                continue
            dataset = self.dataset(by_step[step])
            partitions = asked_partitions(dataset, run.tags)
            # What cannot be noted either is in Dagster's records only.
            with contextlib.suppress(psycopg.Error, VarveError):
                catalog = Catalog(connect(self.settings, application=f"varve {dataset} run {run.run_id[:8]}"))
                with catalog.connection:
                    catalog.ensure_schema()
                    version = self.graph.code_versions.get(dataset.name, "")
                    build = catalog.begin(dataset, partitions, run_id=run.run_id, code_version=version)
                    catalog.fail(build, reason)
                    catalog.release(build)


def builds_resource(graph: Graph, project: Project) -> dg.ResourceDefinition:
    """The builds of each run, as the Dagster resource `builds`."""

    @dg.resource(required_resource_keys={"spark"}, description="What the steps of a run hold from read to publish.")
    def builds(context: dg.InitResourceContext) -> Iterator[Builds]:
        opened = Builds(graph, context.resources.spark, project.settings)
        context.resources.spark.open_ahead()
        with _living(context, opened.settings):
            try:
                yield opened
            finally:
                failures = _failures(context)
                kept_back = opened.abandon_all(failures)
                if context.run is not None:
                    opened.note_failures(context.run, failures)
                if kept_back:
                    told = ", ".join(kept_back)
                    _tell(context, f"Nothing of {told} was published: the run was to publish all or none.")

    return builds


@contextlib.contextmanager
def _living(context: dg.InitResourceContext, settings: Settings) -> Iterator[None]:
    """With the lease of the run: it has it by now, but where Dagster has another storage than ours.

    Raises LeaseLost where the run counts as dead.
    """
    if context.instance is None or context.run is None:
        yield
        return
    run_id, ours = context.run.run_id, heartbeats_of(context.instance)
    heartbeats = Heartbeats() if ours is None else ours
    has_it = heartbeats.of(run_id) is not None
    beating = heartbeats.begin(settings, run_id)
    try:
        if beating.lost is not None:
            raise lost(beating.lost, "nothing was begun")
        yield
    finally:
        if not has_it:
            heartbeats.end(run_id)


def _failures(context: dg.InitResourceContext) -> Mapping[str, str]:
    """Why the steps of the run failed; builds end and give their locks back though Dagster cannot tell."""
    if context.instance is None or context.run is None:
        return {}
    try:
        return step_failures(context.instance, context.run.run_id)
    except Exception as error:  # noqa: BLE001 - whatever its storage raises
        _tell(context, f"Dagster's records of run {context.run.run_id} could not be read: {error}")
        return {}


def _tell(context: dg.InitResourceContext, text: str) -> None:
    if context.log is not None:
        context.log.error(text)
