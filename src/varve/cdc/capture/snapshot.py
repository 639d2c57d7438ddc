"""The rows of a table at one moment as a batch of events like any other: a TRUNCATE, then an INSERT of each row.

With the TRUNCATE the earlier rows of the dataset go in the same publish.

Not here: the moment, and what keeps the table still meanwhile (bootstrap.py, resnapshot.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

from varve.cdc.capture import source_database
from varve.cdc.capture.positions import Position
from varve.cdc.event import ChangeType, event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

    from varve.cdc.capture.batch_writer import EventBatch
    from varve.cdc.capture.event_log import EventLog
    from varve.cdc.captured_table import CapturedTable, SourceTable
    from varve.cdc.event import ChangeEvent


def write_snapshot(  # noqa: PLR0917 - what one snapshot is made of
    connection: psycopg.Connection, captured: CapturedTable, table: SourceTable, log: EventLog, generation: int,
    lsn: int, step: Callable[[str], None],
) -> EventBatch:  # fmt: skip
    """Make the rows that the connection's transaction sees durable, as what the table is at this LSN."""
    writer = log.writer(generation, "snapshot", captured.source_columns)
    try:
        writer.add_events(_events(connection, captured.source, table, lsn))
        step("snapshot")
        return writer.finish(lsn, filenode=table.filenode)
    except BaseException:
        writer.abandon()
        raise


def position_after(
    captured: CapturedTable, server: source_database.Server, table: SourceTable, batch: EventBatch
) -> Position:
    """Where the capture stands with this snapshot: nothing of its generation is applied yet."""
    return Position(
        captured.dataset.name, captured.source, "running", None, server.system_identifier, server.timeline, table,
        batch.generation, batch.last_lsn, -1, None, 0, None, None, captured.declaration,
    )  # fmt: skip


def _events(connection: psycopg.Connection, source: str, table: SourceTable, lsn: int) -> Iterator[ChangeEvent]:
    at = source_database.moment(connection)
    yield event(ChangeType.TRUNCATE, relation=source, timestamp=at, commit_lsn=lsn)
    for place, row in enumerate(_rows(connection, source, table), 1):
        new = dict(zip(table.names, row, strict=True))
        yield event(ChangeType.INSERT, new=new, relation=source, timestamp=at, commit_lsn=lsn, seq=place)


def _rows(connection: psycopg.Connection, source: str, table: SourceTable) -> Iterator[tuple[str | None, ...]]:
    schema, _, name = source.partition(".")
    # No casts: the stream sends what a type's output function writes, and `::text` differs for boolean and char(n).
    columns = sql.SQL(", ").join(map(sql.Identifier, table.names))
    query = sql.SQL("copy (select {} from only {}) to stdout").format(columns, sql.Identifier(schema, name))
    with connection.cursor().copy(query) as copy:
        yield from copy.rows()
