"""The project that a command works on: `--project`, `VARVE_PROJECT`, or the one of the working directory.

Not here: loading the datasets of a project (varve/dagster/discovery.py).
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from varve.model.errors import VarveError
from varve.project import Project

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from varve.model.dataset import Dataset
    from varve.planning.graph import Graph
    from varve.services.settings import Settings
    from varve.sql.files.sql_files import SqlFiles


# Each thread has its own, so the console can show several projects in one process.
_CHOSEN: ContextVar[Project | None] = ContextVar("project", default=None)


@contextmanager
def working_on(project: Project) -> Iterator[None]:
    """Let what is called within work on this project."""
    token = _CHOSEN.set(project)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def chosen_project() -> Project:
    """Return the project of the running command. Raises NoProject where there is none."""
    return _CHOSEN.get() or Project.find()


def folder_of_datasets(folder: Path | None) -> Path:
    """The folder of datasets that is meant. Raises VarveError where it is none: nothing would be looked at."""
    root = folder or chosen_project().assets
    if root.is_dir():
        return root
    if folder is None:
        raise VarveError(f"{root} is no folder, and the project's datasets should lie in it: look at [tool.varve].")
    raise VarveError(f"{root} is {'a file' if root.is_file() else 'not there'}; name the folder of the datasets.")


def chosen_settings() -> Settings:
    """Return the settings of the chosen project, as they are now."""
    return chosen_project().settings


def chosen_graph() -> Graph:
    """Return the graph of its datasets, which is read once in a process. Raises NoProject where there is no dataset."""
    from varve.dagster.discovery import load_project
    from varve.project import NoProject

    project = chosen_project()
    graph = load_project(project).graph
    if not graph.datasets and not graph.broken:
        raise NoProject(
            f"{project.assets} declares no dataset: there is no .sql file in it, and no Python file with a dataset. "
            "Write one: docs/sql.md."
        )
    return graph


def chosen_sql_files(asking: str = "") -> SqlFiles:
    """Its SQL files.

    Spark is asked for types that only it can tell where the dataset `asking` cannot be used without them; its answers
    are kept for this process alone.
    """
    from varve.sql.answers import Answers
    from varve.sql.sql_project import load_usable, sources_of, usable
    from varve.sql.syntax.errors import Problem

    folder = chosen_project().assets

    def of_python() -> dict[str, Dataset]:
        from varve.dagster.assets.sql_folders import python_datasets

        return python_datasets(folder)

    files, answers = load_usable(folder, of_python), Answers.beside(folder)
    while asking and files.questions and any(broken.name == asking for broken in files.broken):
        from varve.services.spark import open_session
        from varve.sql.spark.analysis import columns_by_spark

        session = open_session(chosen_settings())
        columns_by_question = {question: columns_by_spark(session, question) for question, _ in files.questions}
        for question, columns in columns_by_question.items():
            if not isinstance(columns, Problem):
                answers.keep(question, columns)
        if any(isinstance(columns, Problem) for columns in columns_by_question.values()):
            break
        files = usable(sources_of(folder), of_python, answers=answers, value_answers=files.value_answers)
    return files
