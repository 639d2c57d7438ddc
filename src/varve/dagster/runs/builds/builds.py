"""Builds: the locks, the connection and the trace of one step of a run, shared by its inputs, landing and outputs.

A build begins with whatever the step touches first, so that it notes what is current before any input is read.

Not here: how a build begins (beginning.py), and the order stage, verify, publish (io_manager.py).
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

import psycopg

from varve.catalog.history.history import History
from varve.catalog.traces import Traces
from varve.dagster.internal.runs import held_interrupts
from varve.dagster.internal.steps import (
    attempts_before,
    is_cancelled,
    run_assets,
    step_asset,
    step_identity,
    step_of,
)
from varve.dagster.partitions.asked import asked_keys
from varve.dagster.partitions.dynamic_sets import PartitionSets
from varve.dagster.runs import atomic_publish
from varve.dagster.runs.builds.beginning import Beginning
from varve.dagster.runs.builds.telling import Telling
from varve.dagster.runs.failures import StepFailure, failure_text, interruption
from varve.model.errors import (
    NOTHING_LOST,
    AlreadyBuilding,
    OtherOwner,
    ServiceUnavailable,
    UnknownPartition,
    VarveError,
)
from varve.observe.log_lines import LogFields, set_fields
from varve.planning.requested import shown_partitions
from varve.services.outages import is_outage
from varve.services.postgres import connect
from varve.stores.open import open_store
from varve.stores.open_build import OpenBuild

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import dagster as dg
    from dagster import DagsterRun
    from pyspark.sql import SparkSession

    from varve.catalog.catalog import Catalog
    from varve.dagster.internal.steps import StepExecutionContext
    from varve.dagster.runs.spark import SparkResource
    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.model.partitions.key import PartitionKey
    from varve.planning.graph import Edge, Graph
    from varve.services.settings import Settings
    from varve.stores.store import Store


logger = logging.getLogger(__name__)


class Builds:
    """The open builds of one run, by step."""

    def __init__(
        self, graph: Graph, spark: SparkResource, settings: Settings, log: logging.Logger | None = None
    ) -> None:
        self.graph = graph
        self.telling = Telling(graph, settings, log)
        self.settings = settings
        self._spark = spark
        self._beginning = Beginning(graph, settings, log or logger)
        self._open: dict[tuple[str, str], OpenBuild] = {}
        # At which attempt of its step each of them was begun.
        self._attempts: dict[tuple[str, str], int] = {}
        # The keys of the steps that have begun a build. A build notes its own end in the catalog.
        self._begun_steps: set[str] = set()
        self._is_cancelled = False

    @contextlib.contextmanager
    def publishing(self, opened: OpenBuild, log: logging.Logger) -> Iterator[None]:
        """Nobody who cancels the run interrupts what is within: Dagster has to know what readers see.

        Instead no further build of the run begins.
        """

        def cancelled() -> None:
            self._is_cancelled = True
            log.warning(
                "%s was being published when the run was cancelled. What comes after it is not begun.", opened.build
            )

        with held_interrupts(cancelled):
            yield

    def of(self, context: dg.AssetExecutionContext | dg.InputContext | dg.OutputContext) -> OpenBuild:
        """Return the build of the step that the context belongs to; the first call of each attempt begins it.

        Raises AlreadyBuilding where another run goes on building one of the partitions, UnknownPartition where the run
        asks for a partition that the dataset does not have, and VarveError where the run's tags do not fit.
        """
        step = step_of(context)
        identity, attempt = step_identity(step), attempts_before(step)
        if identity in self._open and self._attempts[identity] != attempt:
            self._leave_attempt(identity)
        if identity not in self._open:
            # Dagster makes a further attempt also where the one before was interrupted.
            if self._is_cancelled or (attempt and is_cancelled(step)):
                raise interruption(step)
            self._attempts[identity] = attempt
            dataset = self.dataset(step_asset(step))
            partitions = self._beginning.partitions(step, dataset)
            why_not = self._beginning.refusal_reason(step, dataset, partitions)
            try:
                published_together = atomic_publish.members(
                    step.dagster_run.tags, *map(self._dataset_names, run_assets(step))
                )
            except VarveError:
                # No failure of the partitions: a retry of the run, which goes on from its failed step, is refused so.
                self._begun_steps.add(step.step.key)
                raise
            open_build = self._begin(step, dataset, partitions)
            # Runs by hand and of backfills say with their tags only where Dagster's range begins and ends.
            if not self._begun_steps and (tags := shown_partitions(dataset, partitions, step.dagster_run.tags)):
                step.instance.add_run_tags(step.run_id, tags)
            open_build.together = published_together
            self._open[identity] = open_build
            self._begun_steps.add(step.step.key)
            if (rejected := dataset.rejected_dataset()) is not None:
                try:
                    open_build.rejected = self._begin(step, rejected, partitions)
                    # What the step says from now on is of the dataset that it computes.
                    set_fields(LogFields.of(open_build.build))
                except BaseException as failure:
                    self.abandon(open_build, failure)
                    raise
            if why_not:
                error = UnknownPartition(f"{dataset}: {why_not} {NOTHING_LOST} Ask for the others without it.")
                self.abandon(self._open[identity], error)
                raise error
        return self._open[identity]

    def _leave_attempt(self, identity: tuple[str, str]) -> None:
        """End the build of an attempt that has failed: Dagster tries the step again, which reads and builds anew.

        Its batches are forgotten: what is no failure of the run is none of the partitions either.
        """
        opened, application = self._open[identity], "varve after an attempt"
        # The session of the build may be what the attempt has lost.
        with (
            contextlib.suppress(ServiceUnavailable, psycopg.Error),
            connect(self.settings, application=application) as connection,
        ):
            for build_or_rejected in opened.with_rejected:
                Traces(connection).forget(build_or_rejected.build)
        self.telling.failed(opened, "an attempt at its step has failed, and Dagster tries it again")
        self.close(opened)
        self._begun_steps.discard(identity[1])

    def leave_attempts(self) -> None:
        """End the builds of attempts that have failed, as above, where another process makes the next ones."""
        for identity in list(self._open):
            self._leave_attempt(identity)

    def _begin(self, step: StepExecutionContext, dataset: Dataset, partitions: Sequence[PartitionKey]) -> OpenBuild:
        try:
            opened = self._beginning.begin(step, dataset, partitions)
        except (AlreadyBuilding, OtherOwner):
            # This is no failure of the partitions: the other run or project computes what this one was to.
            self._begun_steps.add(step.step.key)
            raise
        self.telling.began(opened)
        return opened

    def catalog(self, dataset: Dataset, run: DagsterRun) -> Catalog:
        """Open the catalog in which a run reads or builds the dataset; whoever asks for it closes its connection."""
        return self._beginning.catalog(dataset, run)

    def dataset(self, key: dg.AssetKey) -> Dataset:
        """Return the dataset of an asset. Raises VarveError where it is none: our IO managers store nothing else."""
        if (name := ".".join(key.path)) not in self.graph.datasets:
            raise VarveError(
                f"{name} is no dataset of Varve, so no IO manager of Varve stores or reads it. Name another one in its "
                "io_manager_key, or declare it as a dataset (varve.asset)."
            )
        return self.graph.datasets[name]

    def _dataset_names(self, keys: Iterable[dg.AssetKey]) -> set[str]:
        """Return the names of those assets that are datasets; a run may have other assets, too."""
        return {name for key in keys if (name := ".".join(key.path)) in self.graph.datasets}

    def sets(self, instance: dg.DagsterInstance) -> PartitionSets:
        """Return the dynamic sets of all datasets."""
        return PartitionSets(instance, [dataset.partitioning for dataset in self.graph.datasets.values()])

    def members(self, instance: dg.DagsterInstance, edge: Edge) -> Members | None:
        """Return the members of the dynamic sets that a dependency maps; None where it maps none."""
        sets = PartitionSets(instance, edge.dependency.partitionings)
        return sets.members() if sets.dimensions else None

    def store(self, dataset: Dataset, catalog: Catalog) -> Store:
        """Return the store in which the dataset's batches lie."""
        return open_store(dataset.store, self.settings, catalog, self.spark)

    def spark(self) -> SparkSession:
        """Return the session of the run, which is opened when somebody asks for it first."""
        session: SparkSession = self._spark.spark_session
        return session

    def staged(self) -> list[OpenBuild]:
        """Return the builds that are kept back to be published with others."""
        return [
            build_or_rejected
            for opened in self._open.values()
            if opened.staged
            for build_or_rejected in opened.with_rejected
        ]

    def close(self, opened: OpenBuild) -> None:
        """End a build: release its locks, and close its connection.

        The locks would end with the connection, but a moment later, when the server ends the session. A run that begins
        right then would be refused, so the locks are released first.
        """
        self._open = {
            identity: other_build for identity, other_build in self._open.items() if other_build is not opened
        }
        for remove in opened.cleanups:
            with contextlib.suppress(OSError):
                remove()
        for build_or_rejected in opened.with_rejected:
            with contextlib.suppress(psycopg.Error):
                build_or_rejected.catalog.release(build_or_rejected.build)
            build_or_rejected.catalog.connection.close()
        self.telling.ended()

    def abandon(
        self,
        opened: OpenBuild,
        error: BaseException | StepFailure,
        *,
        discard: bool = True,
        blamed: Mapping[str, str] | None = None,
    ) -> None:
        """End a build that will not publish, and with `discard` remove what it has written, as far as possible.

        `error` says why; an outage is no attempt at its partitions.

        `blamed` are the partitions that have failed, with reasons of their own, where that is known: the others are
        forgotten.
        """
        reason, outage = error if isinstance(error, StepFailure) else (failure_text(error), is_outage(error))
        # Errors of the clean-up are suppressed: the first failure is the one to report, and no reader sees the rest.
        for build_or_rejected in opened.with_rejected:
            with contextlib.suppress(psycopg.Error, OSError):
                has_failed = build_or_rejected.catalog.fail(
                    build_or_rejected.build, reason, blamed, build_or_rejected.broken_expectations, outage=outage
                )
                # Where the catalog cannot be asked, nothing is told: the batch may have become current.
                if has_failed:
                    self.telling.failed(build_or_rejected, reason)
                # Where a run is ended right after its publish, its batches are current and must not be discarded.
                if discard and has_failed:
                    self.store(build_or_rejected.build.dataset, build_or_rejected.catalog).discard(
                        build_or_rejected.build
                    )
        self.close(opened)

    def abandon_all(self, failures: Mapping[str, StepFailure] | None = None) -> list[str]:
        """End the builds that a run leaves open: those of failed steps, and those that were kept back.

        `failures` are the reasons of failed steps, by step key. Returns the datasets that were kept back.
        """
        kept_back, failures = [opened.build.dataset.name for opened in self.staged()], failures or {}
        of_another = StepFailure(
            "another dataset that was to be published with it was not ready when the run ended",
            any(failure.outage for failure in failures.values()),
        )
        without_word = StepFailure("the step ended before it had an output, and left no error")
        for (_, step), opened in list(self._open.items()):
            self.abandon(opened, of_another if opened.staged else failures.get(step, without_word))
        return kept_back

    def note_failures(self, run: DagsterRun, failures: Mapping[str, StepFailure], instance: dg.DagsterInstance) -> None:
        """Note in the catalog why steps failed that had not begun a build; nothing else would note it."""
        by_step = {name.replace(".", "__"): dataset for name, dataset in self.graph.datasets.items()}
        for step, (reason, outage) in failures.items():
            if step in self._begun_steps or step not in by_step:
                continue
            dataset = by_step[step]
            # Where the catalog cannot be reached, only Dagster's records have the failure. A run by hand may have been
            # asked for keys that are none.
            with contextlib.suppress(psycopg.Error, VarveError):
                partitions = asked_keys(dataset, run.tags, instance)
                catalog = self.catalog(dataset, run)
                with catalog.connection:
                    catalog.ensure_schema()
                    # Another process of the run has noted it: each failure counts once.
                    paths = [key.path for key in partitions]
                    if History(catalog.connection).batches(dataset.name, paths, run_id=run.run_id, limit=1):
                        continue
                    code_version = self.graph.code_versions.get(dataset.name, "")
                    build = catalog.begin(dataset, partitions, run_id=run.run_id, code_version=code_version)
                    opened = OpenBuild(build, catalog)
                    self.telling.began(opened)
                    catalog.fail(build, reason, outage=outage)
                    self.telling.failed(opened, reason)
                    catalog.release(build)
