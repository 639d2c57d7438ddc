"""Lists the files in the landing folder of a dataset, each with its partition or the reason for having none.

Not here: which of them to take (varve/planning/arrivals/arrivals.py), and reading them
(varve/sources/formats).
"""

from __future__ import annotations

import datetime as dt
import errno
import os
import re
import stat
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from varve.model.errors import OutsideDimension, UnknownPartition
from varve.model.landing.pattern import FilePattern, spelt_first
from varve.planning.arrivals.landing_file import LandingFile, RejectionKind
from varve.services.files import is_local, open_files
from varve.services.links import leads_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fsspec import AbstractFileSystem

    from varve.model.dataset import Dataset
    from varve.model.landing.options import LandingOptions
    from varve.model.landing.pattern import NamedPartition
    from varve.model.landing.wanted_names import WantedNames
    from varve.model.partitions.key import PartitionKey
    from varve.model.partitions.partitioning import Partitioning

# What no key may hold either.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# Endings of names that say that a file is still being written.
_UNFINISHED = (".part", ".partial", ".tmp", ".temp", ".filepart", ".crdownload", ".inprogress", "~")


def pattern_of(dataset: Dataset) -> FilePattern:
    """The pattern of the file names of a dataset."""
    return _pattern(dataset.landing_options, dataset.partitioning)


def folder_of(root: str, dataset: Dataset) -> str:
    """The folder under a root in which the files of a dataset arrive."""
    return f"{root}/{dataset.db}/{dataset.table}"


def listed(dataset: Dataset, folder: str, of: Sequence[PartitionKey] | None = None) -> Iterator[LandingFile]:
    """All files in the folder of a dataset that are not hidden; a file of no partition has a `problem`.

    With `of`, at least the files of these partitions. The name of a file in a sub-folder begins with that of the folder
    and `/`. Raises NotADirectoryError where the folder is a file.
    """
    files, root = open_files(folder)
    try:
        # Not `exists`, which is False for a folder that cannot be reached: all its files would be forgotten, as if the
        # partner had removed them.
        kind = files.info(root)["type"]
    except FileNotFoundError:
        return
    if kind != "directory":
        raise NotADirectoryError(errno.ENOTDIR, "a file lies where the folder of a dataset is expected", folder)
    pattern = pattern_of(dataset)
    entries = list(_walked(files, root, pattern, None if of is None else pattern.wanted(of), ""))
    named: dict[str, NamedPartition] = {}
    problems: dict[str, tuple[RejectionKind, str]] = {}
    for name, entry in entries:
        if name.endswith(_UNFINISHED):
            continue
        try:
            named[name] = pattern.named(name)
        except OutsideDimension as error:
            problems[name] = (RejectionKind.OUTSIDE, str(error))
        except UnknownPartition as error:
            problems[name] = (
                RejectionKind.NO_KEY if dataset.landing_options.format_of(name) else RejectionKind.FORMAT,
                str(error),
            )
        if problem := _problem_of(dataset, f"{folder}/{name}", entry):
            problems[name] = (RejectionKind.FORMAT, problem)
        if printable(name) != name:
            what = "has control characters" if _CONTROL.search(name) else "is no UTF-8"
            problems[name] = (RejectionKind.FORMAT, f"its name {what}; rename it.")
    taken = (
        {} if pattern.many
        else spelt_first({name: of.key for name, of in named.items() if name not in problems}, pattern)
    )  # fmt: skip
    for name, entry in entries:
        key, key_text = named.get(name, (None, name))
        if entry.type == "directory" and key is None and not pattern.folders:
            # A folder beside the files, for example an archive, is ignored.
            continue
        kind, problem = problems.get(name, (RejectionKind.FORMAT, ""))
        if key is not None and not problem and taken.get(key, name) != name:
            kind = RejectionKind.DUPLICATE
            problem = f"{taken[key]} is a file of the same partition, {key.path}, and is taken; remove one of them."
        yield LandingFile(
            entry.changed_at, printable(key_text), f"{folder}/{printable(name)}", entry.size, entry.stamp, problem,
            kind, temporary=name.endswith(_UNFINISHED), partition=key,
        )  # fmt: skip


def printable(name: str) -> str:
    """The name of a file as it can be written: bytes that are no UTF-8, as of a Latin name, in hexadecimal digits.

    Control characters too: they would act in the terminal of whoever asks which files there are.
    """
    if name.isascii() and name.isprintable():
        return name
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return _CONTROL.sub(lambda control: f"\\x{ord(control[0]):02x}", text)


class _Entry(NamedTuple):
    """An entry of a folder; of a link, its target: `changed_at` and `stamp` are those of both."""

    type: str
    size: int
    changed_at: float
    stamp: str
    linked: bool


