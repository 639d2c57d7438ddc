"""Everything wired together: `build_defs()`, and the `defs` that workspace.yaml and `dagster -m` load.

Of the environment only what Dagster must know of the definitions is read here, the interval of the sensors; no server
is touched. All else happens when a run, a sensor or a command needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

from pipeline_defs.arrival_checks import arrival_check
from pipeline_defs.broken import broken_check, broken_spec, log_broken
from pipeline_defs.captured import automation
from pipeline_defs.datasets import IO_MANAGER, DatasetAsset, graph_of, with_rejected
from pipeline_defs.declared import broken_modules, python_assets
from pipeline_defs.model.errors import VarveError
from pipeline_defs.partition_sets import has_sets, partition_sets_sensor
from pipeline_defs.report import report_asset, report_schedule
from pipeline_defs.retiring import retirement_job, retirement_sensor
from pipeline_defs.sensors import arrival_sensor, downstream_sensor
from pipeline_defs.sql_assets import project, sql_assets
from resources.builds import builds_resource
from resources.io_manager import store_io_manager
from resources.landing_resource import LandingResource
from resources.run_processes import fork_runs
from resources.settings import SensorSettings
from resources.spark import SparkResource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pipeline_defs.model.broken import BrokenDataset
    from pipeline_defs.planning.graph import Graph


def discover() -> list[DatasetAsset | BrokenDataset]:
    """Everything that a file of `assets/` declares: a new file there is all that a new dataset needs.

    Files with errors are among it as broken datasets. Raises VarveError for a dataset that is declared twice.
    """
    in_python, files = python_assets(), project()
    in_sql = {
        **{each.name: each.file for each in files.broken},
        **{name: each.source.path for name, each in files.items()},
    }
    if both := sorted({found.dataset.name for found in in_python} & set(in_sql)):
        raise VarveError(f"{both[0]} is declared in {in_sql[both[0]]} and in Python; take one of them out.")
    return with_rejected([*in_python, *sql_assets(files), *broken_modules()])


def build_defs(
    datasets: Iterable[DatasetAsset | BrokenDataset] | None = None,
    *,
    schedules: Iterable[dg.ScheduleDefinition] = (),
    resource_overrides: Mapping[str, Any] | None = None,
    sensors_on: bool = False,
) -> dg.Definitions:
    """The definitions of these datasets (default: all of `assets/`); tests and commands build variants through it.

    What is broken among them is an asset that cannot be run, with a check that fails. `sensors_on`: `arrivals` and
    `downstream` look from the start, not only when a person has switched them on.

    Raises VarveError where the setting of the sensors' interval is wrong.
    """
    fork_runs()
    declared = with_rejected(discover() if datasets is None else datasets)
    listed = [found for found in declared if isinstance(found, DatasetAsset)]
    graph = graph_of(declared)
    log_broken(graph.broken)
    names = {*graph.datasets, *(each.name for each in graph.broken)}
    checks = [arrival_check(dataset) for dataset in graph.in_order() if dataset.arrives]
    checks += [broken_check(each) for each in graph.broken]
    captures = [automation(found.captured) for found in listed if found.captured is not None]
    return dg.Definitions(
        assets=[
            *[found.asset for found in listed],
            *[broken_spec(each, names) for each in graph.broken],
            report_asset(graph),
        ],
        jobs=[retirement_job(graph), *[one.job for one in captures]],
        asset_checks=[*[one.check for one in captures], *checks],
        sensors=[*_sensors(graph, on=sensors_on), retirement_sensor(graph), *[one.sensor for one in captures]],
        schedules=[report_schedule(checks), *schedules],
        # One run is one asset nearly always: a process for each step would only cost its start.
        executor=dg.in_process_executor,
        resources={
            "spark": SparkResource(),
            "builds": builds_resource(graph),
            "landing": LandingResource(),
            IO_MANAGER: store_io_manager(),
            **(resource_overrides or {}),
        },
    )


def _sensors(graph: Graph, *, on: bool) -> list[dg.SensorDefinition]:
    sensors, interval = [], SensorSettings().sensor_interval_seconds
    if any(dataset.arrives for dataset in graph.datasets.values()):
        sensors.append(arrival_sensor(graph, interval, on=on))
    if not all(dataset.arrives or dataset.rejected_of for dataset in graph.datasets.values()):
        sensors.append(downstream_sensor(graph, interval, on=on))
    if has_sets(graph):
        sensors.append(partition_sets_sensor(graph))
    return sensors


# Read once: every process of every run begins with this import.
_discovered = discover()
graph = graph_of(_discovered)
defs = build_defs(_discovered)
