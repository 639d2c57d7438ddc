"""The definitions of the project: `dagster-daemon run -m benchmarks.latency_project.definitions`."""

from pathlib import Path

from pipeline_defs.definitions import build_defs
from pipeline_defs.sql_assets import project, sql_assets

defs = build_defs(sql_assets(project(Path(__file__).parent)))
