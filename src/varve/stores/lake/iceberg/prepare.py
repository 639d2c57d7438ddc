"""`SnapshotPreparer`: writes the manifests of a publish's snapshot, which nobody is shown yet.

That is nearly all the work of a publish's Iceberg side, and needs no lock: it goes on from the pointer that is read.
Who moves the pointer compares, and prepares again where another publish has come between (tables.py).

Not here: the documents, whose times only the publish itself gives (snapshots.py).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.stores.lake.iceberg import folder as folders
from varve.stores.lake.iceberg import metadata, snapshots
from varve.stores.lake.iceberg.batches import ShownBatches
from varve.stores.lake.iceberg.folder import MetadataFolder, MetadataLost
from varve.stores.lake.iceberg.metadata import NotFollowed
from varve.stores.lake.iceberg.pointers import TURNED_OFF, Pointer, Pointers
from varve.stores.lake.iceberg.snapshots import Change

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from varve.catalog.catalog import Catalog
    from varve.model.batch import Batch
    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.stores.folders.layout import Layout
    from varve.stores.lake.iceberg.batches import CurrentFolder
    from varve.stores.lake.iceberg.folder import Listed
    from varve.stores.lake.iceberg.metadata import Document

logger = logging.getLogger(__name__)
_NO_TABLE = Pointer(None, None)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a publish shows in one table.

    Attributes:
        pointer: the table's pointer, from which it goes on.
        document: the table's metadata before the snapshot; None where nothing is to be shown.
        snapshot: the snapshot without its time.
        hide_because: why the table is to be hidden; "" where it is not.
    """

    build: Build
    pointer: Pointer
    document: Document | None = None
    snapshot: dict[str, Any] | None = None
    hide_because: str = ""


