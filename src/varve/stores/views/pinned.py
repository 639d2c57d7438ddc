"""The files of which a batch of others' files consists, as the catalog has them, and whether they are still the same.

Not here: the store (store.py).
"""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from varve.catalog.parts import Parts
from varve.stores.folders.listing import listed_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import psycopg

    from varve.model.batch import Batch, TakenFile

_THREADS = 8
# A batch has one folder nearly always; several where its dataset has fewer partition columns than the table.
_BETWEEN_FOLDERS = "\n"


def location_of(folders: Iterable[str]) -> str:
    """The location of a batch whose files lie in these folders."""
    return _BETWEEN_FOLDERS.join(sorted(folders))


def folders_of(location: str) -> list[str]:
    """The folders of a batch with that location."""
    return [folder for folder in location.split(_BETWEEN_FOLDERS) if folder]


def pinned_files(
    connection: psycopg.Connection, dataset: str, batches: Sequence[Batch]
) -> dict[str, tuple[TakenFile, ...]]:
    """The files of each of these batches, by partition; one batch of each partition."""
    parts = Parts(connection).with_files(dataset, batches)
    return {path: tuple(file for part in batch_parts for file in part.files) for path, batch_parts in parts.items()}


def changes(batches: Sequence[Batch], pinned: Mapping[str, Sequence[TakenFile]]) -> dict[str, str]:
    """By partition, what is not as it was when its batch was published, as a phrase; only those that changed."""
    with ThreadPoolExecutor(_THREADS) as pool:
        changes = pool.map(lambda batch: _change(batch, pinned.get(batch.partition, ())), batches)
        return {batch.partition: change for batch, change in zip(batches, changes, strict=True) if change}


def _change(batch: Batch, pinned: Sequence[TakenFile]) -> str:
    before = {file.name: file.token for file in pinned}
    now = {file.uri: file.state for folder in folders_of(batch.location) for file in listed_files(folder) or ()}
    if gone := sorted(before.keys() - now.keys()):
        return f"{gone[0]} is gone"
    if new := sorted(now.keys() - before.keys()):
        return f"{new[0]} is new"
    written = [uri for uri in sorted(before) if before[uri] != now[uri]]
    if not written:
        return ""
    return f"{written[0]} was written again ({_shown(before[written[0]])}; now {_shown(now[written[0]])})"


def _shown(state: str) -> str:
    """The state of a listed file for people: a local file system says its time as seconds since 1970."""
    size, _, changed = state.partition(", ")
    try:
        time = dt.datetime.fromtimestamp(float(changed), dt.UTC)
    except ValueError:
        return state
    return f"{size}, {time:%Y-%m-%d %H:%M:%S.%f} UTC"
