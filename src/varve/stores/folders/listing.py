"""The files of a folder that others write: their names, sizes and times of change, which tell whether they changed.

Not here: which folders there are (varve/sources/external), and batches that consist of such files (stores/views).
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import fsspec

from varve.model.errors import VarveError
from varve.services.files import open_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TRIES = 3
_TIMES = ("mtime", "LastModified", "last_modified", "modificationTime", "created")


@dataclass(frozen=True, slots=True, order=True)
class ListedFile:
    """A file as it was listed.

    Attributes:
        folder: the folder, as its owner names it.
        inside: the path of the file below that folder, with a slash before it.
        size: in bytes.
        changed: when it was changed, as its file system says it; "" where that says nothing.
    """

    folder: str
    inside: str
    size: int
    changed: str

    @property
    def uri(self) -> str:
        """The address under which Spark finds it."""
        return f"{self.folder.rstrip('/')}/{self.inside.lstrip('/')}"

    @property
    def state(self) -> str:
        """Its size and time, as one text."""
        return f"{self.size} bytes, {self.changed}"


def listed_files(folder: str) -> list[ListedFile] | None:
    """The files of a folder and of those below it, in order; None where there is no such folder.

    What begins with a dot or an underscore is no data, as Spark has it. Raises VarveError where a folder cannot be
    listed: its files are there, and must not count as gone.
    """
    files, place = open_files(folder)
    try:
        entries = _found(files, place)
    except OSError as error:
        raise VarveError(
            f"{folder} cannot be listed: {error.strerror or error}{f' ({error.filename})' if error.filename else ''}. "
            "Nothing was read or changed. Give the user whom Varve runs as the right to read it."
        ) from error
    if not entries and not files.exists(place):
        return None
    listed = []
    for name, entry in sorted(entries.items()):
        inside = name.removeprefix(place)
        if not any(step.startswith((".", "_")) for step in inside.split("/") if step):
            changed = next((entry[time] for time in _TIMES if entry.get(time)), "")
            listed.append(ListedFile(folder, inside, int(entry["size"]), str(changed)))
    return listed


def _found(files: Any, place: str) -> Mapping[str, Any]:
    """All files below a folder by their paths; none where it is not there."""
    if type(files).find is not fsspec.AbstractFileSystem.find:
        # Object stores list in a way of their own, without folders.
        return files.find(place, detail=True)  # type: ignore[no-any-return]
    for _ in range(_TRIES):
        try:
            return dict(_walked(files, place))
        except FileNotFoundError:
            if not files.exists(place):
                return {}
            # A folder below it went while it was listed.
    raise OSError(errno.ESTALE, "folders in it come and go while it is listed", place)


def _walked(files: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Raises OSError for a folder that cannot be listed: fsspec's own walk leaves those out."""
    for entry in files.ls(place, detail=True):
        if entry["type"] == "directory":
            yield from _walked(files, entry["name"])
        else:
            yield entry["name"], entry
