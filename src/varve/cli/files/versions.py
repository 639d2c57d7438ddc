"""Another version of a folder of datasets, a git revision or a folder, as snapshots.

Python has one module of a name in a process, and this one may have imported those of the working tree: the other
version is imported by a process of its own, in which nothing of the working tree can be found.

Not here: what a snapshot is (varve/planning/changes/snapshot.py), and what differs (against.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from varve.model.errors import VarveError
from varve.planning.changes.snapshot import DatasetSnapshot, from_values
from varve.project import PROJECT_VARIABLE, NoProject, Project

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


@dataclass(frozen=True)
class Version:
    """A version of a folder of datasets.

    Attributes:
        datasets: those that can be used, by name.
        broken: the others, by name or file: nothing is compared with them.
    """

    datasets: Mapping[str, DatasetSnapshot]
    broken: tuple[str, ...]


def other_version(folder: Path, against: str) -> Version:
    """Return the datasets of another version of a folder: of a folder, or of a git revision of the same folder.

    Raises VarveError where there is no such version, and where its Python files cannot be imported.
    """
    folder = folder.resolve()
    place = Path(against).expanduser()
    if place.is_dir():
        other = _datasets_in(place.resolve())
        return _read(other, _root_of(other), folder, against)
    with _checked_out(folder, against) as root:
        return _read(root / folder.relative_to(_root_of(folder)), root, folder, against)


def _datasets_in(folder: Path) -> Path:
    """The folder of datasets that is meant: of a project's folder its own."""
    try:
        project = Project.find(folder)
    except NoProject:
        return folder
    return project.assets.resolve() if folder == project.root else folder


def _root_of(folder: Path) -> Path:
    """The folder from which the modules of a folder of datasets are imported: the project's, or else the one above."""
    try:
        project = Project.find(folder)
    except NoProject:
        return folder.parent
    return project.root if folder.is_relative_to(project.root) and folder != project.root else folder.parent


@contextmanager
def _checked_out(folder: Path, revision: str) -> Iterator[Path]:
    """The files of a git revision in a folder of their own; neither the working tree nor git's index is touched.

    As in a checkout, and not as in an archive, no file is left out (`export-ignore`) and filters are applied.
    """
    root = _root_of(folder)
    top = Path(_git(root, revision, "rev-parse", "--show-toplevel").strip()).resolve()
    tree = _git(root, revision, "rev-parse", "--verify", "--quiet", f"{revision}^{{tree}}").strip()
    inside = root.relative_to(top).as_posix()
    with tempfile.TemporaryDirectory(prefix="varve-version-") as temporary:
        index = {"GIT_INDEX_FILE": f"{temporary}/index"}
        # The same name as here: packages are imported by the names of their folders.
        target = Path(temporary) / "tree" / root.name
        target.mkdir(parents=True)
        _git(root, revision, "read-tree", f"{tree}:{inside}" if inside != "." else tree, **index)
        _git(top, revision, "checkout-index", "--all", f"--prefix={target}/", **index)
        at = target / folder.relative_to(root)
        if not at.is_dir():
            raise VarveError(
                f"--against {revision}: it has no folder {folder.relative_to(top)}. Name a later revision."
            )
        yield target


def _git(folder: Path, revision: str, *words: str, **variables: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *words],
        env={**os.environ, **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        error_lines: Sequence[str] = done.stderr.strip().splitlines() or [f"there is no revision {revision!r}"]
        raise VarveError(f"--against {revision} is neither a folder nor a git revision of {folder}: {error_lines[0]}.")
    return done.stdout


def _read(folder: Path, root: Path, here: Path, against: str) -> Version:
    """The datasets of a folder, read by a process that imports from `root` and from nowhere in the tree of `here`."""
    with tempfile.TemporaryDirectory(prefix="varve-version-") as temporary:
        file = Path(temporary) / "datasets.json"
        done = subprocess.run(
            [sys.executable, "-m", "varve.dagster.snapshots", str(folder), str(file)],
            cwd=root, env=_environment(root, _root_of(here)), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode or not file.is_file():
            error_lines = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
            raise VarveError(
                f"--against {against}: its datasets cannot be read: {error_lines[-1]} Nothing was compared. Name a "
                "version whose Python files can be imported here."
            )
        values = json.loads(file.read_text(encoding="utf-8"))
    return Version(from_values(values["datasets"]), tuple(values["broken"]))


def _environment(root: Path, root_here: Path) -> dict[str, str]:
    """This process' variables, where the folders of the working tree are those of the other one."""
    entries = []
    for entry in filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        place = Path(entry).resolve()
        entries.append(str(root / place.relative_to(root_here)) if place.is_relative_to(root_here) else entry)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(root), *entries]),
        "PYTHONDONTWRITEBYTECODE": "1",
        PROJECT_VARIABLE: str(root),
    }
