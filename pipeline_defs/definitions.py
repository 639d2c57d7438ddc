"""What Dagster loads: the datasets of `assets/` with their checks, and what makes and serves their runs.

Everything that Dagster is given is named on this page; `varve.dagster.definitions.definitions(project)` would give the
same in one call. Merge definitions of your own (plain assets, jobs, schedules) into `defs` here.
"""

from pathlib import Path

import dagster as dg

from pipeline_defs.jobs import jobs
from pipeline_defs.schedules import schedules
from pipeline_defs.sensors import sensors
from resources.catalog import builds
from resources.lake import lake_io_manager
from resources.landing import landing
from resources.spark import spark
from resources.warehouse import warehouse_io_manager
from varve.dagster.definitions import asset_definitions
from varve.dagster.discovery import load_project
from varve.project import Project

project = Project.find(Path(__file__).parent)
loaded = load_project(project)
graph = loaded.graph

defs = dg.Definitions.merge(
    asset_definitions(loaded),
    dg.Definitions(
        jobs=jobs(loaded),
        sensors=sensors(loaded),
        schedules=schedules(loaded),
        resources={
            "spark": spark(loaded),
            "builds": builds(loaded),
            "landing": landing,
            "lake_io_manager": lake_io_manager,
            "warehouse_io_manager": warehouse_io_manager,
        },
    ),
)
