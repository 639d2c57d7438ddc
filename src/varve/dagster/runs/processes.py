"""Runs in processes that begin warm: a code server forks them from one that has imported what every run needs.

Dagster's code server spawns a new interpreter for each run, which then imports Dagster, the stores and Spark's client:
about 4 seconds, twice on the way from a file to a view (`python -m benchmarks.latency`). Here the same process is
forked from a server of Python's own (`multiprocessing.forkserver`), which runs no Python thread and has no connection.

What a project's own modules do at import is done in each run's process, as before: a connection that they open there
must not be shared by forks.

Not here: which process computes a run, and whether it lives (internal.py).
"""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing import forkserver

from varve.dagster.internal import RUN_EXECUTION_MODULES

# What nearly every run imports, and nothing that opens a connection or starts a thread that forks would miss.
PRELOADED = (
    "dagster",
    *RUN_EXECUTION_MODULES,
    "dagster_postgres",
    "varve.dagster.assets.captured",
    "varve.dagster.automation.report",
    "varve.dagster.automation.retiring",
    "varve.dagster.automation.sensors",
    "varve.dagster.assets.sql_assets",
    "varve.dagster.runs.builds",
    "varve.dagster.runs.io_manager",
    "varve.dagster.runs.landing",
    "pyspark.sql.connect.session",
)


def is_code_server() -> bool:
    """Whether this process is one that Dagster has started to serve definitions and to launch runs."""
    return sys.argv[1:3] == ["api", "grpc"]


def fork_runs() -> None:
    """Have this code server fork its runs; nothing in any other process, nor where forks are not safe (macOS)."""
    if not is_code_server() or sys.platform != "linux":
        return
    multiprocessing.set_forkserver_preload(list(PRELOADED))
    # Dagster asks the context of this name for a Process (DagsterApiServer._mp_ctx), and for nothing else of it that
    # differs between the two.
    spawned = multiprocessing.get_context("spawn")
    spawned.Process = multiprocessing.get_context("forkserver").Process  # type: ignore[misc, assignment]
    # It imports while nobody waits: otherwise the first run would wait for three seconds of work.
    forkserver.ensure_running()
