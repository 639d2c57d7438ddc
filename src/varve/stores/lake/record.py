"""The lake's own record of publishes: `<table>/_varve/<build id>.json`, one small file for each publish.

A lost catalog is rebuilt from it. The newest batch folder alone does not tell which batch is current: the batch may
have failed its expectations, or been rolled back. The files are written after the catalog has committed; where a run
died in between, the next publish writes them. So the record may lag, and never has a publish that did not happen.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

from varve.model.batch import BatchId
from varve.model.errors import VarveError
from varve.model.inventory import Publication
from varve.services.files import open_files, sync
from varve.stores.folders.file_calls import at_once

if TYPE_CHECKING:
    from varve.catalog.catalog import Catalog
    from varve.catalog.history.drops import DroppedDataset
    from varve.stores.folders.layout import Layout

FORMAT = 1
# The kind of the entry that a drop writes: what is older is of a dataset that is no more.
DROP = "drop"


def keep(layout: Layout, catalog: Catalog, dataset: str) -> int:
    """Write the publications that the record does not have yet. Returns how many. Safe to repeat."""
    pending = catalog.unrecorded(dataset)
    if not pending:
        return 0
    files, folder = open_files(layout.record_of(dataset))
    files.makedirs(folder, exist_ok=True)
    for publication in pending:
        text = json.dumps(
            {
                "format": FORMAT,
                "dataset": dataset,
                "build_id": publication.build_id.millis,
                "kind": publication.kind,
                "run_id": publication.run_id,
                "reason": publication.reason,
                "published_at": publication.published_at.isoformat(),
                "partitions": publication.partitions,
            }
        )
        _write(files, f"{folder}/{publication.build_id}.json", text)
    catalog.recorded(dataset, pending)
    return len(pending)


def keep_drop(layout: Layout, dropped: DroppedDataset) -> None:
    """Write that the dataset was dropped. Safe to repeat."""
    files, folder = open_files(layout.record_of(dropped.name))
    if not files.exists(layout.table_of(dropped.name)):
        return
    files.makedirs(folder, exist_ok=True)
    text = json.dumps(
        {
            "format": FORMAT,
            "dataset": dropped.name,
            "build_id": dropped.number.millis,
            "kind": DROP,
            "run_id": f"drop by {dropped.dropped_by}",
            "reason": "",
            "published_at": dropped.number.started.isoformat(),
            "partitions": {},
        }
    )
    _write(files, f"{folder}/{dropped.number}.json", text)


def forget_drop(layout: Layout, dropped: DroppedDataset, *, with_folders: bool) -> None:
    """Delete the entries of a dropped dataset; with `with_folders` also its folders where they are empty then."""
    files, folder = open_files(layout.record_of(dropped.name))
    entries = files.ls(folder, detail=False, refresh=True) if files.exists(folder) else []
    numbers = {entry: entry.rsplit("/", 1)[-1].partition(".")[0] for entry in entries}
    at_once(files.rm, [entry for entry, number in numbers.items()
                       if number.isdecimal() and int(number) <= dropped.number.millis])  # fmt: skip
    _, table = open_files(layout.table_of(dropped.name))
    if with_folders and files.exists(table) and not files.find(table):
        files.rm(table, recursive=True)


def _write(files: Any, name: str, text: str) -> None:
    # Written under another name first: a crash must not leave half a file.
    with files.open(f"{name}.new", "w", encoding="utf-8") as file:
        file.write(text)
    sync(files, f"{name}.new")
    files.mv(f"{name}.new", name)


def read(layout: Layout, dataset: str) -> list[Publication]:
    """The whole record, oldest first. Raises VarveError for a file that cannot be understood."""
    files, folder = open_files(layout.record_of(dataset))
    if not files.exists(folder):
        return []
    entries = [entry for entry in files.ls(folder, detail=False, refresh=True) if entry.endswith(".json")]
    publications = at_once(lambda entry: _publication(files, entry), entries)
    return sorted(publications, key=lambda publication: publication.build_id)


def _publication(files: Any, entry: str) -> Publication:
    with files.open(entry, "r", encoding="utf-8") as file:
        text = file.read()
    try:
        fields = json.loads(text)
        return Publication(
            BatchId(int(fields["build_id"])),
            fields["kind"],
            fields["run_id"],
            fields["reason"],
            dt.datetime.fromisoformat(fields["published_at"]),
            fields["partitions"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise VarveError(
            f"{entry} is no record of a publish: {type(error).__name__} {error}. Nothing was changed. "
            "Put it back from a copy, or remove it: its partitions then keep what was current before."
        ) from error
