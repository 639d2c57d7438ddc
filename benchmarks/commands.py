"""`dagster asset materialize` as a person would type it: whole processes against warm services, in a home of their own.

Not here: what is measured (the benchmarks).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from varve.project import Project
from varve.services.postgres_server import PostgresServer
from varve.services.settings import Settings
from varve.services.spark_server import SparkServer

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = "pipeline_defs.definitions"


@contextmanager
def home_of_its_own() -> Iterator[Settings]:
    """Settings whose services and data nobody else has; in the end the services are stopped and the data is gone."""
    with tempfile.TemporaryDirectory(prefix="varve-bench-") as home:
        # PostgreSQL runs as a user of its own where the benchmark runs as root.
        Path(home).chmod(0o755)
        os.environ["VARVE_HOME"] = home
        settings = Settings()
        try:
            yield settings
        finally:
            SparkServer(settings).stop()
            PostgresServer(settings.home_dir).stop()


def materialize(select: str, *words: str, module: str = PROJECT) -> float:
    """Seconds of wall time. Ends the benchmark where the run fails."""
    command = [
        str(Path(sys.executable).parent / "dagster"), "asset", "materialize", "-m", module, "--select", select, *words,
    ]  # fmt: skip
    start = time.monotonic()
    done = subprocess.run(command, cwd=Project.find().root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return time.monotonic() - start
