"""What a page of the console takes: a year of 9 datasets with 100,000 partitions.

    python -m benchmarks.console [--shops 32] [--rounds 5]

A dataset by hour and eight by day and shop, in layers that read each other; one reads a trailing week, one a week of
days. Batches have no rows: pages look at the catalog alone. Cold is the first page of that kind in the life of a
console, and the very first one waits until every partition is judged, as `varve console` begins to do before anybody
asks; warm is the median of the next ones.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import psycopg
from rich.console import Console
from rich.table import Table
from starlette.testclient import TestClient

from varve.catalog.catalog import Catalog
from varve.cli.observe.console.access import cookie_of
from varve.cli.observe.console.app import application
from varve.dagster.discovery import load_project
from varve.project import Project
from varve.services.postgres import connect
from varve.services.postgres_server import PostgresServer

if TYPE_CHECKING:
    from varve.planning.graph import Graph

GOAL_MS = 300
_TRAILING = "bench.d4"
TOKEN = "of-a-benchmark-and-of-nobody"  # noqa: S105
_ASSETS = """
import varve
from varve import Column, ColumnType, Dataset, Partitioning, Schema, StoreKind
from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.model.reads import Reads, trailing

SCHEMA = Schema((Column("n", ColumnType.BIGINT),))
HOUR = TimeDimension.of("hour", "@hourly", "2025-01-01", "2026-01-01")
DAY = TimeDimension.of("day", "@daily", "2025-01-01", "2026-01-01")
SHOP = StaticDimension("shop", tuple(f"shop {number:02}" for number in range(SHOPS)))


def made(name, dimensions, reads):
    dataset = Dataset(f"bench.{name}", Partitioning(dimensions), SCHEMA, StoreKind.LAKE, "Rows.")

    @varve.asset(dataset, reads=reads, code_version="1")
    def compute(**frames):
        return None

    globals()[name] = compute
    return dataset


made("hours", (HOUR,), {})
before = made("d0", (DAY, SHOP), {})
for place in range(1, 8):
    rules = {"day": trailing(7)} if f"bench.d{place}" == TRAILING else {}
    before = made(f"d{place}", (DAY, SHOP), {"before": Reads(before, rules)})
"""
# Each is current and was made from what is current; every tenth has an earlier batch.
_BATCHES = """
    insert into varve.batch (dataset, partition, batch_id, state, run_id, code_version, location, rows, bytes, files,
        inputs, started_at, staged_at, published_at, retired_at)
    select %(name)s, w.path, %(id)s, %(state)s, %(run)s, %(code)s, '/nowhere', 1000, 65536, 1, w.inputs, now(), now(),
        now(), case when %(state)s = 'retired' then now() end
    from jsonb_to_recordset(%(wanted)s) as w (path text, inputs jsonb)
"""
_PUBLISH = """
    insert into varve.publish (dataset, build_id, kind, run_id, published_at) values (%s, %s, 'publish', %s, now())
"""
_PUBLISHED = """
    insert into varve.published (dataset, partition, build_id, batch_id)
    select dataset, partition, batch_id, batch_id from varve.batch where batch_id = %s and dataset = %s
"""
_CURRENT = """
    insert into varve.current (dataset, partition, batch_id, projected_batch_id)
    select dataset, partition, batch_id, batch_id from varve.batch where state = 'published'
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shops", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="varve-bench-"))
    home.chmod(0o755)
    try:
        project = made_project(home, given.shops)
        with connect(project.settings, application="benchmark") as connection:
            graph = load_project(project).graph
            if graph.broken:
                raise SystemExit("\n".join(str(each) for each in graph.broken))
            start = time.perf_counter()
            partitions = fill(connection, graph)
            print(f"filled with {partitions:,} partitions in {time.perf_counter() - start:.0f} s", flush=True)
        times = measure(project, given.rounds)
    finally:
        PostgresServer(home / ".varve").stop()
        shutil.rmtree(home, ignore_errors=True)
    show(Console(width=110), partitions, times)


def made_project(home: Path, shops: int) -> Project:
    """A project of nine datasets in a folder."""
    assets = home / "bench_console_assets"
    assets.mkdir()
    (assets / "__init__.py").touch()
    (home / "varve.toml").write_text(f'assets = "{assets.name}"\n', encoding="utf-8")
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n", encoding="utf-8")
    begin = f"SHOPS, TRAILING = {shops}, {_TRAILING!r}\n"
    (assets / "all.py").write_text(begin + _ASSETS, encoding="utf-8")
    os.environ.update(VARVE_PROJECT=str(home), VARVE_HOME=str(home / ".varve"), DAGSTER_HOME=str(home))
    return Project.find(home)