@dataclass(frozen=True)
class SnapshotPreparer:
    """Prepares snapshots of the tables of the environment whose catalog this is."""

    layout: Layout
    catalog: Catalog

    @property
    def pointers(self) -> Pointers:
        """The pointers of the environment."""
        return Pointers(self.catalog.connection, self.catalog.environment or None)

    @property
    def batches(self) -> ShownBatches:
        """What production has."""
        return ShownBatches(self.catalog.connection)

    def ahead(self, build: Build) -> Prepared | None:
        """Before a publish: what its table shows if all staged batches of the build become current.

        None where that says nothing of the table: a rollback has other batches, and a table that begins has all.
        """
        staged = self.batches.staged(build)
        pointer = self.pointers.of(build.dataset.name)
        if len(staged) != len(build.paths) or pointer is None or self._stays_hidden(pointer, build):
            return None
        document, is_new = self.document(build.dataset, pointer, build)
        try:
            return None if is_new else self._prepared(build, pointer, document, staged)
        except MetadataLost:
            # Said once, by `prepared`.
            return None

    def is_right(self, prepared: Prepared) -> bool:
        """After the catalog has changed: whether all staged batches of the build have become current."""
        build = prepared.build
        if not self.catalog.environment:
            return self.batches.is_current(build)
        current = self.catalog.current(build.dataset.name, build.partitions)
        return {path: batch.batch_id for path, batch in current.items()} == dict.fromkeys(build.paths, build.batch_id)

    def prepared(self, build: Build, pointer: Pointer | None = None) -> Prepared:
        """After the catalog has changed: what the table shows then; `pointer` is the one that is locked, if it is."""
        dataset = build.dataset
        pointer = pointer or self.pointers.of(dataset.name) or _NO_TABLE
        if self._stays_hidden(pointer, build):
            return Prepared(build, pointer)
        document, is_new = self.document(dataset, pointer, build)
        try:
            return self._prepared(
                build, pointer, document, self._current(dataset, None if is_new else build), is_new=is_new
            )
        except MetadataLost as error:
            _warn_of_loss(dataset, error)
            document = metadata.first(dataset, self.layout.table(dataset))
            return self._prepared(build, pointer, document, self._current(dataset, None), is_new=True)

    def document(self, dataset: Dataset, pointer: Pointer, build: Build | None = None) -> tuple[Document, bool]:
        """The document of a table, and whether it must be given everything that is current.

        One of another generation than readers see begins anew: no file of the one before belongs to it. An environment
        may go over from one to the other and back; its table begins anew too where the columns are of types that do not
        follow those of before, as nobody repairs it when all is computed again.
        """
        is_other = build is not None and build.generation is not None
        if is_other and (pointer.written is None or not self.catalog.environment):
            return metadata.first(dataset, self.layout.table(dataset)), True
        location, table_folder = pointer.written, MetadataFolder.of(self.layout, dataset.name)
        if pointer.location not in {location, None}:
            logger.warning(
                "%s: somebody else has moved its Iceberg table to %s. Varve goes on from %s; what the other has "
                "written stays unseen.", dataset, pointer.location, location,
            )  # fmt: skip
        try:
            if location is not None:
                document = table_folder.document(location)
                is_new = pointer.hidden_because == TURNED_OFF
                if self.catalog.environment:
                    is_new = pointer.hidden_because != ""
                    first = metadata.first(dataset, self.layout.table(dataset))
                    fits = metadata.partition_types(document) == metadata.partition_types(first)
                    if not fits or not metadata.is_followed(document, dataset):
                        return first, True
                    # Of another generation its files go, though its columns fit.
                    is_new |= build is not None and metadata.generation_of(document) != _generation(build)
                return document, is_new
            if (base := self.pointers.at_base(dataset.name)) is not None:
                document = table_folder.document(base)
                if metadata.is_followed(document, dataset):
                    # A sweep may have taken the others away: of a base's metadata it keeps what is current there.
                    return snapshots.without(document, {each["snapshot-id"] for each in document["snapshots"]}), True
        except MetadataLost as error:
            _warn_of_loss(dataset, error)
        return metadata.first(dataset, self.layout.table(dataset)), True

    def change(
        self, dataset: Dataset, current: Mapping[str, Batch | CurrentFolder], found: Listed, partitions: Iterable[str],
        build_id: int | None,
    ) -> Change:  # fmt: skip
        """The change after which a table has of these partitions the files of what is current, which were listed."""
        touched = list(partitions)
        batches = [current[path] for path in touched if path in current]
        bounds = {}
        if dataset.lake.bounds:
            ids = {batch.partition: batch.batch_id.millis for batch in batches}
            bounds = self.batches.statistics(dataset.name, ids)
        return Change(touched, folders.data_files(batches, found, bounds), build_id)

    def _prepared(
        self, build: Build, pointer: Pointer, document: Document, current: Mapping[str, Batch | CurrentFolder], *,
        is_new: bool = False,
    ) -> Prepared:  # fmt: skip
        """Raises MetadataLost where a manifest of the snapshot before is gone."""
        dataset = build.dataset
        try:
            document = metadata.evolved(document, dataset)
            if self.catalog.environment:
                document = metadata.of_generation(document, _generation(build))
        except NotFollowed as error:
            return Prepared(build, pointer, hide_because=str(error))
        # Asked before all folders are listed: each publish of an environment does so while its table is hidden.
        begins = is_new and snapshots.current_snapshot(document) is None
        if begins and (problem := self._unfollowed(build, document, current, current)):
            return Prepared(build, pointer, hide_because=problem)
        table_folder = MetadataFolder.of(self.layout, dataset.name)
        found = folders.listed(self.layout, [batch.location for batch in current.values()])
        touched = differing(table_folder, document, current, found) if is_new else build.paths
        if not begins and (problem := self._unfollowed(build, document, current, touched)):
            return Prepared(build, pointer, hide_because=problem)
        change = self.change(dataset, current, found, touched, build.batch_id.millis)
        return Prepared(build, pointer, document, snapshots.written(table_folder, document, change))

    def _unfollowed(
        self, build: Build, document: Document, current: Mapping[str, Batch | CurrentFolder], paths: Iterable[str]
    ) -> str:
        """What readers would read wrong of the batches of these partitions that are not of the build; "" if nothing."""
        older = [current[path] for path in paths if path in current and current[path].batch_id != build.batch_id]
        return " ".join(folders.unfollowed_batches(self.layout, document, older)) if older else ""

    def _stays_hidden(self, pointer: Pointer, build: Build) -> bool:
        """Whether the table stays hidden: its files are of types that readers do not follow, in readers' generation.

        Nobody repairs that of an environment: each publish there looks whether all its files can be shown.
        """
        is_hidden = pointer.hidden_because not in {"", TURNED_OFF}
        return is_hidden and build.generation is None and not self.catalog.environment

    def _current(self, dataset: Dataset, build: Build | None) -> Mapping[str, Batch | CurrentFolder]:
        """What is current of all partitions, or of those of a build."""
        if self.catalog.environment:
            return self.catalog.current(dataset.name, None if build is None else build.partitions)
        return self.batches.current(dataset.name, None if build is None else build.paths)


def differing(
    folder: MetadataFolder, document: Document, current: Mapping[str, Batch | CurrentFolder], found: Listed
) -> list[str]:
    """The partitions in which a table has other files than are current; empty where it has exactly those."""
    shown: dict[str, dict[str, int]] = {}
    snapshot = snapshots.current_snapshot(document)
    for entry in () if snapshot is None else snapshots.entries_of(folder, snapshot):
        file = entry["data_file"]
        path = snapshots.partition_of(document, file["file_path"])
        shown.setdefault(path, {})[file["file_path"]] = file["record_count"]
    wanted = {
        path: {name: batch.rows if rows is None else rows for name, _, rows in found[batch.location]}
        for path, batch in current.items()
    }
    return sorted(path for path in shown.keys() | wanted.keys() if shown.get(path, {}) != wanted.get(path, {}))


def _generation(build: Build) -> str:
    return "" if build.generation is None else str(build.generation)


def _warn_of_loss(dataset: Dataset, error: MetadataLost) -> None:
    logger.warning("%s: its Iceberg table is made anew, without its earlier snapshots: %s.", dataset, error)
