"""`docs/examples/seeds/003`: the examples of the partitions proposal, compared with what the proposal says of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.project import ROOT
from varve.model.partitions.dimension import DynamicDimension
from varve.sql.sql_project import load_usable

if TYPE_CHECKING:
    from varve.model.partitions.key import PartitionKey
    from varve.planning.mapping.dataset_mapping import Dependency
    from varve.sql.files.sql_files import SqlFiles

CUSTOMERS = {"active_customers": ("ann", "bob")}


@pytest.fixture(scope="module")
def files() -> SqlFiles:
    return load_usable(ROOT / "docs" / "examples" / "seeds" / "003").checked()


def edge(files: SqlFiles, reader: str, upstream: str) -> Dependency:
    return files[f"aip76.{reader}"].dependency(f"aip76.{upstream}")


def key(files: SqlFiles, name: str, path: str) -> PartitionKey:
    return files[f"aip76.{name}"].dataset.partitioning.from_path(path)


def read(files: SqlFiles, reader: str, path: str, upstream: str) -> list[str]:
    """The paths of what a partition reads."""
    found = edge(files, reader, upstream).upstream_of(key(files, reader, path), members=CUSTOMERS)
    return sorted(each.path for each in found.keys)


def readers(files: SqlFiles, reader: str, upstream: str, path: str) -> list[str]:
    """The paths of the partitions that read a partition."""
    found = edge(files, reader, upstream).readers_of(key(files, upstream, path), members=CUSTOMERS)
    return sorted(each.path for each in found.keys)


def test_the_partition_covering_2pm_must_be_materialized_first(files: SqlFiles) -> None:
    at_two = "hour=2024-03-05T14%3A00"
    assert read(files, "hourly_data", at_two, "raw_hourly_data") == [at_two]


def test_for_the_partition_covering_1430_to_1530_both_the_2pm_and_the_3pm_partitions(files: SqlFiles) -> None:
    assert read(files, "hourly_data_shifted", "half=2024-03-05T14%3A30", "raw_hourly_data") == [
        "hour=2024-03-05T14%3A00", "hour=2024-03-05T15%3A00",
    ]  # fmt: skip


def test_every_partition_of_the_daily_asset_depends_on_24_partitions_of_the_hourly_one(files: SqlFiles) -> None:
    hours = [f"hour=2024-03-05T{hour:02}%3A00" for hour in range(24)]
    assert read(files, "aggregated_daily_data", "day=2024-03-05", "hourly_data") == hours


def test_after_each_yearly_update_12_runs_are_scheduled_for_the_downstream(files: SqlFiles) -> None:
    months = [f"month=2023-{month:02}" for month in range(1, 13)]
    assert readers(files, "data_using_slow_data", "yearly_data", "of_year=2023") == months


@pytest.mark.needs_seconds
def test_a_product_of_24_hours_and_2_data_warehouses_has_48_partitions_a_day(files: SqlFiles) -> None:
    path = "hour=2024-03-05T14%3A00/dwh=marketing-dwh"
    assert read(files, "dwh_spend_analysis", path, "dwh_daily_cloud_spend") == ["dwh=marketing-dwh"]
    of_day = [
        each
        for warehouse in ("marketing-dwh", "engineering-dwh")
        for each in readers(files, "dwh_spend_analysis", "dwh_daily_cloud_spend", f"dwh={warehouse}")
        if each.startswith("hour=2024-03-05")
    ]
    assert len(of_day) == 48


def test_a_set_is_shared_and_each_key_that_is_added_is_run_once_downstream(files: SqlFiles) -> None:
    names = ("energy_consumption_model", "energy_prediction")
    dimensions = [files[f"aip76.{name}"].dataset.partitioning["customer"] for name in names]
    assert dimensions[0] == dimensions[1]
    assert isinstance(dimensions[0], DynamicDimension)
    # What the proposal's function does in its body, `customers = ... # get customer list`, is said of the set.
    assert str(dimensions[0].source) == "SELECT DISTINCT customer FROM aip76.customers"
    assert readers(files, "energy_prediction", "energy_consumption_model", "customer=bob") == ["customer=bob"]
    assert list(dimensions[0].keys(CUSTOMERS)) == ["ann", "bob"]