def fill(connection: psycopg.Connection, graph: Graph) -> int:
    """A catalog in which everything is there and made from what is current; returns how many partitions there are."""
    Catalog(connection).ensure_schema()
    ids = {dataset.name: 1_000_000 + place for place, dataset in enumerate(graph.in_order())}
    count = 0
    for dataset in graph.in_order():
        connection.execute("insert into varve.dataset values (%s, 'lake', '{}')", (dataset.name,))
        paths = [key.path for key in dataset.partitioning.keys()]  # noqa: SIM118 - no mapping
        upstreams = graph.upstreams(dataset)
        wanted = [
            {"path": path, "inputs": sorted(
                [upstream.name, read, str(ids[upstream.name])]
                for upstream in upstreams for read in _read(path, 7 if dataset.name == _TRAILING else 1)
            )}
            for path in paths
        ]  # fmt: skip
        count += len(wanted)
        given = {"name": dataset.name, "code": graph.code_versions.get(dataset.name, "")}
        for state, some, batch_id in (
            ("retired", wanted[::10], ids[dataset.name] - 1_000),
            ("published", wanted, ids[dataset.name]),
        ):
            run = f"run-{state}-{dataset.name}"
            listed = psycopg.types.json.Jsonb(some)
            connection.execute(_BATCHES, {**given, "id": batch_id, "state": state, "run": run, "wanted": listed})
            connection.execute(_PUBLISH, (dataset.name, batch_id, run))
            connection.execute(_PUBLISHED, (batch_id, dataset.name))
    connection.execute(_CURRENT)
    connection.execute("delete from varve.change")
    connection.execute("update varve.clock set last_batch_id = 9000000")
    connection.execute("vacuum analyze")
    return count


def _read(path: str, days: int) -> list[str]:
    """The paths that a partition reads: of its shop, of the days that end with its own."""
    day, shop = path.split("/")
    last = dt.date.fromisoformat(day.removeprefix("day="))
    reads = [last - dt.timedelta(days=number) for number in range(days)]
    return [f"day={each}/{shop}" for each in reads if each.year == last.year]


def measure(project: Project, rounds: int) -> dict[str, tuple[float, float, int]]:
    """By page the milliseconds of the first request and the median of the next ones, and the size in bytes."""
    browser = TestClient(application(project, TOKEN, hosts=["testserver"]), cookies={cookie_of(TOKEN): TOKEN})
    path = quote("day=2025-06-15/shop=shop%2007", safe="")
    pages = {
        "the very first page": "/",
        "all datasets": "/",
        "a dataset, a month of days by shop": "/dataset/bench.d5",
        "another month of it": "/dataset/bench.d5?month=2025-03",
        "a dataset by hour": "/dataset/bench.hours",
        "a partition": f"/dataset/bench.d3/partition?path={path}",
        "a partition that reads a week": f"/dataset/bench.d4/partition?path={path}",
        "a run of 11,680 partitions": "/run/run-published-bench.d6",
        "search by words": "/search?q=d3+2025-06-15",
        "search by batch": "/search?q=1000004",
        "environments": "/environments",
    }
    times = {}
    for name, address in pages.items():
        taken = []
        for _ in range(rounds + 1):
            start = time.perf_counter()
            answer = browser.get(address)
            taken.append(1_000 * (time.perf_counter() - start))
            if answer.status_code != 200:
                raise SystemExit(f"{address}: {answer.status_code}\n{answer.text}")
        print(f"{name}: {taken[0]:.0f} ms", flush=True)
        times[name] = (taken[0], statistics.median(taken[1:]), len(answer.content))
    return times


def show(console: Console, partitions: int, times: dict[str, tuple[float, float, int]]) -> None:
    table = Table("page", "cold, ms", "warm, ms", "kB", title=f"{partitions:,} partitions; goal: under {GOAL_MS} ms")
    for name, (cold, warm, size) in times.items():
        table.add_row(name, f"{cold:,.0f}", f"{warm:,.0f}", f"{size / 1_000:,.0f}")
    console.print(table)


if __name__ == "__main__":
    main()
