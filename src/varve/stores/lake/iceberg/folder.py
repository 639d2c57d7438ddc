"""The folder of a table's metadata, `<table>/_iceberg/`, and the data files of batches, in any file system of the lake.

Not here: what is in the metadata (metadata.py, snapshots.py, manifests.py).
"""

from __future__ import annotations

import json
import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from varve.catalog.rows import columns_of
from varve.model.errors import VarveError
from varve.model.partitions.key import parse_path
from varve.services.files import is_local, open_files, sync
from varve.stores.folders import footers, manifest
from varve.stores.lake.iceberg import manifests
from varve.stores.lake.iceberg.manifests import DataFile, Written
from varve.stores.lake.iceberg.metadata import address, declared_types, partition_types, unfollowed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from varve.model.batch import Batch
    from varve.stores.folders.layout import Layout
    from varve.stores.lake.iceberg.batches import CurrentFolder
    from varve.stores.lake.iceberg.metadata import Document

NAME = "_iceberg"
# How the names of documents end; they begin with their number.
DOCUMENT = ".metadata.json"
_THREADS = 8
# So many descriptions of batches are read before it is looked whether that is enough.
_ASKED_AT_ONCE = 500


class MetadataLost(VarveError):
    """A file of metadata is not there, or is not what Varve has written."""


@dataclass(frozen=True)
class MetadataFolder:
    """The files of one table's metadata. Each is written once, under a name of its own.

    Attributes:
        files: the file system.
        location: the folder, as locations of batches are spelt.
    """

    files: Any
    location: str

    @classmethod
    def of(cls, layout: Layout, dataset: str) -> MetadataFolder:
        """The folder of a dataset."""
        files, _ = open_files(layout.root)
        return cls(files, f"{layout.table_of(dataset)}/{NAME}")

    def read(self, location: str) -> bytes:
        """The content of a file of this or another table's metadata. Raises MetadataLost."""
        try:
            content: bytes = self.files.cat_file(location)
        except FileNotFoundError as error:
            raise MetadataLost(f"{location} is gone") from error
        return content

    def records(self, location: str) -> list[dict[str, Any]]:
        """The records of an Avro file of this or another table's metadata. Raises MetadataLost where it is damaged."""
        content = self.read(location)
        try:
            return manifests.records(content)
        except Exception as error:
            # Whatever the library raises for a file that was cut or written over.
            raise MetadataLost(f"{location} is damaged: {type(error).__name__} {error}") from error

    def write(self, written: Written) -> str:
        """Write a file, and return its location. `make_durable` lets it survive a loss of power."""
        location = f"{self.location}/{written.name}"
        try:
            self.files.pipe_file(location, written.content)
        except FileNotFoundError:
            self.files.makedirs(self.location, exist_ok=True)
            self.files.pipe_file(location, written.content)
        return location

    def make_durable(self, locations: Sequence[str]) -> None:
        """Wait until these files survive a loss of power: of many at once, which a disk takes in the time of a few."""
        if is_local(self.files) and len(locations) > _THREADS:
            with ThreadPoolExecutor(_THREADS) as pool:
                list(pool.map(partial(sync, self.files), locations))
        else:
            for location in locations:
                sync(self.files, location)

    def document(self, location: str) -> Document:
        """The document at the location that a pointer has. Raises MetadataLost where it is none."""
        try:
            document: Document = json.loads(self.read(location))
            missing = {"snapshots", "refs", "snapshot-log", "metadata-log", "properties"} - document.keys()
        except (ValueError, AttributeError) as error:
            raise MetadataLost(f"{location} is no metadata of a table: {error}") from error
        if missing or "varve.columns" not in document["properties"]:
            raise MetadataLost(f"{location} was not written by Varve")
        return document

    def keep(self, document: Document, version: int) -> str:
        """Write a document, and return its location as a pointer has it."""
        text = json.dumps(document, separators=(",", ":"))
        location = self.write(Written(f"{version:05d}-{uuid.uuid4()}{DOCUMENT}", text.encode()))
        # It is the last file of each change: with it the names of those that it refers to are on disk.
        self.make_durable([location, self.location, self.location.rpartition("/")[0]])
        return address(location)


