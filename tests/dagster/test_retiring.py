"""The retirement sensor and its job on real stores: partitions that leave the graph are hidden from readers."""

from __future__ import annotations

import datetime as dt
import time
import uuid
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from tests.support.project import PROJECT
from tests.support.sales import DAY, sales_dataset
from varve.catalog.backfills import Backfills
from varve.catalog.planning.facts import CatalogFacts
from varve.dagster.automation.retiring import retirement_job, retirement_sensor
from varve.dagster.partitions.sets_sensor import sets_of
from varve.dagster.runs.spark import SparkResource
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import DynamicDimension, StaticDimension
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.model.policy import Policy
from varve.planning.graph import Graph
from varve.planning.judgement.facts import NOTHING

if TYPE_CHECKING:
    from tests.support.workbench import Workbench

FIFTH = dt.date(2013, 1, 5)


def graph_of(dataset: Dataset) -> Graph:
    return Graph({dataset.name: dataset}, {dataset.name: ()}, {})


def look(graph: Graph, instance: dg.DagsterInstance) -> list[dg.RunRequest] | str:
    """Tick the sensor: return the runs that it requests, or the reason why there are none."""
    with dg.build_sensor_context(instance) as context:
        result = retirement_sensor(graph, PROJECT)(context)
    if isinstance(result, dg.SkipReason):
        return str(result.skip_message)
    assert isinstance(result, dg.SensorResult)
    return list(result.run_requests or [])


@pytest.mark.spark
@pytest.mark.parametrize("kind", [StoreKind.LAKE, StoreKind.WAREHOUSE])
def test_a_key_that_left_the_graph_goes_by_itself_and_may_come_back(workbench: Workbench, kind: StoreKind) -> None:
    before = sales_dataset(kind)
    keys = [PartitionKey.of(day=FIFTH, store=store) for store in ("Detroit", "Paris")]
    workbench.publish(before, keys, [(keys[0], "tea", 1), (keys[1], "tea", 2)])
    graph = graph_of(replace(before, partitioning=Partitioning((DAY, StaticDimension("store", ("Paris",))))))
    with dg.DagsterInstance.ephemeral() as instance:
        (request,) = look(graph, instance)
        assert isinstance(request, dg.RunRequest)
        (again,) = look(graph, instance)
        assert isinstance(again, dg.RunRequest)
        assert again.run_key == request.run_key
        done = retirement_job(graph, PROJECT).execute_in_process(
            run_config=request.run_config, instance=instance, resources={"spark": SparkResource()}, tags=request.tags
        )
        assert done.success
        assert workbench.read(before) == [(FIFTH, "Paris", "tea", 2)]
        assert look(graph, instance) == "Every partition that has a batch is one of the graph."
        records = instance.fetch_observations(dg.AssetKey(before.name.split(".")), limit=10).records
        assert [record.asset_observation.metadata["varve/retired"].value for record in records] == [keys[0].path]  # type: ignore[union-attr]
    # The partition runs again when it returns to the graph.
    catalog = workbench.catalog()
    assert CatalogFacts(catalog.connection).of(before.name, None).get(keys[0].path, NOTHING).rolled_back == 0
    catalog.connection.close()
    workbench.publish(before, keys[:1], [(keys[0], "tea", 3)])
    assert workbench.read(before)[0] == (FIFTH, "Detroit", "tea", 3)


