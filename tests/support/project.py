"""The project that this repository is."""

from __future__ import annotations

from pathlib import Path

from varve.project import Project

PROJECT = Project.find(Path(__file__).parent)
ROOT = PROJECT.root
