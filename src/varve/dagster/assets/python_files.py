"""The datasets that the Python files of a folder declare, for those that look for them: Dagster, and SQL files.

Not here: what SQL files declare (sql_assets.py).
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from varve.dagster.assets.datasets import DatasetAsset
from varve.model.broken_dataset import BrokenDataset, DatasetIsBroken

if TYPE_CHECKING:
    from types import ModuleType


def python_assets(folder: Path) -> list[DatasetAsset]:
    """Every dataset of the folder's modules, as far as those that are being imported right now have come.

    Nothing where the folder is no package that Python finds. Modules that ask for a broken dataset of SQL are left out.
    """
    modules = [module for name in _modules(folder) if (module := _imported(name)) is not None]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, DatasetAsset)]
    # A module may import another's.
    return list({id(each): each for each in found}.values())


def broken_modules(folder: Path) -> list[BrokenDataset]:
    """The folder's modules that cannot be imported, as they ask for a SQL dataset that is broken.

    What they declare has no name here, as nobody knows it.
    """
    found = []
    for name in _modules(folder):
        try:
            importlib.import_module(name)
        except DatasetIsBroken as error:
            file = f"{folder.name}/{name.rpartition('.')[2]}.py"
            found.append(BrokenDataset("", file, waits_for=(error.broken.title,), causes=(error.broken.headline,)))
    return found


def half_imported(folder: Path) -> list[str]:
    """The folder's modules that are being imported right now: what they declare further down is not known yet."""
    return [name for name in _modules(folder) if _is_half(sys.modules.get(name))]


def _imported(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except DatasetIsBroken:
        return None


def _is_half(module: ModuleType | None) -> bool:
    return module is not None and getattr(module.__spec__, "_initializing", False)


def _modules(folder: Path) -> list[str]:
    spec = importlib.util.find_spec(folder.name) if folder.name.isidentifier() else None
    places = spec.submodule_search_locations if spec is not None else None
    if not places or folder.resolve() not in [Path(place).resolve() for place in places]:
        return []
    return [f"{folder.name}.{found.name}" for found in pkgutil.iter_modules(places)]
