"""What runs with its temporary files in memory leaves no process behind, even if it is killed."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support import in_memory

if TYPE_CHECKING:
    from pathlib import Path

KILLED = """
import os, signal, subprocess, sys
server = subprocess.Popen(["sleep", "600"], start_new_session=True)
print(server.pid, file=open(sys.argv[1], "w"))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def _interrupts_as_before() -> object:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interrupts_as_before")
def test_a_server_whose_suite_was_killed_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, written = tmp_path / "files", tmp_path / "pid"
    folder.mkdir()
    monkeypatch.setattr(in_memory, "folder_in_memory", lambda: folder)
    assert in_memory.main([sys.executable, "-c", KILLED, str(written)]) == -signal.SIGKILL
    server = int(written.read_text())
    assert not psutil.pid_exists(server) or psutil.Process(server).status() == psutil.STATUS_ZOMBIE
    assert not folder.exists()
