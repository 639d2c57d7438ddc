"""kill -9 of services, after which nothing of them goes on."""

from __future__ import annotations

import contextlib
import time

import psutil

_SECONDS = 30


def kill_all(pid: int) -> None:
    """SIGKILL a process, then its children: a session of PostgreSQL outlives its postmaster, and may still commit."""
    parent = psutil.Process(pid)
    children = parent.children(recursive=True)
    for process in (parent, *children):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    for process in (parent, *children):
        wait_for_end(process.pid)


def wait_for_end(pid: int) -> None:
    """Until a process runs no more; one that nobody waits for stays as a zombie, which answers nobody."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        deadline = time.monotonic() + _SECONDS
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, f"{process} did not end"
            time.sleep(0.02)
