"""A Python that has what requirements-executor.txt names, or some packages, and what those need: no Varve, no Dagster.

It is made of links to the packages of this environment, so that nothing is fetched.
"""

from __future__ import annotations

import re
import venv
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from tests.support.project import ROOT

REQUIREMENTS = ROOT / "deploy" / "images" / "requirements-executor.txt"


def requirements() -> list[Requirement]:
    """The lines of requirements-executor.txt."""
    lines = (line.partition("#")[0].strip() for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines())
    return [Requirement(line) for line in lines if line]


def needed_packages(wanted: list[Requirement]) -> dict[str, metadata.Distribution]:
    """The installed distributions of these requirements and of all that they require, by their names."""
    found: dict[str, metadata.Distribution] = {}
    todo = [*wanted]
    while todo:
        requirement = todo.pop()
        name = _normal(requirement.name)
        if name in found:
            continue
        found[name] = metadata.distribution(name)
        todo += [
            each
            for text in found[name].requires or ()
            if (each := Requirement(text)).marker is None or each.marker.evaluate({"extra": ""})
        ]
    return found


def executor_python(folder: Path, *, packages: tuple[str, ...] | None = None) -> Path:
    """Make the environment in a folder and return its interpreter; `packages`: in place of those of the list."""
    venv.create(folder, symlinks=True, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    wanted = requirements() if packages is None else [Requirement(name) for name in packages]
    for distribution in needed_packages(wanted).values():
        for file in distribution.files or ():
            top = file.parts[0]
            if top in {"..", "__pycache__"} or (link := site / top).exists():
                continue
            link.symlink_to(Path(str(distribution.locate_file(top))))
    return folder / "bin" / "python"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
