"""The definitions of the project: `dagster-daemon run -m benchmarks.latency_project.definitions`."""

from pathlib import Path

from varve.dagster.assets.sql_assets import sql_assets
from varve.dagster.assets.sql_folders import sql_datasets
from varve.dagster.definitions import build_defs

defs = build_defs(sql_assets(sql_datasets(Path(__file__).parent)))
