"""Finds files below the landing root that no dataset reads, as where the name of a folder is misspelt.

Not here: files in the folder of a dataset that cannot be taken (listing.py), which are a state of that dataset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.services.files import open_files

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from fsspec import AbstractFileSystem


def unread_folders(root: str, read: Collection[str]) -> list[str]:
    """The folders below the landing root that hold something, and of which no dataset is read.

    Args:
        root: the landing root; where it does not exist, it has no such folders.
        read: the names of all datasets that files arrive for, also of other projects.

    Returns paths without the root: `shop/sale` where only `shop.sales` is read, `shop` for files that lie in it and not
    in the folder of a dataset, and "" for the root itself. Hidden names, and those that begin with `_`, do not count.
    """
    files, path = open_files(root)
    top = dict(_entries(files, path))
    unread = [""] if "file" in top.values() else []
    for db, kind in top.items():
        if kind != "directory":
            continue
        inside = dict(_entries(files, f"{path}/{db}"))
        unread += [db] if "file" in inside.values() else []
        unread += [
            f"{db}/{table}"
            for table, table_kind in inside.items()
            if table_kind == "directory" and f"{db}.{table}" not in read
            if any(_entries(files, f"{path}/{db}/{table}"))
        ]
    return unread


def _entries(files: AbstractFileSystem, folder: str) -> Iterator[tuple[str, str]]:
    """Name and kind of what is visible in a folder; nothing where we may not look, as below `lost+found`."""
    try:
        entries = files.ls(folder, detail=True, refresh=True)
    except (FileNotFoundError, PermissionError):
        return
    for entry in entries:
        name = entry["name"].rstrip("/").rsplit("/", 1)[-1]
        if not name.startswith((".", "_")):
            yield name, entry["type"]
