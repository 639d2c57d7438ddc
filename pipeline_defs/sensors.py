"""The two sensors: files that arrived, and everything else. Thin: they ask for the runs that the planner finds due.

Both compare what is with what should be, so that nothing is forgotten when a tick, a run or the daemon dies: a tick
keeps nothing that the next one could not find again in the catalog and in Dagster's runs.

Not here: what is due (planning/), and where its facts are looked up (reconciling.py).
"""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING

import dagster as dg

from pipeline_defs.model.errors import BadInput, UnknownPartition, VarveError
from pipeline_defs.planning import arrivals
from pipeline_defs.reconciling import (
    AGAIN_TAG,
    IDENTITY_TAG,
    RANGE_END_TAG,
    RANGE_START_TAG,
    Ended,
    Reconciler,
    ended_runs,
)
from resources.landing import Landing, inspect
from resources.outside.source import open_outside
from resources.spark import lost, open_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from pipeline_defs.model.dataset import Dataset
    from pipeline_defs.planning.graph import Graph
    from pipeline_defs.planning.reconcile import Plan
    from pipeline_defs.planning.triggers import Run
    from resources.catalog import Catalog
    from resources.settings import Settings

REASON_TAG = "varve/reason"
DATASET_TAG = "varve/dataset"
# To find runs by the store they write to; limits of runs at once are by the asset's pool.
STORE_TAG = "varve/store"
PRIORITY_TAG = "dagster/priority"
_BACKFILL_PRIORITY = "-1"


