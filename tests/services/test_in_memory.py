"""What runs with its temporary files in memory has as many workers as fit, and leaves nothing behind if it is ended."""

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
print(server.pid, file=open(sys.argv[1], "w"), flush=True)
if sys.argv[2] == "itself":
    os.kill(os.getpid(), signal.SIGKILL)
os.kill(os.getppid(), signal.SIGTERM)
server.wait()
"""


@pytest.fixture
def _interrupts_as_before() -> object:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def is_ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    ("processors", "memory", "workers"),
    [(1, 64, 1), (2, 8, 1), (2, 16, 2), (2, 22, 2), (2, 64, 2), (16, 31, 4), (16, 512, 16), (2, 4, 1)],
)
def test_there_are_as_many_workers_as_processors_and_memory_allow(processors: int, memory: int, workers: int) -> None:
    assert in_memory.number_of_workers(processors, memory << 30) == workers


@pytest.mark.usefixtures("_interrupts_as_before")
def test_what_runs_is_told_how_many_workers_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "told"
    command = [sys.executable, "-c", f"import os; open({str(told)!r}, 'w').write(os.environ[{in_memory.WORKERS!r}])"]
    monkeypatch.delenv(in_memory.WORKERS, raising=False)
    assert in_memory.main(command) == 0
    assert int(told.read_text()) >= 1
    monkeypatch.setenv(in_memory.WORKERS, "7")
    assert in_memory.main(command) == 0
    assert told.read_text() == "7"


@pytest.mark.usefixtures("_interrupts_as_before")
def test_a_server_whose_suite_was_killed_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, written = tmp_path / "files", tmp_path / "pid"
    folder.mkdir()
    monkeypatch.setattr(in_memory, "folder_in_memory", lambda _: folder)
    assert in_memory.main([sys.executable, "-c", KILLED, str(written), "itself"]) == -signal.SIGKILL
    assert is_ended(int(written.read_text()))
    assert not folder.exists()


@pytest.mark.usefixtures("_interrupts_as_before")
def test_a_suite_that_is_told_to_end_ends_with_its_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, written = tmp_path / "files", tmp_path / "pid"
    folder.mkdir()
    monkeypatch.setattr(in_memory, "folder_in_memory", lambda _: folder)
    with pytest.raises(SystemExit) as ended:
        in_memory.main([sys.executable, "-c", KILLED, str(written), "its parent"])
    assert ended.value.code == 128 + signal.SIGTERM
    assert is_ended(int(written.read_text()))
    assert not folder.exists()
