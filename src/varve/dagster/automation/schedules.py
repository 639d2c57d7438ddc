"""Schedules whose ticks need not match the windows: each tick requests the windows that have ended since the last one.

A daily schedule over an hourly dataset runs the 24 hours of the day in one run. An hourly schedule over a daily dataset
runs once the day is complete, and until then skips with a reason. Partitions that have a batch are not run again.

Not here: which windows a tick completes (varve/planning/schedule_ticks.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from varve.catalog.catalog import Catalog
from varve.dagster.automation.reconciling import NOT_LOOKED
from varve.dagster.automation.requesting import accepted, asset_key, run_request
from varve.dagster.internal.runs import previous_tick
from varve.dagster.partitions.dynamic_sets import PartitionSets
from varve.dagster.partitions.sets_sensor import fill
from varve.model.errors import VarveError
from varve.model.partitions.schedule import Schedule
from varve.planning import run_requests
from varve.planning.mapping.dimension_mapping import everything
from varve.planning.mapping.partition_subset import PartitionBox, choice_of
from varve.planning.requested import AGAIN_TAG
from varve.planning.schedule_ticks import completed
from varve.project import Project
from varve.services.postgres import connect

if TYPE_CHECKING:
    import datetime as dt

    from varve.catalog.rejected import LeftOut
    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.model.partitions.key import PartitionKey


def partition_schedule(
    dataset: Dataset, cron: str, *, project: Project | None = None, timezone: str = "UTC", name: str | None = None
) -> dg.ScheduleDefinition:
    """Return a schedule that runs, at each tick, the partitions of `dataset` whose windows ended since the last tick.

    In an environment it runs nothing. Without a time dimension it runs at each tick every partition of the list or the
    set, each again, except those that were begun since the tick. `project` is the project whose settings are used, by
    default that of the working folder.

    Raises VarveError for a dataset without partitions, for one that only arrives, and for an invalid cron expression or
    time zone.
    """
    if not dataset.partitioning.dimensions:
        raise VarveError(
            f"dataset {dataset}: a schedule of partitions needs some, and it has none; write "
            "dg.ScheduleDefinition(cron_schedule=..., target=...) over its asset."
        )
    if dataset.arrives:
        raise VarveError(
            f"dataset {dataset}: a schedule computes partitions, and those of it arrive from others; leave the "
            "schedule out: the sensor runs them as they come."
        )
    try:
        Schedule(cron, timezone)
    except VarveError as error:
        raise VarveError(f"dataset {dataset}: {error}") from None

    @dg.schedule(
        name=name or f"{dataset.db}_{dataset.table}_schedule",
        cron_schedule=cron,
        execution_timezone=timezone,
        target=dg.AssetSelection.assets(asset_key(dataset)),
        description=f"Runs the partitions of {dataset} that each tick completes."
        if dataset.partitioning.time is not None
        else f"Runs every partition of {dataset} at each tick.",
    )
    def evaluate(context: dg.ScheduleEvaluationContext) -> dg.SkipReason | list[dg.RunRequest]:
        settings = (project or Project.find()).settings
        if (own := settings.environment) is not None:
            return dg.SkipReason(
                f"Nothing is scheduled in the environment {own}: `varve env run {own}` computes there what is due."
            )
        tick = context.scheduled_execution_time
        sets = PartitionSets(context.instance, [dataset.partitioning])
        # Dagster refuses keys that are not in its sets, and the sensor that updates the sets ticks at other times.
        sets.follow()
        fill(context.instance, dataset)
        members = sets.members()
        keys = keys_at(dataset, cron, timezone, tick, members)
        windowed = dataset.partitioning.time is not None
        if not keys:
            return dg.SkipReason(
                f"No window of {dataset} is complete that was not at the tick before."
                if windowed
                else f"{dataset} has no partition yet."
            )
        try:
            with connect(settings, application="varve schedule") as connection:
                catalog = Catalog(connection)
                catalog.ensure_schema()
                current = catalog.current(dataset.name, keys)
                failures = catalog.failures(dataset.name)
        except VarveError as error:
            return dg.SkipReason(f"{NOT_LOOKED}: {error}")
        # A window is computed once, a key of a sequence at each tick.
        since = 0 if windowed else int(tick.timestamp() * 1_000)
        missing = [key for key in keys if key.path not in current or current[key.path].batch_id.millis < since]
        if not missing:
            return dg.SkipReason(
                f"All {len(keys)} partitions of {dataset} that this tick completes have batches already."
                if windowed
                else f"All {len(keys)} partitions of {dataset} were begun since this tick."
            )
        at_tick = "" if windowed else f"@{since}"
        tokens = {key.path: f"{failures.get(key.path, '')}{at_tick}" for key in missing}
        due_partitions = [run_requests.Due(key, frozenset(), "scheduled", tokens.get(key.path, "")) for key in missing]
        limit = dataset.policy.partitions_per_run or settings.partitions_per_run
        planned = run_requests.runs(dataset, due_partitions, limit=limit)
        left_out: list[LeftOut] = []
        requests = [
            request if windowed else _computing(request)
            for run in accepted(planned, context.instance, left_out, _repository(context))
            for request in [run_request(run, project=settings.project_name)]
        ]
        for entry in left_out:
            context.log.error("%s %s is left out: %s", entry.dataset, entry.subject, entry.reason)
        if left_out and not requests:
            return dg.SkipReason(f"Nothing of {dataset} can be requested: {left_out[0].reason}.")
        return requests

    return evaluate


def _repository(context: dg.ScheduleEvaluationContext) -> dg.RepositoryDefinition | None:
    """The definitions that the schedule is among; None where somebody calls it by hand, as in a test."""
    try:
        return context.repository_def
    except dg.DagsterInvariantViolationError:
        return None


def keys_at(
    dataset: Dataset, cron: str, timezone: str, tick: dt.datetime, members: Members | None = None
) -> list[PartitionKey]:
    """Return the partitions whose windows ended after the schedule's previous tick and by this one, in order.

    Of a dataset without a time dimension they are all partitions.
    """
    partitioning = dataset.partitioning
    previous = previous_tick(cron, timezone, tick)
    windows = [] if partitioning.time is None else completed(partitioning.time, previous, tick)
    selections = tuple(
        choice_of(dimension, windows) if dimension is partitioning.time else everything(dimension, members, tick)
        for dimension in partitioning.dimensions
    )
    return list(PartitionBox(partitioning, selections).partitions())


def _computing(request: dg.RunRequest) -> dg.RunRequest:
    """The request of a run that computes its partitions, also where a batch was made from the same inputs before."""
    return dg.RunRequest(
        run_key=request.run_key,
        asset_selection=request.asset_selection,
        partition_key=request.partition_key,
        tags={name: value for name, value in request.tags.items() if name != AGAIN_TAG},
    )
