"""The processes of runs begin with what every run needs already imported, and share nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs_seconds

ROOT = Path(__file__).resolve().parents[2]
# Stands for Dagster's code server, which begins a run just so.
SERVER = """
import multiprocessing, sys
from tests.dagster.test_run_processes import describe
from varve.dagster.runs.processes import fork_runs

if __name__ == "__main__":
    sys.argv[1:] = {words!r}
    fork_runs()
    context = multiprocessing.get_context("spawn")
    queue, told = context.Queue(), []
    for _ in range(2):
        process = context.Process(target=describe, args=[queue])
        process.start()
        told.append(queue.get(timeout=60))
        process.join(60)
        assert process.exitcode == 3
    print(*told, sep="\\n")
"""


def describe(queue: object) -> None:
    """What a run's process finds when it begins."""
    found = {
        "pid": os.getpid(),
        "warm": "pyspark.sql.connect.session" in sys.modules,
        # The project's own modules are the run's to import: what they open must not be shared.
        "definitions": "pipeline_defs.definitions" in sys.modules,
    }
    queue.put(json.dumps(found))  # type: ignore[attr-defined]
    queue.close()  # type: ignore[attr-defined]
    queue.join_thread()  # type: ignore[attr-defined]
    os._exit(3)


def described(tmp_path: Path, *words: str) -> list[dict[str, object]]:
    server = tmp_path / "server.py"
    server.write_text(SERVER.format(words=list(words)), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(server)], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
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


def test_every_other_process_spawns_as_python_does(tmp_path: Path) -> None:
    first, _ = described(tmp_path, "asset", "materialize")
    assert not first["warm"]
