"""Hosts of namespaces: what the tests of the stack stand on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.project import wait_until
from tests.support import hosts
from tests.support.hosts import Network, NoHosts
from tests.support.project import ROOT

if TYPE_CHECKING:
    from tests.support.hosts import Host

pytestmark = pytest.mark.slow

# Prints the name by which the other side knows itself, or fails within seconds.
ASK = "import socket, sys; print(socket.create_connection((sys.argv[1], 7000), 3).recv(99).decode())"
TELL = """
import socket
server = socket.create_server(("0.0.0.0", 7000))
while True:
    connection, _ = server.accept()
    connection.sendall(socket.gethostname().encode())
    connection.close()
"""
# A process that makes two hosts and is then killed.
MAKER = """
import sys, time
from pathlib import Path
from tests.support.hosts import Network
with Network(Path(sys.argv[1])) as network:
    print(network.add("one", {}).first, network.add("two", {}).first, flush=True)
    time.sleep(600)
"""


def told(host: Host, name: str) -> str | None:
    """What the server of this name answers to a host; None where it is not reached."""
    done = subprocess.run(host.words([sys.executable, "-c", ASK, name]), capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def test_hosts_know_each_other_by_name_until_a_cable_is_pulled(tmp_path: Path) -> None:
    (folder := tmp_path / "of_one").mkdir()
    (folder / "file").write_text("text", encoding="utf-8")
    with Network(tmp_path / "network") as network:
        one, two = network.add("one", {"/srv": folder}), network.add("two", {})
        one.run("cat", "/srv/file")
        server = subprocess.Popen(one.words([sys.executable, "-c", TELL]))
        wait_until(lambda: told(two, "one") == "one", seconds=60, what="the server answers")
        network.cut(one)
        assert told(two, "one") is None
        network.mend(one)
        assert told(two, "one") == "one"
        # Another machine takes the name; the first one is still there.
        three = network.add("three", {}, takes_name="one")
        assert told(two, "one") is None
        one.kill_processes()
        assert server.wait(30) == -signal.SIGKILL
        other = subprocess.Popen(three.words([sys.executable, "-c", TELL]))
        wait_until(lambda: told(two, "one") == "three", seconds=60, what="the other machine answers")
    assert other.wait(30) == -signal.SIGKILL
    assert not any(Path(f"/proc/{host.first}").exists() for host in (one, two, three))


def test_nothing_is_left_of_hosts_whose_maker_was_killed(tmp_path: Path) -> None:
    maker = subprocess.Popen([sys.executable, "-c", MAKER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert maker.stdout is not None
    firsts = maker.stdout.readline().split()
    assert len(firsts) == 2
    maker.kill()
    maker.wait(30)
    maker.stdout.close()
    wait_until(
        lambda: not any(Path(f"/proc/{first}").exists() for first in firsts), seconds=30, what="the hosts have ended"
    )


def test_a_machine_that_makes_no_hosts_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # `unshare` as it answers in a container without the right.
    refusing = tmp_path / "unshare"
    refusing.write_text("#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(NoHosts, match=r"Operation not permitted\. Run these tests on Linux as root"), Network(tmp_path):
        pass
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(NoHosts, match="There is no setpriv on this machine"):
        _ = hosts.Network(tmp_path).switch
