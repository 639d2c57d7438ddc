"""What `varve doctor` finds wrong with the machines: clocks that are apart, and executors that cannot do their work."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from varve.model.errors import ServiceUnavailable
from varve.model.inventory import Finding
from varve.stores.folders.executors import executor_problems, is_asked

if TYPE_CHECKING:
    from collections.abc import Callable

    from varve.catalog.history.history import History
    from varve.services.settings import Settings

# Seconds; what is less is of no consequence where days and hours are computed.
_CLOCKS_APART = 60


def of_hosts(history: History, settings: Settings, session: Callable[[], Any]) -> list[Finding]:
    """What is wrong with clocks and executors; `session` is only opened where there are executors elsewhere."""
    return [*_of_clocks(history), *_of_executors(settings, session)]


def _of_clocks(history: History) -> list[Finding]:
    """What is wrong with the clocks: windows are over by that of whoever looks, batches begin by the server's."""
    apart = (dt.datetime.now(dt.UTC) - history.now()).total_seconds()
    if abs(apart) < _CLOCKS_APART:
        return []
    which = "ahead of" if apart > 0 else "behind"
    problem = f"the clock of this machine is {abs(apart):,.0f} s {which} the one of PostgreSQL"
    return [Finding("", "", None, problem, "Let both follow a time server (NTP): see `timedatectl`.")]


def _of_executors(settings: Settings, session: Callable[[], Any]) -> list[Finding]:
    """What is wrong with the executors of a cluster; those of the embedded Spark are this machine's."""
    if not is_asked(settings):
        return []
    try:
        problems = executor_problems(session(), settings.lake)
    except ServiceUnavailable as error:
        # Of a project without a dataset in the lake all else is found without Spark.
        return [Finding("", "", None, str(error).rstrip("."), "Its executors were not asked.")]
    return [Finding("", "", None, found.problem, found.remedy) for found in problems]
