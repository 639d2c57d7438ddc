"""The web server of `varve ui` loads the definitions anew when a file has changed, and not more often."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from varve.cli.files.reloading import Reloader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.needs_seconds

DEFINITIONS = """
from pathlib import Path

import dagster as dg

defs = dg.Definitions([dg.AssetSpec(file.stem) for file in Path(__file__).parent.glob("*.sql")])
"""


def until(condition: Callable[[], Any], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def assets(port: int) -> set[str]:
    """The assets that a web server shows; none while it does not answer."""
    query = json.dumps({"query": "{ assetNodes { assetKey { path } } }"}).encode()
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/graphql", query, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:  # noqa: S310 - our own address
            return {node["assetKey"]["path"][-1] for node in json.load(answer)["data"]["assetNodes"]}
    except OSError:
        return set()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    folder = tmp_path / "datasets"
    folder.mkdir()
    (folder / "defs.py").write_text(DEFINITIONS, encoding="utf-8")
    (folder / "orders.sql").write_text("", encoding="utf-8")
    return folder


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def served(project: Path, port: int) -> Iterator[int]:
    program = str(Path(sys.executable).parent / "dagster-webserver")
    process = subprocess.Popen(
        [program, "-h", "127.0.0.1", "-p", str(port), "-f", str(project / "defs.py")],
        env={**os.environ, "DAGSTER_HOME": str(project.parent / "home")},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(lambda: assets(port) == {"orders"})
        yield port
    finally:
        process.terminate()
        process.wait(30)


def test_a_new_file_is_shown_without_a_person_who_reloads(project: Path, served: int) -> None:
    reloader = Reloader([project], served)
    assert not reloader.look()
    (project / "sales.sql").write_text("", encoding="utf-8")
    # A file that is being written is left to itself until two looks at it are the same.
    assert [reloader.look() for _ in range(3)] == [False, True, False]
    assert assets(served) == {"orders", "sales"}


def test_a_server_that_does_not_answer_is_asked_again_at_the_next_look(project: Path, port: int) -> None:
    reloader = Reloader([project], port)
    (project / "sales.sql").write_text("", encoding="utf-8")
    assert [reloader.look() for _ in range(3)] == [False, False, False]
    assert reloader.loaded != reloader.seen
