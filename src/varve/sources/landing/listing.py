"""Lists the files in the landing folder of a dataset, each with its partition or the reason for having none.

Not here: which of them to take (varve/planning/arrivals/arrivals.py), and reading them
(varve/sources/formats).
"""

from __future__ import annotations

import datetime as dt
import errno
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from varve.model.errors import OutsideDimension, UnknownPartition
from varve.model.landing.pattern import FilePattern, spelt_first
from varve.planning.arrivals.landing_file import LandingFile, RejectionKind
from varve.services.files import open_files
from varve.services.links import leads_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fsspec import AbstractFileSystem

    from varve.model.dataset import Dataset
    from varve.model.landing.options import LandingOptions
    from varve.model.partitions.key import PartitionKey
    from varve.model.partitions.partitioning import Partitioning

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
    wanted_stems = None if of is None else pattern.names(of)
    entries = [
        (name, entry)
        for name, entry in _walked(files, root, pattern, "")
        if wanted_stems is None or pattern.stem(name) in wanted_stems
    ]
    keys: dict[str, PartitionKey] = {}
    problems: dict[str, tuple[RejectionKind, str]] = {}
    for name, entry in entries:
        if name.endswith(_UNFINISHED):
            continue
        try:
            keys[name] = pattern.key(name)
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
            problems[name] = (RejectionKind.FORMAT, "its name is no UTF-8; rename it.")
    taken = (
        {} if pattern.many else spelt_first({name: key for name, key in keys.items() if name not in problems}, pattern)
    )
    for name, entry in entries:
        key = keys.get(name)
        if entry["type"] == "directory" and key is None and not pattern.folders:
            # A folder beside the files, for example an archive, is ignored.
            continue
        kind, problem = problems.get(name, (RejectionKind.FORMAT, ""))
        if key is not None and not problem and taken.get(key, name) != name:
            kind = RejectionKind.DUPLICATE
            problem = f"{taken[key]} is a file of the same partition, {key.path}, and is taken; remove one of them."
        key_text = name if key is None else dataset.partitioning.to_dagster(key)
        yield LandingFile(
            entry["changed_at"], printable(key_text), f"{folder}/{printable(name)}", entry.get("size") or 0,
            entry["stamp"], problem, kind,
            temporary=name.endswith(_UNFINISHED),
        )  # fmt: skip


def printable(name: str) -> str:
    """The name of a file as it can be written: bytes that are no UTF-8, as of a Latin name, in hexadecimal digits."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _problem_of(dataset: Dataset, uri: str, entry: dict[str, Any]) -> str:
    """Why an entry of a folder cannot be a landing file, whatever its name is; "" where it can be one."""
    if entry["type"] == "nothing":
        return "it is a link to nothing."
    if entry["linked"] and leads_out(uri, f"{dataset.db}/{dataset.table}"):
        return "it is a link out of the landing folder."
    if entry["type"] != "file":
        return f"a {entry['type']} lies where a file is expected."
    return ""


def _walked(
    files: AbstractFileSystem, folder: str, pattern: FilePattern, above: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Entries at the depth of the pattern, and files above it; with their names below the dataset's folder.

    Folders that are links are not entered.
    """
    depth = above.count("/")
    for entry in files.ls(folder, detail=True, refresh=True):
        entry_name = entry["name"].rstrip("/").rsplit("/", 1)[-1]
        if entry_name.startswith((".", "_")):
            continue
        described = _entry(files, entry)
        name = f"{above}{entry_name}"
        if described["type"] == "directory" and depth < len(pattern.folders):
            if described["linked"] or not pattern.folders[depth].fullmatch(entry_name):
                # Other folders beside the files are ignored; a link with the name of one of our folders is listed.
                if pattern.folders[depth].fullmatch(entry_name):
                    yield name, described
                continue
            yield from _walked(files, entry["name"], pattern, f"{name}/")
        else:
            yield name, described


def _entry(files: AbstractFileSystem, entry: dict[str, Any]) -> dict[str, Any]:
    """The description of an entry of a folder; for a link, that of its target."""
    changed, target, linked = _changed_at(entry), entry, bool(entry.get("islink"))
    if linked:
        # A link may be newer than its target, or the target newer than the link.
        try:
            target = files.info(entry["name"])
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
    return {
        **target, "name": entry["name"], "changed_at": changed, "linked": linked, "stamp": _stamp(entry, target)
    }  # fmt: skip


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
