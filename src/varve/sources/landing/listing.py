"""Which files lie in the landing folder of a dataset, and of which partition each is, or why it is of none.

Not here: which of them to look at when (varve/planning/arrivals/arrivals.py), and what stands in them
(formats/formats.py).
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

# Names under which a file is still being written.
_UNFINISHED = (".part", ".partial", ".tmp", ".temp", ".filepart", ".crdownload", ".inprogress", "~")


def pattern_of(dataset: Dataset) -> FilePattern:
    """How the files of a dataset are called."""
    return _pattern(dataset.landing_options, dataset.partitioning)


def listed(dataset: Dataset, folder: str, of: Sequence[PartitionKey] | None = None) -> Iterator[LandingFile]:
    """All that lies in the folder of a dataset but what is hidden; what is of none of its partitions says why.

    `of` some partitions: at least all that are theirs.

    A file below a folder has the name of the folder before its own, with `/` between.
    """
    files, root = open_files(folder)
    try:
        # Not `exists`, which says of a folder that cannot be reached that there is none: all that lies in it would be
        # forgotten as if the partner had taken it away.
        kind = files.info(root)["type"]
    except FileNotFoundError:
        return
    if kind != "directory":
        raise NotADirectoryError(errno.ENOTDIR, "a file lies where the folder of a dataset is expected", folder)
    pattern = pattern_of(dataset)
    wanted = None if of is None else pattern.names(of)
    found = [
        (name, entry)
        for name, entry in _walked(files, root, pattern, "")
        if wanted is None or pattern.stem(name) in wanted
    ]
    keys: dict[str, PartitionKey] = {}
    problems: dict[str, tuple[RejectionKind, str]] = {}
    for name, entry in found:
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
    taken = (
        {} if pattern.many else spelt_first({name: key for name, key in keys.items() if name not in problems}, pattern)
    )
    for name, entry in found:
        key = keys.get(name)
        if entry["type"] == "directory" and key is None and not pattern.folders:
            # An archive beside the files is nobody's business.
            continue
        kind, problem = problems.get(name, (RejectionKind.FORMAT, ""))
        if key is not None and not problem and taken.get(key, name) != name:
            kind = RejectionKind.DUPLICATE
            problem = f"{taken[key]} is a file of the same partition, {key.path}, and is taken; remove one of them."
        spelt = name if key is None else dataset.partitioning.to_dagster(key)
        yield LandingFile(
            entry["changed_at"], spelt, f"{folder}/{name}", entry.get("size") or 0, entry["stamp"], problem, kind,
            temporary=name.endswith(_UNFINISHED),
        )  # fmt: skip


def _problem_of(dataset: Dataset, uri: str, entry: dict[str, Any]) -> str:
    """Why an entry of a folder can be no landing file, whatever it is called; "" where it can."""
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
    """What lies where the pattern has files, and files that lie above; by name from the dataset's folder.

    A folder that is a link is not gone into.
    """
    depth = above.count("/")
    for entry in files.ls(folder, detail=True, refresh=True):
        own = entry["name"].rstrip("/").rsplit("/", 1)[-1]
        if own.startswith((".", "_")):
            continue
        known = _entry(files, entry)
        name = f"{above}{own}"
        if known["type"] == "directory" and depth < len(pattern.folders):
            if known["linked"] or not pattern.folders[depth].fullmatch(own):
                # Others may keep what they like beside the files; what is called like a folder of ours is one.
                if pattern.folders[depth].fullmatch(own):
                    yield name, known
                continue
            yield from _walked(files, entry["name"], pattern, f"{name}/")
        else:
            yield name, known


def _entry(files: AbstractFileSystem, entry: dict[str, Any]) -> dict[str, Any]:
    """What is known of an entry of a folder; of a link what it leads to."""
    changed, found, linked = _changed_at(entry), entry, bool(entry.get("islink"))
    if linked:
        # A link may be newer than its file, and its file newer than it.
        try:
            found = files.info(entry["name"])
        except FileNotFoundError:
            found = {"type": "nothing"}
        changed = max(changed, _changed_at(found))
    return {
        **found, "name": entry["name"], "changed_at": changed, "linked": linked, "stamp": _stamp(entry, found)
    }  # fmt: skip


def _stamp(*entries: dict[str, Any]) -> str:
    """All that a listing says of the state of a file, and of the link to it."""
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
    """Whether it was written just now; one whose time is yet to come was not: some clock is wrong."""
    return now - settle_seconds <= file.changed_at <= now
