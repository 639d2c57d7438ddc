"""What a query reads is asked of the query: rules that cover it would give one partition what another one reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pendulum
import pytest

from varve.dagster.assets.sql_assets import sql_assets
from varve.planning.graph import Graph
from varve.planning.judgement.facts import Fact
from varve.planning.judgement.judgement import State
from varve.planning.mapping.dataset_mapping import listed
from varve.planning.readers import EdgePaths, Keys, MappingMemory
from varve.planning.reconcile import reconcile
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile

if TYPE_CHECKING:
    from varve.model.reads import Reads

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
    assets = sql_assets(compiled([SourceFile(f"{place}.sql", text) for place, text in enumerate(texts)], {}))
    reads: dict[str, tuple[Reads, ...]] = {asset.dataset.name: tuple(asset.reads) for asset in assets}
    return Graph({asset.dataset.name: asset.dataset for asset in assets}, reads, {})


@pytest.mark.parametrize("at_once", [False, True])
def test_edges_of_one_tick_each_read_what_their_own_query_says(shop: Graph, *, at_once: bool) -> None:
    shapes = MappingMemory()
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
            paths_read = wanted[key.path] if wanted else paths.wanted(key.path)
            assert (name, key.path, set(paths_read)) == (name, key.path, expected)


def test_a_query_that_picks_another_store_waits_for_that_one(shop: Graph) -> None:
    class Lyon:
        def of(self, dataset: str, _: object) -> dict[str, Fact]:
            return {"day=2022-03-10/store=Lyon": Fact(7, 1.0)} if dataset == "shop.receipts" else {}

    judged = reconcile(shop, Lyon(), now=NOW).judgements
    due = {
        (name, path)
        for name in QUERIES
        for path, judgement in judged[f"shop.{name}"].items()
        if judgement.state is State.DUE
    }
    assert due == {("same", "day=2022-03-10/store=Lyon"), ("other_store", "day=2022-03-10/store=Paris")}
