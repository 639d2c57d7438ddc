"""The datasets that the Python files of a folder declare, for those that look for them: Dagster, and SQL files.

The folder is a package, imported by the name that Python finds it under. Two projects in one process may both call
theirs `assets`; Python has one module of a name, so the second one is imported by its place, under a name of its own.

Not here: what SQL files declare (sql_assets.py).
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import pkgutil
import re
import sys
import traceback
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING

from varve.dagster.assets.datasets import DatasetAsset
from varve.model.broken_dataset import BrokenDataset, DatasetIsBroken
from varve.model.errors import VarveError
from varve.project import NoProject, Project
from varve.sql.code.own_files import files_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

# What lies in a package of datasets and is imported by others: its tests, and programs. A dataset may be called so too.
_OF_OTHERS = re.compile(r"tests?|test_.*|.*_test|conftest|__main__")
# What is called so in a folder of this name is a test, whatever it declares.
_FOLDERS_OF_TESTS = ("test", "tests")
_DECLARES = re.compile(r"^@(?:varve\.asset|dataset_asset)\(", re.MULTILINE)
_NO_PACKAGE = (
    "it declares a dataset, and its folder is no package of Python, so that nobody finds it. Write an empty "
    "__init__.py into each folder down to it."
)


class AskedTooEarly(VarveError):
    """A module asks for all SQL files while it is imported, and one of them reads what it declares further down."""


def python_assets(folder: Path) -> list[DatasetAsset]:
    """Every dataset of the folder's modules, as far as those that are being imported right now have come.

    Modules that ask for a broken dataset of SQL, and those that cannot be imported, are left out (`broken_modules`).
    Raises NoProject where Python cannot import the folder.
    """
    modules = [module for name in _modules(folder) if (module := _imported(name)) is not None]
    values = [value for module in modules for named in vars(module).values() for value in _each(named)]
    # A module may import another's.
    return list({id(asset): asset for asset in values if isinstance(asset, DatasetAsset)}.values())


def _each(value: object) -> Iterable[object]:
    """A value of a module, or the values of a collection: assets that a function makes, one for each store say."""
    if isinstance(value, list | tuple | set | frozenset):
        return value
    return value.values() if isinstance(value, dict) else (value,)


def broken_modules(folder: Path) -> list[BrokenDataset]:
    """The folder's modules that cannot be imported: for what Python raises, or as they ask for a broken dataset of SQL.

    What they declare has no name here, as nobody knows it. Raises AskedTooEarly, which is of several files.
    """
    broken_datasets = []
    for name in _modules(folder):
        try:
            importlib.import_module(name)
        except DatasetIsBroken as error:
            broken_datasets.append(
                BrokenDataset("", _file(folder, name), waits_for=(error.broken.title,), causes=(error.broken.headline,))
            )
        except AskedTooEarly:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the code of somebody else raises
            file = _file(folder, name)
            reason = _unreadable(folder.parent, file) or _import_error(error, folder)
            broken_datasets.append(BrokenDataset("", file, errors=(reason,)))
    return broken_datasets + [
        BrokenDataset("", path, errors=(f"{path}: {_NO_PACKAGE}",)) for path in _outside_packages(folder)
    ]


def half_imported(folder: Path) -> list[str]:
    """The folder's modules that are being imported right now: what they declare further down is not known yet."""
    return [name for name in _modules(folder) if _is_half(sys.modules.get(name))]


def named_module(name: str, root: Path) -> ModuleType:
    """The module that a SQL file names, imported; `root` is the folder above that of the datasets."""
    package, _, rest = name.partition(".")
    if rest and (root / package).is_dir():
        return importlib.import_module(f"{package_of(root / package)}.{rest}")
    return importlib.import_module(name)


def package_of(folder: Path) -> str:
    """The name under which the modules of a folder are imported.

    Raises NoProject, naming both places, where Python finds another package of that name.
    """
    folder = folder.resolve()
    name, above = _dotted(folder)
    if not all(part.isidentifier() for part in name.split(".")):
        raise NoProject(
            f"{folder} has Python files, and {folder.name!r} is no name that Python can import. Rename the folder, "
            "with letters, digits and _ only, and name it in [tool.varve]."
        )
    places = _places(name)
    if not places:
        sys.path.append(str(above))
        importlib.invalidate_caches()
        places = _places(name)
    if places == [folder] or (folder in places and _all_within(name, folder)):
        return name
    other = next((place for place in places if place != folder), None)
    if other is not None and name == folder.name and name in sys.modules and _of_another_project(other):
        return _by_place(folder, other)
    raise NoProject(
        f"{folder} has Python files, which are imported as the package {name}, and Python finds "
        f"{other or 'nothing'} under that name. Rename one of them (and the folder in [tool.varve]), or put "
        f"{above} first on Python's path."
    )


def _imported(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except AskedTooEarly:
        raise
    except Exception:  # noqa: BLE001 - `broken_modules` says what it was
        return None


def _import_error(error: Exception, folder: Path) -> str:
    """The error of an import in a line, with the last place in the project that led to it."""
    if isinstance(error, SyntaxError) and error.filename:
        place, what = f"{error.filename}:{error.lineno}", error.msg
    else:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if Path(frame.filename).is_relative_to(folder.parent)]
        place, what = f"{own[-1].filename}:{own[-1].lineno}" if own else "", str(error)
    where = place.removeprefix(f"{folder.parent}/")
    kind = "" if isinstance(error, VarveError) else f"{type(error).__name__}: "
    return f"{where + ': ' if where else ''}{kind}{what}"


