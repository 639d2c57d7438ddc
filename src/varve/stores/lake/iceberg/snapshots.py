"""Adds snapshots to a table's document and takes them away, and says which files a snapshot has.

Not here: Avro (manifests.py), and which files change (prepare.py).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.stores.lake.iceberg import manifests
from varve.stores.lake.iceberg.manifests import ADDED, DELETED, DataFile
from varve.stores.lake.iceberg.metadata import partition_types

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from varve.stores.lake.iceberg.folder import MetadataFolder
    from varve.stores.lake.iceberg.metadata import Document

# What the summary of a snapshot counts, with the words for what came and what went.
_TOTALS = (
    ("data-files", "added", "deleted"),
    ("records", "added", "deleted"),
    ("files-size", "added", "removed"),
)
BUILD = "varve.build"


@dataclass(frozen=True, slots=True)
class Change:
    """What a snapshot changes.

    Attributes:
        partitions: the partitions of which exactly `files` are there afterwards.
        build_id: of the publish; None for a repair.
    """

    partitions: Collection[str]
    files: Sequence[DataFile]
    build_id: int | None = None


def current_snapshot(document: Document) -> dict[str, Any] | None:
    """The snapshot that readers are shown; None where the table has none."""
    current = document.get("current-snapshot-id")
    return next((each for each in document["snapshots"] if each["snapshot-id"] == current), None)


def entries_of(folder: MetadataFolder, snapshot: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """The records of all files that a snapshot has."""
    for row in folder.records(snapshot["manifest-list"]):
        for entry in folder.records(row["manifest_path"]):
            if entry["status"] != DELETED:
                yield entry


def written(folder: MetadataFolder, document: Document, change: Change) -> dict[str, Any]:
    """One more snapshot for a document, whose manifests are written, durably; it has no time yet, and no reader."""
    parent = current_snapshot(document)
    snapshot_id, sequence = random.getrandbits(62), document["last-sequence-number"] + 1
    rows = {}
    if parent is not None:
        listed = folder.records(parent["manifest-list"])
        rows = {manifests.bucket_in(row["manifest_path"]): row for row in listed}
    touched: dict[str, list[dict[str, Any]]] = {manifests.bucket_of(path): [] for path in change.partitions}
    wanted = {file.path: file for file in change.files}
    partitions = set(change.partitions)
    for bucket, entries in touched.items():
        for entry in folder.records(rows[bucket]["manifest_path"]) if bucket in rows else ():
            if entry["status"] == DELETED:
                # An earlier snapshot has said so.
                continue
            kept = manifests.kept_entry(entry, rows[bucket]["sequence_number"])
            path = entry["data_file"]["file_path"]
            if wanted.pop(path, None) is None and partition_of(document, path) in partitions:
                kept |= {"status": DELETED, "snapshot_id": snapshot_id}
            entries.append(kept)
    kinds = partition_types(document)
    for file in wanted.values():
        touched[manifests.bucket_of(file.partition)].append(manifests.entry_of(file, document, kinds, snapshot_id))
    paths = []
    for bucket, entries in touched.items():
        manifest = manifests.manifest(document, bucket, entries)
        paths.append(folder.write(manifest))
        rows[bucket] = manifests.row_of(
            document, paths[-1], entries, size=len(manifest.content), snapshot_id=snapshot_id, sequence=sequence
        )
    alive = [
        row for row in rows.values()
        if row["added_snapshot_id"] == snapshot_id or row["added_files_count"] + row["existing_files_count"]
    ]  # fmt: skip
    parent_id = None if parent is None else parent["snapshot-id"]
    listing = folder.write(manifests.manifest_list(alive, snapshot_id, parent_id, sequence))
    folder.make_durable([*paths, listing])
    return {
        "snapshot-id": snapshot_id, "sequence-number": sequence, "manifest-list": listing,
        "summary": _summary(parent, touched.values(), change.build_id), "schema-id": document["current-schema-id"],
        **({} if parent_id is None else {"parent-snapshot-id": parent_id}),
    }  # fmt: skip


def add(document: Document, snapshot: dict[str, Any], *, at: int, keep: int) -> Document:
    """The document with a snapshot that was `written` for it, and its time in epoch milliseconds.

    Of the earlier snapshots the last `keep - 1` stay, and those with a name.
    """
    snapshot_id = snapshot["snapshot-id"]
    changed = document | {
        "snapshots": [*document["snapshots"], snapshot | {"timestamp-ms": at}],
        "snapshot-log": [*document["snapshot-log"], {"snapshot-id": snapshot_id, "timestamp-ms": at}],
        "refs": document["refs"] | {"main": {"snapshot-id": snapshot_id, "type": "branch"}},
        "current-snapshot-id": snapshot_id,
        "last-sequence-number": snapshot["sequence-number"],
        "last-updated-ms": at,
    }
    named = {ref["snapshot-id"] for ref in changed["refs"].values()}
    return without(changed, {each["snapshot-id"] for each in changed["snapshots"][:-keep]} - named)


def without(document: Document, snapshot_ids: Collection[int]) -> Document:
    """The document without these snapshots, their names and their part of the log; the current one stays."""
    gone = set(snapshot_ids) - {document.get("current-snapshot-id")}
    if not gone:
        return document
    log: list[dict[str, Any]] = []
    for entry in document["snapshot-log"]:
        # A log with gaps would answer AS OF with a snapshot that is not there.
        log = [] if entry["snapshot-id"] in gone else [*log, entry]
    return document | {
        "snapshots": [each for each in document["snapshots"] if each["snapshot-id"] not in gone],
        "snapshot-log": log,
        "refs": {name: ref for name, ref in document["refs"].items() if ref["snapshot-id"] not in gone},
    }


def tagged(document: Document, name: str) -> Document:
    """The document with a name for what is current now."""
    ref = {"snapshot-id": document["current-snapshot-id"], "type": "tag"}
    return document | {"refs": document["refs"] | {name: ref}}


def logged(document: Document, location: str, keep: int) -> Document:
    """The document with the location of the one before it."""
    entry = {"metadata-file": location, "timestamp-ms": document["last-updated-ms"]}
    return document | {"metadata-log": [*document["metadata-log"], entry][-keep:]}


def partition_of(document: Document, path: str) -> str:
    """The partition of a data file, in the catalog's spelling, by the folder of its batch."""
    root = document["location"].removeprefix("file://")
    return path.removeprefix("file://").removeprefix(f"{root}/").rsplit("/", 2)[0]


def _summary(
    parent: dict[str, Any] | None, touched: Iterable[list[dict[str, Any]]], build_id: int | None
) -> dict[str, str]:
    counts = {status: [0, 0, 0] for status in (ADDED, DELETED)}
    for entries in touched:
        for entry in entries:
            if entry["status"] in counts:
                file, count = entry["data_file"], counts[entry["status"]]
                count[0], count[1] = count[0] + 1, count[1] + file["record_count"]
                count[2] += file["file_size_in_bytes"]
    operation = "append" if not counts[DELETED][0] else "overwrite" if counts[ADDED][0] else "delete"
    summary = {"operation": operation} | ({} if build_id is None else {BUILD: str(build_id)})
    for place, (what, came, went) in enumerate(_TOTALS):
        plus, minus = counts[ADDED][place], counts[DELETED][place]
        before = int(parent["summary"].get(f"total-{what}", 0)) if parent else 0
        summary |= {
            f"{came}-{what}": str(plus),
            f"{went}-{what}": str(minus),
            f"total-{what}": str(before + plus - minus),
        }
    return summary
