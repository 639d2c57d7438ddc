"""Retirement: partitions that the graph no longer has are hidden from readers, by the command or by the job.

The sensor `retirement` requests the job. It leaves the decision to a person where most of a dataset would be retired at
once. Nothing is deleted here: batches stay until a sweep deletes them, and until then `varve rollback` brings them
back.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import dagster as dg
import pendulum

from varve.catalog.backfills import Backfills
from varve.catalog.catalog import Catalog
from varve.catalog.code.generations import dataset_of
from varve.catalog.code.owners import Owners
from varve.dagster.automation.reconciling import IDENTITY_TAG, Ended, Reconciler, default_status, ended_runs
from varve.dagster.internal.partition_keys import set_filled_since
from varve.dagster.partitions.sets_sensor import sets_of
from varve.model.dataset import Dataset
from varve.model.errors import cut, some
from varve.model.partitions.key import PartitionKey, parse_path
from varve.model.partitions.partitioning import base_set
from varve.planning.graph import Graph
from varve.planning.reasons import LONGEST, path_in_words
from varve.planning.reconcile import RunPlan
from varve.planning.requested import REASON_TAG
from varve.planning.retirement import (
    RefusedRetirement,
    Retirement,
    lost_sets,
    of_new_sets,
    retirements,
    still_unwanted,
)
from varve.project import Project
from varve.services.postgres import connect
from varve.services.settings import Settings
from varve.stores.open import open_store

JOB = "retire"


def retire(
    catalog: Catalog,
    instance: dg.DagsterInstance,
    dataset: Dataset,
    paths: Sequence[str],
    *,
    by: str,
    settings: Settings,
    spark: Callable[[], Any],
) -> None:
    """Retire these partitions of one dataset, all or none, and report it to Dagster.

    `by` says who asked for it; `spark` opens a session where the store needs one. Raises AlreadyBuilding where a run
    builds one of the partitions.
    """
    # The dimensions may not have these keys any more, so they are made from the texts of the paths.
    keys = [PartitionKey.of(**dict(parse_path(path))) for path in paths]
    build = catalog.lock_partitions(dataset, keys, run_id=f"retire-{uuid.uuid4().hex[:8]} by {by}")
    # With `holds` the planner would leave the partitions alone. One that returns to the graph later shall run again.
    build = replace(build, holds=False)
    try:
        Backfills(catalog.connection).leave_out(dataset.name, paths)
        open_store(dataset.store, settings, catalog, spark).republish(build, [], reason="retired")
    finally:
        catalog.release(build)
    for path in paths:
        instance.report_runless_asset_event(
            dg.AssetObservation(
                dg.AssetKey([dataset.db, dataset.table]), description=f"{path} was retired",
                metadata={"varve/retired": path},
            )
        )  # fmt: skip


def removed(catalog: Catalog, graph: Graph) -> dict[str, Dataset]:
    """Return, by name, the datasets that have partitions in the catalog and no declaration in the code any more.

    Those of other projects are not among them.

    A dataset is left out where a file with an error declares it, or may declare it because its name cannot be read.
    """
    of_others = Owners(catalog.connection, graph.project).others()
    return {
        name: dataset_of(name, store, declared)
        for name, store, declared in catalog.declared()
        if name not in graph.datasets and name not in of_others and graph.broken_dataset(name) is None
    }


def retirement_job(graph: Graph, project: Project) -> dg.JobDefinition:
    """Return the job that retires the partitions which its configuration names, of one dataset."""

    @dg.op(
        config_schema={"dataset": str, "partitions": [str]},
        required_resource_keys={"spark"},
        description="Takes partitions that the graph has no more out of readers' sight; their data is swept later.",
    )
    def retire_partitions(context: dg.OpExecutionContext) -> None:
        settings = project.settings
        dataset, asked = graph.datasets[context.op_config["dataset"]], context.op_config["partitions"]
        members = sets_of(context.instance, graph).members()
        # The run may have waited for hours.
        paths = still_unwanted(graph, dataset, asked, now=pendulum.now("UTC"), members=members)
        if len(paths) < len(asked):
            context.log.info("%s: %d partitions are of the graph again and stay.", dataset, len(asked) - len(paths))
        if not paths:
            return
        with connect(settings, application="varve retire") as connection:
            catalog = Catalog(connection)
            catalog.ensure_schema()
            retire(
                catalog, context.instance, dataset, paths, by=f"run {context.run_id[:8]}",
                settings=settings, spark=lambda: context.resources.spark.spark_session,
            )  # fmt: skip
        context.log.info("%s: %d partitions were retired.", dataset, len(paths))

    @dg.job(name=JOB, description="Retires partitions that the graph has no more.")
    def job() -> None:
        retire_partitions()

    return job


def retirement_sensor(graph: Graph, project: Project, *, on: bool = False) -> dg.SensorDefinition:
    """Return the sensor that requests the job where partitions have left the graph.

    Partitions leave the graph when their retention is over, or when a key was removed from a dynamic set.
    """
    reconciler = Reconciler(graph, project)

    @dg.sensor(
        name="retirement",
        job_name=JOB,
        minimum_interval_seconds=300,
        default_status=default_status(on=on),
        description="Partitions whose retention is over or that the graph has no more go out of readers' sight.",
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        def use_plan(
            catalog: Catalog, plan: RunPlan, counts: Mapping[str, int]
        ) -> tuple[list[Retirement], list[RefusedRetirement]]:
            members = sets_of(context.instance, graph).members()
            lost = lost_sets(graph, members, plan.failed)
            new = of_new_sets(
                graph, plan, members, lambda dimension: set_filled_since(context.instance, base_set(dimension))
            )
            # Of what was never computed and is no partition, there is nothing but marks. The key may come back.
            for name in plan.unmark.keys() - lost.keys() - new.keys():
                Backfills(catalog.connection).leave_out(name, plan.unmark[name])
            return retirements(plan, counts, lost, new)

        found = reconciler.look(
            context.instance, "retirement", lambda catalog, _: catalog.partitions_by_dataset(), use_plan
        )
        if isinstance(found, dg.SkipReason):
            return found
        wanted_retirements, refusals = found
        for refusal in refusals:
            context.log.warning("%s", refusal)
        ended = ended_runs([retirement.identity for retirement in wanted_retirements], context.instance)
        requests = [
            _request(retirement, ended.get(retirement.identity, Ended()))
            for retirement in wanted_retirements
            if retirement.identity not in ended or reconciler.tries_again(ended[retirement.identity], gives_up=False)
        ]
        if not requests:
            waits = "Every partition that has left the graph is being retired, or tried again later."
            settled = "Every partition that has a batch is one of the graph."
            return dg.SkipReason(" ".join(map(str, refusals)) or (waits if wanted_retirements else settled))
        return dg.SensorResult(run_requests=requests)

    return evaluate


def _request(retirement: Retirement, ended: Ended) -> dg.RunRequest:
    config = {"dataset": retirement.dataset, "partitions": list(retirement.partitions)}
    partitions = [path_in_words(path) for path in retirement.partitions]
    return dg.RunRequest(
        run_key=ended.run_key(retirement.identity),
        run_config={"ops": {"retire_partitions": {"config": config}}},
        tags={
            IDENTITY_TAG: retirement.identity,
            REASON_TAG: cut(f"{retirement.dataset} {some(partitions, limit=3)}: left the graph", LONGEST),
        },
    )
