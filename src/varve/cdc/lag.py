"""How far captured tables are behind, as alerts need it.

Not here: from when on that is too far (varve/planning/operations/conditions.py).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg

from varve.cdc.capture.event_log import EventLog
from varve.cdc.capture.positions import Positions
from varve.cdc.captures import opened
from varve.model.errors import VarveError
from varve.planning.operations.conditions import CaptureFacts
from varve.services.secrets import redacted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from varve.cdc.capture.batch_writer import EventBatch
    from varve.cdc.capture.positions import Position
    from varve.cdc.captured_table import CapturedTable
    from varve.services.settings import Settings

# A batch of events is called after the millisecond in which it was begun.
_BEGUN = re.compile(r"events=(\d+)$")


def capture_facts(
    tables: Iterable[CapturedTable], connection: psycopg.Connection, settings: Settings
) -> list[CaptureFacts]:
    """The facts of those of the tables of which a capture was begun; their sources are asked too.

    Where the lake cannot be reached, that is a fact, and no error.
    """
    positions = Positions(connection)
    if not positions.exist():
        return []
    by_dataset = {position.dataset: position for position in positions.all()}
    return [
        _facts(table, by_dataset[table.dataset.name], settings) for table in tables if table.dataset.name in by_dataset
    ]


def _facts(table: CapturedTable, position: Position, settings: Settings) -> CaptureFacts:
    facts = CaptureFacts(table.dataset.name, position.state, position.reason or "", position.quarantined)
    try:
        pending = _pending(table, position, EventLog.remembered(settings.lake, table.dataset))
        begun = [int(match[1]) / 1000 for batch in pending if (match := _BEGUN.search(batch.location.rstrip("/")))]
        warning = _warning(table, settings) if position.state == "running" else ""
    except Exception as error:  # noqa: BLE001 - what file systems raise has no common class, and all else is told too
        reason = redacted(str(error) or type(error).__name__)
        return replace(facts, unread=f"its captured changes in {settings.lake} cannot be read: {reason}")
    return replace(facts, behind_since=min(begun, default=None), warning=warning)


def _pending(table: CapturedTable, position: Position, log: EventLog) -> list[EventBatch]:
    """The batches that are not applied. Raises FileNotFoundError where the log is not there, as on another machine."""
    batches = log.batches(position.generation)
    # A stream begins with a snapshot, files with the first one that comes; and retention keeps the last batch.
    if not batches and (position.applied_lsn >= 0 or (position.generation > 0 and table.files is None)):
        raise FileNotFoundError(f"{log.generation(position.generation)} has no batch of events")
    return [batch for batch in batches if batch.last_lsn > position.applied_lsn]


def _warning(table: CapturedTable, settings: Settings) -> str:
    try:
        with opened(table, settings, lock=False) as capture:
            return capture.kept().warning or ""
    except (VarveError, psycopg.Error) as error:
        return f"its source cannot be asked: {error}"
