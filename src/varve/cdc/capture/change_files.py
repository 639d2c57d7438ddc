"""Capture from files: changes that others have captured become the same batches of events.

    <landing>/_changes/<db>/<table>/*.jsonl (or *.json)

Files of other names are left alone: one may be written under such a name, and renamed when it is whole. Each file is
taken once, as a whole, in the order of names, as a batch of its own. A file whose name and hash were taken already is
skipped; it is read for its hash only where its size or times are others than when it was taken. An event at or before
the last one taken is late, and counted: what it still changes is decided in resolve/late.py.

Not here: parsing a line (protocol/wal2json.py, protocol/debezium.py, protocol/change_events.py).
"""

from __future__ import annotations

import datetime as dt
import errno
import glob
import hashlib
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from varve.cdc.capture.event_log import FOLDER
from varve.cdc.capture.positions import Position
from varve.cdc.captured_table import ChangeFormat, SourceColumn, SourceTable
from varve.cdc.declaration_checks import check_key, refuse_other_declaration
from varve.cdc.protocol import change_events, debezium, wal2json
from varve.cdc.protocol.order import in_order
from varve.cdc.resolve.event_frame import arrow_table
from varve.model.errors import BadInput, VarveError
from varve.services.files import open_files
from varve.services.links import refuse_link_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fsspec import AbstractFileSystem

    from varve.cdc.capture.batch_writer import EventBatch
    from varve.cdc.capture.event_log import EventLog
    from varve.cdc.capture.positions import Positions
    from varve.cdc.captured_table import CapturedTable
    from varve.cdc.event import ChangeEvent

_READERS: dict[ChangeFormat, Callable[..., Iterator[ChangeEvent]]] = {
    ChangeFormat.WAL2JSON: partial(wal2json.read, whole=True),
    ChangeFormat.WAL2JSON_V1: wal2json.read_v1,
    ChangeFormat.DEBEZIUM: debezium.read,
    ChangeFormat.EVENTS: change_events.read,
}
# Files have one generation: they contain all changes, and begin without a snapshot.
_GENERATION = 1
_ENDINGS = (".jsonl", ".json")


