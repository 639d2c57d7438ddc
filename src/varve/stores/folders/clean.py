"""Lists and deletes batch folders, for sweeps.

Not here: which batches may be deleted (varve/catalog/history/history.py) and when (varve/cli/batches/sweep.py).
"""

from __future__ import annotations

import datetime as dt
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from varve.catalog.history.history import History
from varve.model.errors import VarveError
from varve.model.inventory import Leftover
from varve.services.files import open_files, renames_cheaply
from varve.stores.folders.file_calls import at_once
from varve.stores.folders.layout import BATCH_COLUMN, TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from varve.catalog.catalog import Catalog
    from varve.stores.folders.layout import Layout

_BATCH_PREFIX = f"{BATCH_COLUMN}="
# The folders in which a job's files are staged: of one table's jobs each has one in `_temporary`.
_STAGING = ".spark-staging-"
# How many levels of folders a table is below the root: its database, and itself.
_TABLES = 2
# Beside the databases, whose names begin with a letter, a root may have folders that are no table's: they begin so.
_OF_OTHERS = "_"


def units(layout: Layout, *, kept: Callable[[], Collection[str]] = tuple) -> list[Leftover]:
    """Every batch folder, and every staging folder of a Spark job that is in none, but those that are `kept`.

    Which are kept is asked after all folders were listed: a build that begins in between then counts as living. In an
    object store one listing has all files; elsewhere the folders of each level are listed many at once, and of what is
    kept nothing is listed.
    """
    files, root = open_files(layout.root)
    if renames_cheaply(layout.root):
        folders = _unit_folders(files, root)
        skipped = set(kept())
        wanted = [folder for folder in folders if f"{layout.root}/{folder[0]}" not in skipped]
        found = at_once(lambda folder: _measured(layout, files, root, *folder), wanted)
        return sorted((unit for unit in found if unit is not None), key=lambda unit: unit.location)
    listed = _grouped(layout, files, root)
    skipped = set(kept())
    return [unit for unit in listed if unit.location not in skipped]


def kept_folders(layout: Layout, catalog: Catalog) -> set[str]:
    """The folders of all batches whose data exists, or may be written right now."""
    return {layout.at(dataset, path, batch_id) for dataset, path, batch_id, _ in History(catalog.connection).kept()}


def batch_of(location: str) -> int | None:
    """The batch id of a batch folder; None for a staging folder."""
    _, _, digits = location.rsplit("/", 1)[-1].partition(_BATCH_PREFIX)
    return int(digits) if digits.isdecimal() else None


def refuse_others(layout: Layout, locations: Sequence[str]) -> None:
    """Raise VarveError for a location that is no batch and no staging folder."""
    for location in locations:
        inside = location.startswith(f"{layout.root}/") and ".." not in location.split("/")
        if not inside or not _is_unit(*location.rsplit("/", 2)[1:]):
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

    at_once(remove_one, locations)


def _unit_folders(files: Any, root: str) -> list[tuple[str, dict[str, Any]]]:
    """The path below the root of each batch and staging folder, and its entry in a listing; what is in one is not."""
    prefix, level, found = len(root.rstrip("/")) + 1, [root], list[tuple[str, dict[str, Any]]]()
    depth = 0
    while level:
        entries = [entry for listed in at_once(partial(_listed, files), level) for entry in listed]
        folders = [entry for entry in entries if entry["type"] == "directory"]
        # Below a root come databases, and tables in them: a folder of that name is no unit there.
        units_here = [entry for entry in folders if depth >= _TABLES and _is_unit(*_last(entry))]
        found += [(str(entry["name"])[prefix:], entry) for entry in units_here]
        level = [
            str(entry["name"]) for entry in folders
            if not _is_unit(*_last(entry)) and not (depth == 0 and _last(entry)[1].startswith(_OF_OTHERS))
        ]  # fmt: skip
        depth += 1
    return found


def _measured(layout: Layout, files: Any, root: str, folder: str, entry: dict[str, Any]) -> Leftover | None:
    """A folder with the size of its files and the time of its last change; None where it has vanished meanwhile."""
    inside = files.find(f"{root.rstrip('/')}/{folder}", withdirs=True, detail=True).values()
    sizes = [each.get("size") or 0 for each in inside if each["type"] == "file"]
    times = [when for each in (entry, *inside) if (when := _changed_at(each)) is not None]
    return Leftover(f"{layout.root}/{folder}", ".".join(folder.split("/")[:2]), sum(sizes), max(times, default=None))


def _grouped(layout: Layout, files: Any, root: str) -> list[Leftover]:
    """All batch and staging folders of an object store, by one listing of its files."""
    prefix = len(root.rstrip("/")) + 1
    sizes: dict[str, int] = {}
    changed: dict[str, dt.datetime] = {}
    owners: dict[str, str] = {}
    for name, entry in files.find(root, withdirs=True, detail=True).items():
        steps = name[prefix:].split("/")
        unit_index = next((index for index, pair in enumerate(pairwise(["", *steps])) if _is_unit(*pair)), None)
        if unit_index is None or unit_index < _TABLES or steps[0].startswith(_OF_OTHERS):
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


def _listed(files: Any, folder: str) -> list[dict[str, Any]]:
    """What is in a folder; nothing where it has vanished meanwhile, or is a file by now."""
    try:
        return list(files.ls(folder, detail=True, refresh=True))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _last(entry: dict[str, Any]) -> tuple[str, str]:
    """The names of the folder above, and of the folder itself."""
    _, above, name = f"//{entry['name']}".rstrip("/").rsplit("/", 2)
    return above, name


def _is_unit(above: str, name: str) -> bool:
    return name.startswith((_BATCH_PREFIX, _STAGING)) or above == TEMPORARY


def _changed_at(entry: dict[str, Any]) -> dt.datetime | None:
    time = entry.get("mtime") or entry.get("LastModified") or entry.get("last_modified")
    if isinstance(time, int | float):
        return dt.datetime.fromtimestamp(time, tz=dt.UTC)
    return time if isinstance(time, dt.datetime) else None
