"""The storage of Dagster's that dagster.yaml names: dagster-postgres', on the server of a project.

Here too: the leases of the runs that report to it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from dagster import Field
from dagster._core.events import DagsterEventType
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster_postgres import DagsterPostgresStorage
from dagster_postgres.event_log import PostgresEventLogStorage

from varve.dagster.leases.heartbeat import Heartbeats
from varve.dagster.leases.leases import end_lease
from varve.dagster.storage_engine import kept_engine
from varve.project import Project
from varve.services.postgres import dagster_storage_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagster import DagsterInstance
    from dagster._core.events.log import EventLogEntry
    from dagster._serdes import ConfigurableClassData

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


def project_of(instance: DagsterInstance) -> Project:
    """Return the project whose storage an instance has; where it has another storage, that of the process."""
    storage = instance.event_log_storage
    return storage.project if isinstance(storage, VarveEventLog) else Project.find()


def heartbeats_of(instance: DagsterInstance) -> Heartbeats | None:
    """Return the heartbeats of the runs of this process; None where the instance has another storage than ours."""
    storage = instance.event_log_storage
    return storage.heartbeats if isinstance(storage, VarveEventLog) else None
