"""The files of a folder that are a project's own, without those that editors and systems lay beside them.

The names of the others begin with a dot: the locks of Emacs (`.#revenue.sql`, a link that leads nowhere), the copies of
JupyterLab (`.ipynb_checkpoints/`), what macOS keeps on foreign disks (`._revenue.sql`). Python imports none of them.

Not here: reading the files (varve/sql/sql_project.py, varve/testing/files/reading.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def files_of(folder: Path, *patterns: str) -> list[Path]:
    """Return what a folder has of patterns such as `**/*.sql`, sorted, without what is hidden in it."""
    found = {path for pattern in patterns for path in folder.glob(pattern)}
    return sorted(path for path in found if not is_hidden(path, folder))


def is_hidden(path: Path, folder: Path) -> bool:
    """Return whether the name of a file in a folder, or of a folder between them, begins with a dot."""
    return any(part.startswith(".") for part in path.parts[len(folder.parts) :])
