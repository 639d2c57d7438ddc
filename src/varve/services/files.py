"""The file systems that hold lake and landing folders, as Python sees them (fsspec); Spark sees them through Hadoop.

Not here: which folders there are (stores/folders/layout.py).
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec

from varve.model.errors import VarveError
from varve.services.distribution import install_command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# File systems by Hadoop's names. All others are object stores, where a rename is a copy and a folder is a prefix.
_WITH_RENAME = frozenset({"file", "local", "hdfs", "viewfs", "abfs", "abfss"})
# From so many files on, one call for the whole file system is cheaper than one for each: 17 ms instead of 240 for 300.
_MANY = 64


def open_files(location: str) -> tuple[Any, str]:
    """The file system of a folder or URI, and the path in it.

    Listings are not cached: Spark writes the same folders, and an older listing would hide what it wrote.

    Raises VarveError where the package for this kind of file system is missing.
    """
    scheme, separator, _ = location.partition("://")
    try:
        if "::" in location and "::" not in (scheme if separator else ""):
            # A key such as `fe80::1` in a name; fsspec takes it for file systems in each other.
            kind = fsspec.get_filesystem_class(scheme if separator else "file")
            files = kind(**kind._get_kwargs_from_urls(location), use_listings_cache=False)
            place = kind._strip_protocol(location)
        else:
            files, place = fsspec.core.url_to_fs(location, use_listings_cache=False)
    except (ImportError, ValueError) as error:
        raise VarveError(
            f"{location} cannot be reached from Python: {error}. Nothing was read or changed. "
            f"For s3a:// install the extra: {install_command('s3')}"
        ) from error
    return files, str(place)


def renames_cheaply(location: str) -> bool:
    """Whether a rename is one step in this file system, however large the file."""
    scheme, separator, _ = location.partition("://")
    return not separator or scheme in _WITH_RENAME


def is_local(files: Any) -> bool:
    """Whether this is the file system of this machine, where what was written may still be in memory only."""
    return "file" in (files.protocol if isinstance(files.protocol, tuple) else (files.protocol,))


def make_durable(root: str, folders: Iterable[str]) -> None:
    """Wait until all files in these folders, and the folders above them up to `root`, survive a loss of power.

    Files of this machine only: an object store keeps what it has acknowledged, and HDFS has it on several machines.
    Raises OSError where a disk could not write.
    """
    files, top = open_files(root)
    if not is_local(files):
        return
    places = [Path(files._strip_protocol(folder)) for folder in folders]
    written = [path for place in places for path in _files_in(place)]
    above = {parent for place in places for parent in (place, *place.parents) if parent.is_relative_to(top)}
    if len(written) > _MANY and _sync_file_system(top):
        return
    # The names of files are in their folders, which come after them, and after those of folders in them.
    for path in [*written, *sorted(above, key=lambda folder: len(folder.parts), reverse=True)]:
        sync(files, str(path))


def sync(files: Any, path: str) -> None:
    """Wait until one file or folder of this machine survives a loss of power; of a folder the names that are in it."""
    if not is_local(files):
        return
    handle = os.open(files._strip_protocol(path), os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def put_whole(files: Any, path: str, content: bytes) -> None:
    """Write a small file atomically: it is there as a whole, and durable, or not at all."""
    place = files._strip_protocol(path)
    if not is_local(files):
        # Writing an object to an object store is atomic.
        files.pipe_file(place, content)
        return
    partial = Path(f"{place}.partial")
    partial.write_bytes(content)
    sync(files, str(partial))
    partial.rename(place)
    for folder in (partial.parent, partial.parent.parent):
        sync(files, str(folder))


def _files_in(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files_in(Path(entry.path))
                yield Path(entry.path)
            else:
                yield Path(entry.path)


def _sync_file_system(folder: str) -> bool:
    """Write out all of a file system that waits in memory; False where this machine cannot do so at once."""
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None, use_errno=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        if library.syncfs(handle):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), folder)
    finally:
        os.close(handle)
    return True
