"""Lists and deletes batch folders, for sweeps.

Not here: which batches may be deleted (varve/catalog/history/history.py) and when (varve/cli/batches/sweep.py).
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
# The folders in which Spark's committers stage a job's files: with dynamic overwrite, and without.
_STAGING = (".spark-staging-", "_temporary")
_THREADS = 8


def units(layout: Layout) -> list[Leftover]:
    """Every batch folder, and every staging folder of a Spark job that is in none, by one walk over the root."""
    files, root = open_files(layout.root)
    sizes: dict[str, int] = {}
    changed: dict[str, dt.datetime] = {}
    owners: dict[str, str] = {}
    for name, entry in _walk(files, root):
        steps = name.split("/")
        unit_index = next((index for index, step in enumerate(steps) if _is_unit(step)), None)
        if unit_index is None or unit_index < 2:
            continue
        folder = "/".join(steps[: unit_index + 1])
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


def refuse_others(layout: Layout, locations: Sequence[str]) -> None:
    """Raise VarveError for a location that is no batch and no staging folder."""
    for location in locations:
        inside = location.startswith(f"{layout.root}/") and ".." not in location.split("/")
        if not inside or not _is_unit(location.rsplit("/", 1)[-1]):
            raise VarveError(f"{location} is no batch folder of the lake {layout.root}. Nothing was deleted.")


def remove(layout: Layout, locations: Sequence[str]) -> None:
    """Delete these folders and their contents. Raises VarveError for one that is no batch and no staging folder."""
    refuse_others(layout, locations)
    files, _ = open_files(layout.root)

    def remove_one(location: str) -> None:
        try:
            files.rm(location, recursive=True)
        except FileNotFoundError:
            if files.exists(location):
                # Another sweep is deleting the same folder. The next sweep deletes what it leaves.
                raise

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(remove_one, locations))


def _walk(files: Any, root: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every file and folder under the root with its path below the root, except those that vanish meanwhile."""
    prefix = len(root.rstrip("/")) + 1
    for name, entry in files.find(root, withdirs=True, detail=True).items():
        yield name[prefix:], entry


def _is_unit(step: str) -> bool:
    return step.startswith((_BATCH_PREFIX, *_STAGING))


def _changed_at(entry: dict[str, Any]) -> dt.datetime | None:
    time = entry.get("mtime") or entry.get("LastModified") or entry.get("last_modified")
    if isinstance(time, int | float):
        return dt.datetime.fromtimestamp(time, tz=dt.UTC)
    return time if isinstance(time, dt.datetime) else None