def _unreadable(root: Path, file: str) -> str:
    """Why a file cannot be read, of which Python says only that there is no module; "" where it can be."""
    try:
        (root / file).read_bytes()
    except OSError as error:
        return f"{file}: it cannot be read: {error.strerror}. Put one that you may read in its place, or take it out."
    return ""


def _is_half(module: ModuleType | None) -> bool:
    return module is not None and getattr(module.__spec__, "_initializing", False)


def _modules(folder: Path) -> list[str]:
    """The modules of the folder and of the packages in it, but for tests and programs that declare no dataset."""
    names = list(_names(folder))
    package = package_of(folder) if names else ""
    return [f"{package}.{name}" for name in names]


def _names(folder: Path, above: str = "") -> Iterator[str]:
    for module in pkgutil.iter_modules([str(folder)]):
        place = folder / (module.name if module.ispkg else f"{module.name}.py")
        if not above or not _is_of_others(place):
            yield f"{above}{module.name}"
            if module.ispkg:
                yield from _names(place, f"{above}{module.name}.")


def _outside_packages(folder: Path) -> list[str]:
    """The Python files that declare a dataset in a folder below, which Python does not import as a package."""
    files = [
        path for path in files_of(folder, "*/**/*.py")
        if not all((place / "__init__.py").is_file() for place in path.parents if folder in place.parents)
    ]  # fmt: skip
    return [
        f"{folder.name}/{path.relative_to(folder).as_posix()}"
        for path in files
        if not _is_of_others(path) and _declares(path)
    ]


def _is_of_others(place: Path) -> bool:
    """Whether a file or a package is called like a test or a program, and is no dataset that is called so."""
    if not _OF_OTHERS.fullmatch(place.stem):
        return False
    folder = place if place.is_dir() else place.parent
    return folder.name in _FOLDERS_OF_TESTS or not _declares(place)


def _declares(place: Path) -> bool:
    """Whether a file, or one of a folder, declares a dataset."""
    files = files_of(place, "**/*.py") if place.is_dir() else [place]
    return any(_DECLARES.search(_text(file)) for file in files)


def _text(file: Path) -> str:
    """The text of a file; "" where it cannot be read, as what it declares is not known."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _file(folder: Path, module: str) -> str:
    """The file of a module, below the folder above that of the datasets."""
    inside = module.removeprefix(f"{package_of(folder)}.").replace(".", "/")
    is_package = (folder / inside).is_dir()
    return f"{folder.name}/{inside}{'/__init__' if is_package else ''}.py"


def _dotted(folder: Path) -> tuple[str, Path]:
    """The name of a folder's package with those that it lies in, and the folder above them all."""
    parts, above = [folder.name], folder.parent
    while (above / "__init__.py").is_file():
        parts.insert(0, above.name)
        above = above.parent
    return ".".join(parts), above


def _places(name: str) -> list[Path]:
    """Where Python finds a package or a module; nothing where it finds none."""
    try:
        spec = importlib.util.find_spec(name)
    except (ModuleNotFoundError, ValueError):
        return []
    if spec is None:
        return []
    places = list(spec.submodule_search_locations or ([spec.origin] if spec.origin else []))
    return [Path(place).resolve() for place in places]


def _all_within(name: str, folder: Path) -> bool:
    """Whether each module of the folder is what Python imports by its name: several folders may share a package."""
    specs = [importlib.util.find_spec(f"{name}.{module.name}") for module in pkgutil.iter_modules([str(folder)])]
    return all(spec is not None and spec.origin and Path(spec.origin).is_relative_to(folder) for spec in specs)


def _of_another_project(place: Path) -> bool:
    """Whether a package is the folder of datasets of a project, which this process has loaded before."""
    try:
        return Project.find(place.parent).assets.resolve() == place
    except NoProject:
        # Such a project was removed since.
        return not place.exists()


def _by_place(folder: Path, other: Path) -> str:
    """The name of the folder's package under a name of its own. Raises NoProject where its files use the other one."""
    name = f"{folder.name}_{hashlib.blake2b(str(folder).encode(), digest_size=4).hexdigest()}"
    if name in sys.modules:
        return name
    for place in _own_imports(folder):
        raise NoProject(
            f"{place} imports {folder.name}, which in this process is {other}, of another project. Write it as "
            "`from . import ...`, or rename the folder of one of the projects (and name it in [tool.varve])."
        )
    start = folder / "__init__.py"
    spec = (
        importlib.util.spec_from_file_location(name, start, submodule_search_locations=[str(folder)])
        if start.is_file()
        else ModuleSpec(name, None, is_package=True)
    )
    assert spec is not None
    spec.submodule_search_locations = [str(folder)]
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        if spec.loader is not None:
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return name


def _own_imports(folder: Path) -> Iterator[str]:
    """The lines, as `file:line`, that import the folder's package by its name."""
    for file in files_of(folder, "**/*.py"):
        try:
            tree = ast.parse(file.read_bytes(), str(file))
        except (OSError, SyntaxError, ValueError):
            # It is told when it is loaded, and imports nothing.
            continue
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names = [node.module]
            if any(name.partition(".")[0] == folder.name for name in names):
                assert isinstance(node, ast.Import | ast.ImportFrom)
                yield f"{file}:{node.lineno}"
