"""`varve init NAME`: a project of one's own, written from the templates in `varve/scaffold/project`.

A template's name ends in `.tmpl`; `dot-` at the beginning of a name stands for `.`. `{{name}}`, `{{start}}`, and
the requirements `{{varve}}` and `{{varve_local}}` are filled in.

Not here: what the project does, which is in the templates.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
import tempfile
from importlib import metadata, resources
from pathlib import Path
from typing import TYPE_CHECKING

from varve.model.errors import VarveError, counted, some
from varve.project import declaration_in
from varve.services.distribution import installed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.resources.abc import Traversable

    from rich.console import Console

_NAME = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")
_NAME_CHARACTERS = 50
_TEMPLATE = ".tmpl"


class CannotBegin(VarveError):
    """No project can be written there, or under that name. Nothing was written."""


def init(console: Console, name: str) -> None:
    """Write the project into a new folder of the working directory and say what to do next. Raises CannotBegin."""
    _check_name(name)
    folder = Path.cwd() / name
    files = write_project(folder)
    console.print(f"{name} is a project now: {counted(files, 'file')} in {folder}.", highlight=False, soft_wrap=True)
    console.print("Next:")
    console.print(f"  cd {name} && make demo", markup=False, highlight=False)
    console.print("  make test", markup=False, highlight=False)


def write_project(folder: Path, *, today: dt.date | None = None) -> int:
    """Write the project that is called as its folder, all of it or nothing; how many files that were.

    Its partitions begin on a Monday some weeks before `today`. Raises CannotBegin.
    """
    _check_name(folder.name)
    _check_place(folder)
    today = today or dt.datetime.now(dt.UTC).date()
    source = installed()
    values = {
        "name": folder.name,
        "varve": source.requirement(),
        "varve_local": source.requirement("local"),
        "start": (today - dt.timedelta(days=today.weekday(), weeks=4)).isoformat(),
    }
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        unfinished.chmod(0o755)
        count = 0
        for path, text in _filled(values):
            file = unfinished / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            count += 1
        # One step; where somebody else has put something there meanwhile, it fails.
        os.rename(unfinished, folder)  # noqa: PTH104 - onto an empty folder it is this call that POSIX defines
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return count


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > _NAME_CHARACTERS:
        raise CannotBegin(
            f"{name!r} is no name for a project: it is a new folder here, in lower-case letters and digits with _ or - "
            f"between them, beginning with a letter, at most {_NAME_CHARACTERS} characters. Nothing was written."
        )
    if _normal(name) in {"varve", *_required()}:
        raise CannotBegin(
            f"{name} is the name of a package that the project would depend on. Nothing was written. Take another name."
        )


def _required() -> Iterator[str]:
    """The packages that a project depends on: those of varve[local]."""
    for requirement in metadata.requires("varve") or ():
        package = re.match(r"[\w.-]+", requirement)
        if package is not None and ("extra ==" not in requirement or "local" in requirement):
            yield _normal(package[0])


def _normal(name: str) -> str:
    """As package indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _check_place(folder: Path) -> None:
    for above in folder.parents:
        if (declared := declaration_in(above)) is not None:
            raise CannotBegin(
                f"{folder} would lie in another project, that of {declared[0]}. Nothing was written. Go to a folder "
                "outside of it."
            )
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise CannotBegin(f"{folder} is there already, and is no folder. Nothing was written. Take another name.")
    if folder.is_dir() and (contents := sorted(path.name for path in folder.iterdir())):
        raise CannotBegin(
            f"{folder} is there already, with {some(contents, limit=3)}. Nothing was written. Take another name, "
            "or empty the folder."
        )


def _filled(values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each file of the project, by its path within it, with its text."""
    for path, template in _templates(resources.files("varve") / "scaffold" / "project", ""):
        text = template.read_text(encoding="utf-8")
        for name, value in values.items():
            text = text.replace(f"{{{{{name}}}}}", value)
        yield path, text


def _templates(folder: Traversable, above: str) -> Iterator[tuple[str, Traversable]]:
    for path in sorted(folder.iterdir(), key=lambda entry: entry.name):
        name = f".{path.name.removeprefix('dot-')}" if path.name.startswith("dot-") else path.name
        if path.is_dir():
            yield from _templates(path, f"{above}{name}/")
        elif name.endswith(_TEMPLATE):
            yield f"{above}{name.removesuffix(_TEMPLATE)}", path
