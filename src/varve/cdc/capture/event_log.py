"""Durable batches of events below the root of the lake: parquet files, each with a manifest that makes it valid.

    <lake>/_changes/<db>/<table>/generation=1/events=1795210813484/part-00000.parquet
                                                                   _varve.json
                                              taken.parquet
                                              versions.parquet
                                              manifests.parquet

The file is written first and the manifest last: a folder without a manifest was never captured, and its changes are
read again from the source. The manifests are the only record of what was captured; the slot of the source only receives
confirmations. A generation begins with a snapshot of the whole table; LSNs can be compared only within a generation.

Change files that were taken long ago stand in one list: none is taken twice, so that all are remembered, and a file a
minute would be half a million folders after a year. The list is written before their folders go, and read after those
are listed: whoever looks meanwhile finds a file in one of the two places.

A change file that was touched, copied or restored since it was taken is read once more. That it had the same content is
noted in a list of its own. Another one has copies of manifests: after a week of captures there are tens of thousands,
which each new process would read, from an object store one request for each. Both may be lost: they only spare reading.

Not here: how long they are kept (retention.py).
"""

from __future__ import annotations

import io
import json
import time
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from varve.cdc.capture.batch_writer import BatchWriter, EventBatch, manifest_of
from varve.cdc.event import Counts
from varve.services.files import open_files, put_whole
from varve.stores.folders.file_calls import at_once
from varve.stores.folders.layout import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varve.model.dataset import Dataset

FOLDER = "_changes"
# The list of change files that were taken long ago.
_TAKEN = "taken.parquet"
# What change files that were taken look like now, where that is otherwise than when they were taken.
_VERSIONS = "versions.parquet"
# Copies of manifests. They are read, and written anew, where so many manifests would be read one by one.
_MANIFESTS = "manifests.parquet"
MANY_MANIFESTS = 500
_BATCH = "events="
_OF_TAKEN = pa.schema([
    ("events", pa.int64()), ("file", pa.string()), ("hash", pa.string()), ("last_lsn", pa.int64()),
    ("horizon_lsn", pa.int64()), ("horizon_seq", pa.int64()), ("late", pa.int64()),
    ("others", pa.map_(pa.string(), pa.int64())), ("version", pa.string()),
])  # fmt: skip


def folder_of(root: str, dataset: str) -> str:
    """The folder of all generations of the dataset with this name, under the root of the lake."""
    return f"{root}/{FOLDER}/{dataset.replace('.', '/', 1)}"


