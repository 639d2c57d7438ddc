"""Writing one durable batch of events, in bounded memory.

Not here: the folders of batches, and listing them (event_log.py).
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from varve.cdc.capture.row_events import EventRows
from varve.cdc.event import Counts
from varve.cdc.resolve.event_frame import arrow_schema
from varve.services.files import open_files, put_whole, sync
from varve.stores.folders.layout import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from varve.cdc.event import ChangeEvent

EVENTS = "part-00000.parquet"
# How many events, and how many bytes of them, are kept in memory; a larger transaction waits for its commit in a file.
CHUNK, CHUNK_BYTES = 20_000, 64 * 2**20


@dataclass(frozen=True, slots=True)
class EventBatch:
    """One durable batch of events.

    Attributes:
        kind: `snapshot` or `stream`.
        last_lsn: everything that was committed up to this LSN is in this batch or an earlier one of its generation.
        counts: the number of events by type, from which the resolver chooses its method.
        location: its folder.
        filenode: the filenode of the source table when it was captured.
        file: the name of the change file from which it was made, and the hash of its bytes; empty texts for a slot.
        file_version: what changes whenever that file does, as it was listed then; "" where nothing says that.
        horizon: the place (commit LSN, sequence) of the last event so far; later events at or before it are late.
        late: how many events came late.
        others: how many changes of other tables its file had, by table; they were passed over.
        snapshot: the place of the last row that a snapshot has read, of its file and those before; (0, 0): none yet.
    """

    generation: int
    kind: str
    first_lsn: int
    last_lsn: int
    counts: Counts
    location: str
    filenode: int = 0
    file: tuple[str, str] = ("", "")
    horizon: tuple[int, int] = (-1, -1)
    late: int = 0
    others: tuple[tuple[str, int], ...] = ()
    file_version: str = ""
    snapshot: tuple[int, int] = (0, 0)

    @property
    def data(self) -> str:
        """The path of its file of events."""
        return f"{self.location}/{EVENTS}"

    def age(self) -> float:
        """Seconds since the batch was begun, which the name of its folder says."""
        return time.time() - int(self.location.rpartition("=")[2]) / 1_000


def manifest_of(batch: EventBatch) -> dict[str, Any]:
    """What the manifest of a batch says of it."""
    return {
        "generation": batch.generation, "kind": batch.kind, "first_lsn": batch.first_lsn, "last_lsn": batch.last_lsn,
        "counts": asdict(batch.counts), "filenode": batch.filenode, "file": list(batch.file),
        "horizon": list(batch.horizon), "late": batch.late, "others": dict(batch.others),
        "file_version": batch.file_version, "snapshot": list(batch.snapshot),
    }  # fmt: skip


class BatchWriter:
    """Writes one batch in bounded memory: whole transactions, and one in progress piece by piece."""

    def __init__(self, dataset: str, folder: str, generation: int, kind: str, columns: tuple[str, ...]) -> None:
        self._dataset, self._folder, self._generation, self._kind, self._columns = (
            dataset, folder, generation, kind, columns,
        )  # fmt: skip
        self._files, _ = open_files(folder)
        self._path = f"{folder}/{EVENTS}"
        self._out = self._files.open(self._path, "wb")
        self._parquet = pq.ParquetWriter(self._out, arrow_schema(), compression="zstd")
        self._committed = _Chunk()
        self._open = _Chunk()
        self._open_counts = Counts()
        self._spill: _Spill | None = None
        self.counts = Counts()
        self.first_lsn: int | None = None

    def add(self, rows: EventRows) -> None:
        """Add whole transactions; their rows have the LSNs of their commits."""
        self.counts += rows.counts
        self._add_committed(rows.table)

    def add_events(self, events: Iterable[ChangeEvent]) -> None:
        """Add events of whole transactions, which have the LSNs of their commits."""
        chunk: list[ChangeEvent] = []
        size = 0
        for change in events:
            chunk.append(change)
            size += sum(map(len, filter(None, chain(change.column_values, change.old_values))))
            if len(chunk) >= CHUNK or size >= CHUNK_BYTES:
                self.add(EventRows.of(chunk, self._columns))
                chunk, size = [], 0
        if chunk:
            self.add(EventRows.of(chunk, self._columns))

    def add_open(self, rows: EventRows) -> None:
        """Add rows of the transaction in progress."""
        self._open_counts += rows.counts
        self._open.add(rows.table)
        if self._open.is_full:
            self._spill = self._spill or _Spill()
            self._spill.write(self._open.take())

    def commit(self, lsn: int) -> None:
        """Commit the transaction in progress with this LSN."""
        self.counts += self._open_counts
        for table in chain(self._spill.read() if self._spill else (), (self._open.take(),)):
            self._add_committed(_with_lsn(table, lsn))
        self.forget()

    def forget(self) -> None:
        """Drop the events of the transaction in progress."""
        self._open, self._open_counts = _Chunk(), Counts()
        if self._spill:
            self._spill.close()
            self._spill = None

    def finish(
        self, last_lsn: int, *, filenode: int = 0, notes: Sequence[str] = (), file: tuple[str, str] = ("", ""),
        horizon: tuple[int, int] = (-1, -1), late: int = 0, others: Mapping[str, int] | None = None,
        file_version: str = "", snapshot: tuple[int, int] = (0, 0),
    ) -> EventBatch:  # fmt: skip
        """Make the batch durable and return it; its file is on disk before its manifest is."""
        self._flush()
        self._parquet.close()
        self._out.close()
        sync(self._files, self._path)
        first = self.first_lsn if self.first_lsn is not None else last_lsn
        batch = EventBatch(
            self._generation, self._kind, first, last_lsn, self.counts, self._folder, filenode, file, horizon, late,
            tuple(sorted((others or {}).items())), file_version, snapshot,
        )  # fmt: skip
        manifest = {"format": 1, "dataset": self._dataset, "notes": list(notes), **manifest_of(batch)}
        put_whole(self._files, f"{self._folder}/{MANIFEST}", json.dumps(manifest, indent=1).encode())
        return batch

    def abandon(self) -> None:
        """Remove what was written; a batch without a manifest does not exist."""
        self.forget()
        self._parquet.close()
        self._out.close()
        self._files.rm(self._folder, recursive=True)

    def _add_committed(self, table: pa.Table) -> None:
        if self.first_lsn is None and table.num_rows:
            self.first_lsn = table["commitLsn"][0].as_py()
        self._committed.add(table)
        if self._committed.is_full:
            self._flush()

    def _flush(self) -> None:
        table = self._committed.take()
        if table.num_rows:
            self._parquet.write_table(table)


class _Chunk:
    """Rows that are kept in memory until they are enough to be written together."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self._rows, self._bytes = 0, 0

    def add(self, table: pa.Table) -> None:
        self._tables.append(table)
        self._rows += table.num_rows
        self._bytes += table.nbytes

    @property
    def is_full(self) -> bool:
        return self._rows >= CHUNK or self._bytes >= CHUNK_BYTES

    def take(self) -> pa.Table:
        """The rows, which are then no longer kept."""
        tables, self._tables, self._rows, self._bytes = self._tables, [], 0, 0
        return pa.concat_tables(tables) if tables else arrow_schema().empty_table()


class _Spill:
    """The chunks of one transaction that does not fit into memory, until its commit."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the transaction
        self._out = pa.ipc.new_stream(self._file, arrow_schema())

    def write(self, table: pa.Table) -> None:
        self._out.write_table(table)

    def read(self) -> Iterator[pa.Table]:
        self._out.close()
        self._file.seek(0)
        with pa.ipc.open_stream(self._file) as stream:
            for batch in stream:
                yield pa.Table.from_batches([batch])

    def close(self) -> None:
        self._file.close()


def _with_lsn(table: pa.Table, lsn: int) -> pa.Table:
    place = table.schema.get_field_index("commitLsn")
    return table.set_column(place, "commitLsn", pa.repeat(pa.scalar(lsn, pa.int64()), table.num_rows))
