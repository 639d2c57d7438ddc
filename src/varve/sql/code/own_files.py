"""The files of a folder that are a project's own, without those that editors and systems lay beside them.

The names of the others begin with a dot: the locks of Emacs (`.#revenue.sql`, a link that leads nowhere), the copies of
JupyterLab (`.ipynb_checkpoints/`), what macOS keeps on foreign disks (`._revenue.sql`). Python imports none of them.

And when each of them was changed last. Not here: reading the files (varve/sql/sql_project.py,
varve/testing/files/reading.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

CALENDAR = ".calendar"
# What a change of may change datasets.
SUFFIXES = (".sql", ".py", CALENDAR)
# By path: the time of the last change in nanoseconds, and the size in bytes.
State = dict[str, tuple[int, int]]


def state_of(folder: Path, suffixes: Collection[str] = SUFFIXES) -> State:
    """When each file of datasets was changed last, and how large it is; files that go meanwhile are left out.

    Calendars may also lie beside the folder.
    """
    state: State = {}
    within = (path for path in folder.rglob("*") if path.suffix in suffixes and not is_hidden(path, folder))
    for path in (*within, *files_of(folder.parent, f"*{CALENDAR}")):
        try:
            status = path.stat()
        except OSError:
            continue
        state[str(path)] = (status.st_mtime_ns, status.st_size)
    return state


def files_of(folder: Path, *patterns: str) -> list[Path]:
    """Return what a folder has of patterns such as `**/*.sql`, sorted, without what is hidden in it."""
    found = {path for pattern in patterns for path in folder.glob(pattern)}
    return sorted(path for path in found if not is_hidden(path, folder))


def is_hidden(path: Path, folder: Path) -> bool:
    """Return whether the name of a file in a folder, or of a folder between them, begins with a dot."""
    return any(part.startswith(".") for part in path.parts[len(folder.parts) :])
