"""Catalogs that are made by a few statements: as if builds had made them; what is asked of them is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from benchmarks.large_catalog import CODE, CatalogSize, fill, graph_of
from varve.catalog.catalog import Catalog
from varve.catalog.code.code_states import CodeStates
from varve.catalog.code.deployments import Deployments
from varve.catalog.history.history import History
from varve.catalog.planning.facts import CatalogFacts, living
from varve.model.batch import BatchId
from varve.planning.reconcile import Limits, Planner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.planning.graph import Graph

SIZE = CatalogSize(datasets=30, partitions=700, rounds=4, large=90, together=10)
# As `varve status` asked before it had an index: each current batch is looked up by its key.
COUNTED_ONE_BY_ONE = """
    select d.dataset, d.store, count(c.partition), coalesce(sum(b.rows), 0)::bigint, coalesce(sum(b.bytes), 0)::bigint,
        (select count(*) from varve.batch x where x.dataset = d.dataset and x.state not in ('failed', 'swept'))
    from varve.dataset d
    left join varve.current c using (dataset) left join varve.batch b using (dataset, partition, batch_id)
    group by d.dataset, d.store order by d.dataset
"""


@pytest.fixture
def graph() -> Graph:
    return graph_of(SIZE)


@pytest.fixture
def connection(fresh_database: str, graph: Graph) -> Iterator[psycopg.Connection]:
    with psycopg.connect(fresh_database, autocommit=True) as opened:
        fill(opened, graph, SIZE)
        yield opened


def count(connection: psycopg.Connection, condition: str) -> int:
    row = connection.execute(f"select count(*) from varve.batch b where {condition}").fetchone()
    assert row is not None
    return int(row[0])


def test_it_is_consistent_and_its_planner_finds_nothing_to_do(connection: psycopg.Connection, graph: Graph) -> None:
    expected = {
        name: {key.path for key in [*dataset.partitioning.keys()]} for name, dataset in graph.datasets.items()
    }  # fmt: skip
    facts = CatalogFacts(connection, living(connection))
    assert {name: facts.existing_partitions(name) for name in graph.datasets} == expected
    partitions = sum(map(len, expected.values()))
    assert count(connection, "b.state <> 'failed'") == SIZE.rounds * partitions
    assert count(connection, "b.state = 'failed'") > 0
    is_current = "(b.dataset, b.partition, b.batch_id) in (select dataset, partition, batch_id from varve.current)"
    assert count(connection, f"(b.state = 'published') <> ({is_current})") == 0
    # Every input was current at some time, and before what was made from it.
    inputs = "jsonb_to_recordset(jsonb_build_array(jsonb_build_object('i', b.inputs -> 0))) r (i jsonb)"
    made = f"""
        b.state <> 'failed' and not (b.inputs -> 0 ->> 0) like 'landing:%' and not exists (
            select from {inputs} join varve.batch x on x.dataset = i ->> 0 and x.partition = i ->> 1
                and x.batch_id = (i ->> 2)::bigint and x.published_at < b.published_at)
    """
    assert count(connection, made) == 0
    plan = Planner(graph, Limits()).tick(facts, None, now=SIZE.now, codes=CodeStates(connection).of(graph))
    assert not plan.runs
    assert not plan.failed
    assert plan.looked_at == partitions


def test_what_is_counted_by_index_is_what_is_counted_one_by_one(connection: psycopg.Connection) -> None:
    connection.execute(
        "update varve.batch set state = 'building' where batch_id in (select min(batch_id) from varve.batch)"
    )
    rows = connection.execute(COUNTED_ONE_BY_ONE).fetchall()
    assert [
        (each.dataset, each.store, each.partitions, each.rows, each.size, each.batches)
        for each in Catalog(connection).counts()
    ] == rows


def test_batches_of_other_code_are_found_among_those_that_are_current(
    connection: psycopg.Connection, graph: Graph
) -> None:
    name = list(graph.datasets)[7]
    assert Deployments(connection).outdated(graph.datasets) == {}
    connection.execute(
        "update varve.batch set code_version = '0' where dataset = %s and partition < 't=2015-01-03'", (name,)
    )
    current = Catalog(connection).current(name)
    others = {path: batch.batch_id.millis for path, batch in current.items() if path < "t=2015-01-03"}
    assert len(others) == 2
    assert Deployments(connection).outdated(graph.datasets) == {name: others}
    assert Deployments(connection).made_by_others(name, CODE) == others


def test_partitions_pins_and_runs_are_found_by_name(connection: psycopg.Connection, graph: Graph) -> None:
    name, history = next(iter(graph.datasets)), History(connection)
    current = Catalog(connection).current(name)
    path, other = sorted(current)[:2]
    assert history.partitions(name) == set(current)
    assert history.partitions(name, [path, "t=1999-01-01T00"]) == {path}
    history.pin(name, current[path].batch_id, [path], owner="audit", reason="a year")
    assert history.pinned(name) == history.pinned(name, [path]) == {current[path].batch_id}
    assert history.pinned(name, [other]) == history.pinned(name, among=[BatchId(1)]) == set()
    run = current[path].run_id
    assert history.runs_like(run) == [run]
    assert len(history.runs_like("run-")) == 10
    connection.execute(
        "update varve.publish set run_id = %s where run_id = %s", (run[:-1], history.runs_like("run-")[-1])
    )
    assert history.runs_like(run[:-1]) == [run[:-1]], "it is the beginning of other ids too"
