"""`dagster ...` in a process that kills (SIGKILL) itself, Spark or PostgreSQL right before or after a function's call.

    python crash_run.py self|spark|postgres before|during|after module:Qualified.name asset materialize ...

The function is wrapped before Dagster loads anything, so whoever imports it by name gets the wrapped one. After the
death of a server the run goes on, as far as it can. "during" is when Spark has begun to stage files in the lake.
"""

from __future__ import annotations

import functools
import importlib
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

STAGING_SECONDS = 120


def arm(victim: str, when: str, target: str) -> None:
    """Replace the function named `module:Qualified.name` by one that kills at its first call."""
    module, _, qualified = target.partition(":")
    *path, name = qualified.split(".")
    owner: Any = importlib.import_module(module)
    for step in path:
        owner = getattr(owner, step)
    function = getattr(owner, name)
    armed = [victim]

    @functools.wraps(function)
    def fatal(*args: Any, **kwargs: Any) -> Any:
        if when == "before" and armed:
            kill(armed.pop())
        if when == "during" and armed:
            threading.Thread(target=kill_while_staging, args=(armed.pop(),), daemon=True).start()
        result = function(*args, **kwargs)
        if when == "after" and armed:
            kill(armed.pop())
        return result

    setattr(owner, name, fatal)


def kill_while_staging(victim: str) -> None:
    """Wait until a Spark job stages files somewhere in the lake."""
    from varve.services.settings import Settings

    lake = Path(Settings().lake)
    deadline = time.monotonic() + STAGING_SECONDS
    while not any(place.parent.name == "_temporary" for place in lake.rglob("*")):
        if time.monotonic() > deadline:
            # Nobody was killed: the run succeeds, and the test that wanted a death says so.
            sys.stderr.write(f"Spark staged nothing in {lake} for {STAGING_SECONDS} s: {victim} was not killed.\n")
            return
        time.sleep(0.005)
    kill(victim)


def kill(victim: str) -> None:
    """SIGKILL, and nothing goes on before the victim is gone."""
    from tests.killing import kill_all
    from varve.services.postgres_server import PostgresServer
    from varve.services.settings import Settings
    from varve.services.spark_server import SparkServer

    if victim == "self":
        os.kill(os.getpid(), signal.SIGKILL)
    settings = Settings()
    pid = SparkServer(settings).pid() if victim == "spark" else PostgresServer(settings.home_dir).pid()
    assert pid is not None
    kill_all(pid)


if __name__ == "__main__":
    _, victim, when, target, *arguments = sys.argv
    # As with `python -m`: the working directory, not this script's, is where modules are found.
    sys.path[0] = ""
    arm(victim, when, target)
    from dagster._cli import main

    sys.argv = ["dagster", *arguments]
    main()
