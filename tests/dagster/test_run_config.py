"""What a run is not given: configuration, without which sensors leave a dataset out by name, and a partition."""

import datetime as dt
import uuid
from contextlib import closing
from typing import Any

import dagster as dg
import pytest

from tests.support.project import ROOT
from tests.support.workbench import Workbench
from varve.catalog.catalog import Catalog
from varve.catalog.history.history import History
from varve.catalog.rejected import RejectedArrivals
from varve.dagster.assets.datasets import DatasetAsset, dataset_asset
from varve.dagster.automation.schedules import partition_schedule
from varve.dagster.definitions import build_defs
from varve.dagster.driver import failure_reason
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import NOTHING_LOST
from varve.model.partitions.dimension import StaticDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.policy import Policy
from varve.model.schema import Column, ColumnType, Schema

LETTERS = Partitioning((StaticDimension("letter", ("a", "b")),))
N = Schema((Column("n", ColumnType.BIGINT),))


class Rate(dg.Config):
    rate: int


class RateOrNone(dg.Config):
    rate: int = 0


class Service(dg.ConfigurableResource[None]):
    token: str


def declared(db: str) -> list[DatasetAsset]:
    def dataset(name: str) -> Dataset:
        return Dataset(f"{db}.{name}", LETTERS, N, StoreKind.LAKE, "", policy=Policy(by_itself=True))

    @dataset_asset(dataset("a_configured"))
    def a_configured(context: dg.AssetExecutionContext, config: Rate) -> None: ...

    @dataset_asset(dataset("b_of_service"), about={"required_resource_keys": {"service"}})
    def b_of_service(context: dg.AssetExecutionContext) -> None: ...

    @dataset_asset(dataset("c_with_default"))
    def c_with_default(context: dg.AssetExecutionContext, config: RateOrNone) -> None: ...

    @dataset_asset(dataset("d_plain"))
    def d_plain(context: dg.AssetExecutionContext) -> None: ...

    return [a_configured, b_of_service, c_with_default, d_plain]


def test_a_dataset_that_needs_configuration_keeps_no_other_from_running(catalog: Catalog) -> None:
    db = f"c{uuid.uuid4().hex[:8]}"
    service: Any = Service.configure_at_launch()
    assets = build_defs(declared(db), resource_overrides={"service": service})
    repository = assets.get_repository_def()
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(instance, repository_def=repository, sensor_name="downstream")
        result = repository.get_sensor_def("downstream").evaluate_tick(context)
        asked = {request.asset_selection[0].path[-1]: request for request in result.run_requests or ()}
        # The daemon makes a plan of each request like this, and what that raises ends the tick.
        for request in asked.values():
            job = repository.get_implicit_job_def_for_assets(request.asset_selection)
            assert job is not None
            subset = job.get_subset(asset_selection=set(request.asset_selection or ()))
            dg.validate_run_config(subset, dict(request.run_config))
    assert sorted(asked) == ["c_with_default", "d_plain"]
    left_out = {
        entry.dataset: entry.reason
        for entry in RejectedArrivals(catalog.connection).left_out()
        if entry.dataset.startswith(db)
    }
    assert left_out.keys() == {f"{db}.a_configured", f"{db}.b_of_service"}
    assert "its run needs configuration (its function)" in left_out[f"{db}.a_configured"]
    assert "its run needs configuration (the resource 'service')" in left_out[f"{db}.b_of_service"]


def test_a_schedule_leaves_a_dataset_that_needs_configuration_out_as_the_sensor_does(catalog: Catalog) -> None:
    configured, of_service, *others = declared(f"c{uuid.uuid4().hex[:8]}")
    schedules = [partition_schedule(asset.dataset, "@daily") for asset in (configured, of_service, *others)]
    resources: Any = {"service": Service.configure_at_launch()}
    assets = build_defs([configured, of_service, *others], resource_overrides=resources, schedules=schedules)
    repository = assets.get_repository_def()
    tick = dt.datetime(2026, 1, 5, tzinfo=dt.UTC)
    with dg.DagsterInstance.from_config(str(ROOT)) as instance:
        results = {}
        for schedule in schedules:
            context = dg.build_schedule_context(
                instance=instance, scheduled_execution_time=tick, repository_def=repository
            )
            result = repository.get_schedule_def(schedule.name).evaluate_tick(context)
            results[schedule.name.split("_", 1)[1]] = result.skip_message or len(result.run_requests or ())
    assert results["c_with_default_schedule"] == results["d_plain_schedule"] == 1
    assert results["a_configured_schedule"] == (
        f"Nothing of {configured.dataset} can be requested: its run needs configuration (its function), and runs that "
        "sensors and schedules ask for have none: give each field a default. By hand it runs with what is written in "
        "the launchpad."
    )
    assert "(the resource 'service')" in str(results["b_of_service_schedule"])
    assert catalog is not None


@pytest.mark.spark
def test_a_run_that_names_no_partition_says_so_and_is_no_failure_of_any(workbench: Workbench) -> None:
    """So asks a schedule over the asset of a dataset, or a RunRequest without a key."""

    @dataset_asset(Dataset(f"c{uuid.uuid4().hex[:8]}.plain", LETTERS, N, StoreKind.LAKE, ""))
    def plain(context: dg.AssetExecutionContext) -> Any:
        """Never looked at: the run is refused when it would store it."""

    result = build_defs([plain]).resolve_implicit_global_asset_job_def().execute_in_process(raise_on_error=False)
    assert failure_reason(result) == (
        f"{plain.dataset}: the run names no partition of it. {NOTHING_LOST} Name one, or a range of them, in the "
        "launchpad or in a RunRequest; varve.partition_schedule is a schedule that names them."
    )
    with closing(workbench.catalog().connection) as connection:
        assert History(connection).batches(plain.dataset.name) == []
