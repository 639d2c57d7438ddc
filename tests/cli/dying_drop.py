"""A process that drops a dataset and is killed at a step: `python -m tests.cli.dying_drop STEP DATASET`.

It works on the project of `VARVE_PROJECT`, on the suite's services. It ends with 0 where it comes to no such step.
"""

from __future__ import annotations

import os
import signal
import sys

from varve.cli.batches.drop import drop


def main() -> None:
    wanted, dataset = sys.argv[1:]

    def step(name: str) -> None:
        if name == wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    drop(dataset, purge=True, step=step)


if __name__ == "__main__":
    main()
