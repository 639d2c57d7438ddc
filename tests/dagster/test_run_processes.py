"""The processes of runs start with the common modules imported, and share nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from multiprocessing import forkserver
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.environment import clean_environment

if TYPE_CHECKING:
    from varve.services.settings import Settings

pytestmark = pytest.mark.needs_seconds

ROOT = Path(__file__).resolve().parents[2]
# This script stands for Dagster's code server, which starts a run in the same way.
SERVER = """
import multiprocessing, os, sys
from tests.dagster.test_run_processes import describe
from varve.dagster.runs.processes import expect_sessions, fork_runs
from varve.project import Project

if __name__ == "__main__":
    sys.argv[1:] = {words!r}
    fork_runs()
    expect_sessions(Project.find())
    assert os.environ.get("SPARK_CONNECT_MODE_ENABLED") == ("1" if sys.argv[1:] == ["api", "grpc"] else None)
    context = multiprocessing.get_context("spawn")
    queue, answers = context.Queue(), []
    for _ in range(2):
        process = context.Process(target=describe, args=[queue])
        process.start()
        answers.append(queue.get(timeout=60))
        process.join(60)
        assert process.exitcode == 3
    print(*answers, sep="\\n")
"""

# `os.environ` asks for a variable to be set before it notes it itself.
OPENING = """
import os, sys, threading

new = []

def watch(event, arguments):
    if event == "os.putenv" and arguments[0] not in os.environb:
        new.append((os.fsdecode(arguments[0]), threading.current_thread() is threading.main_thread()))

sys.addaudithook(watch)

from varve.dagster.runs.spark import SparkResource
from varve.project import Project

resource = SparkResource.of(Project.find())
resource.open_ahead()
assert resource.spark_session.range(3).count() == 3
print(*(name for name, in_main in new if in_main))
print(*(name for name, in_main in new if not in_main))
"""


def describe(queue: object) -> None:
    """Describe what a run's process has when it starts, in the queue; then it loads definitions, as each run does."""
    from varve.dagster.runs.processes import fork_runs

    warm, definitions = "pyspark.sql.connect.session" in sys.modules, "pipeline_defs.definitions" in sys.modules
    fork_runs()
    description = {
        "pid": os.getpid(),
        "of connect": os.environ.get("SPARK_CONNECT_MODE_ENABLED"),
        "warm": warm,
        # The run's process imports the project's own modules itself: what they open must not be shared.
        "definitions": definitions,
        "forked from": [thread.read_text().strip() for thread in Path(f"/proc/{os.getppid()}/task").glob("*/comm")],
        "own fork server": forkserver._forkserver._forkserver_pid is not None,
    }
    queue.put(json.dumps(description))  # type: ignore[attr-defined]
    queue.close()  # type: ignore[attr-defined]
    queue.join_thread()  # type: ignore[attr-defined]
    os._exit(3)


def described(tmp_path: Path, *words: str) -> list[dict[str, object]]:
    server = tmp_path / "server.py"
    server.write_text(SERVER.format(words=list(words)), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(server)], cwd=ROOT, env={**clean_environment(), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_code_server_forks_its_runs_from_a_process_that_has_imported_what_they_need(tmp_path: Path) -> None:
    first, second = described(tmp_path, "api", "grpc")
    assert first["warm"]
    assert second["warm"]
    assert not first["definitions"]
    assert first["pid"] != second["pid"]
    # Runs of the project's own assets may have a Spark of their own kind.
    assert first["of connect"] is None


def test_what_forks_runs_has_no_thread_but_those_that_prepare_for_a_fork(tmp_path: Path) -> None:
    first, _ = described(tmp_path, "api", "grpc")
    threads = first["forked from"]
    assert isinstance(threads, list)
    # OpenBLAS has one for each further processor.
    assert 1 <= len([name for name in threads if name != "jemalloc_bg_thd"]) <= (os.cpu_count() or 1)


def test_no_variable_is_new_that_another_thread_sets_while_a_run_connects(settings: Settings) -> None:
    """It would move the environment, which libpq reads meanwhile in the run's main thread: a run of thousands died."""
    assert settings.spark_master is None
    done = subprocess.run(
        [sys.executable, "-c", OPENING], cwd=ROOT, env=clean_environment("SPARK_"),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    in_main, elsewhere = done.stdout.splitlines()[-2:]
    assert "SPARK_CONNECT_MODE_ENABLED" in in_main.split()
    assert elsewhere == ""


def test_a_run_starts_no_fork_server_of_its_own(tmp_path: Path) -> None:
    """It has the words of its code server, and would import everything again in a process that nobody uses."""
    first, second = described(tmp_path, "api", "grpc")
    assert (first["own fork server"], second["own fork server"]) == (False, False)


def test_every_other_process_spawns_as_python_does(tmp_path: Path) -> None:
    first, _ = described(tmp_path, "asset", "materialize")
    assert not first["warm"]
