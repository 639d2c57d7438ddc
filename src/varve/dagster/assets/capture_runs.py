"""When a sensor asks for a run of a capture: one at a time, and after failures later and later.

A run applies all that was captured when it begins. So one that is queued does what another one would; and what a failed
run has left is asked for again, also where nothing new is captured.

Not here: what the runs do (captured.py), and runs that compute partitions (varve/dagster/automation).
"""

from __future__ import annotations

import datetime as dt
from itertools import takewhile
from typing import TYPE_CHECKING

import dagster as dg

from varve.model.errors import counted
from varve.planning.judgement.judging import RetryLimits

if TYPE_CHECKING:
    from varve.services.settings import Settings

# So many runs of a job are looked at, the last ones first: those under way, and failures in a row.
_LOOKED_AT = 16
# A run in the queue may wait for ever. Any other one holds the lock of its capture within this time: where Dagster
# calls it unfinished after that, and the lock is free, it has ended without a word, or never began.
_OPENS_WITHIN = dt.timedelta(minutes=10)
_OPENS = {
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
}


def why_not_asked(instance: dg.DagsterInstance, job: str, settings: Settings) -> str:
    """Why no run of a capture's job is asked for now, as a sentence; "" where one may be.

    Whoever asks holds the lock of the capture, or has held it a moment ago.
    """
    now = dt.datetime.now(dt.UTC)
    unfinished = [*_OPENS, dg.DagsterRunStatus.QUEUED]
    for record in instance.get_run_records(dg.RunsFilter(job_name=job, statuses=unfinished), limit=_LOOKED_AT):
        run = record.dagster_run
        opens = run.status in _OPENS and now - _aware(record.update_timestamp) < _OPENS_WITHIN
        if opens or run.status is dg.DagsterRunStatus.QUEUED:
            return f"Run {run.run_id[:8]} is {run.status.value.lower().replace('_', ' ')}, and applies them."
    records = instance.get_run_records(dg.RunsFilter(job_name=job), limit=_LOOKED_AT)
    failed = list(takewhile(lambda record: record.dagster_run.status is dg.DagsterRunStatus.FAILURE, records))
    if not failed:
        return ""
    ended = failed[0].end_time or failed[0].update_timestamp.timestamp()
    limits = RetryLimits(settings.attempts, settings.backoff_seconds, settings.backoff_most_seconds)
    again = dt.datetime.fromtimestamp(ended + limits.after(len(failed)), dt.UTC)
    if now >= again:
        return ""
    last = f"run {failed[0].dagster_run.run_id[:8]} says why"
    return f"The last {counted(len(failed), 'run')} failed ({last}); the next is asked for at {again:%H:%M:%S} UTC."


def _aware(moment: dt.datetime) -> dt.datetime:
    """Dagster's storages give times in UTC, some of them without saying so."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
