"""The two sensors: files that arrived, and partitions that became possible or stale. Thin; the rules are in planning/.

Both compare what is with what should be, so that nothing is forgotten when a tick, a run or the daemon dies. A run that
fails is asked for again, `VARVE_ATTEMPTS` times in all; then the partition waits for a person or for other inputs.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import dagster as dg
import pendulum

from pipeline_defs.model.errors import BadInput, UnknownPartition, VarveError
from pipeline_defs.partition_sets import sets_of
from pipeline_defs.planning import arrivals, triggers
from resources.catalog import Catalog, versions
from resources.landing import Landing, inspect
from resources.postgres import connect
from resources.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import psycopg

    from pipeline_defs.model.batch import Batch, Input
    from pipeline_defs.model.dataset import Dataset
    from pipeline_defs.model.dimension import Members
    from pipeline_defs.model.partition import PartitionKey
    from pipeline_defs.planning.graph import Graph

RANGE_START_TAG = "dagster/asset_partition_range_start"
RANGE_END_TAG = "dagster/asset_partition_range_end"
REASON_TAG = "varve/reason"
DATASET_TAG = "varve/dataset"
# How a tick begins that could not reach its servers; the next one looks again.
NOT_LOOKED = "Nothing was looked at"


def arrival_sensor(graph: Graph) -> dg.SensorDefinition:
    """Asks for a run of every partition whose landing file is new or has other content than its batch was made from."""
    sources = [dataset for dataset in graph.in_order() if dataset.landing]

    @dg.sensor(
        name="arrivals",
        asset_selection=dg.AssetSelection.assets(*[asset_key(dataset) for dataset in sources]),
        minimum_interval_seconds=30,
        description="Files that arrived, or arrived again with other content, run their partitions.",
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        settings = Settings()
        try:
            with _catalog(settings) as connection:
                catalog = Catalog(connection)
                catalog.ensure_schema()
                cursors = _look(context, catalog, settings, sources)
                requests = [request for dataset in sources for request in _landed(catalog, settings, dataset)]
        except VarveError as error:
            return dg.SkipReason(f"{NOT_LOOKED}: {error}")
        return dg.SensorResult(run_requests=requests, cursor=cursors)

    return evaluate


def downstream_sensor(graph: Graph) -> dg.SensorDefinition:
    """Asks for a run of every partition whose inputs all exist, where it has no batch or one made from other inputs."""
    readers = [dataset for dataset in graph.in_order() if graph.upstreams(dataset)]

    @dg.sensor(
        name="downstream",
        asset_selection=dg.AssetSelection.assets(*[asset_key(dataset) for dataset in readers]),
        minimum_interval_seconds=30,
        description="Partitions whose inputs all exist run; those whose inputs were published anew run again.",
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        settings = Settings()
        try:
            with _catalog(settings) as connection:
                catalog = Catalog(connection)
                catalog.ensure_schema()
                members = sets_of(context.instance, graph).members()
                requests = _downstream(catalog, settings, graph, members)
        except VarveError as error:
            return dg.SkipReason(f"{NOT_LOOKED}: {error}")
        if not requests:
            return dg.SkipReason("Every partition whose inputs exist is current, in flight or given up.")
        return dg.SensorResult(run_requests=requests)

    return evaluate


def asset_key(dataset: Dataset) -> dg.AssetKey:
    """The asset that a dataset is."""
    return dg.AssetKey([dataset.db, dataset.table])


def run_request(run: triggers.Run, failures: Mapping[str, int]) -> dg.RunRequest:
    """The run as Dagster takes it: one partition, or a range of them."""
    spelt = run.dataset.partitioning.to_dagster
    tags = {REASON_TAG: run.reason, DATASET_TAG: run.dataset.name}
    single = len(run.partitions) == 1
    if not single:
        tags |= {RANGE_START_TAG: spelt(run.first), RANGE_END_TAG: spelt(run.last)}
    return dg.RunRequest(
        run_key=run.identity(failures),
        asset_selection=[asset_key(run.dataset)],
        partition_key=spelt(run.first) if single else None,
        tags=tags,
    )


def _catalog(settings: Settings) -> psycopg.Connection:
    return connect(settings, application="varve sensor")


def _look(context: dg.SensorEvaluationContext, catalog: Catalog, settings: Settings, sources: Sequence[Dataset]) -> str:
    """Record the files that arrived since the cursor, as far as the time budget reaches; the new cursor."""
    stop = time.monotonic() + settings.sensor_seconds
    landing = Landing(settings.landing)
    places = {name: arrivals.Cursor(*place) for name, place in json.loads(context.cursor or "{}").items()}
    for dataset in sources:
        place = places.get(dataset.name, arrivals.Cursor())
        files = landing.files(dataset)
        for file in arrivals.settled(files, place, now=time.time(), settle_seconds=settings.settle_seconds):
            if time.monotonic() > stop:
                break
            _record(context, catalog, dataset, file)
            places[dataset.name] = arrivals.Cursor(file.changed_at, file.key)
    return json.dumps({name: [place.changed_at, place.key] for name, place in places.items()})


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


def _landed(catalog: Catalog, settings: Settings, dataset: Dataset) -> list[dg.RunRequest]:
    possible = triggers.inputs_from_landing(dataset, catalog.arrivals(dataset.name))
    requests, _ = _requests(catalog, settings, dataset, possible, changing=(), upstream={})
    return requests


def _downstream(catalog: Catalog, settings: Settings, graph: Graph, members: Members) -> list[dg.RunRequest]:
    requests: list[dg.RunRequest] = []
    # What is due or in flight upstream will change what reads it: wait, instead of running that twice.
    changing: set[tuple[str, str]] = set()
    for dataset in graph.in_order():
        changing |= {(dataset.name, path) for path in catalog.in_flight(dataset.name)}
        edges = graph.edges[dataset.name]
        if not edges:
            continue
        current = {edge.upstream.name: catalog.current(edge.upstream.name) for edge in edges}
        current_versions = {name: versions(batches) for name, batches in current.items()}
        possible = triggers.inputs_from_datasets(edges, current_versions, members=members, now=pendulum.now("UTC"))
        asked, dues = _requests(catalog, settings, dataset, possible, changing=changing, upstream=current)
        requests += asked
        changing |= {(dataset.name, found.partition.path) for found in dues}
    return requests


def _requests(
    catalog: Catalog,
    settings: Settings,
    dataset: Dataset,
    possible: Mapping[PartitionKey, frozenset[Input]],
    *,
    changing: Iterable[tuple[str, str]] = (),
    upstream: Mapping[str, Mapping[str, Batch]] | None = None,
) -> tuple[list[dg.RunRequest], list[triggers.Due]]:
    if not possible:
        return [], []
    failures = _failures(catalog, dataset, possible, upstream or {})
    given_up = {path for path, count in failures.items() if count >= settings.attempts}
    traces = {path: batch.inputs for path, batch in catalog.current(dataset.name).items()}
    waiting = catalog.in_flight(dataset.name) | given_up
    dues = triggers.due(possible, traces, waiting=waiting, upstream_waiting=changing)
    planned = triggers.runs(dataset, dues, limit=settings.partitions_per_run)
    return [run_request(run, failures) for run in planned], dues


def _failures(
    catalog: Catalog,
    dataset: Dataset,
    possible: Mapping[PartitionKey, frozenset[Input]],
    upstream: Mapping[str, Mapping[str, Batch]],
) -> dict[str, int]:
    """The failures of each partition with the inputs it would have now: a corrected input is worth new attempts."""
    ever = catalog.failures(dataset.name)
    if not ever or not upstream:
        return ever
    since = {
        key.path: max(upstream[found.source][found.partition].published_at for found in inputs)
        for key, inputs in possible.items()
        if key.path in ever
    }
    return catalog.failures(dataset.name, since=since)
