"""`dagster ...` in a process that kills itself (SIGKILL) right before or after the first call of a function.

    python crash_run.py before|after module:Qualified.name asset materialize ...

The function is wrapped before Dagster loads anything, so whoever imports it by name gets the wrapped one.
"""

from __future__ import annotations

import functools
import importlib
import os
import signal
import sys
from typing import Any


def arm(when: str, target: str) -> None:
    """Replace the function named `module:Qualified.name` by one that kills this process."""
    module, _, qualified = target.partition(":")
    *path, name = qualified.split(".")
    owner: Any = importlib.import_module(module)
    for step in path:
        owner = getattr(owner, step)
    function = getattr(owner, name)

    @functools.wraps(function)
    def fatal(*args: Any, **kwargs: Any) -> None:
        if when == "after":
            function(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, fatal)


if __name__ == "__main__":
    _, when, target, *arguments = sys.argv
    # As with `python -m`: the working directory, not this script's, is where modules are found.
    sys.path[0] = ""
    arm(when, target)
    from dagster._cli import main

    sys.argv = ["dagster", *arguments]
    main()
