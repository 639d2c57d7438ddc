"""The jobs: what is no asset of its own, because it changes partitions that it is told of or that it finds.

Assets need no job: Dagster materialises them by itself, in the UI, from the shell and for the sensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.dagster.assets.captured import automation
from varve.dagster.automation.following import following_job
from varve.dagster.automation.retiring import retirement_job

if TYPE_CHECKING:
    import dagster as dg

    from varve.dagster.discovery import LoadedProject


def jobs(loaded: LoadedProject) -> list[dg.JobDefinition]:
    """All jobs of this project."""
    return [
        # Asked for by the sensor `retirement`, with the partitions that it is to take.
        retirement_job(loaded.graph, loaded.project),
        # Asked for by the sensor `projections`, with the dataset whose readers are behind.
        following_job(loaded.graph, loaded.project),
        # One for each captured table: applies what its sensor has captured, to as many partitions as that touches.
        *(automation(table, loaded.project).job for table in loaded.captured),
    ]
