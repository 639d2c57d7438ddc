"""`IcebergTables`: publishes that are also Iceberg snapshots, of any number of tables in the catalog's own transaction.

The files of new batches are listed before the transaction. In it, after the catalog has changed, the pointers are
locked in the order of the tables' names, so that publishers wait for each other and never in a circle; then the
metadata is written, and the pointers move. Where the transaction ends otherwise, only files that nobody names are left.

Not here: comparing (examine.py), and removing what nobody reads any more (clean.py).
"""

from __future__ import annotations

import datetime as dt
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from varve.catalog.environments.overlay import EnvironmentCatalog
from varve.model.errors import VarveError
from varve.services.distribution import install_command
from varve.stores.lake.iceberg import folder as folders
from varve.stores.lake.iceberg import metadata, snapshots
from varve.stores.lake.iceberg.folder import MetadataFolder, MetadataLost
from varve.stores.lake.iceberg.metadata import NotFollowed
from varve.stores.lake.iceberg.pointers import TURNED_OFF, Pointers
from varve.stores.lake.iceberg.snapshots import Change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from varve.catalog.catalog import Catalog
    from varve.model.batch import Batch, BatchId
    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.stores.folders.layout import Layout
    from varve.stores.lake.iceberg.folder import Listed
    from varve.stores.lake.iceberg.metadata import Document
    from varve.stores.lake.iceberg.pointers import CurrentFolder, Pointer

