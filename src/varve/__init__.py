"""Rerun any partition, any time, and no reader notices.

This is the public API: everything else in the package may change without notice. `import varve` imports none of what
stands behind a name; that happens when the name is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from varve import testing
    from varve.cdc.captured_table import CapturedTable
    from varve.dagster.assets.context import partitions_of
    from varve.dagster.assets.datasets import captured_asset
    from varve.dagster.assets.datasets import dataset_asset as asset
    from varve.dagster.assets.sql_folders import sql_datasets
    from varve.dagster.automation.schedules import partition_schedule
    from varve.dagster.component import VarveProject
    from varve.dagster.definitions import definitions
    from varve.dagster.driver import run_due
    from varve.dagster.reading import open_project as open  # noqa: A004 - varve.open
    from varve.dagster.runs.landing import LandingResource
    from varve.dagster.runs.spark import SparkResource
    from varve.model.dataset import Dataset, StoreKind
    from varve.model.errors import VarveError
    from varve.model.expectation import Expectation, Of
    from varve.model.function import function
    from varve.model.landing.options import LandingOptions
    from varve.model.partitions.calendar import Every
    from varve.model.partitions.dimension import DynamicDimension, StaticDimension, TimeDimension
    from varve.model.partitions.grain import Grain
    from varve.model.partitions.key import PartitionKey
    from varve.model.partitions.own_calendar import Calendar
    from varve.model.partitions.partitioning import Partitioning
    from varve.model.partitions.schedule import Schedule
    from varve.model.partitions.time_columns import TimeColumn
    from varve.model.policy import OnCodeChange, OnUpstreamChange, Policy
    from varve.model.reads import (
        All,
        Custom,
        Latest,
        Only,
        Overlap,
        Reads,
        Same,
        TableReads,
        Unit,
        Wait,
        leading,
        shifted,
        trailing,
    )
    from varve.model.schema import Column, ColumnType, Schema
    from varve.model.store_options import Index, LakeOptions, OldSnapshots, Period, WarehouseOptions
    from varve.project import Project

__version__ = "0.2.0"

__all__ = [
    "All",
    "Calendar",
    "CapturedTable",
    "Column",
    "ColumnType",
    "Custom",
    "Dataset",
    "DynamicDimension",
    "Every",
    "Expectation",
    "Grain",
    "Index",
    "LakeOptions",
    "LandingOptions",
    "LandingResource",
    "Latest",
    "Of",
    "OldSnapshots",
    "OnCodeChange",
    "OnUpstreamChange",
    "Only",
    "Overlap",
    "PartitionKey",
    "Partitioning",
    "Period",
    "Policy",
    "Project",
    "Reads",
    "Same",
    "Schedule",
    "Schema",
    "SparkResource",
    "StaticDimension",
    "StoreKind",
    "TableReads",
    "TimeColumn",
    "TimeDimension",
    "Unit",
    "VarveError",
    "VarveProject",
    "Wait",
    "WarehouseOptions",
    "__version__",
    "asset",
    "captured_asset",
    "definitions",
    "function",
    "leading",
    "open",
    "partition_schedule",
    "partitions_of",
    "run_due",
    "shifted",
    "sql_datasets",
    "testing",
    "trailing",
]

# Where each name is: its module, and the name that it has there where that is another one.
_PLACES = {
    **dict.fromkeys(("Dataset", "StoreKind"), "varve.model.dataset"),
    **dict.fromkeys(("DynamicDimension", "StaticDimension", "TimeDimension"), "varve.model.partitions.dimension"),
    **dict.fromkeys(
        (
            "All", "Custom", "Latest", "Only", "Overlap", "Reads", "Same", "TableReads", "Unit", "Wait", "leading",
            "shifted", "trailing",
        ),
        "varve.model.reads",
    ),
    **dict.fromkeys(("Column", "ColumnType", "Schema"), "varve.model.schema"),
    **dict.fromkeys(
        ("Index", "LakeOptions", "OldSnapshots", "Period", "WarehouseOptions"), "varve.model.store_options"
    ),
    **dict.fromkeys(("OnCodeChange", "OnUpstreamChange", "Policy"), "varve.model.policy"),
    "CapturedTable": "varve.cdc.captured_table",
    "Calendar": "varve.model.partitions.own_calendar",
    "Every": "varve.model.partitions.calendar",
    "Expectation": "varve.model.expectation",
    "Of": "varve.model.expectation",
    "Grain": "varve.model.partitions.grain",
    "LandingOptions": "varve.model.landing.options",
    "LandingResource": "varve.dagster.runs.landing",
    "PartitionKey": "varve.model.partitions.key",
    "Partitioning": "varve.model.partitions.partitioning",
    "Project": "varve.project",
    "Schedule": "varve.model.partitions.schedule",
    "SparkResource": "varve.dagster.runs.spark",
    "TimeColumn": "varve.model.partitions.time_columns",
    "VarveError": "varve.model.errors",
    "VarveProject": "varve.dagster.component",
    "asset": "varve.dagster.assets.datasets:dataset_asset",
    "captured_asset": "varve.dagster.assets.datasets",
    "definitions": "varve.dagster.definitions",
    "function": "varve.model.function",
    "open": "varve.dagster.reading:open_project",
    "partition_schedule": "varve.dagster.automation.schedules",
    "partitions_of": "varve.dagster.assets.context",
    "run_due": "varve.dagster.driver",
    "sql_datasets": "varve.dagster.assets.sql_folders",
}  # fmt: skip


# To a type checker a name that is none is an error.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """A public name, imported when it is first used."""
        if name == "testing":
            return importlib.import_module("varve.testing")
        if name not in _PLACES:
            raise AttributeError(f"module 'varve' has no attribute {name!r}; docs/api.md lists its public names")
        module, _, attribute = _PLACES[name].partition(":")
        value = getattr(importlib.import_module(module), attribute or name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
