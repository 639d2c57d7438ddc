"""`IcebergTables`: publishes that are also Iceberg snapshots, of any number of tables in the catalog's own transaction.

The snapshots of new batches are prepared before the catalog changes, and their documents written before a pointer is
locked. Last, the pointers are locked in the order of the tables' names, so that publishers wait for each other and
never in a circle; where none has moved meanwhile, they move. Where another publish has come between, the snapshots are
prepared once more, under the locks. Where the transaction ends otherwise, only files that nobody names are left.

Not here: what a snapshot has (prepare.py), comparing (examine.py), and removing what nobody reads any more (clean.py).
"""

from __future__ import annotations

import datetime as dt
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from varve.catalog.environments.overlay import EnvironmentCatalog
from varve.model.errors import VarveError, some
from varve.services.distribution import install_command
from varve.stores.lake.iceberg import folder as folders
from varve.stores.lake.iceberg import metadata, snapshots
from varve.stores.lake.iceberg.folder import MetadataFolder, MetadataLost
from varve.stores.lake.iceberg.metadata import NotFollowed
from varve.stores.lake.iceberg.pointers import TURNED_OFF, Pointers
from varve.stores.lake.iceberg.prepare import SnapshotPreparer, differing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from varve.catalog.catalog import Catalog
    from varve.model.batch import Batch, BatchId
    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.stores.folders.layout import Layout
    from varve.stores.lake.iceberg.folder import Listed
    from varve.stores.lake.iceberg.metadata import Document
    from varve.stores.lake.iceberg.pointers import Pointer
    from varve.stores.lake.iceberg.prepare import Prepared
    from varve.stores.lake.iceberg.snapshots import Change

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
        preparer = SnapshotPreparer(self.layout, self.catalog)
        with self.catalog.connection.transaction():
            self.pointers.announce([build.dataset.name for build in shown])
            ahead = [preparer.ahead(build) for build in shown]
            point()
            if others:
                # What nobody moves any more must not be shown as if it were current.
                self.pointers.turn_off(others)
            if shown:
                self._show_prepared(preparer, shown, ahead)
            # Also where production has no table: an environment may have one.
            self._follow_live([build.dataset for build in builds])

    def write_again(self, dataset: Dataset) -> int:
        """Let the table have exactly what is current, by the catalog. Returns in how many partitions it differed.

        A table is made anew where there was none, where its metadata is lost, or where it was hidden and need not be.
        """
        if not self.has(dataset):
            self.pointers.turn_off([dataset.name])
            return 0
        preparer = SnapshotPreparer(self.layout, self.catalog)
        with self.catalog.connection.transaction():
            pointer = self.pointers.lock(dataset.name)
            document, is_new = preparer.document(dataset, pointer)
            try:
                document = metadata.evolved(document, dataset)
            except NotFollowed:
                document, is_new = metadata.first(dataset, self.layout.table(dataset)), True
            current = self.catalog.current(dataset.name)
            found = folders.listed(self.layout, [batch.location for batch in current.values()])
            try:
                different = differing(self.folder(dataset.name), document, current, found)
            except MetadataLost as error:
                logger.warning("%s: its Iceberg table is made anew, without its earlier snapshots: %s.", dataset, error)
                document, is_new, different = metadata.first(dataset, self.layout.table(dataset)), True, list(current)
            # Also where its metadata fits: a rollback to batches of an earlier type hides the table, and leaves that.
            added = [current[path] for path in different if path in current]
            if problems := folders.unfollowed_batches(self.layout, document, added):
                self.pointers.hide(dataset.name, " ".join(problems))
                return 0
            if not is_new:
                # A damaged folder is not shown as if it were whole: readers go on being refused by a file that is gone.
                damaged = _damaged(different, current, found)
                if damaged and pointer.location is None:
                    self.pointers.hide(dataset.name, _hidden_by(damaged))
                    return 0
                different = [path for path in different if path not in damaged]
            if not different and not is_new and pointer.location == pointer.written:
                return 0
            shown = self._move_on(dataset, pointer, document, preparer.change(dataset, current, found, different, None))
            if not self.catalog.environment:
                self.pointers.note_last_publish(dataset.name, shown)
            return max(len(different), 1)

    def name_publishes(self, dataset: str, publishes: Mapping[str, BatchId | None]) -> None:
        """Give the snapshots of these builds tags, or take tags away.

        A build whose snapshot is not in the metadata any more gets none, as none does where all metadata is lost.
        """
        with self.catalog.connection.transaction():
            pointer = self.pointers.of(dataset)
            if pointer is None or pointer.written is None:
                return
            pointer = self.pointers.lock(dataset)
            assert pointer.written is not None, "the row stays"
            table_folder = self.folder(dataset)
            try:
                document = table_folder.document(pointer.written)
            except MetadataLost as error:
                logger.warning(
                    "%s: the metadata of its Iceberg table is lost, and with it all tags: %s.", dataset, error
                )
                return
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
        """Give what is current of all tables one tag, in one transaction. Returns their datasets.

        Raises VarveError where the metadata of one is lost.
        """
        with self.catalog.connection.transaction():
            datasets = self.pointers.datasets()
            for dataset in datasets:
                pointer = self.pointers.lock(dataset)
                if pointer.location is None or pointer.written is None:
                    continue
                table_folder = self.folder(dataset)
                try:
                    document = snapshots.tagged(table_folder.document(pointer.written), name)
                except MetadataLost as error:
                    raise VarveError(
                        f"{dataset}: the metadata of its Iceberg table is lost: {error}. Nothing was named. varve "
                        f"repair {dataset} makes the table anew from its batches, without its earlier snapshots; then "
                        "try again."
                    ) from error
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
        """Let the tables of environments follow that show production in all but a few partitions.

        Whatever an environment has done, production is published: where its table cannot follow, it is hidden.
        """
        connection = self.catalog.connection
        for dataset in () if self.catalog.environment else datasets:
            for environment in self.pointers.live_environments(dataset.name):
                tables = replace(self, catalog=EnvironmentCatalog(connection, environment))
                try:
                    with connection.transaction():
                        problem = tables._follow_production(dataset)
                except Exception as error:  # noqa: BLE001
                    problem = f"It could not follow production: {type(error).__name__}: {error}"
                if problem:
                    logger.warning("%s: its Iceberg table in %s is hidden. %s", dataset, environment, problem)
                    tables.pointers.hide(dataset.name, problem)

    def _follow_production(self, dataset: Dataset) -> str:
        """Let the table of an environment show what production has now. Returns why it cannot; "" where it does.

        The table keeps its own columns: `dataset` is what production declares, of which the environment may have
        another declaration.
        """
        pointer = self.pointers.lock(dataset.name)
        if pointer.written is None or pointer.hidden_because == TURNED_OFF:
            return ""
        document = self.folder(dataset.name).document(pointer.written)
        current = self.catalog.current(dataset.name)
        found = folders.listed(self.layout, [batch.location for batch in current.values()])
        different = differing(self.folder(dataset.name), document, current, found)
        added = [current[path] for path in different if path in current]
        if problems := folders.unfollowed_batches(self.layout, document, added):
            return " ".join(problems)
        declared = metadata.partition_types(metadata.first(dataset, self.layout.table(dataset)))
        if added and metadata.partition_types(document) != declared:
            return "Production has partition columns of other types."
        damaged = _damaged(different, current, found)
        if damaged and pointer.location is None:
            return _hidden_by(damaged)
        different = [path for path in different if path not in damaged]
        if different or pointer.location != pointer.written:
            change = SnapshotPreparer(self.layout, self.catalog).change(dataset, current, found, different, None)
            self._move_on(dataset, pointer, document, change)
        return ""

    def _show_prepared(
        self, preparer: SnapshotPreparer, builds: Sequence[Build], ahead: Sequence[Prepared | None]
    ) -> None:
        """After the catalog has changed: move the tables of these builds, by what was prepared before where it fits."""
        prepared = [
            early if early is not None and preparer.is_right(early) else preparer.prepared(build)
            for build, early in zip(builds, ahead, strict=True)
        ]
        instant = self._instant(builds)
        written = self._written(prepared, instant)
        locked = [self.pointers.lock(build.dataset.name) for build in builds]
        if locked != [each.pointer for each in prepared]:
            # Another publish came between. From here on none can.
            prepared = [
                each if each.pointer == pointer else preparer.prepared(each.build, pointer)
                for each, pointer in zip(prepared, locked, strict=True)
            ]
            written = self._written(prepared, instant)
        for each, change in zip(prepared, written, strict=True):
            self._show(each, change)

    def _instant(self, builds: Sequence[Build]) -> int:
        moments = [self.pointers.published_at(build.dataset.name, build.batch_id.millis) for build in builds]
        return max(milliseconds(moment or self.catalog.instant()) for moment in moments)

    def _written(self, prepared: Sequence[Prepared], instant: int) -> list[tuple[Document, str] | None]:
        """Write the documents; returns each with its location, and None of a table that is shown nothing new.

        One instant for all tables: `TIMESTAMP AS OF` reads them together. A clock may go back, a table may not.
        """
        changes = [(each.document, each.snapshot) for each in prepared if each.document and each.snapshot]
        at = max([instant, *(document["last-updated-ms"] + 1 for document, _ in changes)])
        written: list[tuple[Document, str] | None] = []
        for each in prepared:
            if each.document is None or each.snapshot is None:
                written.append(None)
                continue
            document = snapshots.add(each.document, each.snapshot, at=at, keep=self.keep)
            written.append((document, self._kept(each.build.dataset, each.pointer, document)))
        return written

    def _show(self, prepared: Prepared, written: tuple[Document, str] | None) -> None:
        """Move a pointer that is locked, or hide its table."""
        dataset = prepared.build.dataset
        if written is not None:
            self._move(dataset, *written, prepared.build.batch_id.millis)
        elif prepared.hide_because:
            logger.warning("%s: its Iceberg table is hidden. %s", dataset, prepared.hide_because)
            self.pointers.hide(dataset.name, prepared.hide_because)

    def _kept(self, dataset: Dataset, pointer: Pointer, document: Document) -> str:
        """Write the document that comes after that of a pointer. Returns its location."""
        version = 0
        if pointer.written is not None:
            document = snapshots.logged(document, pointer.written, _LOGGED)
            version = folders.version_of(pointer.written) + 1
        return self.folder(dataset.name).keep(document, version)

    def _move_on(self, dataset: Dataset, pointer: Pointer, document: Document, change: Change) -> int:
        """Show one more snapshot of a table whose pointer is locked, of no publish. Returns its id."""
        snapshot = snapshots.written(self.folder(dataset.name), document, change)
        at = max(milliseconds(self.catalog.instant()), document["last-updated-ms"] + 1)
        document = snapshots.add(document, snapshot, at=at, keep=self.keep)
        self._move(dataset, document, self._kept(dataset, pointer, document))
        return int(document["current-snapshot-id"])

    def _move(self, dataset: Dataset, document: Document, location: str, build_id: int | None = None) -> None:
        self.pointers.move(dataset.name, location)
        at = _EPOCH + document["last-updated-ms"] * _MILLISECOND
        self.pointers.note(dataset.name, document["current-snapshot-id"], build_id, location, at)
        # What has left the table's metadata: a sweep then finds the metadata with which it came.
        self.pointers.forget_snapshots(dataset.name, [each["snapshot-id"] for each in document["snapshots"]])


def _damaged(paths: Sequence[str], current: Mapping[str, Batch], found: Listed) -> set[str]:
    """Those of the partitions whose folders are not as they were published."""
    batches = {path: current[path] for path in paths if path in current}
    return {path for path, batch in batches.items() if sum(size for _, size, _ in found[batch.location]) != batch.size}


def _hidden_by(damaged: set[str]) -> str:
    """Why a hidden table stays so: what it had of these partitions when it was shown last need not be current now."""
    return f"The folders of {some(sorted(damaged))} are not as they were published."


def milliseconds(moment: dt.datetime) -> int:
    """A moment in epoch milliseconds, rounded up: a reader AS OF an earlier millisecond must not see it."""
    return -((_EPOCH - moment) // _MILLISECOND)
