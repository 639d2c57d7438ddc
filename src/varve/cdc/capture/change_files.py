"""Capture from files: changes that others have captured, as wal2json or Debezium, into the same batches of events.

    <landing>/_changes/<db>/<table>/*.jsonl

Each file is taken once, whole, in the order of names, as a batch of its own; what a name and the hash of its bytes say
was taken already is passed over. An event at or before the last one taken is late: a history puts it in its place, the
state alone cannot know whether it still counts, and leaves it out, counted.

Not here: what a line says (protocol/wal2json.py, protocol/debezium.py).
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

import fsspec
import pyarrow.parquet as pq

from varve.cdc.capture.event_log import FOLDER
from varve.cdc.capture.positions import Position
from varve.cdc.captured_table import ChangeFormat, SourceColumn, SourceTable, check_key, refuse_other_declaration
from varve.cdc.protocol import debezium, wal2json
from varve.cdc.protocol.order import in_order
from varve.cdc.resolve.event_frame import arrow_table
from varve.model.errors import BadInput, VarveError
from varve.services.links import refuse_link_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from varve.cdc.capture.batch_writer import EventBatch
    from varve.cdc.capture.event_log import EventLog
    from varve.cdc.capture.positions import Positions
    from varve.cdc.captured_table import CapturedTable
    from varve.cdc.event import ChangeEvent

# There is one: files hold all there is, and begin with no snapshot.
_GENERATION = 1


@dataclass(frozen=True)
class FileCapture:
    """One captured table whose changes come as files.

    Attributes:
        landing: the landing root.
        settle_seconds: a file is taken when it has been unchanged for so long.
        step: told the name of each step before it is taken.
    """

    captured: CapturedTable
    landing: str
    positions: Positions
    log: EventLog
    settle_seconds: float = 0.0
    step: Callable[[str], None] = lambda _: None

    @property
    def folder(self) -> str:
        """Where the files are."""
        dataset = self.captured.dataset
        return f"{self.landing}/{FOLDER}/{dataset.db}/{dataset.table}"

    def capture(self) -> EventBatch | None:
        """Make the next file durable as a batch; None where there is none.

        Raises BadInput, naming the file and the line, for one that cannot be read: nothing of it is taken, and none
        after it, until it is mended or removed.
        """
        dataset = self.captured.dataset
        taken = self.log.batches(_GENERATION)
        position = self.positions.find(self.captured.dataset.name)
        if position is None:
            self._begin()
        else:
            refuse_other_declaration(self.captured, position.declared)
        hashes = dict(batch.file for batch in taken)
        files, root = fsspec.core.url_to_fs(self.folder)
        for path in sorted(files.glob(f"{root}/*.json*")):
            name = path.rsplit("/", 1)[1]
            if self._young(files.info(path)):
                return None
            refuse_link_out(dataset, path, f"{FOLDER}/{dataset.db}/{dataset.table}")
            content = files.cat_file(path)
            digest = hashlib.sha256(content).hexdigest()
            if name in hashes:
                if hashes[name] != digest:
                    raise BadInput(
                        f"{self.captured.dataset}: {path} was taken, and has other content now. Nothing of it was "
                        "taken again. Put what is new into a file of another name."
                    )
                continue
            self.step("read")
            events, others = self._events(path, content)
            self._refuse_cut(path, events, taken)
            self.step("write")
            # Not ours is no error: a dump of a whole database may lie in the folder of each of its tables.
            notes = [f"{count} changes of {table} were passed over" for table, count in sorted(others.items())]
            return self._write(events, taken, (name, digest), notes)
        return None

    def end(self) -> None:
        """Files have none but the last of them."""

    def slot(self) -> None:
        """The source keeps nothing for us."""

    def _begin(self) -> None:
        dataset, files = self.captured.dataset, self.captured.files
        assert files is not None
        check_key(self.captured, keyed=bool(files.key))
        columns = tuple(
            SourceColumn(name, number, "text") for number, name in enumerate(self.captured.source_columns, 1)
        )
        if absent := {self.captured.column(name) for name in files.key} - self.captured.names:
            raise VarveError(f"{dataset}: its key column {', '.join(sorted(absent))} is not declared. Declare it.")
        table = SourceTable(0, columns, files.key, "d" if files.key else "f")
        position = Position(
            dataset.name, self.captured.source, "running", None, "", 0, table, _GENERATION, 0, -1, None, 0, None, None,
            self.captured.declaration,
        )  # fmt: skip
        with self.positions.connection.transaction():
            self.positions.start(dataset.name, self.captured.source)
            self.positions.begin(dataset.name, position)

    def _young(self, info: dict[str, object]) -> bool:
        changed = info.get("mtime")
        return isinstance(changed, float) and time.time() - changed < self.settle_seconds

    def _events(self, path: str, content: bytes) -> tuple[list[ChangeEvent], Counter[str]]:
        """The file's events in their order, each once; and how many it has of which other tables."""
        files = self.captured.files
        assert files is not None
        others: Counter[str] = Counter()
        try:
            lines = content.decode().splitlines()
            if files.format is ChangeFormat.WAL2JSON:
                found = list(
                    wal2json.read(lines, relation=self.captured.source, key=files.key, whole=True, others=others)
                )
            else:
                found = list(debezium.read(lines, relation=self.captured.source, key=files.key, others=others))
            return in_order(found), others
        except (BadInput, UnicodeDecodeError) as error:
            raise BadInput(
                f"{self.captured.dataset}: {path} cannot be taken: {error} The dataset serves its last exact state; "
                "mend the file, or remove it, and capture again."
            ) from error

    def _refuse_cut(self, path: str, events: list[ChangeEvent], taken: list[EventBatch]) -> None:
        """Raise BadInput where a file goes on within the transaction that the one before it ended with.

        Where lines do not number their events, those of both parts have the same places, and would be taken for late.
        """
        last = max((batch.horizon for batch in taken), default=(-1, -1))
        mine = {event.order: event for event in events if event.commit_lsn == last[0]}
        files, _ = fsspec.core.url_to_fs(self.log.root)
        for batch in taken if mine else ():
            if batch.horizon != last or not files.exists(batch.data):
                continue
            with files.open(batch.data) as file:
                rows = pq.read_table(file, filters=[("commitLsn", "==", last[0])]).to_pylist()
            for row in rows:
                here = mine.get((row["commitLsn"], row["seq"]))
                if here is not None and arrow_table([here]).to_pylist() != [row]:
                    raise BadInput(
                        f"{self.captured.dataset}: {path} begins within the transaction at LSN {last[0]} that the file "
                        "before it ends with, and its lines do not say which place in it they have. Nothing of it was "
                        "taken. Write whole transactions into a file, or set provide.transaction.metadata."
                    )

    def _write(
        self, events: list[ChangeEvent], taken: list[EventBatch], file: tuple[str, str], notes: list[str]
    ) -> EventBatch:
        before = max((batch.horizon for batch in taken), default=(-1, -1))
        in_time = [event for event in events if event.order > before]
        late = len(events) - len(in_time)
        horizon = in_time[-1].order if in_time else before
        writer = self.log.writer(_GENERATION, "file", self.captured.source_columns)
        try:
            kept = events if self.captured.history else in_time
            for lsn, transaction in groupby(kept, attrgetter("commit_lsn")):
                for event in transaction:
                    writer.add(event)
                writer.commit(lsn)
            self.step("durable")
            # Batches follow each other by their last LSN, whatever the LSNs of late events.
            last = max(horizon[0], 0, *[batch.last_lsn + 1 for batch in taken])
            return writer.finish(last, notes=notes, file=file, horizon=horizon, late=late)
        except BaseException:
            writer.abandon()
            raise
