"""The project that this repository is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from varve.dagster import discovery
from varve.dagster.discovery import LoadedProject
from varve.project import Project

if TYPE_CHECKING:
    import pytest

    from varve.planning.graph import Graph

PROJECT = Project.find(Path(__file__).parent)
ROOT = PROJECT.root


def commands_on(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands that are called in this process work on these datasets, with the project's settings."""
    monkeypatch.setattr(discovery, "load_project", lambda project: LoadedProject(project, (), graph))
