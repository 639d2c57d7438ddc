"""`varve env run --follow`: a live environment is kept at what production has, until somebody says Ctrl-C.

Not here: one round of it (`OpenEnvironment.run`).
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from varve.catalog.environments.environments import Environments
from varve.cli.context import chosen_settings
from varve.cli.environments import work
from varve.dagster.environments.open_environment import EnvironmentWork
from varve.model.errors import BadInput, VarveError
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from rich.console import Console

# Between two looks at what production has.
SECONDS = 10.0


def follow(
    console: Console | None,
    name: str,
    words: Sequence[str],
    *,
    first: str | None,
    last: str | None,
    effects: bool,
    go_on: Callable[[], bool],
    stopped: Callable[[], bool],
    done: EnvironmentWork | None = None,
) -> EnvironmentWork:
    """Compute what is due in a live environment, again and again; return what was computed in all.

    One run at a time, in this process. `go_on` waits before each further round, and says whether there is one;
    `stopped` is asked before each run. What is done is added to `done`; what fails is printed, and tried again as a
    sensor would.

    Raises BadInput for an environment that stands on a publish: nothing new comes to be due in it.
    """
    wanted, done = work.wanted_of(words, first, last), done or EnvironmentWork()
    with connect(chosen_settings(), application="varve env run --follow") as connection:
        if Environments(connection).get(name).base is not None:
            raise BadInput(
                f"environment {name} stands on a publish of production, and nothing new becomes due in it. Nothing was "
                f"computed. varve env run {name} computes what is due; varve env create NAME --live follows production."
            )
    while True:
        # Opened anew, so that keys of dynamic sets are those of production.
        with work.opened(name) as opened:
            environment = replace(opened, backs_off=True)
            try:
                environment.run(wanted, effects=effects, before=work.announcing(console), done=done, stopped=stopped)
            except VarveError as failure:
                if console is not None:
                    console.print(str(failure), style="yellow", markup=False, highlight=False, soft_wrap=True)
        if stopped() or not go_on():
            return done


@contextmanager
def until_ctrl_c(seconds: float = SECONDS) -> Iterator[tuple[Callable[[], bool], Callable[[], bool]]]:
    """`go_on` and `stopped` of `follow`: the first Ctrl-C ends it after the run that is going on, the second now."""
    stop = threading.Event()

    def on_ctrl_c(_: int, __: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = signal.signal(signal.SIGINT, on_ctrl_c)
    try:
        yield (lambda: not stop.wait(seconds)), stop.is_set
    finally:
        signal.signal(signal.SIGINT, before)
