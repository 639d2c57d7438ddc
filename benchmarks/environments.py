"""What an environment costs in the catalog: making one, planning in it, comparing it, proving and making its promotion.

    python -m benchmarks.environments [--datasets 100] [--partitions 1000] [--layers 10] [--changed 1]

The queries of the first datasets of the first layer are changed, and with them follows all that reads them. Batches
have no rows here: what runs cost is measured by `python -m benchmarks.load` and `benchmarks.lake`.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pendulum
import psycopg
from rich.console import Console
from rich.table import Table

from benchmarks.processor import Spent
from benchmarks.reconcile import START, fill, layered
from varve.catalog.catalog import Catalog
from varve.catalog.environments.environments import Environments
from varve.catalog.environments.facts import EnvironmentFacts, codes_of
from varve.planning.environment_runs import Wanted, needed
from varve.planning.judgement.judgement import State
from varve.planning.reconcile import Limits, Planner
from varve.services.postgres_server import PostgresServer
from varve.stores.environments.promoter import Promoter
from varve.stores.environments.promotion import LeftBehind

if TYPE_CHECKING:
    from collections.abc import Callable

    from varve.model.build import Build
    from varve.planning.graph import Graph

T = TypeVar("T")
_PUBLISHES = """
    insert into varve.publish (dataset, build_id, kind, run_id, published_at)
    select distinct dataset, batch_id, 'publish', 'bench', now() from varve.batch
"""
_PUBLISHED = """
    insert into varve.published (dataset, partition, build_id, batch_id)
    select dataset, partition, batch_id, batch_id from varve.batch
"""
_DEPLOYED = """
    with deployment as (
        insert into varve.deployment (dataset, code_version, decision, source, deployed_by)
        select dataset, '1', 'hold', '', 'bench' from varve.dataset returning dataset, id
    )
    insert into varve.deployed select dataset, id, '1', false from deployment
"""
# A batch of each partition of a dataset in the environment, made from what is current there.
_COMPUTED = """
    insert into varve.batch (dataset, partition, batch_id, state, run_id, code_version, location, rows, bytes, files,
        inputs, staged_at, retired_at, environment)
    select b.dataset, b.partition, b.batch_id + 1000000, 'retired', 'bench', %(code)s, '/nowhere', 1, 1, 1, (
        select coalesce(jsonb_agg(jsonb_build_array(i ->> 0, i ->> 1, coalesce((o.batch_id)::text, i ->> 2))
            order by i ->> 0, i ->> 1), '[]')
        from jsonb_array_elements(b.inputs) i
        left join varve.overlay o on o.dataset = i ->> 0 and o.partition = i ->> 1 and o.environment = 'bench'
    ), now(), now(), 'bench'
    from varve.batch b where b.dataset = %(name)s and b.environment = ''
"""
_POINTED = """
    insert into varve.overlay (environment, dataset, partition, batch_id)
    select 'bench', dataset, partition, batch_id from varve.batch where dataset = %s and environment = 'bench'
"""
_BARE = "insert into bare select * from varve.current"


class PointersOnly:
    """A store without data: a promotion changes the catalog, and nothing follows."""

    def commit(self, builds: object, point: Callable[[], None]) -> None:
        """See `Store.commit`."""
        del builds
        point()

    def published(self, build: Build) -> None:
        """See `Store.published`."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--layers", type=int, default=10)
    parser.add_argument("--changed", type=int, default=1, help="how many datasets of the first layer have other code")
    given = parser.parse_args()
    graph = layered(given.datasets, given.layers, given.partitions)
    graph = replace(graph, code_versions=dict.fromkeys(graph.datasets, "1"))
    home = Path(tempfile.mkdtemp(prefix="varve-bench-"))
    try:
        server = PostgresServer(home)
        server.ensure_up()
        with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
            fill(connection, graph, given.partitions)
            for statement in (_PUBLISHES, _PUBLISHED, _DEPLOYED):
                connection.execute(statement)
            connection.execute("update varve.clock set last_batch_id = 5000000")
            connection.execute("vacuum analyze")
            found = measure(connection, graph, given.partitions, given.changed)
    finally:
        PostgresServer(home).stop()
        shutil.rmtree(home, ignore_errors=True)
    show(found, given)


