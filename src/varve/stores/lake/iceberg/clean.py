"""Takes snapshots away before the folders that they need, and finds metadata that nobody names any more.

Not here: which batches may be deleted (varve/catalog/history/history.py) and when (varve/cli/batches/sweep.py).
"""

from __future__ import annotations

import datetime as dt
import glob
import logging
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from varve.model.errors import VarveError, some
from varve.model.inventory import Leftover
from varve.services.files import open_files
from varve.stores.lake.iceberg import folder as folders
from varve.stores.lake.iceberg import manifests, snapshots
from varve.stores.lake.iceberg.folder import MetadataFolder, MetadataLost
from varve.stores.lake.iceberg.pointers import Pointers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from varve.stores.lake.iceberg.tables import IcebergTables

logger = logging.getLogger(__name__)


def is_metadata(location: str) -> bool:
    """Whether a leftover is a file of Iceberg's metadata."""
    return location.rpartition("/")[0].endswith(f"/{folders.NAME}")


def let_go(tables: IcebergTables, dataset: str, locations: Sequence[str]) -> int:
    """Take every snapshot away that has files in these batch folders, with its names. Returns how many there were.

    Raises VarveError where readers are still shown one of the folders.
    """
    connection = tables.catalog.connection
    gone, kept = set[int](), set[int]()
    with connection.transaction():
        for environment in Pointers(connection).owners(dataset):
            pointers = Pointers(connection, environment)
            pointer = pointers.lock(dataset)
            if pointer.written is None:
                continue
            table_folder = tables.folder(dataset)
            try:
                document = table_folder.document(pointer.written)
                needing = _needing(table_folder, document, set(locations))
            except MetadataLost:
                # A reader of lost metadata reads nothing; the doctor says so.
                continue
            if document.get("current-snapshot-id") in needing and pointer.location is not None:
                raise VarveError(
                    f"{dataset}: its Iceberg table still shows a batch that is to be swept. Nothing of it was deleted. "
                    f"varve repair {dataset} shows what is current; then sweep again."
                )
            changed = snapshots.without(document, needing)
            if changed is not document:
                location = table_folder.keep(
                    snapshots.logged(changed, pointer.written, 1), folders.version_of(pointer.written) + 1
                )
                pointers.rewrite(dataset, location)
            gone |= needing
            kept |= {each["snapshot-id"] for each in changed["snapshots"]}
        if gone:
            Pointers(connection).forget_snapshots(dataset, sorted(kept), everywhere=True)
    return len(gone)


def leftovers(tables: IcebergTables) -> Iterator[Leftover]:
    """The files of metadata that no table, and no snapshot that is kept, names."""
    files, root = open_files(tables.layout.root)
    for table_folder in files.glob(f"{glob.escape(root)}/*/*/{folders.NAME}"):
        db, table = table_folder.rstrip("/").split("/")[-3:-1]
        dataset = f"{db}.{table}"
        looked = dt.datetime.now(dt.UTC)
        shown = {location.rpartition("/")[2] for location in Pointers(tables.catalog.connection).roots(dataset)}
        # The files are listed first: what is committed in between is named, then.
        entries = files.ls(table_folder, detail=True, refresh=True)
        try:
            names = _named(tables, dataset)
        except MetadataLost as error:
            # What the rest of a damaged table is worth, a person must say.
            logger.warning("%s: metadata of its Iceberg tables is lost, and none of it is swept: %s.", dataset, error)
            continue
        own = tables.folder(dataset)
        by_name = {entry["name"].rpartition("/")[2]: entry for entry in entries}
        written_at = {name: _changed_at(entry) for name, entry in by_name.items()}
        # What was replaced in between has no successor in the list.
        named_until = _named_until(own, written_at, names, dict.fromkeys(shown - names, looked))
        for name, entry in by_name.items():
            if name not in names:
                changed_at = _changed_at(entry)
                since = _latest(changed_at, named_until.get(name, changed_at))
                yield Leftover(f"{own.location}/{name}", dataset, entry["size"] or 0, since, superseded=True)


def remove(tables: IcebergTables, dataset: str, locations: Sequence[str]) -> None:
    """Delete these files of a dataset's metadata, but for those that are named by now. What is missing is fine.

    A publish writes its metadata before it commits. So this waits for every publish under way, and looks again.
    """
    own = f"{tables.folder(dataset).location}/"
    if others := [each for each in locations if not each.startswith(own) or "/" in each.removeprefix(own)]:
        raise VarveError(f"{some(others)} is no metadata of {dataset}. Nothing was deleted.")
    files, _ = open_files(tables.layout.root)
    connection = tables.catalog.connection
    with connection.transaction():
        Pointers(connection).lock_against_writers(dataset)
        try:
            named = _named(tables, dataset)
        except MetadataLost:
            # What the rest of a damaged table is worth, a person must say.
            return
        for location in locations:
            if location.removeprefix(own) in named:
                continue
            try:
                files.rm(location)
            except FileNotFoundError:
                continue


