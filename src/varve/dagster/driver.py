"""Dagster without its daemon: evaluates the project's sensors and executes the runs they ask for, one after another.

The sensors, the runs and the storage are the same as under the daemon, so that the UI shows everything afterwards.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import dagster as dg

from varve.catalog.rejected import RejectedArrivals
from varve.dagster.automation.reconciling import NOT_LOOKED
from varve.dagster.automation.sensors import DATASET_TAG
from varve.dagster.discovery import load_project
from varve.dagster.instance import open_instance
from varve.dagster.internal.partition_keys import keys_in_range
from varve.dagster.partitions.definitions import dataset_partitions_def
from varve.model.errors import VarveError, some
from varve.planning.requested import PARTITION_TAG, RANGE_END_TAG, RANGE_START_TAG, asked_partitions
from varve.project import Project
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from varve.planning.graph import Graph
    from varve.services.settings import Settings

# How often a file that is being written is looked at again, each time after half of the time in which it settles, or
# after so many seconds.
_WAITS, _LONGEST_WAIT = 4, 15.0
# Dagster's daemon recognises by these tags what a sensor has asked for before.
RUN_KEY_TAG, SENSOR_NAME_TAG = "dagster/run_key", "dagster/sensor_name"
# Only errors are logged: the progress bars show the rest.
RUN_CONFIG = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass
class Driver:
    """Ticks the sensors of the project until none asks for a run, and executes what they ask for.

    Each sensor is evaluated by the same function as in the daemon's code server. This function resolves and checks the
    requests, so that a key which Dagster does not have fails the tick here as well. Like the daemon, the driver starts
    no second run for a run key. Two things differ: the runs are executed in this process, one after another and
    upstream first, where the daemon queues them, with pools and priorities, and launches a process for each; and the
    first failure ends the drive, where under the daemon the sensors would back off.

    Attributes:
        definitions: those whose sensors are ticked; their datasets are in `datasets`.
        before: called with each run request before it is executed.
        after: called with each run request and its run id after it has succeeded.
    """

    instance: dg.DagsterInstance
    definitions: dg.Definitions
    datasets: Graph
    before: Callable[[dg.RunRequest], None] = lambda request: None  # noqa: ARG005
    after: Callable[[dg.RunRequest, str], None] = lambda request, run_id: None  # noqa: ARG005
    _cursors: dict[str, str | None] = field(default_factory=dict)

    def until_quiet(self) -> int:
        """Execute what the sensors ask for until they ask for nothing, and return how many runs that took.

        Raises VarveError where a sensor or a run fails.
        """
        executed = 0
        there = [name for name in ("arrivals", "downstream") if self._has_sensor(name)]
        while requests := [request for name in there for request in self._tick(name)]:
            # Upstream runs come first. The next tick asks again for the partitions that read their new batches.
            for request in requests:
                self._execute(request)
                executed += 1
        return executed

    def _has_sensor(self, name: str) -> bool:
        """Return whether the project has it: nothing may arrive in it, or nothing be computed."""
        return self.definitions.get_repository_def().has_sensor_def(name)

    def _tick(self, name: str) -> Iterator[dg.RunRequest]:
        sensor = self.definitions.get_repository_def().get_sensor_def(name)
        context = dg.build_sensor_context(
            instance=self.instance,
            # Requests for keys of dynamic sets are checked against an instance that is opened by reference.
            instance_ref=self.instance.get_ref(),
            cursor=self._cursors.get(name),
            definitions=self.definitions,
            sensor_name=name,
        )
        result = sensor.evaluate_tick(context)
        self._cursors[name] = result.cursor
        if result.skip_message and result.skip_message.startswith(NOT_LOOKED):
            raise VarveError(f"the sensor {name} could not look: {result.skip_message}")
        for request in result.run_requests or ():
            tags = {**request.tags, RUN_KEY_TAG: str(request.run_key), SENSOR_NAME_TAG: name}
            if self._has_had_run(name, tags):
                continue
            yield request.with_replaced_attrs(tags=tags)

    def _has_had_run(self, sensor: str, request_tags: Mapping[str, str]) -> bool:
        """Return whether the sensor has had a run with this run key; the daemon would not start a second one."""
        tags = {RUN_KEY_TAG: request_tags[RUN_KEY_TAG], SENSOR_NAME_TAG: sensor}
        return self.instance.get_runs_count(dg.RunsFilter(tags=tags)) > 0

    def _execute(self, request: dg.RunRequest) -> None:
        assert request.asset_selection is not None
        self._refuse_partial(request)
        self.before(request)
        job = self.definitions.get_repository_def().get_implicit_job_def_for_assets(request.asset_selection)
        assert job is not None
        result = job.execute_in_process(
            run_config=RUN_CONFIG,
            instance=self.instance,
            asset_selection=list(request.asset_selection),
            partition_key=request.partition_key,
            tags=dict(request.tags),
            raise_on_error=False,
        )
        if not result.success:
            raise VarveError(f"run {result.run_id} of {request.tags[DATASET_TAG]} failed: {failure_reason(result)}")
        self.after(request, result.run_id)

    def _refuse_partial(self, request: dg.RunRequest) -> None:
        """Raise VarveError where the run would be given less than it is asked for."""
        dataset = self.datasets.datasets[request.tags[DATASET_TAG]]
        tags = {**request.tags, **({PARTITION_TAG: request.partition_key} if request.partition_key else {})}
        definition = dataset_partitions_def(dataset)
        if definition is None:
            return
        asked = [dataset.partitioning.to_dagster(key) for key in asked_partitions(dataset, tags)]
        in_dagster = keys_in_range(definition, self.instance, asked[0], asked[-1])
        if missing := sorted(set(asked) - in_dagster):
            raise VarveError(f"{spelt(request)}: Dagster has no {some(missing, limit=3)}. Nothing was run.")


def run_due(project: Project | str | Path) -> list[str]:
    """Run in this process what the sensors of a project, or of that in a folder, ask for, until they ask for nothing.

    For demos, notebooks and tests; a deployment has Dagster's daemon. What leaves the graph is not retired: that is
    `varve retire`. Files that arrived a moment ago are waited for
    until they count as complete; one that goes on changing is left. Returns for each run, in their order, its dataset
    and partitions: `shop.sales 2026-11-01`, `shop.sales 2026-11-01 ... 2026-11-07`. Raises VarveError where a run fails
    or a server cannot be reached, NoProject where the folder has none, and KeyboardInterrupt after Ctrl-C: what is
    published stays; the run that was ended is tried again like one that failed, after VARVE_BACKOFF_SECONDS.
    """
    finished: list[str] = []
    project = project if isinstance(project, Project) else Project.find(project)
    definitions = project.module(project.definitions).defs
    graph = load_project(project).graph
    with open_instance(project.settings) as instance:
        driver = Driver(instance, definitions, graph, after=lambda request, _: finished.append(spelt(request)))
        driver.until_quiet()
        waits = 0
        while waits < _WAITS and _is_settling(project.settings, graph):
            time.sleep(min(project.settings.settle_seconds / 2, _LONGEST_WAIT))
            waits = 0 if driver.until_quiet() else waits + 1
    return finished


def _is_settling(settings: Settings, graph: Graph) -> bool:
    """Return whether files of a graph's datasets were seen that changed a moment ago."""
    with connect(settings, application="varve run_due") as connection:
        return any(dataset in graph.own for dataset, _ in RejectedArrivals(connection).settling())


def spelt(request: dg.RunRequest) -> str:
    """Return what a run request asks for, as text: the dataset and its first and last partition."""
    first = request.partition_key or request.tags.get(RANGE_START_TAG)
    if first is None:
        return request.tags[DATASET_TAG]
    last = request.tags.get(RANGE_END_TAG, first)
    return f"{request.tags[DATASET_TAG]} {first}{f' ... {last}' if last != first else ''}"


def failure_reason(result: dg.ExecuteInProcessResult) -> str:
    """Return why the first step that failed of a run did. Raises KeyboardInterrupt where a person has ended it."""
    for event in result.get_step_failure_events():
        error = event.step_failure_data.error
        if event.step_failure_data.user_failure_data and event.step_failure_data.user_failure_data.description:
            return str(event.step_failure_data.user_failure_data.description)
        if error:
            # Dagster's own error says only which step failed; what it was caused by says why.
            while error.cause is not None:
                error = error.cause
            if error.cls_name == dg.DagsterExecutionInterruptedError.__name__:
                raise KeyboardInterrupt
            return error.message.strip()
    return "see its log in the Dagster UI."