def arrival_sensor(graph: Graph) -> dg.SensorDefinition:
    """Asks for a run of every partition whose landing file is new or has other content than its batch was made from."""
    sources = [dataset for dataset in graph.in_order() if dataset.arrives]
    reconciler = Reconciler(graph)

    @dg.sensor(
        name="arrivals",
        asset_selection=dg.AssetSelection.assets(*[asset_key(dataset) for dataset in sources]),
        minimum_interval_seconds=30,
        description="Files that arrived, or arrived again with other content, run their partitions.",
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        found = reconciler.look(context.instance, "arrivals", partial(_look, context, sources))
        if isinstance(found, dg.SkipReason):
            return found
        plan, cursors = found
        return dg.SensorResult(run_requests=_requests(plan, sources, context.instance, reconciler), cursor=cursors)

    return evaluate


def downstream_sensor(graph: Graph) -> dg.SensorDefinition:
    """Asks for a run of every partition that comes from no file and is due: missing, stale, dirty, to be refreshed."""
    readers = [dataset for dataset in graph.in_order() if not dataset.arrives]
    reconciler = Reconciler(graph)

    @dg.sensor(
        name="downstream",
        asset_selection=dg.AssetSelection.assets(*[asset_key(dataset) for dataset in readers]),
        minimum_interval_seconds=30,
        description="Partitions whose inputs all exist run; those whose inputs were published anew run again.",
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        found = reconciler.look(context.instance, "downstream", lambda *_: None)
        if isinstance(found, dg.SkipReason):
            return found
        requests = _requests(found[0], readers, context.instance, reconciler)
        if not requests:
            return dg.SkipReason("Every partition whose inputs exist is current, in flight or given up.")
        return dg.SensorResult(run_requests=requests)

    return evaluate


def asset_key(dataset: Dataset) -> dg.AssetKey:
    """The asset that a dataset is."""
    return dg.AssetKey([dataset.db, dataset.table])


def run_request(run: Run, ended: Ended | None = None) -> dg.RunRequest:
    """The run as Dagster takes it: one partition, or a range of them; another one than those that have ended."""
    spelt = run.dataset.partitioning.to_dagster
    tags = {
        REASON_TAG: run.reason,
        DATASET_TAG: run.dataset.name,
        STORE_TAG: run.dataset.store.value,
        IDENTITY_TAG: run.identity,
    }
    tags |= {PRIORITY_TAG: _BACKFILL_PRIORITY} if run.backfill else {AGAIN_TAG: "yes"}
    single = len(run.partitions) == 1
    if not single:
        tags |= {RANGE_START_TAG: spelt(run.first), RANGE_END_TAG: spelt(run.last)}
    return dg.RunRequest(
        run_key=f"{run.identity}:{ended.count}" if ended else run.identity,
        asset_selection=[asset_key(run.dataset)],
        partition_key=spelt(run.first) if single else None,
        tags=tags,
    )


def _requests(
    plan: Plan, datasets: Sequence[Dataset], instance: dg.DagsterInstance, reconciler: Reconciler
) -> list[dg.RunRequest]:
    wanted = [run for run in plan.runs if run.dataset in datasets]
    ended = ended_runs([run.identity for run in wanted], instance)
    return [
        run_request(run, ended.get(run.identity))
        for run in wanted
        if run.identity not in ended or reconciler.tries_again(ended[run.identity])
    ]


def _look(context: dg.SensorEvaluationContext, sources: Sequence[Dataset], catalog: Catalog, settings: Settings) -> str:
    """Record the files that arrived since the cursor, as far as the time budget reaches; the new cursor."""
    stop = time.monotonic() + settings.sensor_seconds
    landing = Landing(settings.landing)
    places = {name: arrivals.Cursor(*place) for name, place in json.loads(context.cursor or "{}").items()}
    # The table that was not looked at for longest comes first: a slow one must not keep the others from their turn.
    tables = [dataset for dataset in sources if dataset.outside is not None]
    for dataset in sorted(tables, key=lambda each: places.get(each.name, arrivals.Cursor())):
        if time.monotonic() < stop:
            places[dataset.name] = arrivals.Cursor(time.time())
            _look_outside(context, catalog, dataset, settings)
    for dataset in (each for each in sources if each.landing):
        place = places.get(dataset.name, arrivals.Cursor())
        files = landing.files(dataset)
        for file in arrivals.settled(files, place, now=time.time(), settle_seconds=settings.settle_seconds):
            if time.monotonic() > stop:
                break
            _record(context, catalog, dataset, file)
            places[dataset.name] = arrivals.Cursor(file.changed_at, file.key)
    return json.dumps({name: [place.changed_at, place.key] for name, place in places.items()})


def _look_outside(context: dg.SensorEvaluationContext, catalog: Catalog, dataset: Dataset, settings: Settings) -> None:
    """Record which partitions a table of others has now, and which of them changed; one that cannot be asked waits."""
    from pyspark.errors import PySparkException

    assert dataset.outside is not None
    sessions: list[SparkSession] = []

    def spark() -> SparkSession:
        sessions.append(open_session(settings))
        return sessions[-1]

    try:
        found = open_outside(settings, dataset.outside, spark).listed(dataset)
    except (VarveError, PySparkException, OSError) as error:
        if lost(error):
            # A code server lives longer than Spark: the next look opens a session anew.
            for session in sessions:
                session.stop()
        # The other tables and files are looked at all the same.
        context.log.error("%s: %s was not looked at: %s", dataset, dataset.outside, error)  # noqa: TRY400 - complete
        return
    if found.strays:
        context.log.warning("%s: of %s, %s", dataset, dataset.outside, found.told())
    before = catalog.arrivals(dataset.name)
    for partition, listed in found.partitions.items():
        if before.pop(partition.path, None) != listed.token:
            uri = f"{dataset.outside}/{partition.path}"
            catalog.arrived(dataset.name, partition, uri=uri, size=listed.size, fingerprint=listed.token)
    if before:
        catalog.departed(dataset.name, list(before))


def _record(
    context: dg.SensorEvaluationContext, catalog: Catalog, dataset: Dataset, file: arrivals.LandingFile
) -> None:
    try:
        partition = dataset.partitioning.from_dagster(file.key)
        found = inspect(dataset, file.uri)
    except (UnknownPartition, BadInput) as error:
        # Said once, when the file arrives; a run of the partition says it again.
        context.log.error("%s is not taken: %s", file.uri, error)  # noqa: TRY400 - the message is complete
        return
    if found is not None:
        catalog.arrived(dataset.name, partition, uri=file.uri, size=file.size, fingerprint=found.fingerprint)
