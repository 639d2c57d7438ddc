"""Retention of event batches: they are kept for a while, so that people can look at them, then removed if applied.

Never removed are batches that are not applied, and the manifest of the last batch (it records up to where the source
was captured). Which change files were taken is never forgotten: many manifests of old ones become one list.

Not here: the batches of datasets (varve/stores/folders/clean.py).
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from varve.services.files import open_files

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from varve.cdc.capture.batch_writer import EventBatch
    from varve.cdc.capture.event_log import EventLog
    from varve.cdc.capture.positions import Position

# A folder without a manifest was left by a crash, or is being written right now.
_ABANDONED_SECONDS = 86_400.0
_MARGIN_SECONDS = 600.0
# So many old change files keep the manifests that they have.
FEW_FILES = 100
_FOLDER = re.compile(r"(generation|events|quarantine)=([0-9]+)")


def sweep(log: EventLog, position: Position, keep_seconds: float) -> int:
    """Remove old batches that are not needed; returns how many were removed. The caller holds the dataset's lock."""
    files, root = open_files(log.folder)
    if not files.exists(root):
        return 0
    removed = 0
    for folder in files.ls(root, detail=False, refresh=True):
        match = _FOLDER.fullmatch(folder.rstrip("/").rsplit("/", 1)[-1])
        # An earlier generation ended with the snapshot that began this one; it is removed when that is applied and old.
        if match and int(match[2]) < position.generation and _old_generation(log, position, keep_seconds):
            files.rm(folder, recursive=True)
            removed += 1
    listed = log.listed(position.generation)
    removed += _batches(log, position, keep_seconds, {batch.location for batch in listed})
    _list_taken(log, position, keep_seconds, listed)
    log.copy_manifests(position.generation)
    return removed + _leftovers(log, position)


def removable(log: EventLog, position: Position, keep_seconds: float) -> int:
    """The last LSN of the batches of events that the next `sweep` may remove; -1: it removes none."""
    # A batch may become old enough just before the sweep.
    return max((
        batch.last_lsn for batch in log.batches(position.generation)
        if batch.last_lsn <= position.applied_lsn and batch.age() > keep_seconds - _MARGIN_SECONDS
    ), default=-1)  # fmt: skip


def _old_generation(log: EventLog, position: Position, keep_seconds: float) -> bool:
    batches = log.batches(position.generation)
    return bool(batches) and position.applied_lsn >= batches[0].last_lsn and batches[0].age() > keep_seconds


def _batches(log: EventLog, position: Position, keep_seconds: float, listed: Collection[str]) -> int:
    files, _ = open_files(log.root)
    batches, removed = log.batches(position.generation), 0
    for place, batch in enumerate(batches):
        if batch.last_lsn > position.applied_lsn or batch.age() <= keep_seconds or batch.location in listed:
            continue
        if batch.kind != "file" and place < len(batches) - 1:
            files.rm(batch.location, recursive=True)
            removed += 1
        elif files.exists(batch.data):
            files.rm(batch.data)
            removed += 1
    return removed


def _list_taken(log: EventLog, position: Position, keep_seconds: float, listed: Sequence[EventBatch]) -> None:
    """Put old change files of which no events are kept into the list of their generation; remove their folders.

    Interrupted, it is done again: a file may stand in the list and have its folder still.
    """
    files, _ = open_files(log.root)
    folder = log.generation(position.generation)
    known = {batch.location for batch in listed}
    old = [
        batch for batch in log.batches(position.generation)
        if batch.kind == "file" and batch.location not in known
        and batch.last_lsn <= position.applied_lsn and batch.age() > keep_seconds
    ]  # fmt: skip
    if len(old) >= FEW_FILES:
        log.list_taken(position.generation, [*listed, *old])
        known |= {batch.location for batch in old}
    if not known:
        return
    names = {location.rsplit("/", 1)[-1] for location in known}
    for path in files.ls(open_files(folder)[1], detail=False, refresh=True):
        if path.rstrip("/").rsplit("/", 1)[-1] in names:
            files.rm(path, recursive=True)


def _leftovers(log: EventLog, position: Position) -> int:
    """Remove folders of batches that never got a manifest, and of quarantines that a later apply has replaced."""
    files, root = open_files(log.generation(position.generation))
    known_names = {batch.location.rsplit("/", 1)[-1] for batch in log.batches(position.generation)}
    known_names |= {position.quarantine.rsplit("/", 1)[-1]} if position.quarantine else set()
    removed = 0
    for folder in files.ls(root, detail=False, refresh=True) if files.exists(root) else ():
        name = folder.rstrip("/").rsplit("/", 1)[-1]
        match = _FOLDER.match(name)
        if not match or name in known_names:
            continue
        # A quarantine folder is written under the lock that we hold and is named in the position; its number is an LSN.
        abandoned = match[1] == "quarantine" or time.time() - int(match[2]) / 1_000 > _ABANDONED_SECONDS
        if abandoned:
            files.rm(folder, recursive=True)
            removed += 1
    return removed
