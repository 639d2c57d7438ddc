"""The datasets that a project declares, found in its folder, and their graph.

A command needs no assets, but the graph: for it Dagster, a second of imports, is imported only where a Python file
declares a dataset.

Not here: what Dagster is given of them (definitions.py).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from varve.dagster.assets.python_files import broken_modules, python_assets
from varve.dagster.assets.sql_folders import planned_reads, sql_datasets
from varve.model.errors import VarveError
from varve.model.reads import Reads
from varve.planning.graph import Graph
from varve.project import NoProject

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from varve.cdc.captured_table import CapturedTable
    from varve.dagster.assets.datasets import DatasetAsset
    from varve.model.broken_dataset import BrokenDataset
    from varve.project import Project
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
        from varve.dagster.assets.datasets import DatasetAsset

        assets = [item for item in self.datasets if isinstance(item, DatasetAsset)]
        return [asset.captured for asset in assets if asset.captured is not None]


@lru_cache
def load_project(project: Project) -> LoadedProject:
    """A project's datasets and their graph, read once in a process. Raises what `discover` raises."""
    from varve.dagster.assets.datasets import graph_of

    datasets = tuple(discover(project))
    return LoadedProject(project, datasets, replace(graph_of(datasets), project=project.sensor_settings.project_name))


def discover(project: Project) -> list[DatasetAsset | BrokenDataset]:
    """Everything that a file of the project's folder declares: a new file there is all that a new dataset needs.

    Files with errors are among it as broken datasets. Raises NoProject where there is no such folder, VarveError for a
    dataset that is declared twice.
    """
    from varve.dagster.assets.datasets import with_rejected
    from varve.dagster.assets.sql_assets import sql_assets

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


def graph_of_project(project: Project) -> Graph:
    """Return the graph of a project's datasets, read once in a process. Raises what `discovery.discover` raises."""
    # A command that imports Dagster later goes on with the graph that it has begun with.
    began_without = "dagster" not in sys.modules or _without_dagster.cache_info().currsize
    if began_without and (graph := _without_dagster(project)) is not None:
        return graph
    return load_project(project).graph


@lru_cache
def _without_dagster(project: Project) -> Graph | None:
    """Return the graph where no Python file declares a dataset; otherwise None."""
    project.importable()
    if not project.assets.is_dir() or python_assets(project.assets):
        return None
    files = sql_datasets(project.assets)
    graph = graph_of_sql(files, [*files.broken, *broken_modules(project.assets)])
    return replace(graph, project=project.sensor_settings.project_name)


def graph_of_folder(folder: Path, files: SqlFiles) -> Graph:
    """Return the graph of the SQL files of a folder and of the Python files beside them.

    Raises VarveError for a circle, and for rejected rows that go into another dataset.
    """
    if python_assets(folder):
        from varve.dagster.assets.datasets import graph_of
        from varve.dagster.assets.sql_assets import assets_of

        return graph_of(assets_of(files, folder))
    return graph_of_sql(files, files.broken)


def graph_of_sql(files: SqlFiles, broken: Iterable[BrokenDataset]) -> Graph:
    """Return the graph of SQL datasets, equal to that of their assets."""
    datasets = {name: sql_asset.dataset for name, sql_asset in files.items()}
    reads: dict[str, tuple[Reads, ...]] = {
        name: tuple(planned_reads(sql_asset).values()) for name, sql_asset in files.items()
    }
    versions = {name: sql_asset.code_version for name, sql_asset in files.items()}
    sources = {name: sql_asset.code_text for name, sql_asset in files.items()}
    for name, sql_asset in files.items():
        if (rejected := sql_asset.dataset.rejected_dataset()) is not None:
            datasets[rejected.name], reads[rejected.name] = rejected, (Reads(sql_asset.dataset),)
            versions[rejected.name], sources[rejected.name] = versions[name], sources[name]
    expectations = {
        name: {expectation.name: expectation.condition for expectation in sql_asset.dataset.expectations}
        | dict(sql_asset.compiled.expectations)
        for name, sql_asset in files.items()
    }
    return Graph(
        datasets,
        reads,
        versions,
        tuple(broken),
        sources,
        {name: sql_asset.lineage for name, sql_asset in files.items() if sql_asset.lineage},
        {name: conditions for name, conditions in expectations.items() if conditions},
    )
