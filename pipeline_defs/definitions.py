"""What Dagster loads: every dataset of `assets/`, with sensors, schedules, jobs, checks and resources."""

from pathlib import Path

from varve.dagster.definitions import definitions
from varve.dagster.discovery import load_project
from varve.project import Project

project = Project.find(Path(__file__).parent)
graph = load_project(project).graph
defs = definitions(project)
