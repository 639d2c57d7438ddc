"""The files of a folder that others write: their names, sizes and times of change, which tell whether they changed.

Not here: which folders there are (varve/sources/external), and batches that consist of such files (stores/views).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.services.files import open_files

if TYPE_CHECKING:
    from collections.abc import Mapping

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

    What begins with a dot or an underscore is no data, as Spark has it.
    """
    files, place = open_files(folder)
    try:
        entries: Mapping[str, Any] = files.find(place, detail=True)
    except FileNotFoundError:
        return None
    if not entries and not files.exists(place):
        return None
    listed = []
    for name, entry in sorted(entries.items()):
        inside = name.removeprefix(place)
        if not any(step.startswith((".", "_")) for step in inside.split("/") if step):
            changed = next((entry[time] for time in _TIMES if entry.get(time)), "")
            listed.append(ListedFile(folder, inside, int(entry["size"]), str(changed)))
    return listed
