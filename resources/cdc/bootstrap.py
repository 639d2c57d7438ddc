"""Bootstrap: the snapshot that a captured table begins with, under living writers, without gap or double.

The slot gives the snapshot of exactly the moment from which it streams. The snapshot becomes a batch of events as any
other, which begins with a TRUNCATE: what the dataset held before goes in the same publish.

Not here: the stream that follows (capture.py).
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from pipeline_defs.cdc.event import ChangeType, event
from pipeline_defs.cdc.table import check
from pipeline_defs.model.errors import ServiceUnavailable, VarveError
from resources.cdc import source as sources
from resources.cdc.positions import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

    from pipeline_defs.cdc.table import CapturedTable, SourceTable
    from resources.cdc.batch_writer import EventBatch
    from resources.cdc.event_log import EventLog
    from resources.cdc.positions import Positions
    from resources.cdc.source import Source

# How often a snapshot is begun anew because the table was truncated or rewritten right then.
_TRIES = 5


@dataclass(frozen=True)
class Bootstrap:
    """One captured table, its source and where its events go.

    Attributes:
        step: told the name of each step before it is taken.
    """

    captured: CapturedTable
    source: Source
    positions: Positions
    log: EventLog
    step: Callable[[str], None] = lambda _: None

    def bootstrap(self, *, again: bool = False) -> EventBatch:
        """Take a snapshot of the table under living writers; the stream goes on from exactly there.

        Raises VarveError where the table is captured already, unless `again`; SourceRefused where capturing it would
        break the application or could not be exact. Until the snapshot is durable, nothing of an earlier one changes.
        """
        dataset = self.captured.dataset.name
        before = self.positions.find(dataset)
        if before is not None and before.generation and before.state != "starting" and not again:
            raise VarveError(
                f"{dataset} is captured already; nothing was changed. A new snapshot: varve cdc resnapshot {dataset}"
            )
        if before is not None and before.declared and before.declared["history"] != self.captured.history:
            raise VarveError(
                f"{dataset} was declared {'with' if before.declared['history'] else 'without'} history before, and its "
                "rows lie so. Nothing was changed. Declare a dataset of another name."
            )
        with closing(self.source.connect()) as connection, sources.asked(self.captured):
            check(self.captured, sources.described(connection, self.captured))
            if before is None and sources.slot_of(connection, self.captured.slot) is not None:
                raise VarveError(
                    f"{dataset}: the source has a replication slot {self.captured.slot} that is not ours: another "
                    "deployment captures the same table, or a catalog was lost. Nothing was changed. Drop it there if "
                    f"nobody needs it: select pg_drop_replication_slot('{self.captured.slot}')"
                )
            self.positions.start(dataset, self.captured.source)
            self.step("start")
            server, generation = sources.server(connection), (before.generation if before else 0) + 1
            taken = None
            for _ in range(_TRIES):
                sources.unpublish(connection, self.captured)
                sources.publish(connection, self.captured)
                self.step("publish")
                with self.source.slot_with_snapshot(self.captured.slot) as (lsn, snapshot):
                    self.step("slot")
                    taken = self._snapshot(connection, lsn, snapshot, generation)
                if taken is not None:
                    break
        if taken is None:
            raise ServiceUnavailable(
                f"{dataset}: {self.captured.source} was truncated or rewritten each of the {_TRIES} times that a "
                "snapshot of it was begun. Nothing was published. Run it again."
            )
        table, batch = taken
        self.step("begin")
        self.positions.begin(dataset, _position_after(self.captured, server, table, batch))
        return batch

    def _snapshot(
        self, connection: psycopg.Connection, lsn: int, snapshot: str, generation: int
    ) -> tuple[SourceTable, EventBatch] | None:
        """The table and its rows at that moment; None where they are not to be had any more."""
        with connection.transaction():
            connection.execute("set transaction isolation level repeatable read, read only")
            connection.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(snapshot)))
            table = sources.described(connection, self.captured)
            check(self.captured, table)
            if not sources.holds_still(connection, self.captured.source, table):
                return None
            writer = self.log.writer(generation, "snapshot", self.captured.source_columns)
            try:
                source, at = self.captured.source, sources.moment(connection)
                writer.add(event(ChangeType.TRUNCATE, relation=source, timestamp=at))
                for place, row in enumerate(self._rows(connection, table), 1):
                    new = dict(zip(table.names, row, strict=True))
                    writer.add(event(ChangeType.INSERT, new=new, relation=source, timestamp=at, seq=place))
                writer.commit(lsn)
                self.step("snapshot")
                return table, writer.finish(lsn, filenode=table.filenode)
            except BaseException:
                writer.abandon()
                raise

    def _rows(self, connection: psycopg.Connection, table: SourceTable) -> Iterator[tuple[str | None, ...]]:
        schema, _, name = self.captured.source.partition(".")
        # No casts: the stream has what a type's output function writes, which `::text` is not for boolean and char(n).
        columns = sql.SQL(", ").join(map(sql.Identifier, table.names))
        query = sql.SQL("copy (select {} from only {}) to stdout").format(columns, sql.Identifier(schema, name))
        with connection.cursor().copy(query) as copy:
            yield from copy.rows()


def _position_after(captured: CapturedTable, server: sources.Server, table: SourceTable, batch: EventBatch) -> Position:
    return Position(
        captured.dataset.name, captured.source, "running", None, server.system_identifier, server.timeline, table,
        batch.generation, batch.last_lsn, -1, None, 0, None, None, captured.declaration,
    )  # fmt: skip
