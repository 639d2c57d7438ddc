"""The project that a command is about: `--project`, `VARVE_PROJECT`, or the one of the working directory.

Not here: what is in it (varve/dagster/discovery.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from varve.project import Project

if TYPE_CHECKING:
    import dagster as dg

    from varve.model.dataset import Dataset
    from varve.planning.graph import Graph
    from varve.services.settings import Settings
    from varve.sql.sql_files import SqlFiles


def chosen_project() -> Project:
    """The project of the running command. Raises NoProject."""
    context = click.get_current_context(silent=True)
    given = context.find_object(Project) if context is not None else None
    return given or Project.find()


def chosen_settings() -> Settings:
    """Its settings as they are now."""
    return chosen_project().settings


def chosen_graph() -> Graph:
    """The graph of its datasets, read once in a process."""
    from varve.dagster.discovery import load_project

    return load_project(chosen_project()).graph


def chosen_sql_files() -> SqlFiles:
    """Its SQL files. Dagster, a second of imports, is loaded only where one of them reads a dataset of Python."""
    from varve.sql.sql_project import load_usable

    folder = chosen_project().assets

    def of_python() -> dict[str, Dataset]:
        from varve.dagster.assets.sql_assets import python_datasets

        return python_datasets(folder)

    return load_usable(folder, of_python)


def chosen_definitions() -> dg.Definitions:
    """What Dagster loads of it. Raises NoProject where its module has no `defs`."""
    from varve.project import NoProject

    project = chosen_project()
    module = project.module(project.definitions)
    if not hasattr(module, "defs"):
        raise NoProject(f"{project.definitions} has no `defs`; write defs = varve.definitions(project) in it.")
    found: dg.Definitions = module.defs
    return found
