"""What a tick of the planner costs, beside Dagster's automation conditions on the same graph with the same state.

    python -m benchmarks.reconcile [--datasets 100] [--partitions 10000] [--layers 10] [--ticks 20]

Everything is materialised, and nothing is due: what a scheduler does all day. Ours looks its facts up in PostgreSQL,
and so does a real sensor; Dagster evaluates from an ephemeral instance in memory, which is kinder to it.
"""

from __future__ import annotations

import argparse
import datetime as dt
import gc
import shutil
import statistics
import tempfile
import threading
import time
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import dagster as dg
import pendulum
import psutil
import psycopg
from rich.console import Console
from rich.progress import track
from rich.table import Table

from varve.catalog.catalog import Catalog
from varve.catalog.planning.facts import CatalogFacts, Changes, living
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.reads import Reads, trailing
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.graph import Graph
from varve.planning.reconcile import Limits, Planner
from varve.services.postgres_server import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from varve.planning.reconcile import RunPlan

T = TypeVar("T")
START = pendulum.datetime(1995, 1, 1)
_TRAILING = 7
_BATCHES = """
    insert into varve.batch (dataset, partition, batch_id, state, run_id, code_version, location, rows, bytes, files,
        inputs, published_at)
    select %(name)s, 'day=' || d::date, %(id)s, 'published', 'bench', '1', '/nowhere', 1, 1, 1, (
        select coalesce(jsonb_agg(jsonb_build_array(u.name, 'day=' || r::date, u.id)), '[]')
        from jsonb_to_recordset(%(reads)s::jsonb) as u (name text, id text, days int)
        cross join generate_series(greatest(d - make_interval(days => u.days - 1), %(first)s), d, '1 day') r
    ), now()
    from generate_series(%(first)s::timestamp, %(last)s::timestamp, '1 day') d
"""
_CURRENT = """
    insert into varve.current (dataset, partition, batch_id, projected_batch_id)
    select dataset, partition, batch_id, batch_id from varve.batch
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--layers", type=int, default=10)
    parser.add_argument("--ticks", type=int, default=20, help="idle ticks of ours to take the median of")
    parser.add_argument("--no-dagster", action="store_true", help="leave the peer out")
    given = parser.parse_args()
    console = Console(width=120)
    graph = layered(given.datasets, given.layers, given.partitions)
    now = START.add(days=given.partitions, hours=12)
    home = Path(tempfile.mkdtemp(prefix="varve-bench-"))
    try:
        server = PostgresServer(home)
        server.ensure_up()
        with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
            fill(connection, graph, given.partitions)
            ours = measure(connection, graph, now, given.ticks)
    finally:
        PostgresServer(home).stop()
        shutil.rmtree(home, ignore_errors=True)
    theirs = None if given.no_dagster else dagster_ticks(graph, now, given.partitions)
    show(console, given, ours, theirs)


def layered(datasets: int, layers: int, partitions: int) -> Graph:
    """Layers of daily datasets: each reads one or two of the layer above by day, every tenth a trailing week of one."""
    day = TimeDimension("day", "@daily", START, START.add(days=partitions))
    width = max(1, datasets // layers)
    made = [
        Dataset(
            f"bench.d{place:03}",
            Partitioning((day,)),
            Schema((Column("n", ColumnType.BIGINT),)),
            StoreKind.LAKE,
            "Rows.",
        )
        for place in range(datasets)
    ]
    reads: dict[str, tuple[Reads, ...]] = {}
    for place, dataset in enumerate(made):
        if place < width:
            reads[dataset.name] = ()
            continue
        first = made[place - width]
        second = made[place // width * width - width + (place + 1) % width]
        if place % 10 == 9:
            reads[dataset.name] = (Reads(first, {"day": trailing(_TRAILING)}),)
        else:
            reads[dataset.name] = tuple(Reads(each) for each in dict.fromkeys((first, second)))
    return Graph({dataset.name: dataset for dataset in made}, reads, {})


def fill(connection: psycopg.Connection, graph: Graph, partitions: int) -> None:
    """A catalog in which everything is there and made from what is current; traces in order, as builds write them."""
    catalog = Catalog(connection)
    catalog.ensure_schema()
    last = START.add(days=partitions - 1)
    ids = {dataset.name: 1_000 + place for place, dataset in enumerate(graph.in_order())}
    for dataset in track(graph.in_order(), "filling the catalog", transient=True):
        connection.execute("insert into varve.dataset values (%s, 'lake', '{}')", (dataset.name,))
        reads = [
            {"name": each.dataset.name, "id": str(ids[each.dataset.name]), "days": _TRAILING if each.rules else 1}
            for each in sorted(graph.reads[dataset.name], key=lambda each: each.dataset.name)
        ]
        given = {
            "name": dataset.name, "id": ids[dataset.name], "reads": psycopg.types.json.Jsonb(reads),
            "first": START.naive(), "last": last.naive(),
        }  # fmt: skip
        connection.execute(_BATCHES, given)
    connection.execute(_CURRENT)
    connection.execute("delete from varve.change")
    connection.execute("vacuum analyze")


def measure(connection: psycopg.Connection, graph: Graph, now: dt.datetime, ticks: int) -> dict[str, float]:
    """Seconds of a first tick, of idle ones and of one after a publish; MB that the planner took at most and keeps."""
    planner, changes, process = Planner(graph, Limits()), Changes(), psutil.Process()

    def tick() -> RunPlan:
        in_flight = living(connection)
        changed = changes.since_last(connection, in_flight)
        return planner.tick(CatalogFacts(connection, in_flight), changed, now=now)

    gc.collect()
    before = process.memory_info().rss / 1e6
    with watched(process) as peak:
        first, plan = timed(tick)
    assert not plan.runs
    found = {"first": first, "looked": float(plan.looked_at), "MB": peak[0] - before}
    found["idle"] = statistics.median(timed(tick)[0] for _ in range(ticks))
    (root, *_) = graph.in_order()
    path = f"day={START.add(days=10).to_date_string()}"
    connection.execute("update varve.clock set last_batch_id = 1000000")
    insert = "insert into varve.batch (dataset, partition, batch_id, state, run_id, code_version, published_at)"
    connection.execute(f"{insert} values (%s, %s, 999999, 'published', 'bench', '1', now())", (root.name, path))
    connection.execute(
        "update varve.current set batch_id = 999999 where (dataset, partition) = (%s, %s)", (root.name, path)
    )
    found["publish"], plan = timed(tick)
    assert plan.runs, "what reads the new batch is due"
    found["due"] = float(len(plan.runs))
    return found


@contextmanager
def watched(process: psutil.Process) -> Iterator[list[float]]:
    """The most MB that a process held, looked at a hundred times a second."""
    peak, over = [process.memory_info().rss / 1e6], threading.Event()

    def look() -> None:
        while not over.wait(0.01):
            peak[0] = max(peak[0], process.memory_info().rss / 1e6)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()


def dagster_ticks(graph: Graph, now: dt.datetime, partitions: int) -> dict[str, float]:
    """The same of `eager`, over all windows and not only the latest, as ours does."""
    warnings.simplefilter("ignore")
    window = dg.DailyPartitionsDefinition(start_date=START.naive(), end_date=START.add(days=partitions).naive())
    condition = dg.AutomationCondition.eager().without(dg.AutomationCondition.in_latest_time_window())
    assets = []
    for dataset in graph.in_order():
        mappings = [
            dg.AssetDep(
                dg.AssetKey(each.dataset.name.split(".")),
                partition_mapping=dg.TimeWindowPartitionMapping(
                    1 - _TRAILING if each.rules else 0, 0, allow_nonexistent_upstream_partitions=True
                ),
            )
            for each in graph.reads[dataset.name]
        ]
        assets.append(_dagster_asset(dataset, window, mappings, condition))
    keys = window.get_partition_keys()
    with dg.DagsterInstance.ephemeral() as instance:
        for asset in track(assets, "telling Dagster what is there", transient=True):
            for key in keys:
                instance.report_runless_asset_event(dg.AssetMaterialization(asset.key, partition=key))

        at = dt.datetime.fromtimestamp(now.timestamp(), dt.UTC)

        def evaluate(cursor: Any) -> dg.EvaluateAutomationConditionsResult:
            return dg.evaluate_automation_conditions(defs=assets, instance=instance, cursor=cursor, evaluation_time=at)

        first, result = timed(lambda: evaluate(None))
        idle, result = timed(lambda: evaluate(result.cursor))
        instance.report_runless_asset_event(dg.AssetMaterialization(assets[0].key, partition=keys[10]))
        publish, result = timed(lambda: evaluate(result.cursor))
    return {"first": first, "idle": idle, "publish": publish, "due": float(result.total_requested)}


def _dagster_asset(
    dataset: Dataset,
    window: dg.PartitionsDefinition[str],
    deps: list[dg.AssetDep],
    condition: dg.AutomationCondition[dg.AssetKey],
) -> dg.AssetsDefinition:
    @dg.asset(
        key=dg.AssetKey(dataset.name.split(".")), partitions_def=window, deps=deps, automation_condition=condition
    )
    def computed() -> None: ...

    return computed


def show(console: Console, given: argparse.Namespace, ours: dict[str, float], theirs: dict[str, float] | None) -> None:
    table = Table("tick", "ours, s", "of the first", "Dagster's eager, s", "ratio", "goal")
    for name, goal in (("first", "Dagster's >= 5 x ours"), ("idle", "<= 2 % of the first"), ("publish", "")):
        peer = theirs[name] if theirs else None
        table.add_row(
            name, f"{ours[name]:.4f}", f"{ours[name] / ours['first']:.2%}", f"{peer:.2f}" if peer is not None else "",
            f"{peer / ours[name]:,.0f} x" if peer is not None else "", goal,
        )  # fmt: skip
    console.print(f"{given.datasets} datasets x {given.partitions:,} partitions; {ours['looked']:,.0f} judged at first")
    console.print(table)
    console.print(f"memory of the first tick: {ours['MB']:.0f} MB (goal: < 500)")


def timed(call: Callable[[], T]) -> tuple[float, T]:
    started = time.perf_counter()
    found = call()
    return time.perf_counter() - started, found


if __name__ == "__main__":
    main()