@pytest.mark.spark
def test_a_key_that_came_back_while_its_run_waited_stays_and_a_run_that_waits_is_not_asked_for_again(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VARVE_BACKOFF_SECONDS", "0.001")
    before = sales_dataset(StoreKind.LAKE)
    keys = [PartitionKey.of(day=FIFTH, store=store) for store in ("Detroit", "Paris")]
    workbench.publish(before, keys, [(keys[0], "tea", 1), (keys[1], "tea", 2)])
    graph = graph_of(replace(before, partitioning=Partitioning((DAY, StaticDimension("store", ("Paris",))))))
    with dg.DagsterInstance.ephemeral() as instance:
        (request,) = look(graph, instance)
        assert isinstance(request, dg.RunRequest)
        job = retirement_job(graph_of(before), PROJECT)
        run = instance.create_run_for_job(
            job, run_config=request.run_config, tags=request.tags, status=dg.DagsterRunStatus.STARTING
        )
        assert (
            look(graph, instance) == "Every partition that has left the graph is being retired, or tried again later."
        )
        instance.report_run_canceled(run)
        (again,) = look(graph, instance)
        assert isinstance(again, dg.RunRequest)
        assert again.run_key != request.run_key
        done = job.execute_in_process(
            run_config=request.run_config, instance=instance, resources={"spark": SparkResource()}
        )
        assert done.success
    assert len(workbench.read(before)) == 2


@pytest.mark.spark
def test_a_slip_that_would_empty_a_dataset_is_left_to_a_person(workbench: Workbench) -> None:
    before = sales_dataset(StoreKind.WAREHOUSE)
    keys = [PartitionKey.of(day=FIFTH + dt.timedelta(days), store="Paris") for days in range(11)]
    workbench.publish(before, keys, [(key, "tea", 1) for key in keys])
    graph = graph_of(replace(before, partitioning=Partitioning((DAY, StaticDimension("store", ("Detroit",))))))
    with dg.DagsterInstance.ephemeral() as instance:
        skip_reason = look(graph, instance)
    assert skip_reason == (
        f"{before}: 11 of its 11 partitions have left the graph at once, and none was retired. If that is meant: "
        f"varve retire {before}. If not, mend its declaration."
    )
    assert len(workbench.current(before)) == 11


@pytest.mark.spark
def test_a_set_that_is_lost_with_dagsters_storage_takes_nothing_from_readers(workbench: Workbench) -> None:
    before = sales_dataset(StoreKind.LAKE)
    keys = [PartitionKey.of(day=FIFTH, store=store) for store in ("Detroit", "Paris")]
    workbench.publish(before, keys, [(key, "tea", 1) for key in keys])
    stores = DynamicDimension("store", "stores")
    graph = graph_of(replace(before, partitioning=Partitioning((DAY, stores))))
    with dg.DagsterInstance.ephemeral() as instance:
        assert look(graph, instance) == (
            f"{before}: the set {stores.set_name} has no key, as when Dagster's storage was lost, and none of 2 "
            f"partitions was retired. Add its keys again: varve keys add {stores.set_name} KEY ... If it is meant: "
            f"varve retire {before}."
        )
        # As long as not all of its keys are added again, the others are no keys that somebody has taken out.
        while time.time() * 1_000 < workbench.current(before)[keys[0].path].batch_id.millis + 3_000:
            time.sleep(0.1)
        sets = sets_of(instance, graph)
        sets.add(stores, ["Paris"])
        assert look(graph, instance) == (
            f"{before}: every key of the set {stores.set_name} was added after 1 partition of other keys had been "
            "computed, as when Dagster's storage was lost and keys are added again; none of those was retired. Add the "
            f"other keys too: varve keys add {stores.set_name} KEY ... If it is meant: varve retire {before}."
        )
        sets.add(stores, ["Detroit"])
        assert look(graph, instance) == "Every partition that has a batch is one of the graph."
        # One key that is taken out of a set that has others goes by itself, as always.
        workbench.publish(before, keys, [(key, "tea", 2) for key in keys])
        sets.remove(stores, ["Detroit"])
        (request,) = look(graph, instance)
    assert isinstance(request, dg.RunRequest)
    assert request.run_config["ops"]["retire_partitions"]["config"]["partitions"] == [keys[0].path]


def test_a_set_that_is_lost_does_not_take_the_marks_of_a_backfill_with_it(workbench: Workbench) -> None:
    stores = DynamicDimension("store", f"stores_{uuid.uuid4().hex[:8]}")
    dataset = replace(sales_dataset(StoreKind.LAKE), partitioning=Partitioning((DAY, stores)))
    with closing(workbench.catalog().connection) as connection, dg.DagsterInstance.ephemeral() as instance:
        backfills = Backfills(connection)
        number = backfills.add({dataset.name: [PartitionKey.of(day=FIFTH, store="Paris").path]}, reason="", owner="me")
        graph = graph_of(dataset)
        look(graph, instance)
        assert backfills.listed(number)[0].state == "running"
        # A key that was taken out of a set that has others takes its marks with it.
        sets_of(instance, graph).add(stores, ["Detroit"])
        look(graph, instance)
        assert backfills.listed(number)[0].state == "done"


def test_a_backfill_ends_though_the_retention_of_what_it_marked_is_over(workbench: Workbench) -> None:
    dataset = replace(sales_dataset(StoreKind.WAREHOUSE), policy=Policy(retention=dt.timedelta(days=30)))
    path = PartitionKey.of(day=FIFTH, store="Paris").path
    with closing(workbench.catalog().connection) as connection, dg.DagsterInstance.ephemeral() as instance:
        backfills = Backfills(connection)
        number = backfills.add({dataset.name: [path]}, reason="wrong", owner="me")
        assert backfills.listed(number)[0].state == "running"
        assert look(graph_of(dataset), instance) == "Every partition that has a batch is one of the graph."
        assert backfills.listed(number)[0].state == "done"
