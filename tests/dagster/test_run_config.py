"""A dataset whose runs need configuration: sensors leave it out by name, and ask for what is due of all others."""

import uuid
from typing import Any

import dagster as dg

from varve.catalog.catalog import Catalog
from varve.catalog.rejected import RejectedArrivals
from varve.dagster.assets.datasets import DatasetAsset, dataset_asset
from varve.dagster.definitions import build_defs
from varve.model.dataset import Dataset, StoreKind
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