@dataclass(frozen=True)
class EventLog:
    """The batches of one dataset under the lake's root.

    Attributes:
        seen: the batches whose manifests were read, by their folders: none is ever changed, and each is read once.
        read_alone: the folders whose manifests were read one by one through this object.
    """

    root: str
    dataset: Dataset
    seen: dict[str, EventBatch] = field(default_factory=dict, repr=False, compare=False)
    read_alone: set[str] = field(default_factory=set, repr=False, compare=False)

    @classmethod
    def remembered(cls, root: str, dataset: Dataset) -> EventLog:
        """The log with what this process has read of it before: a sensor looks again and again, for months."""
        return cls(root, dataset, _seen(folder_of(root, dataset.name)))

    @property
    def folder(self) -> str:
        """The folder of all generations. No folder in it has the name of a dataset batch, so that a sweep skips it."""
        return folder_of(self.root, self.dataset.name)

    def generation(self, number: int) -> str:
        """The folder of a generation."""
        return f"{self.folder}/generation={number}"

    def batches(self, generation: int, *, after: int = -1) -> list[EventBatch]:
        """The batches of a generation whose last LSN is higher than `after`, in order."""
        files, root = open_files(self.generation(generation))
        if not files.exists(root):
            return []
        names = (path.rstrip("/").rsplit("/", 1)[-1] for path in files.ls(root, detail=False, refresh=True))
        locations = [f"{self.generation(generation)}/{name}" for name in names if name.startswith(_BATCH)]
        # Other threads may look at the same log: what is returned is what was listed here.
        batches = {location: batch for location in locations if (batch := self.seen.get(location)) is not None}
        unread = [location for location in locations if location not in batches]
        if len(unread) >= MANY_MANIFESTS:
            copied = self._copied_manifests(generation)
            batches.update((location, copied[location]) for location in unread if location in copied)
            unread = [location for location in unread if location not in copied]
        read = [batch for batch in at_once(partial(_batch, files), unread) if batch]
        batches.update((batch.location, batch) for batch in read)
        self.read_alone.update(batch.location for batch in read)
        for gone in list(self.seen):
            if gone not in batches:
                self.seen.pop(gone, None)
        self.seen.update(batches)
        if all(batch.kind == "file" for batch in batches.values()):
            for batch in self.listed(generation):
                batches.setdefault(batch.location, batch)
        newer = [batch for batch in batches.values() if batch.last_lsn > after]
        return sorted(newer, key=lambda batch: (batch.last_lsn, batch.location))

    def copy_manifests(self, generation: int) -> None:
        """Copy all manifests of a generation into one file, where many of them had to be read one by one."""
        if len(self.read_alone) < MANY_MANIFESTS:
            return
        # Other threads may forget some of them meanwhile.
        batches = [batch for batch in list(self.seen.values()) if batch.generation == generation]
        table = pa.table({
            "events": [int(batch.location.rpartition("=")[2]) for batch in batches],
            "manifest": [json.dumps(manifest_of(batch)) for batch in batches],
        })  # fmt: skip
        files, root = open_files(self.generation(generation))
        out = io.BytesIO()
        pq.write_table(table, out, compression="zstd")
        put_whole(files, f"{root}/{_MANIFESTS}", out.getvalue())
        self.read_alone.clear()

    def _copied_manifests(self, generation: int) -> dict[str, EventBatch]:
        """The batches of a generation whose manifests were copied, by their folders; some may be gone."""
        files, root = open_files(self.generation(generation))
        try:
            with files.open(f"{root}/{_MANIFESTS}", "rb") as file:
                rows = pq.read_table(io.BytesIO(file.read())).to_pylist()
        except FileNotFoundError:
            return {}
        located = ((f"{self.generation(generation)}/{_BATCH}{row['events']}", row["manifest"]) for row in rows)
        return {location: _batch_of(json.loads(manifest), location) for location, manifest in located}

    def listed(self, generation: int) -> list[EventBatch]:
        """The batches of files in the list of a generation; of their events only how many came late is known."""
        files, root = open_files(self.generation(generation))
        if not files.exists(f"{root}/{_TAKEN}"):
            return []
        with files.open(f"{root}/{_TAKEN}", "rb") as file:
            rows = pq.read_table(io.BytesIO(file.read())).to_pylist()
        return [_listed_batch(generation, self.generation(generation), row) for row in rows]

    def list_taken(self, generation: int, batches: Sequence[EventBatch]) -> None:
        """Let these batches of files, and no others, stand in the list of a generation."""
        files, root = open_files(self.generation(generation))
        out = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(list(map(_listed_row, batches)), _OF_TAKEN), out, compression="zstd")
        put_whole(files, f"{root}/{_TAKEN}", out.getvalue())

    def versions(self, generation: int) -> dict[str, str]:
        """What change files looked like when they were found to be as they were taken, by their names."""
        files, root = open_files(self.generation(generation))
        if not files.exists(f"{root}/{_VERSIONS}"):
            return {}
        with files.open(f"{root}/{_VERSIONS}", "rb") as file:
            table = pq.read_table(io.BytesIO(file.read()))
        return dict(zip(*(table[name].to_pylist() for name in ("file", "version")), strict=True))

    def note_versions(self, generation: int, versions: Mapping[str, str]) -> None:
        """Let these, and no others, be what change files of a generation look like now."""
        files, root = open_files(self.generation(generation))
        out = io.BytesIO()
        pq.write_table(pa.table({"file": list(versions), "version": list(versions.values())}), out, compression="zstd")
        put_whole(files, f"{root}/{_VERSIONS}", out.getvalue())

    def remove(self, generation: int) -> None:
        """Remove all batches of a generation, if there are any."""
        files, _ = open_files(self.root)
        if files.exists(folder := self.generation(generation)):
            files.rm(folder, recursive=True)
        self.seen.clear()

    def captured(self, generation: int) -> int | None:
        """The LSN up to which the source's log is durable here; None where there is no batch."""
        batch = self.last(generation)
        return batch.last_lsn if batch else None

    def last(self, generation: int) -> EventBatch | None:
        """The last batch of a generation; None where there is none."""
        batches = self.batches(generation)
        return batches[-1] if batches else None

    def last_event(self, batch: EventBatch) -> tuple[int, str]:
        """The commit LSN and the timestamp of the last event of a batch; (0, "") where its events are not kept."""
        files, _ = open_files(self.root)
        if not files.exists(batch.data):
            return 0, ""
        with files.open(batch.data) as file:
            parquet = pq.ParquetFile(file)
            rows = parquet.read_row_group(parquet.num_row_groups - 1, columns=["commitLsn", "timestamp"])
            last = rows.slice(rows.num_rows - 1).to_pylist()[0]
        return last["commitLsn"], last["timestamp"]

    def filenode(self, generation: int) -> int | None:
        """The filenode of the source table when the last batch was captured; None where there is no batch."""
        batches = self.batches(generation)
        return batches[-1].filenode if batches else None

    def writer(self, generation: int, kind: str, columns: Sequence[str]) -> BatchWriter:
        """A writer for a new batch of events; `columns` are the columns of a full row."""
        files, _ = open_files(self.root)
        millis = time.time_ns() // 1_000_000
        while files.exists(f"{self.generation(generation)}/events={millis}"):
            millis += 1
        folder = f"{self.generation(generation)}/events={millis}"
        files.makedirs(folder)
        return BatchWriter(self.dataset.name, folder, generation, kind, tuple(columns))