def measure(connection: psycopg.Connection, graph: Graph, partitions: int, count: int) -> list[tuple[str, str, Spent]]:
    """The steps, what each was about, and what it took."""
    now = START.add(days=partitions, hours=12)
    first = [name for name in graph.datasets if not graph.reads[name]][:count]
    changed = replace(graph, code_versions={**graph.code_versions, **dict.fromkeys(first, "2")})
    environments = Environments(connection)
    steps: list[tuple[str, str, Spent]] = []

    def step(name: str, work: Callable[[], T], about: Callable[[T], str] = lambda _: "") -> T:
        began = Spent.so_far(connection)
        result = work()
        steps.append((name, about(result), Spent.so_far(connection) - began))
        return result

    step("make an environment", lambda: environments.create("bench", by="bench"))
    environments.set_code("bench", changed)
    last = START.add(days=partitions - 1)
    week = Wanted(first=last.subtract(days=6).to_date_string(), last=last.to_date_string())

    def plan() -> int:
        facts = EnvironmentFacts(connection, "bench", changed)
        judged = Planner(changed, Limits()).tick(facts, None, now=now, codes=codes_of(changed, {})).judgements
        chosen = needed(changed, week, judged, facts.existing_partitions, None)
        return sum(
            path in judged[name] and judged[name][path].state is State.DUE
            for name, paths in chosen.items() for path in paths
        )  # fmt: skip

    step("plan 7 days in it", plan, lambda count: f"{count} partitions of what was changed are due")
    followed = set(first)
    for dataset in changed.in_order():
        if any(edge.upstream.name in followed for edge in changed.edges[dataset.name]):
            followed.add(dataset.name)
    for dataset in changed.in_order():
        if dataset.name in followed:
            connection.execute(_COMPUTED, {"name": dataset.name, "code": changed.code_versions[dataset.name]})
            connection.execute(_POINTED, (dataset.name,))
    connection.execute("analyze")
    step("compare it with production", lambda: environments.overlay("bench"), lambda rows: f"{len(rows):,} partitions")
    store = PointersOnly()
    promoter = Promoter(Catalog(connection), changed, lambda _: store, {}, Limits(), now)  # type: ignore[arg-type, return-value]
    step(
        "prove that it can be promoted", lambda: promoter.look("bench"),
        lambda promotion: f"{promotion.partitions:,} of {given_partitions(connection):,} partitions",
    )  # fmt: skip
    promotion = step(
        "promote it, proof included", lambda: promoter.promote("bench", LeftBehind.REFUSE, by="bench"),
        lambda promotion: f"{promotion.partitions:,} partitions",
    )  # fmt: skip
    # As it was asked within the promotion: a proof moves the pointers first, and takes them back.
    step(
        "of that, the closure check", lambda: promoter.check.judged(promotion),
        lambda judged: f"{promotion.partitions:,} partitions, {sum(map(len, judged.values()))} not consistent",
    )  # fmt: skip
    connection.execute("create table bare (like varve.current including indexes)")
    step("beside it: as many rows by a bare INSERT ... SELECT", lambda: connection.execute(_BARE).rowcount,
         lambda count: f"{count:,} rows")  # fmt: skip
    return steps


def given_partitions(connection: psycopg.Connection) -> int:
    """How many partitions are current."""
    row = connection.execute("select count(*) from varve.current").fetchone()
    assert row is not None
    return int(row[0])


def show(steps: list[tuple[str, str, Spent]], given: argparse.Namespace) -> None:
    """Print the table."""
    title = f"{given.datasets} datasets of {given.partitions:,} partitions, {pendulum.now('UTC').to_date_string()}"
    table = Table("step", "about", "seconds", "processor: here", "in PostgreSQL", title=title, title_justify="left")
    for name, about, spent in steps:
        table.add_row(name, about, f"{spent.wall:.2f}", f"{spent.client:.2f}", f"{spent.server:.2f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
