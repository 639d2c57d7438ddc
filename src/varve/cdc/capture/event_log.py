"""Durable batches of events in the lake's root: plain parquet, each with a manifest that makes it exist.

    <lake>/_changes/<db>/<table>/generation=1/events=1795210813484/part-00000.parquet
                                                                   _varve.json

The file is written first and the manifest last: a folder without one was never captured, and is read again from the
source. The manifests are the truth of what was captured; the source's slot is only told. A generation begins with a
snapshot of the whole table; LSNs compare within it.

Not here: how long they are kept (retention.py).
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import fsspec

from varve.cdc.capture.batch_writer import BatchWriter, EventBatch
from varve.cdc.event import Counts
from varve.stores.folders.layout import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.model.dataset import Dataset

FOLDER = "_changes"


@dataclass(frozen=True)
class EventLog:
    """The batches of one dataset under the lake's root."""

    root: str
    dataset: Dataset

    @property
    def folder(self) -> str:
        """Where they lie. No folder is named as those of batches are: a sweep of the lake passes over them."""
        return f"{self.root}/{FOLDER}/{self.dataset.db}/{self.dataset.table}"

    def generation(self, number: int) -> str:
        """The folder of a generation."""
        return f"{self.folder}/generation={number}"

    def batches(self, generation: int, *, after: int = -1) -> list[EventBatch]:
        """The batches of a generation that reach beyond `after`, in order."""
        files, _ = fsspec.core.url_to_fs(self.root)
        folder = self.generation(generation)
        if not files.exists(folder):
            return []
        found = []
        for path in files.glob(f"{files._strip_protocol(folder)}/events=*/{MANIFEST}"):
            with files.open(path, "rt", encoding="utf-8") as file:
                said = json.load(file)
            location = f"{folder}/{path.rsplit('/', 2)[1]}"
            batch = EventBatch(
                said["generation"],
                said["kind"],
                said["first_lsn"],
                said["last_lsn"],
                Counts(**said["counts"]),
                location,
                said["filenode"],
                tuple(said["file"]),
                tuple(said["horizon"]),
                said["late"],
            )
            if batch.last_lsn > after:
                found.append(batch)
        return sorted(found, key=lambda batch: (batch.last_lsn, batch.location))

    def captured(self, generation: int) -> int | None:
        """Up to where the source's log is durable here; None where nothing is."""
        batches = self.batches(generation)
        return batches[-1].last_lsn if batches else None

    def filenode(self, generation: int) -> int | None:
        """Where the source's rows lay when the last batch was captured."""
        batches = self.batches(generation)
        return batches[-1].filenode if batches else None

    def writer(self, generation: int, kind: str, columns: Sequence[str]) -> BatchWriter:
        """A new batch of events; `columns` are those that a full row has."""
        files, _ = fsspec.core.url_to_fs(self.root)
        millis = time.time_ns() // 1_000_000
        while files.exists(f"{self.generation(generation)}/events={millis}"):
            millis += 1
        folder = f"{self.generation(generation)}/events={millis}"
        files.makedirs(folder)
        return BatchWriter(self.dataset.name, folder, generation, kind, tuple(columns))