@lru_cache(maxsize=1_000)
def _seen(folder: str) -> dict[str, EventBatch]:
    """The batches below a folder that this process has read."""
    del folder
    return {}


def _batch(files: Any, location: str) -> EventBatch | None:
    """The batch in a folder; None where it was never captured, or retention has removed it since it was listed."""
    try:
        with files.open(f"{open_files(location)[1]}/{MANIFEST}", "rt", encoding="utf-8") as file:
            return _batch_of(json.load(file), location)
    except FileNotFoundError:
        return None


def _batch_of(manifest: Mapping[str, Any], location: str) -> EventBatch:
    return EventBatch(
        manifest["generation"],
        manifest["kind"],
        manifest["first_lsn"],
        manifest["last_lsn"],
        Counts(**manifest["counts"]),
        location,
        manifest["filenode"],
        tuple(manifest["file"]),
        tuple(manifest["horizon"]),
        manifest["late"],
        # Manifests of earlier versions of Varve do not have these.
        tuple(manifest.get("others", {}).items()),
        manifest.get("file_version", ""),
        tuple(manifest.get("snapshot", (0, 0))),
    )


def _listed_row(batch: EventBatch) -> dict[str, Any]:
    (name, digest), (lsn, seq) = batch.file, batch.horizon
    return {
        "events": int(batch.location.rpartition("=")[2]), "file": name, "hash": digest, "last_lsn": batch.last_lsn,
        "horizon_lsn": lsn, "horizon_seq": seq, "late": batch.late, "others": list(batch.others),
        "version": batch.file_version,
    }  # fmt: skip


def _listed_batch(generation: int, folder: str, row: dict[str, Any]) -> EventBatch:
    return EventBatch(
        generation, "file", row["last_lsn"], row["last_lsn"], Counts(), f"{folder}/events={row['events']}",
        file=(row["file"], row["hash"]), horizon=(row["horizon_lsn"], row["horizon_seq"]), late=row["late"],
        others=tuple(row["others"]), file_version=row.get("version") or "",
    )  # fmt: skip