def _problem_of(dataset: Dataset, uri: str, entry: _Entry) -> str:
    """Why an entry of a folder cannot be a landing file, whatever its name is; "" where it can be one."""
    if entry.type == "nothing":
        return "it is a link to nothing."
    if entry.linked and leads_out(uri, f"{dataset.db}/{dataset.table}"):
        return "it is a link out of the landing folder."
    if entry.type != "file":
        return f"a {entry.type} lies where a file is expected."
    return ""


def _walked(
    files: AbstractFileSystem, folder: str, pattern: FilePattern, wanted: WantedNames | None, above: str
) -> Iterator[tuple[str, _Entry]]:
    """Entries at the depth of the pattern, and files above it; with their names below the dataset's folder.

    Folders that are links are not entered. Entries whose names are not wanted are left out without a look at them.
    """
    depth = above.count("/")
    of_folders = pattern.folders[depth] if depth < len(pattern.folders) else None
    for entry_name, described in _contents(files, folder):
        if entry_name.startswith((".", "_")):
            continue
        if wanted is not None and not wanted.fit(depth, entry_name if of_folders else pattern.stem(entry_name)):
            continue
        entry = described()
        if entry is None:
            continue
        name = f"{above}{entry_name}"
        if entry.type != "directory" or of_folders is None:
            yield name, entry
        elif of_folders.fullmatch(entry_name):
            # Other folders beside the files are ignored; a link with the name of one of our folders is listed.
            if entry.linked:
                yield name, entry
            else:
                yield from _walked(files, f"{folder}/{entry_name}", pattern, wanted, f"{name}/")


def _contents(files: AbstractFileSystem, folder: str) -> Iterator[tuple[str, Callable[[], _Entry | None]]]:
    """The name of each entry of a folder, and what tells its description; None from it where it is gone by then.

    On a disk of this machine the names are read at once, and each description is a call of its own.
    """
    if not is_local(files):
        for info in files.ls(folder, detail=True, refresh=True):
            yield info["name"].rstrip("/").rsplit("/", 1)[-1], partial(_entry, files, info)
        return
    with os.scandir(folder) as found:
        entries = list(found)
    for each in entries:
        yield each.name, partial(_local_entry, files, each)


def _local_entry(files: AbstractFileSystem, found: os.DirEntry[str]) -> _Entry | None:
    """The description of an entry of a folder of this machine; None where it is gone."""
    try:
        if found.is_symlink():
            return _entry(files, files.info(found))
        state = found.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    kind = "directory" if stat.S_ISDIR(state.st_mode) else "file" if stat.S_ISREG(state.st_mode) else "other"
    created = getattr(state, "st_birthtime", state.st_ctime)
    # What `_stamp` makes of fsspec's description, in a tenth of the time: the catalog has it of the files it took.
    stamp = f"{state.st_size},{state.st_mtime},{created},{state.st_ino},,,,,"
    return _Entry(kind, state.st_size, max(state.st_mtime, created), stamp, linked=False)


def _entry(files: AbstractFileSystem, info: dict[str, Any]) -> _Entry:
    """The description of an entry of a folder, from what its file system says of it."""
    changed, target, linked = _changed_at(info), info, bool(info.get("islink"))
    if linked:
        # A link may be newer than its target, or the target newer than the link.
        try:
            target = files.info(info["name"])
        except FileNotFoundError:
            target = {"type": "nothing"}
        except PermissionError:
            target = {"type": "link that we may not follow"}
        except OSError as error:
            # To itself, or below a file.
            if error.errno not in {errno.ELOOP, errno.ENOTDIR}:
                raise
            target = {"type": "nothing"}
        changed = max(changed, _changed_at(target))
    return _Entry(target["type"], target.get("size") or 0, changed, _stamp(info, target), linked)


def _stamp(*entries: dict[str, Any]) -> str:
    """Everything that a listing contains about the state of a file, and of the link to it, as one text."""
    names = ("size", "mtime", "created", "ino", "LastModified", "last_modified", "ETag", "etag", "md5")
    return "/".join(dict.fromkeys(",".join(str(entry.get(name, "")) for name in names) for entry in entries))


def _changed_at(entry: dict[str, Any]) -> float:
    times = [entry.get(name) for name in ("mtime", "created", "LastModified", "last_modified")]
    return max(
        (time.timestamp() if isinstance(time, dt.datetime) else float(time) for time in times if time), default=0.0
    )


@lru_cache(maxsize=256)
def _pattern(options: LandingOptions, partitioning: Partitioning) -> FilePattern:
    return FilePattern.of(options, partitioning)


def is_unsettled(file: LandingFile, settle_seconds: float, now: float) -> bool:
    """Whether a file was written just now, by a clock that may be a little ahead of ours.

    A time further in the future does not count, as it means that a clock is wrong. `now` must have been read after the
    file was listed: one that was written in between would seem to come from the future.
    """
    return abs(now - file.changed_at) <= settle_seconds
