"""Dagster's runs and their leases: one answer for Dagster's monitor, the planner and `varve why`.

Not here: what a lease is (varve/catalog/leases.py), renewing it (heartbeat.py) and Dagster's private names
(internal.py).
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

import dagster as dg
import psycopg

from varve.catalog.catalog import Catalog
from varve.catalog.leases import Leases
from varve.model.errors import VarveError
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from varve.services.settings import Settings

logger = logging.getLogger(__name__)
# Whose process is there, by Dagster's own records. One that is STARTING may wait for its machine for long, and is dead
# only where our launcher has begun its lease.
_COMPUTED = {dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING}


@contextmanager
def leases_in(settings: Settings, application: str) -> Iterator[Leases]:
    """The leases over a connection of their own. Raises ServiceUnavailable."""
    with connect(settings, application=application) as connection:
        Catalog(connection).ensure_schema()
        yield Leases(connection)


def dead_runs(
    leases: Leases, runs: Iterable[dg.DagsterRun], settings: Settings, *, all_take: bool = True
) -> dict[str, str]:
    """Which of these unfinished runs count as dead, and why, in words.

    Where `all_take`, a run that Dagster calls started and that has no lease has died before it could take one, or is
    about to: a lease is kept for it from now on.
    """
    listed = list(runs)
    if all_take:
        begun = [run.run_id for run in listed if run.status in _COMPUTED]
        leases.keep(begun, "a process that nobody knows", settings.lease_seconds)
    found = {}
    for run_id in leases.lost([run.run_id for run in listed]):
        if lease := leases.of(run_id):
            found[run_id] = (
                f"the run counts as dead since {lease.lost_at:%Y-%m-%d %H:%M:%S} UTC, because {lease.lost_because}: "
                f"{lease.holder}, last sign of life {lease.renewed_at:%Y-%m-%d %H:%M:%S} UTC"
            )
    return found


def end_dead(instance: dg.DagsterInstance, dead: Mapping[str, str]) -> None:
    """Tell Dagster of runs that count as dead, so that their places in its queue and pools are free.

    Its own monitor asks after started runs only.
    """
    for run_id, because in dead.items():
        run = instance.get_run_by_id(run_id)
        if run is not None and not run.is_finished:
            instance.report_run_failed(run, because)


def end_lease(settings: Settings, run_id: str, because: str) -> None:
    """End the lease of a run that others than its process have ended, as far as the catalog can be reached."""
    try:
        with leases_in(settings, "varve leases") as leases:
            leases.end(run_id, because)
    except (VarveError, psycopg.Error) as error:
        # It expires by itself.
        logger.warning("The lease of run %s could not be ended: %s", run_id, error)
