"""The definitions of the live demo, with its sensors on."""

from pathlib import Path

from varve.dagster.assets.datasets import graph_of
from varve.dagster.assets.sql_assets import sql_assets
from varve.dagster.assets.sql_folders import sql_datasets
from varve.dagster.definitions import build_defs

_assets = sql_assets(sql_datasets(Path(__file__).parent))
graph = graph_of(_assets)
defs = build_defs(_assets, sensors_on=True)
