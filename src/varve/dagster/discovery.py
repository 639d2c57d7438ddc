"""The datasets that a project declares, found in its folder, and their graph. Nothing of it imports Dagster.

Not here: what Dagster is given of them (definitions.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from varve.dagster.assets.datasets import DatasetAsset, graph_of, with_rejected
from varve.dagster.assets.python_files import broken_modules, python_assets
from varve.dagster.assets.sql_assets import assets_of, sql_assets
from varve.dagster.assets.sql_folders import forget_files, sql_datasets
from varve.model.errors import VarveError
from varve.project import NoProject
from varve.sql.code.own_files import CALENDAR, state_of

if TYPE_CHECKING:
    from pathlib import Path

    from varve.cdc.captured_table import CapturedTable
    from varve.model.broken_dataset import BrokenDataset
    from varve.planning.graph import Graph
    from varve.project import Project
    from varve.sql.code.own_files import State
    from varve.sql.files.sql_files import SqlFiles


@dataclass(frozen=True)
class LoadedProject:
    """A project with its datasets."""

    project: Project
    datasets: tuple[DatasetAsset | BrokenDataset, ...]
    graph: Graph

    @property
    def captured(self) -> list[CapturedTable]:
        """The tables that are captured as they change."""
        assets = [item for item in self.datasets if isinstance(item, DatasetAsset)]
        return [asset.captured for asset in assets if asset.captured is not None]


@lru_cache
def load_project(project: Project) -> LoadedProject:
    """A project's datasets and their graph, read once in a process. Raises what `discover` raises."""
    _read_at[project] = _state(project)
    datasets = tuple(discover(project))
    return LoadedProject(project, datasets, replace(graph_of(datasets), project=project.sensor_settings.project_name))


def load_anew(project: Project) -> LoadedProject:
    """The same, read again where a SQL file has changed since; Python files stay as this process has imported them."""
    if project in _read_at and _read_at[project] != _state(project):
        forget_files()
        load_project.cache_clear()
    return load_project(project)


# The SQL files of each project, when this process has read them.
_read_at: dict[Project, State] = {}


def _state(project: Project) -> State:
    return state_of(project.assets, (".sql", CALENDAR))


def discover(project: Project) -> list[DatasetAsset | BrokenDataset]:
    """Everything that a file of the project's folder declares: a new file there is all that a new dataset needs.

    Files with errors are among it as broken datasets. Raises NoProject where there is no such folder, VarveError for a
    dataset that is declared twice.
    """
    project.importable()
    if not project.assets.is_dir():
        raise NoProject(
            f"{project.file or project.root} has its datasets in {project.assets}, which is no folder. Make it, or "
            'name another in [tool.varve]: assets = "FOLDER".'
        )
    in_python, files = python_assets(project.assets), sql_datasets(project.assets)
    in_sql = {
        **{broken.name: broken.file for broken in files.broken},
        **{name: sql_asset.source.path for name, sql_asset in files.items()},
    }
    names = [asset.dataset.name for asset in in_python]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise VarveError(f"{twice[0]} is declared twice in the Python files of {project.assets}; take one of them out.")
    if both := sorted({asset.dataset.name for asset in in_python} & set(in_sql)):
        raise VarveError(f"{both[0]} is declared in {in_sql[both[0]]} and in Python; take one of them out.")
    return with_rejected([*in_python, *sql_assets(files), *broken_modules(project.assets)])


def graph_of_folder(folder: Path, files: SqlFiles) -> Graph:
    """Return the graph of the SQL files of a folder and of the Python files beside them.

    Raises VarveError for a circle, and for rejected rows that go into another dataset.
    """
    return graph_of(assets_of(files, folder))
