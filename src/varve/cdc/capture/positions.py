"""Positions: how far each captured table is, in a table of the catalog that changes in the transaction of a publish.

Not here: what was captured, which the manifests of the event batches record (event_log.py).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from importlib import resources
from typing import TYPE_CHECKING

import psycopg
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from varve.cdc.captured_table import SourceColumn, SourceTable
from varve.model.errors import AlreadyBuilding, VarveError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator
    from typing import Any


_HAS = """
    select from pg_catalog.pg_attribute
    where attrelid = to_regclass('varve.cdc_position') and attname = 'declared' and not attisdropped
"""
_LOCK_SCHEMA = "select pg_advisory_xact_lock(hashtextextended('varve cdc schema', 0))"
_LOCK = "select pg_try_advisory_lock(hashtextextended('varve cdc ' || %s, 0))"
_WAIT_FOR_LOCK = "select pg_advisory_lock(hashtextextended('varve cdc ' || %s, 0))"
_WAIT_AT_MOST = "select set_config('lock_timeout', %s, true)"
_UNLOCK = "select pg_advisory_unlock(hashtextextended('varve cdc ' || %s, 0))"
_SELECT = """
    select dataset, source, state, reason, system_identifier, timeline, source_table, generation,
           told_lsn as confirmed_lsn, applied_lsn, quarantine, quarantined, captured_at, applied_at, declared
    from varve.cdc_position where %s::text is null or dataset = %s order by dataset
"""
_START = """
    insert into varve.cdc_position (dataset, source, state) values (%s, %s, 'starting')
    on conflict (dataset) do update set source = excluded.source, state = 'starting', reason = null
"""
_FORGET_START = "delete from varve.cdc_position where dataset = %s and generation = 0"
_RESTORE = "update varve.cdc_position set source = %s, state = %s, reason = %s where dataset = %s"
_BEGIN = """
    update varve.cdc_position
    set state = 'running', reason = null, system_identifier = %s, timeline = %s, source_table = %s, generation = %s,
        told_lsn = %s, applied_lsn = -1, quarantine = null, quarantined = 0, captured_at = clock_timestamp(),
        declared = %s
    where dataset = %s
"""
_CAPTURED = """
    update varve.cdc_position set source_table = %s, captured_at = clock_timestamp(), reason = null where dataset = %s
"""
_LOOKED = "update varve.cdc_position set captured_at = clock_timestamp() where dataset = %s"
_DESCRIBE = "update varve.cdc_position set source_table = %s where dataset = %s"
_CONFIRM = "update varve.cdc_position set told_lsn = greatest(told_lsn, %s) where dataset = %s"
_STOP = "update varve.cdc_position set state = 'stopped', reason = %s where dataset = %s and state = 'running'"
_WAIT = "update varve.cdc_position set reason = %s where dataset = %s and state = 'running'"
_END = "update varve.cdc_position set state = 'stopped', reason = %s where dataset = %s"
_FORGET = "delete from varve.cdc_position where dataset = %s"
_APPLIED = """
    update varve.cdc_position
    set applied_lsn = %s, quarantine = %s, quarantined = %s, declared = coalesce(%s, declared),
        applied_at = clock_timestamp()
    where dataset = %s and generation = %s and applied_lsn = %s
"""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a table is captured and applied; see positions.sql for the fields (confirmed_lsn: told_lsn)."""

    dataset: str
    source: str
    state: str
    reason: str | None
    system_identifier: str | None
    timeline: int | None
    source_table: Any
    generation: int
    confirmed_lsn: int
    applied_lsn: int
    quarantine: str | None
    quarantined: int
    captured_at: dt.datetime | None
    applied_at: dt.datetime | None
    declared: Any

    @property
    def table(self) -> SourceTable:
        """The description of the source table when it was captured last."""
        table: SourceTable = self.source_table
        return table