@dataclass(frozen=True)
class FileCapture:
    """The capture of one table whose changes come as files.

    Attributes:
        landing: the landing root.
        settle_seconds: how long a file must be unchanged before it is taken.
        step: called with the name of each step before the step is taken; for tests that stop there.
        looked_at: the names of taken files that were looked at since there was last nothing new: each is once, however
            many files wait behind it.
    """

    captured: CapturedTable
    landing: str
    positions: Positions
    log: EventLog
    settle_seconds: float = 0.0
    step: Callable[[str], None] = lambda _: None
    looked_at: set[str] = field(default_factory=set, repr=False, compare=False)
    _read_again: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def folder(self) -> str:
        """The folder of the change files of this dataset."""
        dataset = self.captured.dataset
        return f"{self.landing}/{FOLDER}/{dataset.db}/{dataset.table}"

    def capture(self) -> EventBatch | None:
        """Make the next file durable as a batch; None where there is none.

        Raises BadInput that names the file and the line where it cannot be read. Neither this file nor a later one is
        taken until it is mended or removed.
        """
        try:
            return self._next()
        finally:
            self._note_read_again()

    def _next(self) -> EventBatch | None:
        dataset = self.captured.dataset
        taken = self.log.batches(_GENERATION)
        position = self.positions.find(self.captured.dataset.name)
        if position is None:
            self._begin()
        else:
            refuse_other_declaration(self.captured, position.declared)
        taken_by_name = {batch.file[0]: batch for batch in taken}
        versions = {batch.file[0]: batch.file_version for batch in taken} | self.log.versions(_GENERATION)
        files, root = open_files(self.folder)
        for path in sorted(files.glob(f"{glob.escape(root)}/*")):
            name = path.rsplit("/", 1)[1]
            if not _is_change_file(name) or name in self.looked_at:
                continue
            info = self._info(files, path)
            if self._is_unsettled(info):
                return None
            refuse_link_out(dataset, path, f"{FOLDER}/{dataset.db}/{dataset.table}")
            version, known = _version(info), taken_by_name.get(name)
            if known is not None and version and version == versions[name]:
                self.looked_at.add(name)
                continue
            content = self._content(files, path)
            digest = hashlib.sha256(content).hexdigest()
            if known is not None:
                if known.file[1] != digest:
                    raise BadInput(
                        f"{self.captured.dataset}: {path} was taken, and has other content now. Nothing of it was "
                        "taken again. Put what is new into a file of another name."
                    )
                self.looked_at.add(name)
                self._read_again[name] = version
                continue
            self.step("read")
            snapshot = _snapshot_before(digest, taken)
            events, others = self._events(path, content, snapshot)
            self._refuse_split_transaction(path, events, taken)
            self.step("write")
            # Changes of other tables are no error: a dump of a whole database may be in the folder of each table.
            batch = self._write(
                events, taken, (name, digest), others, version, snapshot=(snapshot.commit_lsn, snapshot.seq)
            )
            self.positions.looked(dataset.name)
            return batch
        self.looked_at.clear()
        self.positions.looked(dataset.name)
        return None

    def left_alone(self) -> list[str]:
        """The names in the folder that are those of no change files, but for hidden ones."""
        files, root = open_files(self.folder)
        names = sorted(path.rstrip("/").rsplit("/", 1)[1] for path in files.glob(f"{glob.escape(root)}/*"))
        return [name for name in names if not _is_change_file(name) and not _is_hidden(name)]

    def end(self) -> None:
        """Files have no end of a log: always None."""

    def slot(self) -> None:
        """File captures have no replication slot: always None."""

    def _note_read_again(self) -> None:
        """Note of files that were read again, and are as they were taken, what they look like now: once is enough."""
        if new := {name: version for name, version in self._read_again.items() if version}:
            self.log.note_versions(_GENERATION, {**self.log.versions(_GENERATION), **new})
        self._read_again.clear()

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

    def _info(self, files: AbstractFileSystem, path: str) -> dict[str, object]:
        """What the folder says of a file. Raises BadInput where there is none: a pipe would be read for ever."""
        try:
            info: dict[str, object] = files.info(path)
        except FileNotFoundError as error:
            raise self._not_taken(path, "it is a link to nothing, or was removed just now.") from error
        except OSError as error:
            if error.errno not in {errno.ELOOP, errno.ENOTDIR, errno.EACCES}:
                raise
            raise self._not_taken(path, f"it is a link that cannot be followed: {error.strerror}.") from error
        if info["type"] != "file":
            kind = "a directory" if info["type"] == "directory" else "something else"
            raise self._not_taken(path, f"{kind} lies where a file is expected.")
        return info

    def _content(self, files: AbstractFileSystem, path: str) -> bytes:
        """The bytes of a file. Raises BadInput where they may not be read."""
        try:
            content: bytes = files.cat_file(path)
        except (FileNotFoundError, PermissionError) as error:
            raise self._not_taken(path, f"it may not be read: {error.strerror or error}.") from error
        return content

    def _not_taken(self, path: str, problem: str) -> BadInput:
        return BadInput(
            f"{self.captured.dataset}: {path} cannot be taken: {problem} The dataset serves its last exact state; mend "
            "the file, or remove it, and capture again."
        )

    def _is_unsettled(self, info: dict[str, object]) -> bool:
        changed = info.get("mtime")
        # HDFS has a moment in the place of a number.
        changed = changed.timestamp() if isinstance(changed, dt.datetime) else changed
        # A time further in the future means that a clock is wrong; no settling would end before it.
        return isinstance(changed, float) and abs(time.time() - changed) < self.settle_seconds

    def _events(
        self, path: str, content: bytes, snapshot: debezium.SnapshotEnd
    ) -> tuple[list[ChangeEvent], Counter[str]]:
        """The events of a file in their order, each once, and the number of changes by other table."""
        files = self.captured.files
        assert files is not None
        others: Counter[str] = Counter()
        read = _READERS[files.format]
        if files.format is ChangeFormat.WAL2JSON_V1:
            read = partial(read, columns=self.captured.source_columns)
        if files.format is ChangeFormat.DEBEZIUM:
            read = partial(read, snapshot=snapshot)
        try:
            # Not splitlines, which also ends a line at what a text in JSON may hold unescaped (U+2028, U+0085).
            events = list(read(
                _decoded(content).split("\n"), relation=self.captured.source, key=files.key, others=others
            ))  # fmt: skip
            return in_order(events), others
        except BadInput as error:
            raise self._not_taken(path, str(error)) from error

    def _refuse_split_transaction(self, path: str, events: list[ChangeEvent], taken: list[EventBatch]) -> None:
        """Raise BadInput where a file continues the transaction with which the file before it ended.

        Where lines do not number their events, both parts have the same places, and nothing says which comes first. Of
        Debezium these are rows of one record of the source's log, which have other keys.
        """
        if self.captured.files is not None and self.captured.files.format is ChangeFormat.DEBEZIUM:
            return
        last = max((batch.horizon for batch in taken), default=(-1, -1))
        events_of_last = {event.order: event for event in events if event.commit_lsn == last[0]}
        files, _ = open_files(self.log.root)
        for batch in taken if events_of_last else ():
            if batch.horizon != last or not files.exists(batch.data):
                continue
            with files.open(batch.data) as file:
                rows = pq.read_table(file, filters=[("commitLsn", "==", last[0])]).to_pylist()
            for row in rows:
                same_place = events_of_last.get((row["commitLsn"], row["seq"]))
                if same_place is not None and arrow_table([same_place]).to_pylist() != [row]:
                    raise BadInput(
                        f"{self.captured.dataset}: {path} begins within the transaction at LSN {last[0]} that the file "
                        "before it ends with, and its lines do not say which place in it they have. Nothing of it was "
                        "taken. Write whole transactions into a file, or number the changes, by the seq of events."
                    )

    def _write(
        self,
        events: list[ChangeEvent],
        taken: list[EventBatch],
        file: tuple[str, str],
        others: Counter[str],
        version: str,
        *,
        snapshot: tuple[int, int],
    ) -> EventBatch:
        last_place = max((batch.horizon for batch in taken), default=(-1, -1))
        in_time = [event for event in events if event.order > last_place]
        late = len(events) - len(in_time)
        horizon = in_time[-1].order if in_time else last_place
        writer = self.log.writer(_GENERATION, "file", self.captured.source_columns)
        try:
            # Delivered twice, under two names, it says nothing new.
            writer.add_events(in_time if file[1] in {batch.file[1] for batch in taken} else events)
            self.step("durable")
            # Batches are ordered by their last LSN, whatever the LSNs of late events are.
            last = max(horizon[0], 0, *[batch.last_lsn + 1 for batch in taken])
            return writer.finish(
                last, file=file, horizon=horizon, late=late, others=others, file_version=version,
                snapshot=snapshot,
            )  # fmt: skip
        except BaseException:
            writer.abandon()
            raise


def _snapshot_before(digest: str, taken: Sequence[EventBatch]) -> debezium.SnapshotEnd:
    """Where Debezium's snapshot ends in the files before this one: it may fill many, and what follows begins another.

    A file that is delivered twice, under two names, has the places that it had.
    """
    before = list(takewhile(lambda batch: batch.file[1] != digest, taken))
    return debezium.SnapshotEnd(*before[-1].snapshot) if before else debezium.SnapshotEnd()


def _is_change_file(name: str) -> bool:
    return name.endswith(_ENDINGS) and not _is_hidden(name)


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _decoded(content: bytes) -> str:
    """The text of a file. Raises BadInput that names the line where it is none."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise BadInput(f"line {number} is no UTF-8 ({error}). Nothing was taken from it.") from error


def _version(info: dict[str, object]) -> str:
    """What changes whenever the content of a file does; "" where nothing says that."""
    # The time of a link is its own, whatever becomes of the file that it leads to.
    if info.get("islink") or not any(map(info.get, ("ETag", "etag", "mtime"))):
        return ""
    # Who writes over a file may give it the time that it had; what the disk notes of that, he cannot.
    names = ("size", "ETag", "etag", "mtime", "created", "ino")
    return ",".join(str(info[name]) for name in names if name in info)
