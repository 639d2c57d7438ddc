"""The Dagster resource `builds`: the open builds of a run, its lease, and what becomes of builds that it leaves open.

Not here: a build itself (builds).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import dagster as dg

from varve.catalog.living.leases import lease_lost
from varve.dagster.internal.steps import only_step
from varve.dagster.internal.storage import heartbeats_of
from varve.dagster.leases.heartbeat import Heartbeats
from varve.dagster.runs.builds.builds import Builds
from varve.dagster.runs.failures import StepFailure, is_tried_again, step_failures

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from varve.planning.graph import Graph
    from varve.project import Project
    from varve.services.settings import Settings


def builds_resource(graph: Graph, project: Project) -> dg.ResourceDefinition:
    """Return the Dagster resource `builds`: the open builds of each run."""

    @dg.resource(required_resource_keys={"spark"}, description="What the steps of a run hold from read to publish.")
    def builds(context: dg.InitResourceContext) -> Iterator[Builds]:
        run_builds = Builds(graph, context.resources.spark, project.settings, context.log)
        # A project may have a resource of its own under this name, which opens its session when it is asked for.
        if (open_ahead := getattr(context.resources.spark, "open_ahead", None)) is not None:
            open_ahead()
        with _leased(context, run_builds.settings):
            try:
                yield run_builds
            finally:
                failures = _step_failures(context)
                if _is_tried_again(context):
                    run_builds.leave_attempts()
                kept_back = run_builds.abandon_all(failures)
                if context.run is not None and context.instance is not None:
                    run_builds.note_failures(context.run, failures, context.instance)
                if kept_back:
                    dataset_names = ", ".join(kept_back)
                    _log_error(
                        context, f"Nothing of {dataset_names} was published: the run was to publish all or none."
                    )
                run_builds.telling.close()

    return builds


@contextlib.contextmanager
def _leased(context: dg.InitResourceContext, settings: Settings) -> Iterator[None]:
    """Run the body with the run's lease. It is taken here only where Dagster has another storage than ours.

    Raises LeaseLost where the run counts as dead.
    """
    if context.instance is None or context.run is None:
        yield
        return
    run_id, own_heartbeats = context.run.run_id, heartbeats_of(context.instance)
    heartbeats = Heartbeats() if own_heartbeats is None else own_heartbeats
    has_lease = heartbeats.of(run_id) is not None
    heartbeat = heartbeats.begin(settings, run_id)
    try:
        if heartbeat.lost_lease is not None:
            raise lease_lost(heartbeat.lost_lease, "nothing was begun")
        yield
    finally:
        if not has_lease:
            heartbeats.end(run_id)


def _step_failures(context: dg.InitResourceContext) -> Mapping[str, StepFailure]:
    """Return why steps that this process computes failed, by step key.

    Empty, and logged, where Dagster's records cannot be read.
    """
    if context.instance is None or context.run is None:
        return {}
    try:
        failures = step_failures(context.instance, context.run.run_id)
    except Exception as error:  # noqa: BLE001 - whatever its storage raises
        _log_error(context, f"Dagster's records of run {context.run.run_id} could not be read: {error}")
        return {}
    # Where each step has a process of its own, the others' failures are theirs to note: some count as none.
    own_step = only_step(context)
    return {step: reason for step, reason in failures.items() if own_step in {None, step}}


def _is_tried_again(context: dg.InitResourceContext) -> bool:
    """Return whether this process has made an attempt at one step, and another process makes the next one."""
    step = only_step(context)
    if context.instance is None or context.run is None or step is None:
        return False
    try:
        return is_tried_again(context.instance, context.run.run_id, step)
    except Exception:  # noqa: BLE001 - whatever its storage raises, which was logged
        return False


def _log_error(context: dg.InitResourceContext, text: str) -> None:
    if context.log is not None:
        context.log.error(text)