@dataclass(frozen=True)
class Positions:
    """The positions, over an autocommit connection to the catalog, whose own tables must exist."""

    connection: psycopg.Connection

    def ensure_schema(self) -> None:
        """Create the table where it does not exist; safe to call from several processes at once."""
        if self.connection.execute(_HAS).fetchone() is not None:
            return
        with self.connection.transaction():
            self.connection.execute(_LOCK_SCHEMA)
            if self.connection.execute(_HAS).fetchone() is None:
                script = resources.files("varve.cdc.capture").joinpath("positions.sql").read_text(encoding="utf-8")
                self.connection.execute(script.encode())

    def exist(self) -> bool:
        """Whether the table of positions exists, which means that something was captured once."""
        return self.connection.execute(_HAS).fetchone() is not None

    def lock(self, dataset: str, patience: float = 0) -> None:
        """Take the dataset's lock: one process captures or applies at a time.

        Raises AlreadyBuilding where another process holds it for `patience` seconds.
        """
        row = self.connection.execute(_LOCK, (dataset,)).fetchone()
        if (row is None or not row[0]) and not (patience and self._locks_within(dataset, patience)):
            raise AlreadyBuilding(
                f"{dataset}: another process captures or applies its changes right now. Nothing was changed by this "
                "one, and nothing is lost: whoever comes next goes on from there."
            )

    def _locks_within(self, dataset: str, seconds: float) -> bool:
        """Wait for the lock, which outlives the transaction; returns whether it was taken."""
        try:
            with self.connection.transaction():
                self.connection.execute(_WAIT_AT_MOST, (f"{int(seconds * 1000)}ms",))
                self.connection.execute(_WAIT_FOR_LOCK, (dataset,))
        except psycopg.errors.LockNotAvailable:
            return False
        return True

    def unlock(self, dataset: str) -> None:
        """Release the dataset's lock."""
        self.connection.execute(_UNLOCK, (dataset,))

    def all(self) -> list[Position]:
        """The positions of all captured tables."""
        return list(self._select(None))

    def find(self, dataset: str) -> Position | None:
        """The position of one table; None where it was never captured."""
        return next(self._select(dataset), None)

    def of(self, dataset: str) -> Position:
        """The position of one table. Raises VarveError where it has no finished snapshot."""
        position = self.find(dataset)
        if position is None or (position.state == "starting" and not position.generation):
            raise VarveError(f"{dataset} is not captured yet. Take its first snapshot: varve cdc bootstrap {dataset}")
        return position

    def start(self, dataset: str, source: str) -> None:
        """Record that a snapshot is about to be taken, so that slot and publication at the source are known as ours."""
        self.connection.execute(_START, (dataset, source))

    def undo_start(self, dataset: str, before: Position | None) -> None:
        """Record that no snapshot was taken, and that the source is as it was before."""
        if before is None:
            self.connection.execute(_FORGET_START, (dataset,))
        else:
            self.connection.execute(_RESTORE, (before.source, before.state, before.reason, dataset))

    def begin(self, dataset: str, position: Position) -> None:
        """Record that the snapshot is durable, and that the stream continues from it."""
        self.connection.execute(
            _BEGIN,
            (position.system_identifier, position.timeline, Jsonb(asdict(position.table)), position.generation,
             position.confirmed_lsn, Jsonb(position.declared), dataset),
        )  # fmt: skip

    def captured(self, dataset: str, table: SourceTable) -> None:
        """Record the present description of the source table, for which capture waits no more."""
        self.connection.execute(_CAPTURED, (Jsonb(asdict(table)), dataset))

    def looked(self, dataset: str) -> None:
        """Record that what there was has been captured, without another description of the source table."""
        self.connection.execute(_LOOKED, (dataset,))

    def describe(self, dataset: str, table: SourceTable) -> None:
        """Record another description of the source table, without having captured anything."""
        self.connection.execute(_DESCRIBE, (Jsonb(asdict(table)), dataset))

    def confirm(self, dataset: str, lsn: int) -> None:
        """Record the LSN before it is confirmed to the slot; everything before it must be durable already."""
        self.connection.execute(_CONFIRM, (lsn, dataset))

    def stop(self, dataset: str, reason: str) -> None:
        """Record that capture has stopped because the stream lacks the rows of the table, with the reason."""
        self.connection.execute(_STOP, (reason, dataset))

    def wait(self, dataset: str, reason: str) -> None:
        """Record that capture waits until source and declaration fit, with the reason; it goes on by itself."""
        self.connection.execute(_WAIT, (reason, dataset))

    def end(self, dataset: str, reason: str) -> None:
        """Record that the capture is being ended for good, whatever its state was."""
        self.connection.execute(_END, (reason, dataset))

    def forget(self, dataset: str) -> None:
        """Delete the position: the capture was ended, and nothing of it is left at the source or here."""
        self.connection.execute(_FORGET, (dataset,))

    def applied(
        self, before: Position, lsn: int, quarantine: str | None, quarantined: int, declared: Any = None
    ) -> None:
        """Move the position, in the caller's transaction; `declared`: what the rows are declared as from now on.

        Raises VarveError where another process has moved it.
        """
        declaration = None if declared is None else Jsonb(declared)
        values = (lsn, quarantine, quarantined, declaration, before.dataset, before.generation, before.applied_lsn)
        if self.connection.execute(_APPLIED, values).rowcount != 1:
            raise VarveError(
                f"{before.dataset}: another process has applied its changes. Nothing was published by this one."
            )

    def _select(self, dataset: str | None) -> Iterator[Position]:
        with self.connection.cursor(row_factory=class_row(Position)) as cursor:
            for row_position in cursor.execute(_SELECT, (dataset, dataset)).fetchall():
                yield replace(row_position, source_table=_table(row_position.source_table))


def _table(description: dict[str, Any] | None) -> SourceTable | None:
    if description is None:
        return None
    columns = tuple(SourceColumn(**{**column, "labels": tuple(column["labels"])}) for column in description["columns"])
    # Positions of earlier versions of Varve do not mention generated columns.
    unsent = tuple(description.get("unsent", ()))
    return SourceTable(**{**description, "columns": columns, "key": tuple(description["key"]), "unsent": unsent})
