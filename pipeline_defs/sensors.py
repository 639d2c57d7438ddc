"""The sensors: what arrived runs its partitions, and what was published runs the partitions downstream that read it.

A sensor keeps no list of work. It compares what exists with what should exist, so that nothing is forgotten when a
tick, a run or the daemon dies (docs/decisions/0006). All are off until somebody switches them on in Dagster.

Not here: which partitions of one dataset read which of another; the datasets say it (docs/partitions.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.dagster.assets.captured import automation
from varve.dagster.automation.alerting import alert_sensor
from varve.dagster.automation.following import following_sensor
from varve.dagster.automation.retiring import retirement_sensor
from varve.dagster.automation.sensors import arrival_sensor, downstream_sensor
from varve.dagster.partitions.sets_sensor import partition_sets_sensor

if TYPE_CHECKING:
    import dagster as dg

    from varve.dagster.discovery import LoadedProject


def sensors(loaded: LoadedProject) -> list[dg.SensorDefinition]:
    """All sensors of this project."""
    graph, project = loaded.graph, loaded.project
    if project.sensor_settings.environment:
        # In an environment only what a person asks for is computed (docs/environments.md).
        return []
    seconds = project.sensor_settings.sensor_interval_seconds
    return [
        # A new file, or one that was sent again with other content, runs the partition that its name says.
        arrival_sensor(graph, project, seconds),
        # A partition runs when all that it reads exists, and again when one of these was published with other rows:
        # a day of departures runs that day's delays at each airport, and then the week of that day.
        downstream_sensor(graph, project, seconds),
        # Dagster lists partitions in sets; a new window of time and a new carrier have to be added to them.
        partition_sets_sensor(graph),
        # What is late, rejected, given up or behind is told, once (docs/alerts.md).
        alert_sensor(graph, loaded.captured, project),
        # Partitions whose retention is over, or that no dataset has any more, are taken out of readers' sight.
        retirement_sensor(graph, project),
        # A Hive table that could not follow a publish, as the metastore was away, follows it when that is back.
        following_sensor(graph, project),
        # The changes of a live PostgreSQL table become durable at each tick; a run applies them.
        *(automation(table, project).sensor for table in loaded.captured),
    ]
