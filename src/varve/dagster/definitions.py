"""Everything wired together: `definitions(project)` for a project, `build_defs()` for any datasets.

Of the environment only what Dagster must know of the definitions is read here, the interval of the sensors; no server
is touched. All else happens when a run, a sensor or a command needs it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import dagster as dg

from varve.dagster.assets.asset_definitions import io_manager_key
from varve.dagster.assets.broken import broken_check, broken_spec, log_broken, told_apart
from varve.dagster.assets.captured import automation
from varve.dagster.assets.datasets import DatasetAsset, graph_of, with_rejected
from varve.dagster.automation.alerting import alert_sensor
from varve.dagster.automation.arrival_checks import arrival_check
from varve.dagster.automation.following import following_job, following_sensor
from varve.dagster.automation.freshness_checks import freshness_check
from varve.dagster.automation.report import report_asset, report_schedule
from varve.dagster.automation.retiring import retirement_job, retirement_sensor
from varve.dagster.automation.sensors import arrival_sensor, downstream_sensor
from varve.dagster.discovery import LoadedProject, load_project
from varve.dagster.partitions.sets_sensor import has_sets, partition_sets_sensor
from varve.dagster.runs.builds_resource import builds_resource
from varve.dagster.runs.io_manager import store_io_manager
from varve.dagster.runs.landing import LandingResource
from varve.dagster.runs.processes import expect_sessions, fork_runs, write_logs
from varve.dagster.runs.spark import SparkResource
from varve.project import Project

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from varve.model.broken_dataset import BrokenDataset
    from varve.planning.graph import Graph


def definitions(
    project: Project,
    *,
    resources: Mapping[str, Any] | None = None,
    sensors_on: bool = False,
    in_process: bool = True,
) -> dg.Definitions:
    """The definitions of everything that a project declares; merge others into them with `dg.Definitions.merge`.

    Args:
        project: the project.
        resources: they take the place of those of the same name, and are given to the project's own assets too.
        sensors_on: whether the sensors look from the start, not only when a person has switched them on. Those of
            captured tables do not: their first look makes a replication slot in the database of others.
        in_process: whether they name Dagster's in-process executor, which suits runs of one dataset. Dagster merges no
            two executors: False where the definitions that they are merged with have one of their own.

    Raises NoProject where its folder of datasets cannot be loaded, VarveError for a dataset that is declared twice.
    """
    return build_defs(
        load_project(project).datasets,
        project=project,
        resource_overrides=resources,
        sensors_on=sensors_on,
        in_process=in_process,
    )


def build_defs(
    datasets: Iterable[DatasetAsset | BrokenDataset],
    *,
    project: Project | None = None,
    schedules: Iterable[dg.ScheduleDefinition] = (),
    resource_overrides: Mapping[str, Any] | None = None,
    sensors_on: bool = False,
    in_process: bool = True,
) -> dg.Definitions:
    """The definitions of these datasets; tests and commands build variants through it.

    `project` is whose settings count, by default that of the working directory.

    What is broken among them is an asset that cannot be run, with a check that fails. For `sensors_on` see
    `definitions`.

    Raises VarveError where the setting of the sensors' interval is wrong.
    """
    project = project or Project.find()
    declared = tuple(with_rejected(datasets))
    graph = replace(graph_of(declared), project=project.sensor_settings.project_name)
    loaded = LoadedProject(project, declared, graph)
    resources = {
        "spark": SparkResource.of(project),
        "builds": builds_resource(graph, project),
        "landing": LandingResource(),
        **{io_manager_key(dataset.store): store_io_manager() for dataset in graph.datasets.values()},
        **(resource_overrides or {}),
    }
    computing = dg.Definitions.merge(
        asset_definitions(loaded, in_process=in_process), dg.Definitions(resources=resources)
    )
    if project.sensor_settings.environment:
        # In an environment only what a person asks for is computed; what arrives, arrives in production.
        return computing
    captures = [automation(table, project) for table in loaded.captured]
    return dg.Definitions.merge(
        computing,
        dg.Definitions(
            jobs=[
                retirement_job(graph, project),
                following_job(graph, project),
                *[capture.job for capture in captures],
            ],
            sensors=[
                *_sensors(graph, project, on=sensors_on),
                retirement_sensor(graph, project, on=sensors_on),
                following_sensor(graph, project, on=sensors_on),
                alert_sensor(graph, loaded.captured, project, on=sensors_on),
                *[capture.sensor for capture in captures],
            ],
            schedules=[
                report_schedule(data_checks(loaded), project=graph.project),
                *[schedule for capture in captures for schedule in capture.schedules],
                *schedules,
            ],
        ),
    )


def asset_definitions(loaded: LoadedProject, *, in_process: bool = True) -> dg.Definitions:
    """The assets of a project, their checks and the report over them; not what makes runs, nor what runs use.

    What is broken is an asset that cannot be run, with a check that fails. `in_process`: see `definitions`.
    """
    fork_runs()
    expect_sessions(loaded.project)
    write_logs(loaded.project)
    graph, project = loaded.graph, loaded.project
    log_broken(graph.broken)
    console = project.sensor_settings.console_url
    names = {*graph.datasets, *(broken.name for broken in graph.broken)}
    return dg.Definitions(
        assets=[
            *[_linked(asset, console) for asset in loaded.datasets if isinstance(asset, DatasetAsset)],
            *[broken_spec(broken, names) for broken in told_apart(graph.broken)],
            report_asset(graph, project),
        ],
        asset_checks=[*_capture_checks(loaded), *data_checks(loaded)],
        # One run is one asset nearly always: a process for each step would only cost its start.
        executor=dg.in_process_executor if in_process else None,
    )


def _linked(declared: DatasetAsset, console: str | None) -> dg.AssetsDefinition | dg.AssetSpec:
    """The asset of a dataset, with a link to its page in the console where that has an address."""
    if console is None or isinstance(declared.asset, dg.AssetSpec):
        return declared.asset
    link = dg.MetadataValue.url(f"{console.rstrip('/')}/dataset/{quote(declared.dataset.name)}")
    return declared.asset.map_asset_specs(lambda spec: spec.merge_attributes(metadata={"varve/console": link}))


def _capture_checks(loaded: LoadedProject) -> list[dg.AssetChecksDefinition]:
    return [check for table in loaded.captured for check in automation(table, loaded.project).checks]


def data_checks(loaded: LoadedProject) -> list[dg.AssetChecksDefinition]:
    """The checks that the report makes every ten minutes: is all taken that arrived, is it fresh, can files be used?"""
    fresh = [dataset for dataset in loaded.graph.in_order() if dataset.policy.fresh_within is not None]
    arriving = [dataset for dataset in loaded.graph.in_order() if dataset.arrives]
    return [
        *[arrival_check(dataset, loaded.project) for dataset in arriving],
        *[freshness_check(dataset, loaded.project) for dataset in fresh],
        *[broken_check(broken) for broken in told_apart(loaded.graph.broken)],
    ]


def _sensors(graph: Graph, project: Project, *, on: bool) -> list[dg.SensorDefinition]:
    sensors, interval = [], project.sensor_settings.sensor_interval_seconds
    if any(dataset.arrives for dataset in graph.datasets.values()):
        sensors.append(arrival_sensor(graph, project, interval, on=on))
    if any(dataset.is_computed for dataset in graph.datasets.values()):
        sensors.append(downstream_sensor(graph, project, interval, on=on))
    if has_sets(graph):
        sensors.append(partition_sets_sensor(graph, on=on))
    return sensors
