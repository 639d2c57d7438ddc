"""The report in Dagster: the picture of a real catalog, and its check."""

from __future__ import annotations

import base64
import datetime as dt
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import dagster as dg
import pytest

from tests.support.project import PROJECT
from tests.support.sales import sales_dataset
from varve.catalog.backfills import Backfills
from varve.dagster.automation.report import COLOURS, KEY, report_asset
from varve.model.dataset import StoreKind
from varve.model.partitions.key import PartitionKey
from varve.planning.graph import Graph
from varve.planning.judgement.judgement import State

if TYPE_CHECKING:
    from varve.catalog.catalog import Catalog


@pytest.fixture
def graph() -> Graph:
    sales = sales_dataset(StoreKind.LAKE)
    return Graph({sales.name: sales}, {sales.name: ()}, {})


def materialise(graph: Graph) -> tuple[dg.AssetMaterialization, dg.AssetCheckEvaluation]:
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize([report_asset(graph, PROJECT)], instance=instance)
        (event,) = done.asset_materializations_for_node(KEY.to_python_identifier())
        (evaluation,) = done.get_asset_check_evaluations()
    assert event.asset_key == KEY
    return event, evaluation


def cells_of(markdown: str) -> dict[State, int]:
    """Return how many squares of the picture have the colour of each state."""
    image = re.search(r"data:image/svg\+xml;base64,([^)]+)", markdown)
    assert image is not None
    drawing = ET.fromstring(base64.b64decode(image[1]))  # noqa: S314 - our own
    states = {colour: state for state, colour in COLOURS.items()}
    return {states[path.attrib["fill"]]: path.attrib["d"].count("M") for path in drawing if path.tag.endswith("path")}


def key(day: int) -> PartitionKey:
    return PartitionKey.of(day=dt.date(2013, 1, day), store="Paris")


def test_a_partition_that_was_given_up_fails_the_check_by_name(graph: Graph, catalog: Catalog) -> None:
    (sales,) = graph.datasets.values()
    _, none_yet = materialise(graph)
    assert none_yet.passed
    # A partition without inputs is only requested by the mark of a backfill.
    Backfills(catalog.connection).add({sales.name: [key(5).path, key(6).path]}, reason="wrong", owner="me")
    event, evaluation = materialise(graph)
    assert evaluation.passed
    shown = str(event.metadata["varve/over time"].value)
    assert f"| {sales.name} | 2 due |" in shown
    assert cells_of(shown) == {State.DUE: 2}
    for _ in range(3):
        build = catalog.begin(sales, [key(5)], run_id="broken", code_version="")
        catalog.fail(build, "it is broken")
        catalog.release(build)
    event, evaluation = materialise(graph)
    assert not evaluation.passed
    assert list(evaluation.metadata) == [f"{sales.name} {key(5).path}"]
    assert "3 attempts failed" in str(evaluation.metadata[f"{sales.name} {key(5).path}"].value)
    assert event.metadata["varve/failed"].value == 1
    assert cells_of(str(event.metadata["varve/over time"].value)) == {State.FAILED: 1, State.DUE: 1}
