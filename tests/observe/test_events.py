"""Events of every dataset of the shipped pipeline, as a run would send them: valid, and a graph that is the graph."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import pendulum
import pytest
from openlineage.client.serde import Serde
from typer.testing import CliRunner

from tests.observe.openlineage import columns_of, problems, reads_of
from tests.support.project import PROJECT
from varve.cli.app import app
from varve.dagster.discovery import load_project
from varve.model.batch import Batch, BatchId, Input, StagedBatch
from varve.model.build import Build
from varve.observe.lineage.events import LineageEvents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey

RUN = "0b0e2a52-4a1c-4d2e-9c35-54ac5f2a1c11"
HOSTILE = 'x"\n<script>\\ é\u2028 {"a": 1}'


@pytest.fixture(scope="module")
def events() -> LineageEvents:
    return LineageEvents(load_project(PROJECT).graph, "flights of today")


def keys(dataset: Dataset) -> list[PartitionKey]:
    """The first two partitions of a dataset of the shipped pipeline; sets have the key UA."""
    sets = {getattr(dimension, "set_name", ""): ("UA",) for dimension in dataset.partitioning.dimensions}
    return list(islice(dataset.partitioning.keys(sets, pendulum.datetime(2014, 2, 1)), 2))


def build(dataset: Dataset, partitions: Sequence[PartitionKey]) -> Build:
    found = Build(dataset, tuple(partitions), BatchId(1795210813484), RUN, dict.fromkeys(partitions), code_version="c1")
    found.expected[partitions[0]] = BatchId(1795210000000)
    return found


def written(events: Sequence[Any]) -> list[dict[str, Any]]:
    return [json.loads(Serde.to_json(event)) for event in events]


def of_whole_pipeline(events: LineageEvents) -> list[dict[str, Any]]:
    """The events of a build of each dataset: what it reads is version 1 of the upstream's first partition."""
    told: list[Any] = []
    for dataset in events.graph.in_order():
        made = build(dataset, keys(dataset))
        told += events.started(made)
        for key in made.partitions:
            for edge in events.graph.edges[dataset.name]:
                made.reads(key, Input(edge.upstream.name, keys(edge.upstream)[0].path, "1795210000001"))
        batches = [
            StagedBatch(key, f"/lake/{dataset.name}/{place}", 7, 100, 1) for place, key in enumerate(made.partitions)
        ]
        told += events.completed(made, batches)
    return written(told)


def test_every_event_is_valid_by_the_published_schemas(events: LineageEvents) -> None:
    told = of_whole_pipeline(events)
    assert {name for event in told for name in [event["job"]["name"]]} == set(events.graph.datasets)
    assert [problem for event in told for problem in problems(event)] == []


def test_the_graph_that_the_events_tell_is_the_graph_of_the_project(events: LineageEvents) -> None:
    told = of_whole_pipeline(events)
    printed = CliRunner().invoke(app, ["--project", str(PROJECT.root), "graph", "--columns"])
    assert printed.exit_code == 0, printed.output
    assert columns_of(told) == set(printed.output.splitlines())
    as_json = json.loads(CliRunner().invoke(app, ["--project", str(PROJECT.root), "graph", "--format", "json"]).output)
    reads = {dataset["name"]: {read["dataset"] for read in dataset["reads"]} for dataset in as_json["datasets"]}
    assert reads_of(told) == reads