def version_of(location: str) -> int:
    """How many documents there were before the one at this location."""
    return int(location.rpartition("/")[2].partition("-")[0])


# Of each data file of a folder: its path, its size, and its rows where the folder has several files.
Listed = dict[str, list[tuple[str, int, int | None]]]


def listed(layout: Layout, locations: Iterable[str]) -> Listed:
    """The data files of batch folders; an empty list for a folder that is not there."""
    files, _ = open_files(layout.root)

    if "://" not in layout.root:
        return {location: _listed_here(location) for location in locations}

    def look(location: str) -> list[tuple[str, int, int | None]]:
        try:
            entries = [each for each in files.ls(location, detail=True) if each["name"].endswith(".parquet")]
        except FileNotFoundError:
            return []
        return [
            (
                f"{location}/{each['name'].rpartition('/')[2]}",
                each["size"],
                footers.footer_rows(files, each["name"]) if len(entries) > 1 else None,
            )
            for each in entries
        ]

    chosen = list(locations)
    with ThreadPoolExecutor(_THREADS) as pool:
        return dict(zip(chosen, pool.map(look, chosen), strict=True))


def _listed_here(location: str) -> list[tuple[str, int, int | None]]:
    """The same of a folder of this machine, where a thousand of them take a tenth of the time."""
    try:
        with os.scandir(location) as entries:
            files = [
                (f"{location}/{entry.name}", entry.stat().st_size)
                for entry in entries
                if entry.name.endswith(".parquet")
            ]
    except FileNotFoundError:
        return []
    if len(files) == 1:
        return [(*files[0], None)]
    here, _ = open_files(location)
    return [(path, size, footers.footer_rows(here, path)) for path, size in files]


def data_files(
    batches: Iterable[Batch | CurrentFolder], found: Listed, bounds: Mapping[str, Mapping[str, tuple[str, str]]]
) -> list[DataFile]:
    """The data files of batches that were `listed`.

    `bounds` has those of batches by partition, which are taken for the files of batches that have one file.
    """
    return [
        DataFile(path, batch.partition, batch.rows, size, bounds.get(batch.partition, {}))
        if rows is None
        else DataFile(path, batch.partition, rows, size)
        for batch in batches
        for path, size, rows in found[batch.location]
    ]


def unfollowed_batches(layout: Layout, document: Document, batches: Iterable[Batch | CurrentFolder]) -> list[str]:
    """What of batches Iceberg's readers would read wrong by a document: their types, and their partition columns.

    The types are those of their descriptions. The oldest batches are asked first, and no others where that is enough.
    """
    files, _ = open_files(layout.root)
    declared, names = declared_types(document), partition_types(document).keys()

    def look(batch: Batch | CurrentFolder) -> list[str]:
        if (columns_of_it := [name for name, _ in parse_path(batch.partition)]) != [*names]:
            of_batch, of_table = ", ".join(columns_of_it), ", ".join(names)
            return [f"A batch has the partition columns ({of_batch}), and the table has ({of_table})."]
        try:
            columns = columns_of(manifest.read(files, batch.location).declaration).data
        except (FileNotFoundError, VarveError):
            # The doctor says what is wrong with the folder.
            return []
        return unfollowed({column.name: str(column.type) for column in columns}, declared)

    oldest_first = sorted(batches, key=lambda batch: batch.batch_id)
    with ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, len(oldest_first), _ASKED_AT_ONCE):
            answers = pool.map(look, oldest_first[start : start + _ASKED_AT_ONCE])
            if problems := {problem for answer in answers for problem in answer}:
                return sorted(problems)
    return []
