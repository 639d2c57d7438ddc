"""Positions: how far each captured table is, in a catalog table that moves with the publish.

Not here: what was captured; the manifests of the event batches say that (event_log.py).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from importlib import resources
from typing import TYPE_CHECKING

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from varve.cdc.captured_table import SourceColumn, SourceTable
from varve.model.errors import AlreadyBuilding, VarveError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator
    from typing import Any

    import psycopg

_HAS = """
    select from pg_catalog.pg_attribute
    where attrelid = to_regclass('varve.cdc_position') and attname = 'declared' and not attisdropped
"""
_LOCK_SCHEMA = "select pg_advisory_xact_lock(hashtextextended('varve cdc schema', 0))"
_LOCK = "select pg_try_advisory_lock(hashtextextended('varve cdc ' || %s, 0))"
_UNLOCK = "select pg_advisory_unlock(hashtextextended('varve cdc ' || %s, 0))"
_SELECT = """
    select dataset, source, state, reason, system_identifier, timeline, source_table, generation, told_lsn, applied_lsn,
           quarantine, quarantined, captured_at, applied_at, declared
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
_CAPTURED = "update varve.cdc_position set source_table = %s, captured_at = clock_timestamp() where dataset = %s"
_TELL = "update varve.cdc_position set told_lsn = greatest(told_lsn, %s) where dataset = %s"
_STOP = "update varve.cdc_position set state = 'stopped', reason = %s where dataset = %s and state = 'running'"
_APPLIED = """
    update varve.cdc_position
    set applied_lsn = %s, quarantine = %s, quarantined = %s, applied_at = clock_timestamp()
    where dataset = %s and generation = %s and applied_lsn = %s
"""


@dataclass(frozen=True, slots=True)
class Position:
    """How far one table is; see positions.sql for the fields."""

    dataset: str
    source: str
    state: str
    reason: str | None
    system_identifier: str | None
    timeline: int | None
    source_table: Any
    generation: int
    told_lsn: int
    applied_lsn: int
    quarantine: str | None
    quarantined: int
    captured_at: dt.datetime | None
    applied_at: dt.datetime | None
    declared: Any

    @property
    def table(self) -> SourceTable:
        """What the source said of the table when it was captured last."""
        found: SourceTable = self.source_table
        return found


@dataclass(frozen=True)
class Positions:
    """The positions over one connection of the catalog, in autocommit mode; the catalog's own tables are there."""

    connection: psycopg.Connection

    def ensure_schema(self) -> None:
        """Make the table where there is none; safe to call from several processes at once."""
        if self.connection.execute(_HAS).fetchone() is not None:
            return
        with self.connection.transaction():
            self.connection.execute(_LOCK_SCHEMA)
            if self.connection.execute(_HAS).fetchone() is None:
                script = resources.files("varve.cdc.capture").joinpath("positions.sql").read_text(encoding="utf-8")
                self.connection.execute(script.encode())

    def exist(self) -> bool:
        """Whether the table is there: whether a table was ever captured."""
        return self.connection.execute(_HAS).fetchone() is not None

    def lock(self, dataset: str) -> None:
        """Take the dataset's lock: one process captures or applies at a time. Raises AlreadyBuilding."""
        row = self.connection.execute(_LOCK, (dataset,)).fetchone()
        if row is None or not row[0]:
            raise AlreadyBuilding(
                f"{dataset}: another process captures or applies its changes right now. Nothing was changed by this "
                "one; what it would have done, the other does."
            )

    def unlock(self, dataset: str) -> None:
        """Give it back."""
        self.connection.execute(_UNLOCK, (dataset,))

    def all(self) -> list[Position]:
        """Every captured table."""
        return list(self._select(None))

    def find(self, dataset: str) -> Position | None:
        """One table; None where it was never captured."""
        return next(self._select(dataset), None)

    def of(self, dataset: str) -> Position:
        """One table. Raises VarveError where it was never captured, or its snapshot was not finished."""
        found = self.find(dataset)
        if found is None or (found.state == "starting" and not found.generation):
            raise VarveError(f"{dataset} is not captured yet. Take its first snapshot: varve cdc bootstrap {dataset}")
        return found

    def start(self, dataset: str, source: str) -> None:
        """A snapshot is about to be taken: slot and publication of this name at the source are ours."""
        self.connection.execute(_START, (dataset, source))

    def undo_start(self, dataset: str, before: Position | None) -> None:
        """No snapshot was taken, and nothing at the source was changed or all of it was undone."""
        if before is None:
            self.connection.execute(_FORGET_START, (dataset,))
        else:
            self.connection.execute(_RESTORE, (before.source, before.state, before.reason, dataset))

    def begin(self, dataset: str, position: Position) -> None:
        """The snapshot is durable: the stream goes on from it."""
        self.connection.execute(
            _BEGIN,
            (position.system_identifier, position.timeline, Jsonb(asdict(position.table)), position.generation,
             position.told_lsn, Jsonb(position.declared), dataset),
        )  # fmt: skip

    def captured(self, dataset: str, table: SourceTable) -> None:
        """What the source says of the table now."""
        self.connection.execute(_CAPTURED, (Jsonb(asdict(table)), dataset))

    def tell(self, dataset: str, lsn: int) -> None:
        """The slot is about to be told this position; never later than everything before it is durable."""
        self.connection.execute(_TELL, (lsn, dataset))

    def stop(self, dataset: str, reason: str) -> None:
        """The stream cannot say what the table holds."""
        self.connection.execute(_STOP, (reason, dataset))

    def applied(self, before: Position, lsn: int, quarantine: str | None, quarantined: int) -> None:
        """Move the position, in the caller's transaction. Raises VarveError where another process has moved it."""
        values = (lsn, quarantine, quarantined, before.dataset, before.generation, before.applied_lsn)
        if self.connection.execute(_APPLIED, values).rowcount != 1:
            raise VarveError(
                f"{before.dataset}: another process has applied its changes. Nothing was published by this one."
            )

    def _select(self, dataset: str | None) -> Iterator[Position]:
        with self.connection.cursor(row_factory=class_row(Position)) as cursor:
            for found in cursor.execute(_SELECT, (dataset, dataset)).fetchall():
                yield replace(found, source_table=_table(found.source_table))


def _table(said: dict[str, Any] | None) -> SourceTable | None:
    if said is None:
        return None
    columns = tuple(SourceColumn(**{**column, "labels": tuple(column["labels"])}) for column in said["columns"])
    # Positions of earlier versions of Varve say nothing of generated columns.
    unsent = tuple(said.get("unsent", ()))
    return SourceTable(**{**said, "columns": columns, "key": tuple(said["key"]), "unsent": unsent})
