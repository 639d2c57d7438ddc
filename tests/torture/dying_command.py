"""A command of the torture in a process that may die: `python -m tests.torture.dying_command FATE WORD ...`.

FATE is JSON, of a history's operation (history.py). The words are those of `varve`, or `due`: what the sensors ask for
is run until they ask for nothing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading


def main() -> None:
    fate, words = json.loads(sys.argv[1]), sys.argv[2:]
    # A wrong clock is of this process, and not of the servers that it may start.
    os.environ.pop("LD_PRELOAD", None)
    # Whoever started this in the background has left Ctrl-C ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if "milliseconds" in fate:
        number = signal.Signals[fate.get("signal", "SIGKILL")]
        timer = threading.Timer(fate["milliseconds"] / 1_000, os.kill, (os.getpid(), number))
        timer.daemon = True
        timer.start()
    elif "at" in fate:
        from tests.e2e.crash_run import arm

        arm("self", fate["when"], fate["at"])
    if words == ["due"]:
        due()
        return
    from varve.cli.app import main as varve

    sys.argv = ["varve", *words]
    varve()


def due() -> None:
    """Run what is due, and end with 1 where a run failed."""
    import varve
    from varve.model.errors import VarveError

    project = varve.Project.find()
    try:
        done = varve.run_due(project)
    except VarveError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    sys.stdout.write(json.dumps(done))


if __name__ == "__main__":
    main()
