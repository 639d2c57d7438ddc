"""The sensor `projections` and its job on a real lake: a Hive table that could not follow a publish does later."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from tests.support.project import PROJECT
from tests.support.sales import sales_dataset
from varve.dagster.automation import following
from varve.dagster.automation.following import following_job, following_sensor
from varve.dagster.runs.spark import SparkResource
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import ServiceUnavailable
from varve.model.partitions.key import PartitionKey
from varve.planning.graph import Graph
from varve.stores.lake import projection

if TYPE_CHECKING:
    from tests.support.workbench import Workbench

FIFTH = dt.date(2013, 1, 5)
KEY = PartitionKey.of(day=FIFTH, store="Paris")
pytestmark = pytest.mark.spark


def graph_of(dataset: Dataset) -> Graph:
    return Graph({dataset.name: dataset}, {dataset.name: ()}, {})


def look(graph: Graph, instance: dg.DagsterInstance) -> list[dg.RunRequest] | str:
    """Tick the sensor: return the runs that it requests, or the reason why there are none."""
    with dg.build_sensor_context(instance) as context:
        result = following_sensor(graph, PROJECT)(context)
    if isinstance(result, dg.SkipReason):
        return str(result.skip_message)
    assert isinstance(result, dg.SensorResult)
    return list(result.run_requests or [])


def run(graph: Graph, request: Any, instance: dg.DagsterInstance) -> bool:
    return (
        following_job(graph, PROJECT)
        .execute_in_process(
            run_config=request.run_config, instance=instance, resources={"spark": SparkResource()}, tags=request.tags,
            raise_on_error=False,
        )
        .success
    )  # fmt: skip


def hive_rows(workbench: Workbench, dataset: Dataset) -> list[int]:
    return [row.sold for row in workbench.spark.sql(f"select sold from {dataset.name}").collect()]


def test_a_table_whose_metastore_was_away_follows_by_itself_when_it_is_back(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_GRACE_SECONDS", 0.0)
    dataset = sales_dataset(StoreKind.LAKE)
    graph = graph_of(dataset)
    workbench.publish(dataset, [KEY], [(KEY, "tea", 1)])

    def away(*_: object, **__: object) -> int:
        raise ServiceUnavailable("the metastore is away")

    with dg.DagsterInstance.ephemeral() as instance:
        assert look(graph, instance) == "Readers are shown what is current."
        with monkeypatch.context() as patched:
            patched.setattr(projection, "follow", away)
            workbench.publish(dataset, [KEY], [(KEY, "tea", 2)])
            assert hive_rows(workbench, dataset) == [1]
            (request,) = look(graph, instance)
            assert isinstance(request, dg.RunRequest)
            assert request.tags["why"] == f"{dataset}: readers are behind by 1 partition"
            monkeypatch.setattr(following, "_RETRIES", following.RetryLimits(first=0.0, most=0.0))
            waiting = instance.create_run_for_job(
                following_job(graph, PROJECT), run_config=request.run_config, tags=request.tags,
                status=dg.DagsterRunStatus.STARTING,
            )  # fmt: skip
            assert look(graph, instance) == "What lags is tried again later."
            instance.delete_run(waiting.run_id)
            monkeypatch.setattr(following, "_RETRIES", following.RetryLimits())
            assert not run(graph, request, instance)
            # Not at once, as the metastore is most likely away for longer.
            assert look(graph, instance) == "What lags is tried again later."
            monkeypatch.setattr(following, "_RETRIES", following.RetryLimits(first=0.0, most=0.0))
            (again,) = look(graph, instance)
            assert isinstance(again, dg.RunRequest)
            assert again.run_key != request.run_key
        assert run(graph, again, instance)
        assert hive_rows(workbench, dataset) == [2]
        assert look(graph, instance) == "Readers are shown what is current."


def test_a_publish_of_a_moment_ago_is_left_to_its_run(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = sales_dataset(StoreKind.LAKE)
    with monkeypatch.context() as patched:
        patched.setattr(projection, "follow", lambda *_, **__: 0)
        workbench.publish(dataset, [KEY], [(KEY, "tea", 1)])
    with dg.DagsterInstance.ephemeral() as instance:
        assert look(graph_of(dataset), instance) == "Readers are shown what is current."
        monkeypatch.setattr(following, "_GRACE_SECONDS", 0.0)
        assert len(look(graph_of(dataset), instance)) == 1


def test_what_another_run_publishes_meanwhile_is_left_to_that_run(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job failed by a batch of a run that was about to show it."""
    monkeypatch.setattr(following, "_GRACE_SECONDS", 0.0)
    dataset, follow = sales_dataset(StoreKind.LAKE), projection.follow
    other = PartitionKey.of(day=FIFTH, store="Detroit")
    workbench.publish(dataset, [KEY], [(KEY, "tea", 1)])
    with monkeypatch.context() as patched:
        patched.setattr(projection, "follow", lambda *_, **__: 0)
        workbench.publish(dataset, [KEY], [(KEY, "tea", 2)])

    def busy(*words: Any) -> int:
        count = follow(*words)
        monkeypatch.setattr(projection, "follow", lambda *_, **__: 0)
        workbench.publish(dataset, [other], [(other, "tea", 3)])
        return count

    with dg.DagsterInstance.ephemeral() as instance:
        (request,) = look(graph_of(dataset), instance)
        monkeypatch.setattr(projection, "follow", busy)
        assert run(graph_of(dataset), request, instance)
        assert hive_rows(workbench, dataset) == [2]
        # Until its run has shown it, that is what lags.
        (another,) = look(graph_of(dataset), instance)
        assert not run(graph_of(dataset), another, instance)
        monkeypatch.setattr(projection, "follow", follow)
        assert run(graph_of(dataset), another, instance)
    assert sorted(hive_rows(workbench, dataset)) == [2, 3]
