"""What a query reads is asked of the query: rules that cover it would give one partition what another one reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pendulum
import pytest

from pipeline_defs.planning.facts import Fact
from pipeline_defs.planning.graph import Graph
from pipeline_defs.planning.judging import State
from pipeline_defs.planning.mapping import listed
from pipeline_defs.planning.reading import EdgePaths, Keys, Shapes
from pipeline_defs.planning.reconcile import reconcile
from pipeline_defs.sql.errors import Source
from pipeline_defs.sql.project import compiled
from pipeline_defs.sql_assets import sql_assets

if TYPE_CHECKING:
    from pipeline_defs.model.reads import Reads

NOW = pendulum.datetime(2022, 3, 20)
HEAD = """CREATE DATASET shop.{name} (product STRING)
PARTITIONED BY (day STRING, store STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01'), shop IN ('Detroit', 'Lyon', 'Paris')
LET today = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (day = today, store = shop)
"""
QUERIES = {
    "same": "day = today AND store = shop",
    "trailing": "day BETWEEN DATE_SUB(today, 3) AND today AND store = shop",
    "other_store": "day = today AND store = CASE WHEN shop = 'Paris' THEN 'Lyon' ELSE 'Detroit' END",
    "whole": "day = today AND store IN ('Detroit', 'Lyon', 'Paris')",
}


@pytest.fixture(scope="module")
def shop() -> Graph:
    texts = [HEAD.format(name="receipts") + "EXTERNAL"]
    texts += [
        HEAD.format(name=name) + f"AS SELECT product FROM shop.receipts WHERE {where}"
        for name, where in QUERIES.items()
    ]
    assets = sql_assets(compiled([Source(f"{place}.sql", text) for place, text in enumerate(texts)], {}))
    reads: dict[str, tuple[Reads, ...]] = {each.dataset.name: tuple(each.reads) for each in assets}
    return Graph({each.dataset.name: each.dataset for each in assets}, reads, {})


@pytest.mark.parametrize("at_once", [False, True])
def test_edges_of_one_tick_each_read_what_their_own_query_says(shop: Graph, *, at_once: bool) -> None:
    shapes = Shapes()
    for name in QUERIES:
        dataset = shop.datasets[f"shop.{name}"]
        (edge,) = shop.edges[dataset.name]
        reader, upstream = Keys(dataset.partitioning, None), Keys(edge.upstream.partitioning, None)
        paths = EdgePaths(edge, reader, upstream, shapes=shapes, members=None, now=NOW)
        keys = [*dataset.partitioning.keys(None, NOW)]
        wanted = paths.wanted_by({key.path for key in keys}) if at_once else None
        for key in keys:
            mapped = edge.dependency.upstream_of(key, now=NOW)
            expected = {up.path for up in listed((*mapped.existing, *mapped.upcoming))}
            found = wanted[key.path] if wanted else paths.wanted(key.path)
            assert (name, key.path, set(found)) == (name, key.path, expected)


def test_a_query_that_picks_another_store_waits_for_that_one(shop: Graph) -> None:
    class Lyon:
        def of(self, dataset: str, _: object) -> dict[str, Fact]:
            return {"day=2022-03-10/store=Lyon": Fact(7, 1.0)} if dataset == "shop.receipts" else {}

    judged = reconcile(shop, Lyon(), now=NOW).judgements
    due = {(name, path) for name in QUERIES for path, one in judged[f"shop.{name}"].items() if one.state is State.DUE}
    assert due == {("same", "day=2022-03-10/store=Lyon"), ("other_store", "day=2022-03-10/store=Paris")}
