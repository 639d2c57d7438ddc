"""Logs as lines of JSON (`VARVE_LOG_FORMAT=json`): each line says of which run, dataset, partition and batch it is.

Not here: which logs there are, and how Dagster is given this (varve/dagster/internal).
"""

from __future__ import annotations

import datetime as dt
import json
import logging
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from varve.services.secrets import redacted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varve.model.build import Build

# Dagster hands over of each record: its run, its step, its event, and the message as it was written.
_OF_DAGSTER = "dagster_meta"


@dataclass(frozen=True, slots=True)
class LogFields:
    """Of what a line of the log is; None where that is not known.

    Attributes:
        partition: of a build of several the first and the last one, and how many there are.
    """

    run: str | None = None
    dataset: str | None = None
    partition: str | None = None
    batch: str | None = None

    @classmethod
    def of(cls, build: Build) -> LogFields:
        """The fields of the lines that a build writes."""
        paths = sorted(build.paths)
        several = f"{paths[0]} ... {paths[-1]} ({len(paths)} partitions)" if len(paths) > 1 else None
        return cls(build.run_id, build.dataset.name, several or (paths[0] if paths else None), str(build.batch_id))


# Of the build whose step this thread computes: a process computes one step after another.
_FIELDS: ContextVar[LogFields | None] = ContextVar("varve_log_fields", default=None)


def set_fields(fields: LogFields | None) -> None:
    """Let the lines from here on be of this build, or of none."""
    _FIELDS.set(fields)


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON: time (UTC), level, logger, message, run, dataset, partition and batch.

    A failure has `error` too, with what led to it.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without a line break at its end; what a message has is escaped."""
        dagster: Mapping[str, Any] = getattr(record, _OF_DAGSTER, None) or {}
        fields, event = _FIELDS.get() or LogFields(), dagster.get("dagster_event")
        if dagster.get("run_id") and fields.run != dagster["run_id"]:
            fields = LogFields(run=dagster["run_id"])
        values = {
            "time": dt.datetime.fromtimestamp(record.created, tz=dt.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(str(dagster.get("orig_message") or record.getMessage())),
            **asdict(fields),
            **({"step": dagster["step_key"]} if dagster.get("step_key") else {}),
            **({"event": event.event_type_value} if event is not None else {}),
        }
        if partition := getattr(event, "partition", None):
            values["partition"] = str(partition)
        if error := self._error(record, event):
            values["error"] = redacted(error)
        return json.dumps(values, ensure_ascii=False, default=str)

    def _error(self, record: logging.LogRecord, event: Any) -> str:
        error = getattr(getattr(event, "event_specific_data", None), "error", None)
        if error is not None:
            return str(error.to_string())
        return self.formatException(record.exc_info) if record.exc_info and record.exc_info[0] is not None else ""
