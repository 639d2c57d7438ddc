"""A dataset by its name.

Not here: the graph of all datasets (varve/cli/context.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.cli.context import chosen_project, chosen_sql_files
from varve.model.errors import VarveError, nearest, some

if TYPE_CHECKING:
    from varve.dagster.assets.datasets import DatasetAsset
    from varve.model.dataset import Dataset
    from varve.sql.sql_asset import SqlAsset


def declared(name: str, *, computable: bool = False) -> SqlAsset | DatasetAsset:
    """Return the SQL file or the asset of Python that declares a dataset, written `db.table` or `db/table`.

    With `computable` Spark is asked for the types of its columns where only it can tell them. Raises VarveError where
    nothing declares it, DatasetIsBroken where its file has errors.
    """
    name = name.replace("/", ".")
    project = chosen_project()
    project.importable()
    files = chosen_sql_files(asking=name if computable else "")
    if name in files or any(broken.name == name for broken in files.broken):
        return files[name]
    from varve.dagster.assets.datasets import DatasetAsset
    from varve.dagster.discovery import load_project

    loaded = load_project(project)
    by_name = {asset.dataset.name: asset for asset in loaded.datasets if isinstance(asset, DatasetAsset)}
    if name not in by_name:
        maybe = loaded.graph.perhaps_in(name)
        raise VarveError(
            f"there is no dataset {name!r}.{nearest(name, by_name)} There are {some(sorted(by_name))}.{maybe}"
        )
    return by_name[name]


def key_of(dataset: Dataset) -> tuple[str, ...]:
    """Return the data columns that are declared to tell the rows of a partition apart: those of a unique index."""
    return next((index.columns for index in dataset.warehouse.indexes if index.unique), ())
