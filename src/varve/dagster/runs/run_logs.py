"""The log of a run as Dagster keeps it: its events and messages, and what its processes wrote to stdout and stderr.

Not here: which runs made a partition (varve/catalog/history), and printing (varve/cli/observe/logs.py).
"""

from __future__ import annotations

import datetime as dt
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dagster as dg

from varve.services.secrets import redacted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True)
class LogLine:
    """One entry of a run's log.

    Attributes:
        at: when, in UTC.
        level: in lower case: `info`, `error`.
        step: the step that it is of; "" for the run itself.
        partition: the partition that it is of, as Dagster spells it; "" where it is of none.
        error: what went wrong, several lines; "" where nothing did.
    """

    at: dt.datetime
    level: str
    step: str
    event: str
    message: str
    partition: str = ""
    error: str = ""


def lines_of(instance: dg.DagsterInstance, run_id: str, step: str | None = None) -> list[LogLine]:
    """Return the log of a run, oldest first: of the run itself and of one step (None: of all).

    Empty where Dagster knows no such run: a command made the batch, or the run was deleted.
    """
    return [
        line
        for entry in instance.all_logs(run_id)
        if (line := _line(entry)) is not None
        if step in {None, line.step} or not line.step
    ]


def output_of(instance: dg.DagsterInstance, run_id: str) -> Iterator[tuple[str, str]]:
    """Yield ("stdout" or "stderr", text) of what the processes of a run wrote, as far as it was captured here."""
    keys: list[Sequence[str]] = []
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.LOGS_CAPTURED):
        data = entry.get_dagster_event().logs_captured_data
        keys.append([run_id, "compute_logs", data.file_key])
    for key in keys:
        captured = instance.compute_log_manager.get_log_data(key)
        for name, content in (("stdout", captured.stdout), ("stderr", captured.stderr)):
            if content:
                yield name, redacted(content.decode("utf-8", errors="replace"))


def _line(entry: dg.EventLogEntry) -> LogLine:
    event = entry.dagster_event
    error = getattr(event.event_specific_data, "error", None) if event is not None else None
    return LogLine(
        dt.datetime.fromtimestamp(entry.timestamp, tz=dt.UTC),
        logging.getLevelName(entry.level).lower(),
        entry.step_key or "",
        event.event_type_value if event is not None else "",
        redacted(entry.user_message or entry.message),
        str(event.partition) if event is not None and event.partition else "",
        redacted(error.to_string()) if error is not None else "",
    )
