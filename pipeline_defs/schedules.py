"""The schedules: the report, every ten minutes, and comparisons of captured tables that ask for them.

Datasets need none: the sensors run what is due. Where a dataset is to run at fixed times instead, add a
`partition_schedule(dataset, "0 6 * * *", project=loaded.project)` (docs/partitions.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.dagster.assets.captured import automation
from varve.dagster.automation.report import report_schedule
from varve.dagster.definitions import data_checks

if TYPE_CHECKING:
    import dagster as dg

    from varve.dagster.discovery import LoadedProject


def schedules(loaded: LoadedProject) -> list[dg.ScheduleDefinition]:
    """All schedules of this project."""
    # Draws the state of every partition, and runs the checks of what arrived and of files that cannot be used.
    report = report_schedule(data_checks(loaded), project=loaded.graph.project)
    # A captured table with `verify="0 3 * * *"` is compared with its source then.
    return [
        report,
        *(schedule for table in loaded.captured for schedule in automation(table, loaded.project).schedules),
    ]