def _named_until(
    table_folder: MetadataFolder,
    written_at: Mapping[str, dt.datetime | None],
    named: set[str],
    named_at: Mapping[str, dt.datetime],
) -> dict[str, dt.datetime | None]:
    """Until when a document that is not current was, and each file that one of those leads to; None where unknown.

    A reader has asked where the current document is, and opens it and what it leads to after that: what a publish has
    just replaced is young, however long ago it was written. A document was current at most until the last one of the
    next number was written: of several with one number, some belong to publishes that were rolled back. `named_at` has
    those that were seen to be current later than that.
    """
    by_version: dict[int, list[str]] = {}
    for name in written_at:
        if name.endswith(folders.DOCUMENT) and name.partition("-")[0].isdigit():
            by_version.setdefault(folders.version_of(name), []).append(name)
    following_of = dict(pairwise(sorted(by_version)))
    until: dict[str, dt.datetime | None] = {}
    names_of: dict[int, set[str]] = {}
    for version, documents in sorted(by_version.items()):
        following = following_of.get(version)
        after = [] if following is None else [written_at[name] for name in by_version[following]]
        for document_name in documents:
            if document_name in named:
                continue
            seen_at = [named_at[document_name]] if document_name in named_at else []
            replaced = _latest(written_at[document_name], *after, *seen_at)
            until[document_name] = replaced
            for name in _led_to(table_folder, document_name, names_of):
                until[name] = _latest(replaced, until[name]) if name in until else replaced
    return until


def _led_to(table_folder: MetadataFolder, document_name: str, names_of: dict[int, set[str]]) -> set[str]:
    """The files to which a document leads, as far as they are there; `names_of` keeps those of each snapshot."""
    try:
        snapshots_of_it = table_folder.document(f"{table_folder.location}/{document_name}")["snapshots"]
    except MetadataLost:
        return set()
    for snapshot in snapshots_of_it:
        if snapshot["snapshot-id"] not in names_of:
            # Another sweep may have begun with it.
            with suppress(MetadataLost):
                names_of[snapshot["snapshot-id"]] = _names_of(table_folder, snapshot)
    return set[str]().union(*(names_of.get(snapshot["snapshot-id"], ()) for snapshot in snapshots_of_it))


def _latest(*times: dt.datetime | None) -> dt.datetime | None:
    """The latest; None where one is not known, as that may be any."""
    known = [time for time in times if time is not None]
    return max(known) if len(known) == len(times) else None


def _needing(table_folder: MetadataFolder, document: dict[str, Any], locations: set[str]) -> set[int]:
    """The ids of the snapshots that have a file in one of these folders."""
    by_manifest: dict[str, bool] = {}
    needing = set()
    for snapshot in document["snapshots"]:
        for row in table_folder.records(snapshot["manifest-list"]):
            path = row["manifest_path"]
            if path not in by_manifest:
                by_manifest[path] = any(
                    entry["status"] != manifests.DELETED
                    and entry["data_file"]["file_path"].rpartition("/")[0] in locations
                    for entry in table_folder.records(path)
                )
            if by_manifest[path]:
                needing.add(int(snapshot["snapshot-id"]))
                break
    return needing


def _named(tables: IcebergTables, dataset: str) -> set[str]:
    """The names of all files that a pointer, or a snapshot that is kept, leads to."""
    pointers, table_folder = Pointers(tables.catalog.connection), tables.folder(dataset)
    names, seen = set[str](), set[int]()
    for location in pointers.roots(dataset):
        names.add(location.rpartition("/")[2])
    for location in pointers.shown(dataset):
        for snapshot in table_folder.document(location)["snapshots"]:
            if snapshot["snapshot-id"] not in seen:
                seen.add(snapshot["snapshot-id"])
                names |= _names_of(table_folder, snapshot)
    for snapshot_id, location in pointers.noted(dataset):
        if snapshot_id not in seen and (snapshot := snapshots.current_snapshot(table_folder.document(location))):
            seen.add(snapshot_id)
            names |= _names_of(table_folder, snapshot)
    return names


def _names_of(table_folder: MetadataFolder, snapshot: dict[str, Any]) -> set[str]:
    rows = table_folder.records(snapshot["manifest-list"])
    return {path.rpartition("/")[2] for path in (snapshot["manifest-list"], *(row["manifest_path"] for row in rows))}


def _changed_at(entry: dict[str, Any]) -> dt.datetime | None:
    time = entry.get("mtime") or entry.get("LastModified") or entry.get("last_modified")
    if isinstance(time, int | float):
        return dt.datetime.fromtimestamp(time, tz=dt.UTC)
    return time if isinstance(time, dt.datetime) else None