logger = logging.getLogger(__name__)
_MILLISECOND = dt.timedelta(milliseconds=1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
# So many documents stay in the log of a document.
_LOGGED = 100


@dataclass(frozen=True)
class IcebergTables:
    """The Iceberg side of the lake.

    Attributes:
        default: whether datasets have it that do not say so themselves.
        installed: whether pyiceberg is, without which no dataset has it.
        keep: how many snapshots stay in a table's metadata, at least one.
    """

    layout: Layout
    catalog: Catalog
    default: bool = True
    installed: bool = True
    keep: int = 100

    @property
    def pointers(self) -> Pointers:
        """The pointers of the environment whose catalog this is."""
        return Pointers(self.catalog.connection, self.catalog.environment or None)

    def has(self, dataset: Dataset) -> bool:
        """Whether the dataset is shown as an Iceberg table. Raises VarveError where it must be and cannot."""
        if dataset.lake.iceberg and not self.installed:
            raise VarveError(
                f"{dataset} says ICEBERG ON, and pyiceberg is not installed. Nothing was changed. "
                f"Run: {install_command('iceberg')}, or take the clause out."
            )
        return self.default and self.installed if dataset.lake.iceberg is None else dataset.lake.iceberg

    def folder(self, dataset: str) -> MetadataFolder:
        """The folder of a table's metadata."""
        return MetadataFolder.of(self.layout, dataset)

    def commit(self, builds: Sequence[Build], point: Callable[[], None]) -> None:
        """Call `point`, which changes what is current of these builds' datasets, and move their tables with it."""
        shown = sorted((build for build in builds if self.has(build.dataset)), key=lambda build: build.dataset.name)
        others = [build.dataset.name for build in builds if build not in shown]
        found = self._listed_before(shown)
        with self.catalog.connection.transaction():
            point()
            if others:
                # What nobody moves any more must not be shown as if it were current.
                self.pointers.turn_off(others)
            if not shown:
                return
            pointers = {name: self.pointers.lock(name) for name in sorted({build.dataset.name for build in shown})}
            instant = self._instant(shown)
            documents = {
                build.dataset.name: self._document(build.dataset, pointers, is_other=build.generation is not None)
                for build in shown
            }
            # One instant for all tables: `TIMESTAMP AS OF` reads them together. A clock may go back, a table may not.
            at = max(instant, *(document["last-updated-ms"] + 1 for document, _ in documents.values()))
            for build in shown:
                document, whole = documents[build.dataset.name]
                self._publish(build, pointers[build.dataset.name], document, found, at, whole=whole)
            self._follow_live([build.dataset for build in shown])

    def write_again(self, dataset: Dataset) -> int:
        """Let the table have exactly what is current, by the catalog. Returns in how many partitions it differed.

        A table is made anew where there was none, where its metadata is lost, or where it was hidden and need not be.
        """
        if not self.has(dataset):
            self.pointers.turn_off([dataset.name])
            return 0
        with self.catalog.connection.transaction():
            pointer = self.pointers.lock(dataset.name)
            document, is_new = self._document(dataset, {dataset.name: pointer})
            try:
                document = metadata.evolved(document, dataset)
            except NotFollowed:
                document, is_new = metadata.first(dataset, self.layout.table(dataset)), True
            current = self.catalog.current(dataset.name)
            if is_new and (problems := folders.unfollowed_batches(self.layout, dataset, current.values())):
                self.pointers.hide(dataset.name, " ".join(problems))
                return 0
            found = folders.listed(self.layout, [batch.location for batch in current.values()])
            try:
                different = differing(self.folder(dataset.name), document, current, found)
            except MetadataLost as error:
                logger.warning("%s: its Iceberg table is made anew, without its earlier snapshots: %s.", dataset, error)
                document, is_new, different = metadata.first(dataset, self.layout.table(dataset)), True, list(current)
            if not is_new:
                # A damaged folder is not shown as if it were whole: readers go on being refused by a file that is gone.
                different = [path for path in different if path not in current or _is_whole(current[path], found)]
            if not different and not is_new and pointer.location == pointer.written:
                return 0
            change = self._change(dataset, current, found, different, None)
            at = max(milliseconds(self.catalog.instant()), document["last-updated-ms"] + 1)
            self._move(
                dataset, pointer, snapshots.add(self.folder(dataset.name), document, change, at=at, keep=self.keep)
            )
            return max(len(different), 1)

    def name_publishes(self, dataset: str, publishes: Mapping[str, BatchId | None]) -> None:
        """Give the snapshots of these builds tags, or take tags away.

        A build whose snapshot is not in the metadata any more gets none.
        """
        with self.catalog.connection.transaction():
            pointer = self.pointers.of(dataset)
            if pointer is None or pointer.written is None:
                return
            pointer = self.pointers.lock(dataset)
            assert pointer.written is not None, "the row stays"
            table_folder = self.folder(dataset)
            document = table_folder.document(pointer.written)
            present = {each["snapshot-id"] for each in document["snapshots"]}
            refs = dict(document["refs"])
            for name, build_id in publishes.items():
                snapshot = None if build_id is None else self.pointers.snapshot_of(dataset, build_id.millis)
                refs.pop(name, None)
                if snapshot in present:
                    refs[name] = {"snapshot-id": snapshot, "type": "tag"}
            if refs == document["refs"]:
                return
            changed = snapshots.logged(document | {"refs": refs}, pointer.written, _LOGGED)
            self.pointers.rewrite(dataset, table_folder.keep(changed, folders.version_of(pointer.written) + 1))

    def name_current(self, name: str) -> list[str]:
        """Give what is current of all tables one tag, in one transaction. Returns their datasets."""
        with self.catalog.connection.transaction():
            datasets = self.pointers.datasets()
            for dataset in datasets:
                pointer = self.pointers.lock(dataset)
                if pointer.location is None or pointer.written is None:
                    continue
                table_folder = self.folder(dataset)
                document = snapshots.tagged(table_folder.document(pointer.written), name)
                changed = snapshots.logged(document, pointer.written, _LOGGED)
                self.pointers.rewrite(dataset, table_folder.keep(changed, folders.version_of(pointer.written) + 1))
        return datasets

    def remove_metadata(self, dataset: str) -> None:
        """Delete all metadata of a dropped dataset."""
        table_folder = self.folder(dataset)
        if self.pointers.of(dataset) is None and table_folder.files.exists(table_folder.location):
            table_folder.files.rm(table_folder.location, recursive=True)

    def drop(self, dataset: str) -> None:
        """In the transaction that drops a dataset: nobody is shown its tables any more."""
        self.pointers.drop(dataset)

    def _follow_live(self, datasets: Sequence[Dataset]) -> None:
        """Let the tables of environments follow that show production in all but a few partitions."""
        for dataset in () if self.catalog.environment else datasets:
            for environment in self.pointers.live_environments(dataset.name):
                catalog = EnvironmentCatalog(self.catalog.connection, environment)
                replace(self, catalog=catalog).write_again(dataset)

    def _listed_before(self, builds: Sequence[Build]) -> Listed:
        """The files of the batches that will be current, as far as that can be known before the transaction."""
        locations = set()
        for build in builds:
            pointer = self.pointers.of(build.dataset.name)
            locations |= {self.layout.batch(build.dataset, key, build.batch_id) for key in build.partitions}
            if pointer is None:
                locations |= {batch.location for batch in self.catalog.current(build.dataset.name).values()}
        return {location: files for location, files in folders.listed(self.layout, locations).items() if files}

    def _instant(self, builds: Sequence[Build]) -> int:
        moments = [self.pointers.published_at(build.dataset.name, build.batch_id.millis) for build in builds]
        return max(milliseconds(moment or self.catalog.instant()) for moment in moments)

    def _document(
        self, dataset: Dataset, pointers: Mapping[str, Pointer], *, is_other: bool = False
    ) -> tuple[Document, bool]:
        """The document of a table, and whether it must be given everything that is current.

        One of another generation than readers see begins anew: no file of the one before belongs to it.
        """
        pointer = pointers[dataset.name]
        if is_other and (pointer.written is None or not self.catalog.environment):
            return metadata.first(dataset, self.layout.table(dataset)), True
        location, table_folder = pointer.written, self.folder(dataset.name)
        if pointer.location not in {location, None}:
            logger.warning(
                "%s: somebody else has moved its Iceberg table to %s. Varve goes on from %s; what the other has "
                "written stays unseen.", dataset, pointer.location, location,
            )  # fmt: skip
        try:
            if location is not None:
                return table_folder.document(location), pointer.hidden_because == TURNED_OFF
            if (base := self.pointers.at_base(dataset.name)) is not None:
                return table_folder.document(base), True
        except MetadataLost as error:
            logger.warning("%s: its Iceberg table is made anew, without its earlier snapshots: %s.", dataset, error)
        return metadata.first(dataset, self.layout.table(dataset)), True

    def _publish(
        self, build: Build, pointer: Pointer, document: Document, found: Listed, at: int, *, whole: bool
    ) -> None:
        dataset = build.dataset
        if pointer.hidden_because not in {"", TURNED_OFF} and build.generation is None:
            return
        try:
            document = metadata.evolved(document, dataset)
        except NotFollowed as error:
            logger.warning("%s: its Iceberg table is hidden. %s", dataset, error)
            self.pointers.hide(dataset.name, str(error))
            return
        table_folder = self.folder(dataset.name)
        current = self._current(dataset, None if whole else build)
        found = found | folders.listed(
            self.layout, [batch.location for batch in current.values() if batch.location not in found]
        )
        touched = differing(table_folder, document, current, found) if whole else build.paths
        older = [current[path] for path in touched if path in current and current[path].batch_id != build.batch_id]
        if older and (problems := folders.unfollowed_batches(self.layout, dataset, older)):
            logger.warning("%s: its Iceberg table is hidden. %s", dataset, " ".join(problems))
            self.pointers.hide(dataset.name, " ".join(problems))
            return
        change = self._change(dataset, current, found, touched, build.batch_id.millis)
        try:
            changed = snapshots.add(table_folder, document, change, at=at, keep=self.keep)
        except MetadataLost as error:
            logger.warning("%s: its Iceberg table is made anew, without its earlier snapshots: %s.", dataset, error)
            current = self._current(dataset, None)
            found = folders.listed(self.layout, [batch.location for batch in current.values()])
            change = self._change(dataset, current, found, list(current), build.batch_id.millis)
            fresh = metadata.first(dataset, self.layout.table(dataset))
            changed = snapshots.add(table_folder, fresh, change, at=at, keep=self.keep)
        self._move(dataset, pointer, changed, build.batch_id.millis)

    def _current(self, dataset: Dataset, build: Build | None) -> Mapping[str, Batch | CurrentFolder]:
        """What is current of all partitions, or of those of a build."""
        if self.catalog.environment:
            return self.catalog.current(dataset.name, None if build is None else build.partitions)
        return self.pointers.current(dataset.name, None if build is None else build.paths)

    def _change(
        self, dataset: Dataset, current: Mapping[str, Batch | CurrentFolder], found: Listed, partitions: Iterable[str],
        build_id: int | None,
    ) -> Change:  # fmt: skip
        touched = list(partitions)
        batches = [current[path] for path in touched if path in current]
        bounds = {}
        if dataset.lake.bounds:
            ids = {batch.partition: batch.batch_id.millis for batch in batches}
            bounds = self.pointers.statistics(dataset.name, ids)
        return Change(touched, folders.data_files(batches, found, bounds), build_id)

    def _move(self, dataset: Dataset, pointer: Pointer, document: Document, build_id: int | None = None) -> None:
        version = 0
        if pointer.written is not None:
            document = snapshots.logged(document, pointer.written, _LOGGED)
            version = folders.version_of(pointer.written) + 1
        location = self.folder(dataset.name).keep(document, version)
        self.pointers.move(dataset.name, location)
        at = _EPOCH + document["last-updated-ms"] * _MILLISECOND
        self.pointers.note(dataset.name, document["current-snapshot-id"], build_id, location, at)


def _is_whole(batch: Batch, found: Listed) -> bool:
    return sum(size for _, size, _ in found[batch.location]) == batch.size


def milliseconds(moment: dt.datetime) -> int:
    """A moment in epoch milliseconds, rounded up: a reader AS OF an earlier millisecond must not see it."""
    return -((_EPOCH - moment) // _MILLISECOND)


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
