"""The daemon and the web server of `varve ui` for a while: its sensors run what arrives, and people cancel runs.

Not here: what `varve ui` starts (varve/cli/servers/ui.py).
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from typing import TYPE_CHECKING, Any

import psutil

from tests.killing import kill_all
from tests.torture.project import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.torture.project import TorturedProject

COMES_UP_SECONDS = 120
ENDS_SECONDS = 60
_RUNS = "{ runsOrError(filter: {statuses: [STARTED, QUEUED, STARTING]}) { ... on Runs { results { runId } } } }"
_CANCEL = 'mutation { terminateRun(runId: "%s") { __typename } }'


@contextlib.contextmanager
def served(project: TorturedProject, *, ending: str) -> Iterator[str]:
    """The address of a web server beside which a daemon runs; in the end both are asked to end, or killed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["-m", "tests.torture.dying_command", "{}", "ui", "--port", str(port), "--no-console"]
    with (project.folder / "ui.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, *words], cwd=ROOT, env=project.environment, stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    started: list[psutil.Process] = []
    try:
        deadline = time.monotonic() + COMES_UP_SECONDS
        while not _answers(f"http://127.0.0.1:{port}/server_info"):
            if time.monotonic() > deadline or process.poll() is not None:
                raise TimeoutError(f"varve ui does not answer; see {project.folder / 'ui.log'}")
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            started = psutil.Process(process.pid).children(recursive=True)
        if ending == "SIGTERM":
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(ENDS_SECONDS)
        for pid in [process.pid, *[each.pid for each in started]]:
            with contextlib.suppress(psutil.NoSuchProcess):
                kill_all(pid)
        process.wait()


def serve(draw: Mapping[str, Any], project: TorturedProject, send: Callable[[], None]) -> int:
    """Serve, send files meanwhile, and cancel what runs where that is drawn; returns how many runs were cancelled."""
    cancelled = set[str]()
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(served(project, ending=draw["end"]))
        if draw["twice"]:
            stack.enter_context(served(project, ending="SIGKILL"))
        send()
        end = time.monotonic() + draw["seconds"]
        while time.monotonic() < end:
            time.sleep(0.3)
            # One that is asked for after half of the time, so that others come to an end.
            if draw["cancel"] and time.monotonic() > end - draw["seconds"] / 2:
                for run in ask(address, _RUNS)["runsOrError"].get("results", [])[:1]:
                    if run["runId"] not in cancelled:
                        ask(address, _CANCEL % run["runId"])
                        cancelled.add(run["runId"])
    return len(cancelled)


def ask(address: str, query: str) -> dict[str, Any]:
    """The answer of Dagster's GraphQL; nothing where it has none, as while a server is away."""
    request = urllib.request.Request(  # noqa: S310 - our own address, here and below
        f"{address}/graphql", json.dumps({"query": query}).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            data = json.load(answer).get("data")
    except OSError:
        data = None
    return data or {"runsOrError": {}}


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except OSError:
        return False
