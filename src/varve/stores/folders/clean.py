"""What a sweep of the lake needs: which folders no batch of the catalog names, and their deletion.

Not here: which batches may go (varve/catalog/history/history.py) and when (varve/cli/batches/sweep.py).
"""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from varve.model.errors import VarveError
from varve.model.inventory import Leftover
from varve.services.files import open_files
from varve.stores.folders.layout import BATCH_COLUMN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varve.stores.folders.layout import Layout

_BATCH_PREFIX = f"{BATCH_COLUMN}="
# Where Spark's committers stage a job's files: the dynamic overwrite's, and the plain one's.
_STAGING = (".spark-staging-", "_temporary")
_THREADS = 8


def units(layout: Layout) -> list[Leftover]:
    """Every batch folder, and every staging folder of a Spark job outside of them, by one walk over the root."""
    files, root = open_files(layout.root)
    sizes: dict[str, int] = {}
    changed: dict[str, dt.datetime] = {}
    owners: dict[str, str] = {}
    for name, entry in _walk(files, root):
        steps = name.split("/")
        place = next((at for at, step in enumerate(steps) if _is_unit(step)), None)
        if place is None or place < 2:
            continue
        folder = "/".join(steps[: place + 1])
        owners[folder] = ".".join(steps[:2])
        sizes[folder] = sizes.get(folder, 0) + (entry.get("size") or 0 if entry["type"] == "file" else 0)
        if (when := _changed_at(entry)) is not None:
            changed[folder] = max(when, changed.get(folder, when))
    return [
        Leftover(f"{layout.root}/{folder}", owners[folder], size, changed.get(folder))
        for folder, size in sorted(sizes.items())
    ]


def batch_of(location: str) -> int | None:
    """The batch id of a batch folder; None for a staging folder."""
    digits = location.rsplit("/", 1)[-1].removeprefix(_BATCH_PREFIX)
    return int(digits) if digits.isdecimal() else None


def remove(layout: Layout, locations: Sequence[str]) -> None:
    """Delete these folders with all that is in them. Raises VarveError for one that is no batch's and no staging's."""
    for location in locations:
        inside = location.startswith(f"{layout.root}/") and ".." not in location.split("/")
        if not inside or not _is_unit(location.rsplit("/", 1)[-1]):
            raise VarveError(f"{location} is no batch folder of the lake {layout.root}. Nothing was deleted.")
    files, _ = open_files(layout.root)

    def remove_one(location: str) -> None:
        try:
            files.rm(location, recursive=True)
        except FileNotFoundError:
            if files.exists(location):
                # Another sweep is deleting inside; what it leaves, the next one takes.
                raise

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(remove_one, locations))


def _walk(files: Any, root: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every file and folder under the root with its path from there; what vanishes meanwhile is left out."""
    prefix = len(root.rstrip("/")) + 1
    for name, entry in files.find(root, withdirs=True, detail=True).items():
        yield name[prefix:], entry


def _is_unit(step: str) -> bool:
    return step.startswith((_BATCH_PREFIX, *_STAGING))


def _changed_at(entry: dict[str, Any]) -> dt.datetime | None:
    found = entry.get("mtime") or entry.get("LastModified") or entry.get("last_modified")
    if isinstance(found, int | float):
        return dt.datetime.fromtimestamp(found, tz=dt.UTC)
    return found if isinstance(found, dt.datetime) else None
