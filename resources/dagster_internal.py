"""The only module that knows Dagster's private names; tests/resources/test_dagster_internal.py pins the version.

Here: the storage and the launcher named in dagster.yaml, and the partitions and the metadata of a running step.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import psutil
from dagster import AssetKey, DefaultRunLauncher, InputContext, OutputContext
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.events import DagsterEventType
from dagster._core.launcher.base import CheckRunHealthResult, WorkerStatus
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster_postgres import DagsterPostgresStorage
from dagster_postgres.event_log import PostgresEventLogStorage

from resources.postgres import dagster_storage_url
from resources.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagster import AssetExecutionContext, DagsterInstance, DagsterRun
    from dagster._core.events.log import EventLogEntry
    from dagster._core.execution.context.system import StepExecutionContext
    from dagster._serdes import ConfigurableClassData

# The materializations of a step in statements of so many. Dagster's default is one by one, with two connections each:
# 13 ms for each, most of what a run of thousands of small partitions took.
os.environ.setdefault("DAGSTER_EVENT_BATCH_SIZE", "1000")


class EventLog(PostgresEventLogStorage):
    """dagster-postgres' event log, which plans the partitions of a run in one statement as it materializes them.

    Its own would take a statement, and two connections, for each of them: 13 ms.
    """

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        """Called by Dagster, with events that belong together."""
        planned = [event for event in events if _is_planned(event)]
        if rest := [event for event in events if not _is_planned(event)]:
            super().store_event_batch(rest)
        if not planned:
            return
        with self._connect() as connection:
            statement = self.prepare_insert_event_batch(planned).returning(SqlEventLogStorageTable.c.id)
            ids = [row[0] for row in connection.execute(statement)]
        # Of an asset only the last event is kept in its own row.
        last = {event.get_dagster_event().asset_key: (event, id_) for event, id_ in zip(planned, ids, strict=True)}
        with self.index_transaction() as connection:
            self._store_asset_event_tags(connection, planned, ids)
            for event, id_ in last.values():
                self._store_asset_event(connection, event, id_)


def _is_planned(event: EventLogEntry) -> bool:
    return event.get_dagster_event().event_type == DagsterEventType.ASSET_MATERIALIZATION_PLANNED


class VarveDagsterStorage(DagsterPostgresStorage):
    """dagster-postgres' storage on the server the settings name, which is started first where it is the embedded one.

    So `dagster`, the web server, the daemon and every run work from a cold start, and notice a server that has died.
    """

    def __init__(self, postgres_url: str, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(postgres_url, inst_data=inst_data)
        self._event_log_storage = EventLog(postgres_url)

    @classmethod
    def config_type(cls) -> Any:
        """No configuration of its own: the settings decide."""
        return {}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> VarveDagsterStorage:
        """Called by Dagster when it loads an instance."""
        del config_value
        return cls(postgres_url=dagster_storage_url(Settings()), inst_data=inst_data)

    # The inherited ones point at dagster-postgres' classes with our (empty) configuration; a process that were given
    # such a reference could not load it. Storage as a whole is what instance references carry.
    @property
    def event_storage_data(self) -> ConfigurableClassData | None:
        """None: see above."""
        return None

    @property
    def run_storage_data(self) -> ConfigurableClassData | None:
        """None: see above."""
        return None

    @property
    def schedule_storage_data(self) -> ConfigurableClassData | None:
        """None: see above."""
        return None


WORKER_TAG = "varve/worker"


def tag_worker(instance: DagsterInstance, run_id: str) -> None:
    """Write down which process computes a run: host, pid, and when it started, as pids are used again."""
    instance.add_run_tags(run_id, {WORKER_TAG: f"{socket.gethostname()} {os.getpid()} {_started(os.getpid())}"})


class VarveRunLauncher(DefaultRunLauncher):
    """Dagster's default launcher, which also knows whether the process of a run of ours is still there."""

    @property
    def supports_check_run_worker_health(self) -> bool:
        """True: the run monitor asks."""
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """FAILED where the run's process was on this host and is gone; whatever cannot be known counts as running."""
        host, _, process = run.tags.get(WORKER_TAG, "").partition(" ")
        if host != socket.gethostname():
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        pid, _, started = process.partition(" ")
        if _started(int(pid)) == started:
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.FAILED, f"process {pid} is gone: killed, or lost with its machine")


def worker_is_gone(run: DagsterRun) -> bool:
    """Whether the process that computed a run was on this host and is gone, whatever Dagster's records say."""
    host, _, process = run.tags.get(WORKER_TAG, "").partition(" ")
    pid, _, started = process.partition(" ")
    return host == socket.gethostname() and _started(int(pid)) != started


def _started(pid: int) -> str | None:
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else str(process.create_time())
    except psutil.Error:
        return None


def step_of(context: AssetExecutionContext | InputContext | OutputContext) -> StepExecutionContext:
    """The step that a body, an input or an output belongs to."""
    if isinstance(context, InputContext | OutputContext):
        return context.step_context
    return context.op_execution_context._step_execution_context


def step_identity(step: StepExecutionContext) -> tuple[str, str]:
    """Run id and step key: what one build belongs to."""
    return step.run_id, step.step.key


def step_asset(step: StepExecutionContext) -> AssetKey:
    """The asset that the step materialises; our datasets are one asset each."""
    # The checks of the asset are entities of the step too.
    entities = step.job_def.asset_layer.get_selected_entity_keys_for_node(step.node_handle)
    (key,) = [entity for entity in entities if isinstance(entity, AssetKey)]
    return key


def run_assets(step: StepExecutionContext) -> tuple[set[AssetKey], set[AssetKey]]:
    """The assets that the step's run is to compute, and those of them that this process is to.

    They differ where a run goes on from a failure, and where an executor gives each step a process of its own.
    """
    plan, layer = step.execution_plan, step.job_def.asset_layer
    here: set[AssetKey] = set()
    for name in plan.step_keys_to_execute:
        entities = layer.get_selected_entity_keys_for_node(plan.get_step_by_key(name).node_handle)
        here.update(entity for entity in entities if isinstance(entity, AssetKey))
    return set(layer.selected_asset_keys), here


def step_partition_keys(step: StepExecutionContext) -> list[str]:
    """All partitions of the step's asset that this run computes, as Dagster spells them, in no particular order.

    `asset_partition_key_range` raises for a range over two dimensions; the subset does not.
    """
    definition = step.entity_partitions_def
    if definition is None:
        return []
    with partition_loading_context(dynamic_partitions_store=step.instance):
        subset = definition.empty_subset().with_partition_key_range(definition, step.partition_key_range)
        return list(subset.get_partition_keys())


def add_partition_metadata(
    step: StepExecutionContext, asset: AssetKey, partition: str, metadata: Mapping[str, Any]
) -> None:
    """Metadata for the materialisation event of one partition of a run over many."""
    step.add_asset_metadata(dict(metadata), asset_key=asset, partition_key=partition)
