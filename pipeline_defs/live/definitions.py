"""The definitions of the live demo: `dagster-daemon run -m pipeline_defs.live.definitions`. Its sensors are on."""

from pathlib import Path

from pipeline_defs.datasets import graph_of
from pipeline_defs.definitions import build_defs
from pipeline_defs.sql_assets import project, sql_assets

_assets = sql_assets(project(Path(__file__).parent))
graph = graph_of(_assets)
defs = build_defs(_assets, sensors_on=True)
