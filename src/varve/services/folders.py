"""Folders of the home that services need: made, or refused with a message."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from varve.model.errors import ServiceUnavailable

if TYPE_CHECKING:
    from pathlib import Path

    from varve.services.settings import Settings


def environment_home(settings: Settings, name: str) -> Path:
    """The folder of an environment in the home: Dagster's records of its runs, and files landed into it."""
    return settings.home_dir / "environments" / name


def writable(folder: Path, *, mode: int = 0o777) -> Path:
    """Make the folder where it is missing. Raises ServiceUnavailable where it cannot be made or written into."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=mode)
        problem = "" if os.access(folder, os.W_OK | os.X_OK) else "it may not be written into"
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        raise ServiceUnavailable(
            f"the folder {folder} cannot be used: {problem}. Name another one in VARVE_HOME (landing files: "
            "VARVE_LANDING_ROOT), or let the user whom Varve runs as write there."
        )
    return folder
