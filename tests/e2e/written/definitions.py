"""A project of two SQL files, whose query has what once ran as something else.

dagster asset materialize -m tests.e2e.written.definitions --select written/stats --partition "O'Brien"
"""

from pathlib import Path

from varve.dagster.assets.sql_assets import sql_assets
from varve.dagster.assets.sql_folders import loaded
from varve.dagster.definitions import build_defs

defs = build_defs(sql_assets(loaded(Path(__file__).parent)))
