"""SQL files as what a project declares: `sql_assets()`.

Not here: the SQL files of a folder (sql_folders.py), and what Dagster is given of them (sql_runs.py).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from varve.dagster.assets.datasets import DatasetAsset, asset_of_project, with_rejected
from varve.dagster.assets.python_files import python_assets
from varve.dagster.assets.sql_folders import planned_reads
from varve.sql.files.sql_files import SqlFiles

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import dagster as dg

    from varve.model.broken_dataset import BrokenDataset
    from varve.model.reads import Reads
    from varve.sql.sql_asset import SqlAsset


def assets_of(files: Mapping[str, SqlAsset], folder: Path) -> list[DatasetAsset | BrokenDataset]:
    """Return the assets of the SQL files and of the Python files beside them, with the broken datasets."""
    return with_rejected([*python_assets(folder), *sql_assets(files)])


def sql_assets(files: Mapping[str, SqlAsset]) -> list[DatasetAsset | BrokenDataset]:
    """Return an asset for each SQL file, and the broken datasets where `files` has some."""
    broken = files.broken if isinstance(files, SqlFiles) else ()
    return [*(_asset(sql_asset) for sql_asset in files.values()), *broken]


def _asset(sql_asset: SqlAsset) -> DatasetAsset:
    if sql_asset.dataset.of_project:
        return asset_of_project(sql_asset.dataset, source=sql_asset.code_text)
    reads = planned_reads(sql_asset)
    return DatasetAsset(
        sql_asset.dataset,
        partial(_definition, sql_asset, reads),
        tuple(reads.values()),
        sql_asset.code_version,
        source=sql_asset.code_text,
        lineage=sql_asset.lineage,
        checks=dict(sql_asset.compiled.expectations),
    )


def _definition(sql_asset: SqlAsset, reads: Mapping[str, Reads]) -> dg.AssetsDefinition:
    from varve.dagster.assets.sql_runs import sql_asset_definition

    return sql_asset_definition(sql_asset, reads)
