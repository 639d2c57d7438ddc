"""How a build of a step begins: in production or an environment, with its code admitted, after the run before it.

Not here: which builds a run has open, and how they end (builds.py).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pendulum

from varve.catalog.catalog import Catalog
from varve.catalog.code.deployments import Deployments
from varve.catalog.code.generations import Generations
from varve.catalog.code.owners import Owners
from varve.catalog.environments.environments import Environments
from varve.catalog.environments.overlay import EnvironmentCatalog
from varve.catalog.planning.hashes import HashesOfBatches
from varve.dagster.internal.steps import step_partition_keys
from varve.dagster.partitions.dynamic_sets import PartitionSets
from varve.model.errors import NOTHING_LOST, AlreadyBuilding, BadInput, UnknownPartition, VarveError
from varve.planning.requested import (
    ENVIRONMENT_TAG,
    LANDING_TAG,
    PARTITION_TAG,
    RANGE_END_TAG,
    RANGE_START_TAG,
    asked_partitions,
    refused,
)
from varve.services.postgres import connect
from varve.services.settings import ContentHash
from varve.stores.open_build import OpenBuild

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Sequence

    import psycopg
    from dagster import DagsterRun

    from varve.dagster.internal.steps import StepExecutionContext
    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey
    from varve.planning.graph import Graph
    from varve.services.settings import Settings

# So many seconds are between two looks at whether another run has ended.
_LOOKS_EVERY = 1.0


@dataclass(frozen=True)
class Beginning:
    """Begins the builds of the steps of one run."""

    graph: Graph
    settings: Settings
    log: logging.Logger

    def environment(self, run: DagsterRun) -> str:
        """Return the environment in which a run computes, by its tag or by the setting; "" for production."""
        return run.tags.get(ENVIRONMENT_TAG) or self.settings.environment or ""

    def catalog(self, dataset: Dataset, run: DagsterRun) -> Catalog:
        """Open the catalog for a build of the dataset; whoever asks for it closes its connection."""
        environment = self.environment(run)
        connection = connect(self.settings, application=f"varve {dataset} run {run.run_id[:8]}")
        return EnvironmentCatalog(connection, environment) if environment else Catalog(connection)

    def partitions(self, step: StepExecutionContext, dataset: Dataset) -> list[PartitionKey]:
        """Return the partitions that the step computes.

        Raises UnknownPartition where the run names none, and BadInput where none lies in the range that it names.
        """
        tags = step.dagster_run.tags
        if dataset.partitioning.dimensions and not tags.keys() & {PARTITION_TAG, RANGE_START_TAG}:
            raise UnknownPartition(
                f"{dataset}: the run names no partition of it. {NOTHING_LOST} Name one, or a range of them, in the "
                "launchpad or in a RunRequest; varve.partition_schedule is a schedule that names them."
            )
        partitions = sorted(map(dataset.partitioning.from_dagster, step_partition_keys(step)))
        if not partitions:
            ends = "...".join(tags.get(tag, "") for tag in (RANGE_START_TAG, RANGE_END_TAG))
            raise BadInput(
                f"{dataset}: no partition lies in the range {ends}. {NOTHING_LOST} Name the earlier end first."
            )
        return partitions

    def refusal_reason(self, step: StepExecutionContext, dataset: Dataset, partitions: Sequence[PartitionKey]) -> str:
        """Return why the run may not compute these partitions; "" where it may."""
        return refused(
            dataset,
            asked_partitions(dataset, step.dagster_run.tags),
            partitions,
            now=pendulum.now("UTC").timestamp(),
            members=PartitionSets(step.instance, [dataset.partitioning]).members(),
        )

    def begin(self, step: StepExecutionContext, dataset: Dataset, partitions: Sequence[PartitionKey]) -> OpenBuild:
        """Begin a build, after the run that builds one of its partitions.

        Raises AlreadyBuilding where that one goes on, OtherOwner where another project computes the dataset, and
        VarveError where the environment has no such build.
        """
        environment = self.environment(step.dagster_run)
        catalog = self.catalog(dataset, step.dagster_run)
        connection = catalog.connection
        try:
            catalog.ensure_schema()
            code_version = self.graph.code_versions.get(dataset.name, "")
            if environment and not step.dagster_run.tags.get(ENVIRONMENT_TAG):
                self._enter(step, connection, environment)
            if environment:
                generation = Generations(connection).of_environment(environment).get(dataset.name)
                is_new = generation is not None and generation.is_new
                if not step.dagster_run.tags.get(LANDING_TAG) and not is_new:
                    _refuse_in_environment(dataset, environment)
                Environments(connection).get(environment)
            else:
                Owners(connection, self.graph.project).claim_all([dataset.name])
            if code_version and not environment:
                deployments = Deployments(connection)
                deployments.admit(
                    dataset, code_version, self.graph.sources.get(dataset.name, ""), [key.path for key in partitions]
                )
                deployments.refuse_evolving(dataset, self.graph.upstreams(dataset))
            build = self._when_free(
                lambda: catalog.begin(dataset, partitions, run_id=step.run_id, code_version=code_version)
            )
            build.column_sets = self.graph.column_sets(dataset)
            is_hashed = self.settings.content_hash is not ContentHash.NEVER
            build.compared = is_hashed and HashesOfBatches(connection).is_compared(build, environment)
        except BaseException:
            connection.close()
            raise
        return OpenBuild(build, catalog)

    def _when_free(self, begin: Callable[[], Build]) -> Build:
        """Begin a build, after the run that builds one of its partitions: a sensor and a backfill may ask for the same.

        Raises AlreadyBuilding where that takes longer than the setting allows.
        """
        waits_until, is_told = time.monotonic() + self.settings.wait_seconds, False
        while True:
            try:
                return begin()
            except AlreadyBuilding as other:
                left = waits_until - time.monotonic()
                if left <= 0:
                    raise
                if not is_told:
                    which = str(other).partition(" One run")[0]
                    self.log.info("%s This run waits for it, for at most %.0f s.", which, left)
                    is_told = True
                time.sleep(min(_LOOKS_EVERY, left))

    def _enter(self, step: StepExecutionContext, connection: psycopg.Connection, environment: str) -> None:
        """Note that the environment computes with the code that is here: `varve env run` has not done that."""
        environments = Environments(connection)
        environments.get(environment)
        environments.set_code(environment, self.graph)
        Generations(connection).enter(environment, self.graph)
        environments.use(environment)
        # No sensor of production takes the run for one of its own.
        step.instance.add_run_tags(step.run_id, {ENVIRONMENT_TAG: environment})


def _refuse_in_environment(dataset: Dataset, environment: str) -> None:
    """Raise VarveError for a dataset whose rows come from outside: they arrive in production, once."""
    if dataset.arrives or dataset.rejected_of:
        raise VarveError(
            f"{dataset}: its rows come from outside, and environment {environment} reads those of production. Nothing "
            f"was read. `varve env rebase {environment}` takes what has arrived since the environment was made, and "
            f"`varve env land {environment} {dataset} FILE column=value` tries another file there."
        )
