"""Run a command whose temporary files are kept in memory, where there is enough of it; else as it is.

    python -m tests.support.in_memory pytest --numprocesses auto

The suite makes thousands of small databases, folders and logs: on a disk a sixth of its time goes into that. `auto` is
as many workers as the machine has processors and memory for, or what `PYTEST_XDIST_AUTO_NUM_WORKERS` says.

Not here: which tests there are.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from tests.support.processor_time import ProcessorTime, temporary_files

PLACE = Path("/dev/shm")  # noqa: S108 - a file system in memory, wherever Linux runs
# What a worker may need: two of them have written 1.6 GB at most, and used 8.2 GB of memory beside that.
FILES, SERVERS = 2 << 30, 5 << 30
WORKERS = "PYTEST_XDIST_AUTO_NUM_WORKERS"


def number_of_workers(processors: int, memory: int) -> int:
    """How many workers are of use; three on two processors took as long as two."""
    return max(1, min(processors, memory // (FILES + SERVERS)))


def folder_in_memory(workers: int, place: Path = PLACE) -> Path | None:
    """A new folder in memory; None where that is too small, or programs may not be run from there."""
    if not os.access(place, os.W_OK) or shutil.disk_usage(place).free < workers * FILES:
        return None
    if psutil.virtual_memory().available < workers * (FILES + SERVERS):
        return None
    folder = Path(tempfile.mkdtemp(prefix="tests-", dir=place))
    program = folder / "program"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o700)
    try:
        subprocess.run([program], check=True)
    except (OSError, subprocess.CalledProcessError):
        shutil.rmtree(folder)
        return None
    # Servers of other users are started from it.
    folder.chmod(0o755)
    return folder


def main(command: list[str]) -> int:
    """Run the command, say what its processes have used, end and delete what it has left; returns its exit code."""
    workers = number_of_workers(len(os.sched_getaffinity(0)), psutil.virtual_memory().available)
    workers = int(os.environ.get(WORKERS) or workers)
    folder = folder_in_memory(workers)
    environment = {**os.environ, WORKERS: str(workers)} | ({} if folder is None else {"TMPDIR": str(folder)})
    began = time.monotonic()
    running = subprocess.Popen(command, env=environment)
    # Ctrl-C reaches the command too, which ends its servers before it ends. SIGTERM may reach this process alone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def end(*_: object) -> None:
        running.terminate()
        sys.exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    if folder is None:
        return running.wait()
    used = ProcessorTime(folder)
    try:
        while _still_runs(running):
            used.look()
        sys.stdout.write("".join(f"{line}\n" for line in used.lines(time.monotonic() - began)))
        return running.returncode
    finally:
        _end_what_still_runs(folder)
        running.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _still_runs(running: subprocess.Popen[bytes]) -> bool:
    """Wait for its end, for a second."""
    try:
        running.wait(timeout=1)
    except subprocess.TimeoutExpired:
        return True
    return False


def _end_what_still_runs(folder: Path) -> None:
    """A suite that was killed has ended none of its servers, which would run on without their files."""
    left = [process for process in psutil.process_iter() if temporary_files(process) == str(folder)]
    for end in (psutil.Process.terminate, psutil.Process.kill):
        for process in left:
            with contextlib.suppress(psutil.Error):
                end(process)
        _, left = psutil.wait_procs(left, timeout=3)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
