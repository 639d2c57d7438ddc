"""What readers are shown follows the catalog again where it could not at the publish: a job, and the sensor for it.

A run that has published does not fail because the metastore is away. Its Hive table then shows the batches of before,
until the next run of the dataset or the next sweep; a dataset that is published once a week would be behind for a week.

Not here: how a store follows (varve/stores), and the alert that something lags (alerting.py).
"""

import time

import dagster as dg
import psycopg

from varve.catalog.catalog import Catalog
from varve.catalog.code.generations import Generations
from varve.catalog.code.owners import Owners
from varve.catalog.projection_progress import Lag
from varve.dagster.automation.reconciling import IDENTITY_TAG, NOT_LOOKED, Ended, default_status, ended_runs
from varve.model.errors import VarveError, counted
from varve.planning.graph import Graph
from varve.planning.judgement.judging import RetryLimits
from varve.planning.requested import REASON_TAG
from varve.project import Project
from varve.services.postgres import connect
from varve.stores.open import open_store

JOB = "follow"
# A run that has published follows by itself a moment later.
_GRACE_SECONDS = 60.0
_RETRIES = RetryLimits()


def following_job(graph: Graph, project: Project) -> dg.JobDefinition:
    """Return the job that lets readers of one dataset, which its configuration names, see what is current."""

    @dg.op(
        config_schema={"dataset": str},
        required_resource_keys={"spark"},
        description="Shows readers of a dataset what is current, where that was not possible when it was published.",
    )
    def follow_catalog(context: dg.OpExecutionContext) -> None:
        settings, dataset = project.settings, graph.datasets[context.op_config["dataset"]]
        with connect(settings, application="varve follow") as connection:
            catalog = Catalog(connection)
            catalog.ensure_schema()
            store = open_store(dataset.store, settings, catalog, lambda: context.resources.spark.spark_session)
            before = catalog.lagging(dataset.name)
            count = store.follow(dataset)
            # What another run publishes meanwhile it shows itself.
            left = [path for path, batch in catalog.lagging(dataset.name).items() if batch == before.get(path)]
            if left:
                raise VarveError(
                    f"{dataset}: readers are not shown what is current of {counted(len(left), 'partition')}. Nothing "
                    f"is lost. varve doctor {dataset} says what is in the way."
                )
        context.log.info("%s: readers are shown %s more.", dataset, counted(count, "batch"))

    @dg.job(name=JOB, description="Shows readers of a dataset what is current, where they were behind.")
    def job() -> None:
        follow_catalog()

    return job


def following_sensor(graph: Graph, project: Project, *, on: bool = False) -> dg.SensorDefinition:
    """Return the sensor that requests the job for each dataset whose readers are behind the catalog.

    It asks again until they are not: later and later, an hour apart at most.
    """

    @dg.sensor(
        name="projections",
        job_name=JOB,
        minimum_interval_seconds=60,
        default_status=default_status(on=on),
        description="Hive tables that could not follow a publish, as the metastore was away, follow it now.",
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        try:
            lags = _lags(graph, project)
        except (VarveError, psycopg.OperationalError) as error:
            return dg.SkipReason(f"{NOT_LOOKED}: {error}")
        identities = {lag.dataset: f"follow {lag.dataset} to {lag.newest}" for lag in lags}
        ended = ended_runs(list(identities.values()), context.instance)
        requests, now = [], time.time()
        for lag in lags:
            identity = identities[lag.dataset]
            before = ended.get(identity)
            if before is not None and (
                before.unfinished or (before.in_vain and now < before.last + _RETRIES.after(before.in_vain))
            ):
                continue
            requests.append(_request(lag, identity, before or Ended()))
        if requests:
            return dg.SensorResult(run_requests=requests)
        return dg.SkipReason("Readers are shown what is current." if not lags else "What lags is tried again later.")

    return evaluate


def _lags(graph: Graph, project: Project) -> list[Lag]:
    """What lags of the datasets of the project, without those whose declaration is of another generation."""
    with connect(project.settings, application="varve projections") as connection:
        catalog = Catalog(connection)
        catalog.ensure_schema()
        lags = [lag for lag in catalog.all_lagging(older_than=_GRACE_SECONDS) if lag.dataset in graph.datasets]
        if not lags:
            return []
        of_others = Owners(connection, graph.project).others([lag.dataset for lag in lags])
        evolving = Generations(connection).breaking(graph.datasets[lag.dataset] for lag in lags)
        own = set(graph.own)
        return [lag for lag in lags if lag.dataset in own and lag.dataset not in {*of_others, *evolving}]


def _request(lag: Lag, identity: str, ended: Ended) -> dg.RunRequest:
    return dg.RunRequest(
        run_key=ended.run_key(identity),
        run_config={"ops": {"follow_catalog": {"config": {"dataset": lag.dataset}}}},
        tags={
            IDENTITY_TAG: identity,
            REASON_TAG: f"{lag.dataset}: readers are behind by {counted(lag.partitions, 'partition')}",
        },
    )
