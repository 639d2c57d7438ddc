"""The SQL files of a folder, with the datasets of the Python files beside them.

Dagster, a second of imports, is imported only where a Python file declares a dataset.

Not here: the assets of the SQL files (sql_assets.py), their graph (varve/dagster/discovery.py), and reading the
files (varve/sql).
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from varve.dagster.assets.python_files import half_imported, python_assets
from varve.model.errors import VarveError
from varve.planning.graph import PlannedReads
from varve.sql.sql_project import load_usable

if TYPE_CHECKING:
    from varve.model.dataset import Dataset
    from varve.sql.cache import Cache
    from varve.sql.files.sql_files import SqlFiles
    from varve.sql.sql_asset import SqlAsset


@lru_cache
def sql_datasets(folder: Path | str) -> SqlFiles:
    """Return the usable SQL datasets of a folder, with the broken ones and their errors; read once in a process.

    In a Python file beside them: `sql_datasets(Path(__file__).parent)["shop.orders"].dataset`.

    Looking up a broken dataset by its name raises DatasetIsBroken.
    """
    return usable(Path(folder))


def usable(folder: Path, cache: Cache | None = None) -> SqlFiles:
    """Return the SQL datasets of a folder, which may read datasets of the Python files beside them. See `load_usable`.

    Raises VarveError where it is called while a module that declares such a dataset is still being imported.
    """
    files = load_usable(folder, lambda: python_datasets(folder), cache)
    if files.undeclared and (half_loaded := half_imported(folder)):
        problems = "\n".join(map(str, files.problems))
        raise VarveError(
            f"{problems}\nWhat asks for SQL datasets while it is imported must declare its own above that, or in "
            f"another module; it is {', '.join(half_loaded)}."
        )
    return files


def loaded(folder: Path, cache: Cache | None = None) -> SqlFiles:
    """Return the SQL datasets of a folder. Raises SqlErrors with every problem of every file."""
    return usable(folder, cache).checked()


def python_datasets(folder: Path) -> dict[str, Dataset]:
    """Return the datasets that the Python files of a folder declare, by name."""
    if not (in_python := python_assets(folder)):
        return {}
    from varve.dagster.assets.datasets import DatasetAsset, with_rejected

    assets = [asset for asset in with_rejected(in_python) if isinstance(asset, DatasetAsset)]
    return {asset.dataset.name: asset.dataset for asset in assets}


def planned_reads(sql_asset: SqlAsset) -> dict[str, PlannedReads]:
    """Return what a SQL dataset reads, by the name of the dataset."""
    return {
        name: PlannedReads(
            dataset=sql_asset.upstreams[name],
            dependency=sql_asset.dependency(name),
            wait=sql_asset.compiled.waits[name],
            columns=sql_asset.compiled.columns[name],
        )
        for name in sql_asset.reads
    }
