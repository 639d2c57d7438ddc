"""The only module that knows Dagster's private names; tests/dagster/test_internal.py pins the version.

Here: the storage and the launcher named in dagster.yaml, the partitions and the metadata of a running step, and the
ticks of its schedules.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from dagster import (
    AssetKey,
    DefaultRunLauncher,
    Field,
    InputContext,
    MultiPartitionsDefinition,
    OutputContext,
    PartitionKeyRange,
    TimeWindowPartitionsDefinition,
)
from dagster import logger as logger_definition
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.events import DagsterEvent, DagsterEventType
from dagster._core.execution import context_creation_job, host_mode
from dagster._core.execution.context.metadata_logging import AssetMetadataHandle, OutputMetadataAccumulator
from dagster._core.instance.types import CachingDynamicPartitionsLoader
from dagster._core.launcher.base import CheckRunHealthResult, WorkerStatus
from dagster._core.storage.event_log.schema import DynamicPartitionsTable, SqlEventLogStorageTable
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._loggers import default_system_loggers
from dagster._utils.interrupts import capture_interrupts, check_captured_interrupt
from dagster._utils.schedules import reverse_cron_string_iterator
from dagster_postgres import DagsterPostgresStorage
from dagster_postgres.event_log import PostgresEventLogStorage
from sqlalchemy import select
from sqlalchemy.sql.functions import current_timestamp
from sqlalchemy.sql.functions import min as min_of

from varve.dagster.leases.heartbeat import Heartbeats, this_process
from varve.dagster.leases.leases import ASKED_ONLY, dead_runs, end_lease, leases_in
from varve.dagster.storage_engine import kept_engine
from varve.model.errors import VarveError
from varve.model.partitions.key import WHOLE
from varve.project import Project
from varve.services.postgres import dagster_storage_url

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from dagster import (
        AssetCheckEvaluation,
        AssetExecutionContext,
        DagsterInstance,
        DagsterRun,
        InitLoggerContext,
        InitResourceContext,
        LoggerDefinition,
        PartitionsDefinition,
        RepositoryDefinition,
    )
    from dagster._core.events.log import EventLogEntry
    from dagster._core.execution.context.system import StepExecutionContext
    from dagster._core.instance.types import DynamicPartitionsStore as DynamicPartitionsStore  # noqa: PLC0414 - for others
    from dagster._core.launcher.base import LaunchRunContext
    from dagster._serdes import ConfigurableClassData
    from dagster_shared.error import SerializableErrorInfo as SerializableErrorInfo  # noqa: PLC0414 - for others

logger = logging.getLogger(__name__)

# The modules of Dagster's in which a process executes a run that a code server has launched.
RUN_EXECUTION_MODULES = ("dagster._core.execution.api", "dagster._grpc.impl")

# So many materializations of a step are stored in one statement. By default Dagster stores them one by one, with two
# connections each: 13 ms for each, which was most of the time of a run of thousands of small partitions.
os.environ.setdefault("DAGSTER_EVENT_BATCH_SIZE", "1000")


class VarveEventLog(PostgresEventLogStorage):
    """dagster-postgres' event log, with two changes.

    The planned materializations of a run are stored in one statement. dagster-postgres takes a statement and two
    connections for each of them, 13 ms.

    The process that reports the start of a run takes the run's lease first, whatever its job and whoever has launched
    it. So every run that is STARTED has a lease.
    """

    def __init__(self, postgres_url: str, project: Project) -> None:
        super().__init__(postgres_url)
        self.project = project
        self.heartbeats = Heartbeats()

    def store_event(self, event: EventLogEntry) -> None:
        """Called by Dagster."""
        if _begins_here(event):
            self.heartbeats.begin(self.project.settings, event.run_id)
        super().store_event(event)
        event_type = event.dagster_event_type if event.is_dagster_event else None
        if event_type in _END_EVENTS and not self.heartbeats.end(event.run_id):
            reason = f"Dagster was told by another process that it had ended ({event_type.value})"
            end_lease(self.project.settings, event.run_id, reason)

    def dispose(self) -> None:
        """Called by Dagster."""
        self.heartbeats.stop()
        super().dispose()

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        """Called by Dagster, with events that belong together."""
        planned = [event for event in events if _is_planned(event)]
        if other_events := [event for event in events if not _is_planned(event)]:
            super().store_event_batch(other_events)
        if not planned:
            return
        with self._connect() as connection:
            statement = self.prepare_insert_event_batch(planned).returning(SqlEventLogStorageTable.c.id)
            ids = [row[0] for row in connection.execute(statement)]
        # Dagster keeps one row for each asset, with its last event only.
        last_events = {
            event.get_dagster_event().asset_key: (event, id_) for event, id_ in zip(planned, ids, strict=True)
        }
        with self.index_transaction() as connection:
            self._store_asset_event_tags(connection, planned, ids)
            for event, id_ in last_events.values():
                self._store_asset_event(connection, event, id_)


_END_EVENTS = (DagsterEventType.RUN_SUCCESS, DagsterEventType.RUN_FAILURE, DagsterEventType.RUN_CANCELED)


def _begins_here(event: EventLogEntry) -> bool:
    """Return whether this process computes the event's run: the event is a run start, or names this process' pid."""
    if not event.is_dagster_event:
        return False
    if event.dagster_event_type is DagsterEventType.RUN_START:
        return True
    if event.dagster_event_type is not DagsterEventType.ENGINE_EVENT:
        return False
    pid = event.get_dagster_event().engine_event_data.metadata.get("pid")
    return pid is not None and pid.value == str(os.getpid())


def _is_planned(event: EventLogEntry) -> bool:
    return event.get_dagster_event().event_type == DagsterEventType.ASSET_MATERIALIZATION_PLANNED


class VarveDagsterStorage(DagsterPostgresStorage):
    """dagster-postgres' storage on the server that the settings name; the embedded server is started first.

    The settings are those of the project that the configuration names (`project`, a folder), or else of the project in
    which the process runs.

    So `dagster`, the web server, the daemon and every run work from a cold start, and notice a server that has died.
    """

    def __init__(self, project: Project, inst_data: ConfigurableClassData | None = None) -> None:
        postgres_url = dagster_storage_url(project.settings)
        super().__init__(postgres_url, inst_data=inst_data)
        self._event_log_storage = VarveEventLog(postgres_url, project)
        # The web server gives each of them another one, with a timeout for statements.
        for storage in (self._run_storage, self._event_log_storage, self._schedule_storage):
            storage._engine = kept_engine(postgres_url)

    @classmethod
    def config_type(cls) -> Any:
        """Return the configuration: one option, the folder of the project, whose settings decide everything else."""
        return {"project": Field(str, is_required=False, default_value="")}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> VarveDagsterStorage:
        """Called by Dagster when it loads an instance."""
        return cls(Project.find(config_value["project"] or None), inst_data=inst_data)

    # The inherited properties refer to dagster-postgres' classes with our (empty) configuration, and a process that is
    # given such a reference cannot load it. Instance references carry the storage as a whole instead.
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


class VarveRunLauncher(DefaultRunLauncher):
    """Dagster's default launcher, which also knows by a run's lease whether it still lives, wherever its process is."""

    def launch_run(self, context: LaunchRunContext) -> None:
        """Launch a run, after a lease was entered for its process."""
        settings = _project_of(self._instance).settings
        try:
            with leases_in(settings, "varve launcher") as leases:
                leases.withdraw([context.dagster_run.run_id], ASKED_ONLY)
                leases.keep([context.dagster_run.run_id], f"launched by {this_process()}", settings.lease_seconds)
        except (VarveError, psycopg.Error) as error:
            # The run's process takes the lease, too, and the run itself fails where it needs the catalog.
            logger.warning("No lease is kept for run %s: %s", context.dagster_run.run_id, error)
        super().launch_run(context)

    @property
    def supports_check_run_worker_health(self) -> bool:
        """True: Dagster's run monitor shall ask for the health of runs."""
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Return FAILED where the run counts as dead, else RUNNING, also where the catalog cannot be reached."""
        settings = _project_of(self._instance).settings
        try:
            with leases_in(settings, "varve monitor") as leases:
                # With another storage, runs of jobs without our assets take no lease. They must not count as dead.
                dead_reasons = dead_runs(leases, [run], settings, all_take=heartbeats_of(self._instance) is not None)
        except (VarveError, psycopg.Error) as error:
            return CheckRunHealthResult(WorkerStatus.RUNNING, f"its lease cannot be looked at: {error}")
        if run.run_id in dead_reasons:
            return CheckRunHealthResult(WorkerStatus.FAILED, dead_reasons[run.run_id])
        return CheckRunHealthResult(WorkerStatus.RUNNING)


def _project_of(instance: DagsterInstance) -> Project:
    storage = instance.event_log_storage
    return storage.project if isinstance(storage, VarveEventLog) else Project.find()


def heartbeats_of(instance: DagsterInstance) -> Heartbeats | None:
    """Return the heartbeats of the runs of this process; None where the instance has another storage than ours."""
    storage = instance.event_log_storage
    return storage.heartbeats if isinstance(storage, VarveEventLog) else None


def format_run_logs(formatter: logging.Formatter | None) -> None:
    """Let the runs of this process write the log that they show on stderr with this formatter; None: as Dagster does.

    Dagster has a setting for each job's loggers and none for those of all runs, whoever has launched them.
    """

    @logger_definition
    def formatted_logger(context: InitLoggerContext) -> logging.Logger:
        run_logger = logging.getLoggerClass()(context.logger_config["name"])
        run_logger.setLevel(str(context.logger_config["log_level"]).upper())
        handler = logging.StreamHandler()
        handler.setFormatter(formatter)
        run_logger.addHandler(handler)
        return run_logger

    def loggers_of_runs(instance: DagsterInstance | None) -> list[tuple[LoggerDefinition, Mapping[str, object]]]:
        return [(formatted_logger, config) for _, config in default_system_loggers(instance)]

    for module in (context_creation_job, host_mode):
        module.default_system_loggers = default_system_loggers if formatter is None else loggers_of_runs  # type: ignore[attr-defined]


def step_of(context: AssetExecutionContext | InputContext | OutputContext) -> StepExecutionContext:
    """Return the step that a body, an input or an output belongs to."""
    if isinstance(context, InputContext | OutputContext):
        return context.step_context
    return context.op_execution_context._step_execution_context


def step_identity(step: StepExecutionContext) -> tuple[str, str]:
    """Return run id and step key, which together identify the build of a step."""
    return step.run_id, step.step.key


def attempts_before(step: StepExecutionContext) -> int:
    """Return how many attempts at the step its run has made before, as a RetryPolicy of an asset has it."""
    attempts: int = step.previous_attempt_count
    return attempts


def step_asset(step: StepExecutionContext) -> AssetKey:
    """Return the asset that the step materialises; each of our datasets is one asset."""
    (key,) = step_assets(step)
    return key


def step_assets(step: StepExecutionContext) -> list[AssetKey]:
    """Return the assets that the step materialises: none where it is an asset check or an op."""
    # The checks of an asset are entities of its step, too.
    entities = step.job_def.asset_layer.get_selected_entity_keys_for_node(step.node_handle)
    return [entity for entity in entities if isinstance(entity, AssetKey)]


def is_partitioned(step: StepExecutionContext) -> bool:
    """Return whether what the step materialises has partitions."""
    return step.entity_partitions_def is not None


def run_assets(step: StepExecutionContext) -> tuple[set[AssetKey], set[AssetKey]]:
    """Return the assets that the step's run is to compute, and those of them that this process is to compute.

    They differ where a run continues after a failure, and where an executor gives each step a process of its own.
    """
    plan, layer = step.execution_plan, step.job_def.asset_layer
    computed_here: set[AssetKey] = set()
    for name in plan.step_keys_to_execute:
        entities = layer.get_selected_entity_keys_for_node(plan.get_step_by_key(name).node_handle)
        computed_here.update(entity for entity in entities if isinstance(entity, AssetKey))
    return set(layer.selected_asset_keys), computed_here


def step_partition_keys(step: StepExecutionContext) -> list[str]:
    """Return all partitions of the step's asset that this run computes, as Dagster spells them, in no particular order.

    Of an asset without partitions, the text that stands for all of it.

    `asset_partition_key_range` raises for a range over two dimensions; the subset does not.
    """
    definition = step.entity_partitions_def
    if definition is None:
        return [WHOLE]
    with partition_loading_context(dynamic_partitions_store=step.instance):
        subset = definition.empty_subset().with_partition_key_range(definition, step.partition_key_range)
        return list(subset.get_partition_keys())


def reading_once(instance: DagsterInstance) -> DynamicPartitionsStore:
    """Return the dynamic sets of an instance as they are when somebody asks first, each by one statement."""
    return CachingDynamicPartitionsLoader(instance)


def set_filled_since(instance: DagsterInstance, name: str) -> float | None:
    """Return since when the oldest key of a dynamic set has been there, in seconds since 1970; None: it is not known.

    Dagster notes it by the clock of its server, in the time zone of its session.
    """
    storage, table = instance.event_log_storage, DynamicPartitionsTable
    if not isinstance(storage, SqlEventLogStorage):
        return None
    oldest_and_now = select(min_of(table.c.create_timestamp), current_timestamp())
    with storage.index_connection() as connection:
        oldest, now = connection.execute(oldest_and_now.where(table.c.partitions_def_name == name)).one()
    # Of SQLite's times only the seconds are there: the earliest that it may have been.
    return None if oldest is None else time.time() - (now.replace(tzinfo=None) - oldest).total_seconds() - 1.0


@contextmanager
def held_interrupts(when_interrupted: Callable[[], None]) -> Iterator[None]:
    """Let nobody who cancels the run interrupt what is within; it is called afterwards where somebody has tried.

    Dagster forgets such a cancellation: it is for the function to end the run as soon as it can be ended.
    """
    interrupted = False
    try:
        with capture_interrupts():
            try:
                yield
            finally:
                interrupted = check_captured_interrupt()
    finally:
        # Also where what is within has failed: other steps of the run would go on.
        if interrupted:
            when_interrupted()


def unknown_keys(
    definition: PartitionsDefinition[str] | None, sets: DynamicPartitionsStore, texts: set[str]
) -> set[str]:
    """Return those of the keys, as Dagster spells them, that a definition does not have at this moment."""
    if definition is None:
        return set()
    if isinstance(definition, MultiPartitionsDefinition):
        parts = {text: text.split("|") for text in texts}
        unknown = [
            unknown_keys(dimension.partitions_def, sets, {key_parts[index] for key_parts in parts.values()})
            for index, dimension in enumerate(definition.partitions_defs)
        ]
        return {text for text, key_parts in parts.items() if any(map(set.__contains__, unknown, key_parts))}
    with partition_loading_context(dynamic_partitions_store=sets):
        if isinstance(definition, TimeWindowPartitionsDefinition):
            return {text for text in texts if not definition.has_partition_key(text)}
        return texts - set(definition.get_partition_keys(dynamic_partitions_store=sets))


def keys_in_range(
    definition: PartitionsDefinition[str], sets: DynamicPartitionsStore, first: str, last: str
) -> set[str]:
    """Return the keys that a run gets when it asks for a range of keys."""
    with partition_loading_context(dynamic_partitions_store=sets):
        subset = definition.empty_subset().with_partition_key_range(definition, PartitionKeyRange(first, last))
        return set(subset.get_partition_keys())


def validated(definition: PartitionsDefinition[str], sets: DynamicPartitionsStore, text: str) -> None:
    """Raise what Dagster raises when a sensor requests a run of a key that the definition does not have."""
    with partition_loading_context(dynamic_partitions_store=sets) as context:
        definition.validate_partition_key(text, context=context)


def config_needed_by(repository: RepositoryDefinition | None, asset: AssetKey) -> list[str]:
    """Return what of a run of the asset needs configuration, which a sensor's request has not: its function, resources.

    Dagster would raise of such a request, and with it of all that a tick asks for after it.
    """
    definition = None if repository is None else repository.assets_defs_by_key.get(asset)
    if definition is None or not definition.is_executable:
        return []
    resources = sorted(definition.resource_defs.items())
    fields = {
        "its function": definition.node_def.config_field,
        **{f"the resource {name!r}": resource.config_field for name, resource in resources},
    }
    return [what for what, field in fields.items() if field is not None and field.is_required]


def previous_tick(cron: str, timezone: str, tick: dt.datetime) -> dt.datetime:
    """Return the tick of a schedule of Dagster's before this one.

    Our own calendars do not say it: where a clock shows a time twice, they begin a window at the first of the two, and
    Dagster ticks at the second.
    """
    at = tick.timestamp()
    return next(earlier for earlier in reverse_cron_string_iterator(at, cron, timezone) if earlier.timestamp() < at)


def run_selections(instance: DagsterInstance, runs: Iterable[DagsterRun]) -> dict[str, frozenset[AssetKey]]:
    """Return the assets that runs compute, by run id.

    A run of a whole job, as schedules of jobs ask for it, does not name them; its plan does.
    """
    of_plans: dict[str, frozenset[AssetKey]] = {}
    selections = {}
    for run in runs:
        plan_id = run.execution_plan_snapshot_id
        if run.asset_selection is None and plan_id is not None and plan_id not in of_plans:
            plan = instance.get_execution_plan_snapshot(plan_id)
            computed = [step for step in plan.steps if step.key in plan.step_keys_to_execute]
            properties = [output.properties for step in computed for output in step.outputs]
            of_plans[plan_id] = frozenset(each.asset_key for each in properties if each and each.asset_key)
        of_plan = of_plans.get(plan_id or "", frozenset())
        selections[run.run_id] = of_plan if run.asset_selection is None else frozenset(run.asset_selection)
    return selections


def only_step(context: InitResourceContext) -> str | None:
    """Return the key of the step that this process computes; None where it computes several of the run's steps."""
    # Dagster tags the log of a resource with the step for which alone it is made.
    step: str | None = context.log._dagster_handler.metadata["step_key"] if context.log is not None else None
    return step


def report_check(step: StepExecutionContext, evaluation: AssetCheckEvaluation) -> None:
    """Store the result of an asset check as one of the running step, also where the step fails afterwards."""
    DagsterEvent.asset_check_evaluation(step, evaluation)


def add_partition_metadata(
    step: StepExecutionContext, asset: AssetKey, metadata: Mapping[str | None, Mapping[str, Any]]
) -> None:
    """Add metadata to the materialisation events of partitions, by their keys; None: of an asset without any.

    Of all at once: for one, Dagster lists all keys of the run, of a dynamic set by a statement, and copies what was
    added for the others. Of a run of a thousand partitions of two dimensions that took 17 s.
    """
    before = step._metadata_accumulator
    gathered = dict(before.per_output_metadata)
    for key, values in metadata.items():
        handle = AssetMetadataHandle(asset_key=asset, partition_key=key)
        gathered[handle] = {**before.get_asset_metadata(asset, key), **values}
    step._metadata_accumulator = OutputMetadataAccumulator(per_output_metadata=gathered)
