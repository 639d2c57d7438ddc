"""`varve check --watch`: check again whenever a file of the project's datasets changes, until Ctrl-C.

Every check is a process of its own, forked from one that has imported what a check needs: Python files are imported
anew, and a check that fails in any way ends that process only.

Not here: the check itself (sql.py).
"""

from __future__ import annotations

import datetime as dt
import multiprocessing
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from varve.cli.context import folder_of_datasets
from varve.cli.printing import open_console
from varve.model.errors import VarveError, counted
from varve.sql.code.own_files import state_of

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from rich.console import Console

_SECONDS_BETWEEN_LOOKS = 0.2
# What nearly every check imports; none of these opens a connection or starts a thread, which a fork would break.
_PRELOADED = ("varve.cli.files.sql", "varve.cli.files.against", "pyspark.sql.connect.session", "sqlglot.dialects.spark")


class Interrupt:
    """Notes Ctrl-C, while it is entered, and raises nothing: an exception would be lost in whatever runs just then."""

    def __init__(self) -> None:
        self._asked = False
        self._before: Any = None

    def asked(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self._asked

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _ask(self, number: int, frame: object) -> None:
        del number, frame
        self._asked = True


def watch(console: Console, folder: Path | None, *, against: str | None, spark: bool) -> None:
    """Check now, and again after each change of a file; returns after Ctrl-C."""
    root = folder_of_datasets(folder).resolve()
    # Forks are unsafe on macOS, where each check is a new interpreter.
    process = multiprocessing.get_context("spawn").Process
    if sys.platform == "linux":
        multiprocessing.set_forkserver_preload(list(_PRELOADED))
        process = multiprocessing.get_context("forkserver").Process  # type: ignore[assignment]
    with Interrupt() as interrupt:
        while not interrupt.asked():
            state = state_of(root)
            if console.is_terminal:
                console.clear()
            checking = process(target=_check, args=(root, against, spark))
            checking.start()
            while checking.is_alive() and not interrupt.asked():
                checking.join(_SECONDS_BETWEEN_LOOKS)
            if interrupt.asked():
                checking.terminate()
                checking.join()
                break
            console.print(f"Watching {counted(len(state), 'file')} of {root}; Ctrl-C ends it.", highlight=False)
            settled = state
            while not interrupt.asked() and ((now := state_of(root)) == state or now != settled):
                # A file that is being written is left to itself until two looks at it are the same.
                settled = now
                time.sleep(_SECONDS_BETWEEN_LOOKS)
    console.print("Stopped watching.")


def _check(folder: Path, against: str | None, spark: bool) -> None:  # noqa: FBT001 - a process' own arguments
    """Check once, in a process of its own, and print what was found and how long it took."""
    from varve.cli.files import sql

    # Ctrl-C of a terminal reaches this process too; the one that watches ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    console, start = open_console(), time.monotonic()
    try:
        if sql.check(console, folder, against=against, spark=spark, as_json=False):
            outcome = "[green]well[/]"
        else:
            outcome = "[red]breaks[/]"
    except VarveError as error:
        console.print(str(error), markup=False, highlight=False, soft_wrap=True)
        outcome = "[red]problems[/]"
    except Exception as error:  # noqa: BLE001 - a module of somebody else may raise anything; the next save mends it
        console.print(f"{type(error).__name__}: {error}", markup=False, highlight=False, soft_wrap=True)
        outcome = "[red]problems[/]"
    at = dt.datetime.now().astimezone()
    console.print(f"{at:%H:%M:%S} {outcome} ({time.monotonic() - start:.1f} s)", highlight=False)
