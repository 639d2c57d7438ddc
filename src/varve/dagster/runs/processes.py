"""Run processes that start fast: a code server forks them from a process that has imported what every run needs.

Dagster's code server spawns a new interpreter for each run, which then imports Dagster, the stores and Spark's client.
That takes about 4 seconds, twice on the way from a file to a view (`python -m benchmarks.latency`). Here the run's
process is forked from Python's own fork server (`multiprocessing.forkserver`), which has no connection, and no threads
but those of Arrow's allocator and of numpy's OpenBLAS, which both prepare for a fork.

The project's own modules are still imported in each run's process: forks must not share a connection that a module
opens at import.

Not here: which process computes a run, and whether it lives (varve/dagster/internal).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
from multiprocessing import forkserver
from typing import TYPE_CHECKING

from varve.dagster.internal.runs import RUN_EXECUTION_MODULES, format_run_logs
from varve.model.errors import VarveError
from varve.observe.log_lines import JsonLines
from varve.services.settings import LogFormat
from varve.services.spark import will_open_elsewhere

if TYPE_CHECKING:
    from varve.project import Project

# Modules that nearly every run imports. None of them opens a connection.
PRELOADED = (
    "dagster",
    *RUN_EXECUTION_MODULES,
    "dagster_postgres",
    "varve.dagster.assets.captured",
    "varve.dagster.automation.report",
    "varve.dagster.automation.retiring",
    "varve.dagster.automation.sensors",
    "varve.dagster.assets.sql_runs",
    "varve.dagster.runs.builds.builds",
    "varve.dagster.runs.io_manager",
    "varve.dagster.runs.landing",
    "pyspark.sql.connect.session",
)


def is_code_server() -> bool:
    """Return whether Dagster has started this process to serve definitions and to launch runs.

    The runs that it forks have its words too, and load the definitions again: each of them imported everything once
    more into a fork server of its own, for no other run (2 to 3 s of processor time each).
    """
    return sys.argv[1:3] == ["api", "grpc"] and multiprocessing.parent_process() is None


def fork_runs() -> None:
    """Let this code server fork its runs; does nothing in other processes, nor where forks are unsafe (macOS)."""
    if not is_code_server() or sys.platform != "linux":
        return
    multiprocessing.set_forkserver_preload(list(PRELOADED))
    # Dagster asks the context of this name for a Process (DagsterApiServer._mp_ctx), and for nothing else of it that
    # differs between the two.
    spawned = multiprocessing.get_context("spawn")
    spawned.Process = multiprocessing.get_context("forkserver").Process  # type: ignore[misc, assignment]
    # The fork server imports the modules now, while nobody waits; otherwise the first run would wait three seconds.
    forkserver.ensure_running()


def expect_sessions(project: Project) -> None:
    """Let sensors of this code server open sessions of Spark in their threads while others connect to PostgreSQL.

    After `fork_runs`: runs that are no datasets may have a Spark of their own kind.
    """
    if is_code_server():
        # What is wrong with a setting, runs and ticks say.
        with contextlib.suppress(VarveError):
            will_open_elsewhere(project.settings)


def write_logs(project: Project) -> None:
    """Let the runs of this process write their logs as the project says (`VARVE_LOG_FORMAT`), from the next one on."""
    format_run_logs(JsonLines() if project.sensor_settings.log_format is LogFormat.JSON else None)
