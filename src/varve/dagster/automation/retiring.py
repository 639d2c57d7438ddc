"""Partitions that the graph has no more go out of readers' sight: one function for the command and for the job.

The sensor `retirement` asks for the job, and leaves to a person what would take most of a dataset at once. Nothing is
deleted here: batches stay until a sweep takes them, and `varve rollback` brings them back until then.
"""

import datetime as dt
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import dagster as dg

from varve.catalog.catalog import Catalog
from varve.dagster.automation.reconciling import IDENTITY_TAG, Reconciler, ended_runs
from varve.model.dataset import Dataset
from varve.model.partitions.dimension import DynamicDimension
from varve.model.partitions.key import PartitionKey, parse_path
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.graph import Graph
from varve.planning.retirement import Retirement, retirements
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
    """Retire these partitions of one dataset, all or none, and tell Dagster.

    `by` says who asked; `spark` opens a session where the store needs one. Raises AlreadyBuilding where a run is on one
    of them.
    """
    # Its dimensions may not have them any more: their texts are enough to take them back by.
    keys = [PartitionKey.of(**dict(parse_path(path))) for path in paths]
    build = catalog.take(dataset, keys, run_id=f"retire-{uuid.uuid4().hex[:8]} by {by}")
    # What returns to the graph later is to run like anything that is missing.
    build = replace(build, holds=False)
    try:
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
    """The datasets that have partitions in the catalog and no declaration in the code any more, by name.

    One that a file with an error declares is not among them, nor any where such a file does not tell its name.
    """
    return {
        name: _remembered(name, store, declared)
        for name, store, declared in catalog.declared()
        if name not in graph.datasets and graph.broken_dataset(name) is None
    }


def _remembered(name: str, store: str, declared: Mapping[str, Any]) -> Dataset:
    """A dataset as the catalog knows it: enough to show its table or view without rows."""
    types = {ColumnType.DATE: dt.date, ColumnType.BIGINT: int}
    dimensions = [
        DynamicDimension(column, "of.a.removed.dataset", types.get(ColumnType(kind), str))
        for column, kind in declared["partition_columns"]
    ]
    columns = [
        Column(column, ColumnType(kind), comment, nullable=nullable)
        for column, kind, nullable, comment in declared["columns"]
    ]
    return Dataset(
        name=name, comment=declared["comment"], partitioning=Partitioning(tuple(dimensions)),
        schema=Schema(tuple(columns)), store=store,
    )  # fmt: skip


def retirement_job(graph: Graph, project: Project) -> dg.JobDefinition:
    """Retires the partitions that its configuration names, of one dataset."""

    @dg.op(
        config_schema={"dataset": str, "partitions": [str]},
        required_resource_keys={"spark"},
        description="Takes partitions that the graph has no more out of readers' sight; their data is swept later.",
    )
    def retire_partitions(context: dg.OpExecutionContext) -> None:
        settings = project.settings
        name, paths = context.op_config["dataset"], context.op_config["partitions"]
        with connect(settings, application="varve retire") as connection:
            catalog = Catalog(connection)
            catalog.ensure_schema()
            retire(
                catalog, context.instance, graph.datasets[name], paths, by=f"run {context.run_id[:8]}",
                settings=settings, spark=lambda: context.resources.spark.spark_session,
            )  # fmt: skip
        context.log.info("%s: %d partitions were retired.", name, len(paths))

    @dg.job(name=JOB, description="Retires partitions that the graph has no more.")
    def job() -> None:
        retire_partitions()

    return job


def retirement_sensor(graph: Graph, project: Project) -> dg.SensorDefinition:
    """Asks for the job where partitions have left the graph: retention is over, or a key was taken away."""
    reconciler = Reconciler(graph, project)

    @dg.sensor(
        name="retirement",
        job_name=JOB,
        minimum_interval_seconds=300,
        description="Partitions whose retention is over or that the graph has no more go out of readers' sight.",
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        found = reconciler.look(
            context.instance,
            "retirement",
            lambda catalog, _: catalog.partitions_by_dataset(),
            lambda _, plan, counts: (plan, counts),
        )
        if isinstance(found, dg.SkipReason):
            return found
        plan, counts = found
        wanted, refused = retirements(plan, counts)
        for each in refused:
            context.log.warning("%s", each)
        ended = ended_runs([each.identity for each in wanted], context.instance)
        requests = [
            _request(each, ended[each.identity].count if each.identity in ended else 0)
            for each in wanted
            if each.identity not in ended or reconciler.tries_again(ended[each.identity])
        ]
        if not requests:
            return dg.SkipReason(" ".join(map(str, refused)) or "Every partition that has a batch is one of the graph.")
        return dg.SensorResult(run_requests=requests)

    return evaluate


def _request(wanted: Retirement, tried: int) -> dg.RunRequest:
    config = {"dataset": wanted.dataset, "partitions": list(wanted.partitions)}
    return dg.RunRequest(
        run_key=f"{wanted.identity}:{tried}" if tried else wanted.identity,
        run_config={"ops": {"retire_partitions": {"config": config}}},
        tags={IDENTITY_TAG: wanted.identity, "varve/dataset": wanted.dataset, "varve/reason": "left the graph"},
    )
