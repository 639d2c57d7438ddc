"""The launcher of runs that dagster.yaml names: Dagster's own, with a lease for each run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import psycopg
from dagster import DefaultRunLauncher
from dagster._core.launcher.base import CheckRunHealthResult, WorkerStatus

from varve.dagster.internal.storage import heartbeats_of, project_of
from varve.dagster.leases.heartbeat import this_process
from varve.dagster.leases.leases import ASKED_ONLY, dead_runs, leases_in
from varve.model.errors import VarveError

if TYPE_CHECKING:
    from dagster import DagsterRun
    from dagster._core.launcher.base import LaunchRunContext

logger = logging.getLogger(__name__)


class VarveRunLauncher(DefaultRunLauncher):
    """Dagster's default launcher, which also knows by a run's lease whether it still lives, wherever its process is."""

    def launch_run(self, context: LaunchRunContext) -> None:
        """Launch a run, after a lease was entered for its process."""
        settings = project_of(self._instance).settings
        try:
            with leases_in(settings, "varve launcher") as leases:
                leases.withdraw([context.dagster_run.run_id], ASKED_ONLY)
                leases.keep([context.dagster_run.run_id], f"launched by {this_process()}", settings.lease_seconds)
        except (VarveError, psycopg.Error) as error:
            # The run's process takes the lease, too, and the run itself fails where it needs the catalog.
            logger.warning("No lease is kept for run %s: %s", context.dagster_run.run_id, error)
        super().launch_run(context)

    @property
    def supports_check_run_worker_health(self) -> bool:
        """True: Dagster's run monitor shall ask for the health of runs."""
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Return FAILED where the run counts as dead, else RUNNING, also where the catalog cannot be reached."""
        settings = project_of(self._instance).settings
        try:
            with leases_in(settings, "varve monitor") as leases:
                # With another storage, runs of jobs without our assets take no lease. They must not count as dead.
                dead_reasons = dead_runs(leases, [run], settings, all_take=heartbeats_of(self._instance) is not None)
        except (VarveError, psycopg.Error) as error:
            return CheckRunHealthResult(WorkerStatus.RUNNING, f"its lease cannot be looked at: {error}")
        if run.run_id in dead_reasons:
            return CheckRunHealthResult(WorkerStatus.FAILED, dead_reasons[run.run_id])
        return CheckRunHealthResult(WorkerStatus.RUNNING)