def test_an_event_says_which_partition_and_batch_it_is_of(events: LineageEvents) -> None:
    (delays,) = [dataset for dataset in events.graph.in_order() if dataset.name == "flights.delays"]
    first, second = keys(delays)
    made = build(delays, [first, second])
    made.reads(first, Input("flights.departures", "day=2013-01-01", "17"))
    batch = StagedBatch(first, "/lake/delays", 7, 100, 2)
    (start, other), (complete,) = written(events.started(made)), written(events.completed(made, [batch], "dev"))
    (here,) = written(events.completed(made, [batch]))
    # One run of OpenLineage's for each partition, whose events belong together; in an environment it is another one.
    assert start["run"]["runId"] == here["run"]["runId"]
    assert len({start["run"]["runId"], other["run"]["runId"], complete["run"]["runId"]}) == 3
    assert here["run"]["facets"]["parent"]["run"]["runId"] == RUN
    facet = {name: value for name, value in here["run"]["facets"]["varve_partition"].items() if name[0] != "_"}
    assert facet == {
        "dataset": "flights.delays", "partition": first.path, "batchId": "1795210813484", "runId": RUN,
        "environment": "", "codeVersion": "c1", "publish": "published", "replaced": "1795210000000",
    }  # fmt: skip
    assert start["run"]["facets"]["varve_partition"]["publish"] == "pending"
    assert here["run"]["facets"]["nominalTime"]["nominalStartTime"] == "2013-01-01T05:00:00+00:00"
    (output,) = here["outputs"]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 7
    assert output["facets"]["dataQualityMetrics"]["rowCount"] == 7
    assert output["facets"]["version"]["datasetVersion"] == "1795210813484"
    (read,) = [one for one in here["inputs"] if one["name"] == "flights.departures"]
    assert read["inputFacets"]["subset"]["inputCondition"]["partitions"] == [
        {"identifier": "17", "dimensions": {"day": "2013-01-01"}}
    ]
    assert complete["job"]["namespace"] == complete["outputs"][0]["namespace"] == "flights of today@dev"


def test_a_failed_build_says_which_expectations_its_rows_break(events: LineageEvents) -> None:
    graph = events.graph
    (name,) = [dataset.name for dataset in graph.in_order() if dataset.name == "flights.delays"]
    graph = replace(graph, expectations={name: {"enough": "COUNT(*) > 0", HOSTILE: HOSTILE}})
    made = build(graph.datasets[name], keys(graph.datasets[name]))
    told = written(LineageEvents(graph, "x").failed(made, HOSTILE, {HOSTILE: "3 of 7 rows"}))
    assert len(told) == 2
    assert [problem for event in told for problem in problems(event)] == []
    facets = told[0]["run"]["facets"]
    assert facets["errorMessage"]["message"] == HOSTILE
    assert {test["name"]: test["status"] for test in facets["test"]["tests"]} == {"enough": "pass", HOSTILE: "fail"}
    (output,) = told[0]["outputs"]
    assert [check["success"] for check in output["facets"]["dataQualityAssertions"]["assertions"]] == [True, False]
    # Where none is known to be broken, it failed for another reason: nothing is said of them.
    (lost, _) = written(LineageEvents(graph, "x").failed(made, "Spark was lost"))
    assert {test["status"] for test in lost["run"]["facets"]["test"]["tests"]} == {"skip"}
    assert "dataQualityAssertions" not in lost["outputs"][0]["facets"]


def test_what_was_made_by_other_code_is_told_without_the_columns_and_the_query_of_the_code_here(
    events: LineageEvents,
) -> None:
    """Who rolls back from a checkout that is ahead would show a catalogue columns that no reader has."""
    name = "flights.delays"
    delays = events.graph.datasets[name]
    key = keys(delays)[0]
    ours = replace(events.graph, expectations={name: {"enough": "COUNT(*) > 0"}})
    of_the_code_here, of_other_code, of_none = (
        LineageEvents(replace(ours, code_versions={**ours.code_versions, name: version}), "x")
        for version in ("c1", "c2", "")
    )
    batch = Batch(
        key.path, BatchId(1795210000000), "/lake/delays", 7, 100, RUN, pendulum.datetime(2026, 11, 22), frozenset()
    )
    told = [written(each.moved(build(delays, [key]), batch, "rolled back"))[0]
            for each in (of_the_code_here, of_other_code, of_none)]  # fmt: skip
    assert [problem for event in told for problem in problems(event)] == []
    for event, is_known in zip(told, (True, False, True), strict=True):
        facets = event["outputs"][0]["facets"]
        for of_the_code in ("schema", "columnLineage", "dataQualityAssertions"):
            assert (of_the_code in facets) == is_known
        assert ("sql" in event["job"]["facets"]) == is_known
        assert event["run"]["facets"]["varve_partition"]["batchId"] == "1795210000000"
        assert facets["version"]["datasetVersion"] == "1795210000000"
        assert facets["dataQualityMetrics"]["rowCount"] == 7


def test_a_build_of_a_command_has_no_run_of_dagsters_as_its_parent(events: LineageEvents) -> None:
    dataset = events.graph.in_order()[0]
    made = replace(build(dataset, keys(dataset)), run_id="rollback-3f9c0d2e by ann")
    (told, *_) = written(events.started(made))
    assert "parent" not in told["run"]["facets"]
    assert problems(told) == []
