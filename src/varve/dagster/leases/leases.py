"""Dagster's runs and their leases: whether a run lives, for Dagster's monitor, the planner and `varve why` alike.

Not here: what a lease is (varve/catalog/living/leases.py), renewing it (heartbeat.py) and Dagster's private names
(varve/dagster/internal).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING

import dagster as dg
import psycopg

from varve.catalog.catalog import Catalog
from varve.catalog.living.leases import Leases
from varve.model.errors import VarveError
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from varve.services.settings import Settings

logger = logging.getLogger(__name__)
# The states in which a run has a process, by Dagster's own records. A run that is STARTING may wait long for its
# machine; it counts as dead only where our launcher has entered a lease for it.
_HAS_PROCESS = {dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING}
UNKNOWN = "a process that nobody knows"
ASKED_ONLY = "a process that asked for the run and did not start it"


@contextmanager
def leases_in(settings: Settings, application: str) -> Iterator[Leases]:
    """Open the leases over a connection of their own. Raises ServiceUnavailable."""
    with connect(settings, application=application) as connection:
        Catalog(connection).ensure_schema()
        yield Leases(connection)


def dead_runs(
    leases: Leases, runs: Iterable[dg.DagsterRun], settings: Settings, *, all_take: bool = True
) -> dict[str, str]:
    """Return those of these unfinished runs that count as dead, by run id, with the reason as text.

    With `all_take`, every run takes a lease when it starts. So a run that Dagster calls started and that has no lease
    has died before it could take one, or is about to take it: a lease is entered for it here, which will expire. So
    does the lease of a run that somebody has asked for, and neither queued nor started: both follow within a moment.
    A standby only says what is noted.
    """
    by_status = defaultdict(list)
    for run in runs:
        by_status[run.status].append(run.run_id)
    notes = leases.may_note()
    if all_take and notes:
        leases.keep(
            [run_id for status in _HAS_PROCESS for run_id in by_status[status]], UNKNOWN, settings.lease_seconds
        )
        leases.keep(by_status[dg.DagsterRunStatus.NOT_STARTED], ASKED_ONLY, settings.lease_seconds)
        # A run may stay in the queue as long as it must, and wait for its machine. For that one Dagster's monitor has a
        # limit of its own (start_timeout_seconds), whatever has become of its launcher.
        was_started = (dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING)
        leases.withdraw([run_id for status in was_started for run_id in by_status[status]], ASKED_ONLY)
    dead_reasons = {}
    for run_id in leases.dead_runs([run_id for run_ids in by_status.values() for run_id in run_ids], notes=notes):
        if lease := leases.of(run_id):
            dead_reasons[run_id] = (
                f"the run counts as dead since {lease.lost_at:%Y-%m-%d %H:%M:%S} UTC, because {lease.lost_because}: "
                f"{lease.holder}, last sign of life {lease.renewed_at:%Y-%m-%d %H:%M:%S} UTC"
            )
    return dead_reasons


def end_dead(instance: dg.DagsterInstance, dead: Mapping[str, str]) -> None:
    """Report runs that count as dead as failed to Dagster, which frees their places in its queue and pools.

    Dagster's own monitor checks started runs only.
    """
    for run_id, because in dead.items():
        run = instance.get_run_by_id(run_id)
        if run is not None and not run.is_finished:
            instance.report_run_failed(run, because)


def end_lease(settings: Settings, run_id: str, because: str) -> None:
    """End the lease of a run that another process has ended; logs a warning where the catalog cannot be reached."""
    try:
        with leases_in(settings, "varve leases") as leases:
            leases.end(run_id, because)
    except (VarveError, psycopg.Error) as error:
        # A lease that is not ended expires by itself.
        logger.warning("The lease of run %s could not be ended: %s", run_id, error)
