"""Runs as a whole: the process of one, its log, its cancellation, what it computes, and what it must be given.

Not here: the steps of a run (steps.py), and how its process is launched (launcher.py).
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dagster import logger as logger_definition
from dagster._core.execution import context_creation_job, host_mode
from dagster._loggers import default_system_loggers
from dagster._utils.interrupts import capture_interrupts, check_captured_interrupt
from dagster._utils.schedules import reverse_cron_string_iterator

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from dagster import AssetKey, DagsterInstance, DagsterRun, InitLoggerContext, LoggerDefinition, RepositoryDefinition
    from dagster_shared.error import SerializableErrorInfo as SerializableErrorInfo  # noqa: PLC0414 - for others

# The modules of Dagster's in which a process executes a run that a code server has launched.
RUN_EXECUTION_MODULES = ("dagster._core.execution.api", "dagster._grpc.impl")


def format_run_logs(formatter: logging.Formatter | None) -> None:
    """Let the runs of this process write the log that they show on stderr with this formatter; None: as Dagster does.

    Dagster has a setting for each job's loggers and none for those of all runs, whoever has launched them.
    """

    @logger_definition
    def formatted_logger(context: InitLoggerContext) -> logging.Logger:
        run_logger = logging.getLoggerClass()(context.logger_config["name"])
        run_logger.setLevel(str(context.logger_config["log_level"]).upper())
        handler = logging.StreamHandler()
        handler.setFormatter(formatter)
        run_logger.addHandler(handler)
        return run_logger

    def loggers_of_runs(instance: DagsterInstance | None) -> list[tuple[LoggerDefinition, Mapping[str, object]]]:
        return [(formatted_logger, config) for _, config in default_system_loggers(instance)]

    for module in (context_creation_job, host_mode):
        module.default_system_loggers = default_system_loggers if formatter is None else loggers_of_runs  # type: ignore[attr-defined]


@contextmanager
def held_interrupts(when_interrupted: Callable[[], None]) -> Iterator[None]:
    """Let nobody who cancels the run interrupt what is within; it is called afterwards where somebody has tried.

    Dagster forgets such a cancellation: it is for the function to end the run as soon as it can be ended.
    """
    interrupted = False
    try:
        with capture_interrupts():
            try:
                yield
            finally:
                interrupted = check_captured_interrupt()
    finally:
        # Also where what is within has failed: other steps of the run would go on.
        if interrupted:
            when_interrupted()


def run_selections(instance: DagsterInstance, runs: Iterable[DagsterRun]) -> dict[str, frozenset[AssetKey]]:
    """Return the assets that runs compute, by run id.

    A run of a whole job, as schedules of jobs ask for it, does not name them; its plan does.
    """
    of_plans: dict[str, frozenset[AssetKey]] = {}
    selections = {}
    for run in runs:
        plan_id = run.execution_plan_snapshot_id
        if run.asset_selection is None and plan_id is not None and plan_id not in of_plans:
            plan = instance.get_execution_plan_snapshot(plan_id)
            computed = [step for step in plan.steps if step.key in plan.step_keys_to_execute]
            properties = [output.properties for step in computed for output in step.outputs]
            of_plans[plan_id] = frozenset(each.asset_key for each in properties if each and each.asset_key)
        of_plan = of_plans.get(plan_id or "", frozenset())
        selections[run.run_id] = of_plan if run.asset_selection is None else frozenset(run.asset_selection)
    return selections


def config_needed_by(repository: RepositoryDefinition | None, asset: AssetKey) -> list[str]:
    """Return what of a run of the asset needs configuration, which a sensor's request has not: its function, resources.

    Dagster would raise of such a request, and with it of all that a tick asks for after it.
    """
    definition = None if repository is None else repository.assets_defs_by_key.get(asset)
    if definition is None or not definition.is_executable:
        return []
    resources = sorted(definition.resource_defs.items())
    fields = {
        "its function": definition.node_def.config_field,
        **{f"the resource {name!r}": resource.config_field for name, resource in resources},
    }
    return [what for what, field in fields.items() if field is not None and field.is_required]


def previous_tick(cron: str, timezone: str, tick: dt.datetime) -> dt.datetime:
    """Return the tick of a schedule of Dagster's before this one.

    Our own calendars do not say it: where a clock shows a time twice, they begin a window at the first of the two, and
    Dagster ticks at the second.
    """
    at = tick.timestamp()
    return next(earlier for earlier in reverse_cron_string_iterator(at, cron, timezone) if earlier.timestamp() < at)
