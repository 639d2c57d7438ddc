"""A captured table with its connections, positions and event log, opened and closed in one place.

Not here: what is done with it (capture/capture.py, apply.py).
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import psycopg

from varve.catalog.catalog import Catalog
from varve.catalog.code.owners import Owners
from varve.catalog.living.leases import MARK_SESSION
from varve.cdc import retention
from varve.cdc.added_columns import forgotten
from varve.cdc.apply import Applied, Apply
from varve.cdc.backfill import additions_of
from varve.cdc.capture.bootstrap import Bootstrap
from varve.cdc.capture.capture import Capture
from varve.cdc.capture.change_files import FileCapture
from varve.cdc.capture.event_log import EventLog
from varve.cdc.capture.positions import Positions
from varve.cdc.capture.source_database import SourceDatabase
from varve.cdc.captured_table import NeedsResnapshot
from varve.model.errors import ServiceUnavailable, VarveError, counted, some
from varve.services.addresses import libpq_url
from varve.services.postgres import connect
from varve.services.postgres_server import PostgresServer
from varve.services.sessions import open_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

    from varve.cdc.capture.batch_writer import EventBatch
    from varve.cdc.capture.positions import Position
    from varve.cdc.capture.source_database import Slot
    from varve.cdc.captured_table import CapturedTable
    from varve.services.settings import Settings
    from varve.stores.store import Store


class OpenStore(Protocol):
    """What opens a store by its name (varve/stores/open.py): capture and apply do not know which stores there are."""

    def __call__(self, name: str, settings: Settings, catalog: Catalog, spark: Callable[[], SparkSession], /) -> Store:
        """The store of that name."""
        ...


# The source where the settings name none: a database of the embedded server, to try capture without an application.
SOURCE_DATABASE = "varve_source"


@dataclass(frozen=True)
class SlotHealth:
    """The replication slot at the source (None: there is none), and a warning where it is in danger."""

    slot: Slot | None
    warning: str | None


@dataclass(frozen=True)
class OpenCapture:
    """An open captured table; a caller that changes something of it holds its lock."""

    captured: CapturedTable
    settings: Settings
    catalog: Catalog
    capturing: Capture | FileCapture

    @property
    def position(self) -> Position:
        """How far the table is captured and applied."""
        return self.capturing.positions.of(self.captured.dataset.name)

    def kept(self) -> SlotHealth:
        """The state of the replication slot, with the error as a warning where the source cannot be reached."""
        try:
            slot = self.capturing.slot()
        except ServiceUnavailable as error:
            return SlotHealth(None, str(error))
        if slot is None or not slot.scarce:
            return SlotHealth(slot, None)
        left = "at the next checkpoint" if not slot.safe or slot.safe < 0 else f"after {slot.safe / 1e6:,.1f} MB more"
        return SlotHealth(
            slot,
            f"{self.captured.dataset}: the source keeps {slot.retained / 1e6:,.1f} MB of its log for us and gives up "
            f"{left} (max_slot_wal_keep_size; {slot.wal_status}). Capture now: varve cdc capture "
            f"{self.captured.dataset}",
        )

    def bootstrap(
        self, *, resnapshot: bool = False, leave_out: bool = False, say: Callable[[str], None] = lambda _: None
    ) -> EventBatch:
        """See `Bootstrap.bootstrap`; `say` is called with a message that names the sessions that it waits for."""
        capturing = self.capturing
        if isinstance(capturing, FileCapture):
            raise VarveError(
                f"{self.captured.dataset} follows the files in {capturing.folder}, which have no snapshot. Nothing was "
                "changed. Capture takes what is there."
            )
        bootstrap = Bootstrap(
            capturing.captured,
            capturing.source,
            capturing.positions,
            capturing.log,
            seconds=self.settings.bootstrap_seconds,
            say=say,
        )
        return bootstrap.bootstrap(resnapshot=resnapshot, leave_out=leave_out)

    def capture(self) -> int:
        """Capture what the source has now, not what is added meanwhile; returns the number of events."""
        events, stop = self.capture_to_stop()
        if stop is not None:
            raise stop
        return events

    def capture_to_stop(self) -> tuple[int, VarveError | None]:
        """As `capture`; where it stops or fails, the error is returned, so that what came before can be applied first.

        Raises the error where nothing can be applied: nothing waits, or rows were loaded with another declaration.
        """
        # A batch comes first, because an error of capture says more than an error of asking for the end of the log.
        events, end = 0, None
        try:
            while (batch := self.capturing.capture()) is not None:
                events += batch.counts.events
                end = self.capturing.end() if end is None else end
                if end is not None and batch.last_lsn >= end:
                    break
        except NeedsResnapshot as error:
            if self.position.state != "stopped" or not self._has_declared_columns():
                raise
            return events, error
        except VarveError as error:
            # Of a first capture that was refused there is no position.
            if self.capturing.positions.find(self.captured.dataset.name) is None or not self.waiting():
                raise
            if not self._has_declared_columns():
                raise
            return events, error
        return events, None

    def _has_declared_columns(self) -> bool:
        """Whether what is captured can be applied: each column that is declared since the last apply was captured."""
        try:
            self.added_columns()
        except VarveError:
            return False
        return True

    def left_alone(self) -> list[str]:
        """The names in the folder of its change files that are none; [] where it follows a log."""
        return self.capturing.left_alone() if isinstance(self.capturing, FileCapture) else []

    def waiting(self) -> list[EventBatch]:
        """The batches that are captured and not applied."""
        position = self.position
        return self.capturing.log.batches(position.generation, after=position.applied_lsn)

    def added_columns(self) -> tuple[str, ...]:
        """The columns that the dataset declares since its rows were loaded, and that the next apply loads."""
        return tuple(addition.name for addition in additions_of(self.captured, self.position))

    def apply_before_stop(
        self, stop: VarveError | None, open_store: OpenStore, spark: Callable[[], SparkSession], run_id: str
    ) -> Applied | None:
        """As `apply`; where it cannot be done after capture has stopped or failed, the error is that of the capture."""
        try:
            return self.apply(open_store, spark, run_id)
        except VarveError as error:
            if stop is None:
                raise
            raise stop from error

    def apply(self, open_store: OpenStore, spark: Callable[[], SparkSession], run_id: str) -> Applied | None:
        """Apply what was captured; see `Apply.apply`. Opens the store, and Spark, only where there is something."""
        if not self.waiting() and not self.added_columns():
            return None
        store = open_store(self.captured.dataset.store, self.settings, self.catalog, spark)
        log, positions = self.capturing.log, self.capturing.positions
        apply = Apply(self.captured, positions, log, self.catalog, store, spark(), lambda _: None, run_id)
        applied_batches = apply.apply()
        position, keep_seconds = self.position, self.settings.changes_days * 86_400
        declared = (position.declared or {}).get("columns", ())
        table = forgotten(self.captured, position.table, declared, retention.removable(log, position, keep_seconds))
        if table != position.table:
            positions.describe(position.dataset, table)
        retention.sweep(log, position, keep_seconds)
        return applied_batches


def other_tables(batches: Iterable[EventBatch]) -> Counter[str]:
    """How many changes of other tables the files of batches had, by table."""
    total: Counter[str] = Counter()
    for batch in batches:
        total.update(dict(batch.others))
    return total


def passed_over(source: str, others: Counter[str]) -> str:
    """How many changes of other tables than `source` were passed over, for a message; "" where there were none."""
    if not others:
        return ""
    found = some(f"{count:,} of {table}" for table, count in others.most_common())
    return f"{counted(others.total(), 'change')} of other tables than {source} passed over: {found}"


@contextlib.contextmanager
def opened(
    captured: CapturedTable, settings: Settings, *, lock: bool = True, run_id: str | None = None, patience: float = 0
) -> Iterator[OpenCapture]:
    """Open the captured table under its lock; `lock=False` is for reading only.

    Raises AlreadyBuilding where it stays locked for `patience` seconds.
    `run_id` is the run that holds the lock: where the run counts as dead, its session is ended and the lock released.
    """
    connection = connect(settings, application=f"varve cdc {captured.dataset}")
    try:
        catalog, positions = Catalog(connection), Positions(connection)
        catalog.ensure_schema()
        if run_id is not None:
            connection.execute(MARK_SESSION, (run_id,))
        positions.ensure_schema()
        if lock:
            Owners(connection, settings.project_name).claim_all([captured.dataset.name], "Nothing was captured.")
            positions.lock(captured.dataset.name, patience)
        try:
            log = EventLog.remembered(settings.lake, captured.dataset)
            capturing = (
                Capture(captured, SourceDatabase(source_url(settings)), positions, log)
                if captured.files is None
                else FileCapture(captured, settings.landing, positions, log, settings.settle_seconds)
            )
            yield OpenCapture(captured, settings, catalog, capturing)
        finally:
            if lock:
                with contextlib.suppress(psycopg.Error):
                    positions.unlock(captured.dataset.name)
    finally:
        connection.close()


def source_url(settings: Settings) -> str:
    """The libpq URL of the source: that of the settings, or a database of the embedded server."""
    if settings.source_url is not None:
        return libpq_url(settings.source_url)
    if settings.postgres_url is not None:
        raise VarveError(
            "VARVE_SOURCE_URL is not set: which PostgreSQL has the tables that are captured? Nothing was changed."
        )
    server = PostgresServer(settings.home_dir)
    server.ensure_up()
    with open_session(server.url("postgres"), application="varve") as connection:
        if not connection.execute("select 1 from pg_database where datname = %s", (SOURCE_DATABASE,)).fetchone():
            connection.execute(f"create database {SOURCE_DATABASE}".encode())
    return server.url(SOURCE_DATABASE)
