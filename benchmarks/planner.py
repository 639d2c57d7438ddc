"""Loading SQL datasets, and what they read: `python -m benchmarks.planner [--datasets N] [--scopes N] [--peer]`.

Cold: every file is parsed, qualified, typed, its conditions pushed to its scans and its mapping for Dagster found.
Warm: nothing changed, the cache answers. Changed: the queries of a tenth of the files. Then the Dagster assets of what
is loaded are made, beside as many bare ones. With `--peer` SQLMesh loads the same queries (its own cache empty) in an
environment that is made for it in a temporary folder. Processor seconds of fresh processes and of those that they
start, in turn; the median of the rounds.

Dependencies: all tasks of one dataset over as many partitions of its upstream, for all scopes at once beside one
evaluation for each scope. Goals: cold no slower than SQLMesh; warm at least 100 times cheaper than cold; all scopes
at once at least 30 times cheaper than one by one; one new scope at the cost of one.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from timeit import timeit
from typing import TYPE_CHECKING

import pendulum
import sqlglot
from rich.console import Console
from rich.progress import track
from rich.table import Table

from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.partitioning import Partitioning
from varve.sql.partitions.axes import Bindings, Upstream
from varve.sql.partitions.scan_reads import readings
from varve.sql.pushdown.scans import Dependencies, dependencies
from varve.sql.types.inference import qualified

if TYPE_CHECKING:
    from collections.abc import Callable

START = pendulum.datetime(2020, 1, 1)
ROOT = {"id": "bigint", "amount": "decimal(10,2)", "label": "string", "day": "string", "store": "string"}
PARTITIONS = {"day": "string", "store": "string"}
VARIABLES = {"pd": "string", "st": "string"}
CONDITIONS = {
    "equal": "s.day = pd",
    "seven days": "s.day BETWEEN DATE_SUB(pd, 6) AND pd",
    "28 days, or a store": "s.day BETWEEN DATE_SUB(pd, 27) AND pd OR (s.store = st AND s.day = pd)",
    "by month": "SUBSTR(s.day, 1, 7) = SUBSTR(pd, 1, 7)",
}


HEADER = """CREATE DATASET b.d{place} (id BIGINT, amount DECIMAL(10, 2), label STRING)
PARTITIONED BY (day STRING, store STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2020-01-01'), st IN ('Detroit', 'Paris')
LET pd = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (day = pd, store = st)
"""
OURS = """
import os, sys
from pathlib import Path
import varve.sql.sql_project as project
began = sum(os.times()[:4])
found = project.load(Path(sys.argv[1]))
print(sum(os.times()[:4]) - began)
"""
ASSETS = """
import os, sys
from pathlib import Path
import varve.sql.sql_project as project
import varve.dagster.assets.sql_runs
from varve.dagster.assets.sql_assets import sql_assets
found = project.load(Path(sys.argv[1]))
began = sum(os.times()[:4])
made = [declared.asset for declared in sql_assets(found)]
print(sum(os.times()[:4]) - began)
assert len(made) == len(found)
"""
BARE = """
import os, sys
from pathlib import Path
import dagster as dg
days = dg.DailyPartitionsDefinition("2020-01-01")
places = [int(file.stem[1:]) for file in Path(sys.argv[1]).glob("d*.sql")]
def asset(place):
    upstream = dg.AssetKey(["b", f"d{place - 1}"])
    deps = [dg.AssetDep(upstream, partition_mapping=dg.IdentityPartitionMapping())] if place else []
    @dg.asset(key_prefix="b", name=f"d{place}", deps=deps, partitions_def=days, code_version="1", io_manager_key="lake")
    def computed(context):
        pass
    return computed
began = sum(os.times()[:4])
made = [asset(place) for place in places]
print(sum(os.times()[:4]) - began)
"""
PEER = """
import os, sys
from sqlmesh import Context
began = sum(os.times()[:4])
context = Context(paths=[sys.argv[1]])
assert all(model.columns_to_types for model in context.models.values())
print(sum(os.times()[:4]) - began)
"""


def body(place: int) -> str:
    """A query of three blocks over the dataset before."""
    upstream = f"b.d{place - 1}" if place % 25 else "b.d0"
    return f"""WITH recent AS (
      SELECT id, amount, label, day, store FROM {upstream} WHERE day BETWEEN DATE_SUB(pd, 2) AND pd),
    totals AS (SELECT id, store, SUM(amount) AS total, COUNT(*) AS n FROM recent GROUP BY id, store)
    SELECT r.id, CAST(r.amount + t.total / t.n AS DECIMAL(10, 2)) AS amount, UPPER(r.label) AS label
    FROM recent r JOIN totals t ON r.id = t.id AND r.store = t.store
    WHERE r.day = pd AND (r.label LIKE 'a%' OR r.amount > {place})"""


def lay(folder: Path, count: int) -> None:
    """The datasets as files of ours."""
    folder.mkdir(parents=True)
    (folder / "d0.sql").write_text(HEADER.format(place=0) + "EXTERNAL OPTIONS (source = 'table', table = 'x.y')")
    for place in range(1, count + 1):
        (folder / f"d{place}.sql").write_text(HEADER.format(place=place) + "AS " + body(place))


def change(folder: Path, count: int) -> None:
    """Another number in the query of every tenth dataset, but in no column that others read."""
    for place in range(1, count + 1, 10):
        file = folder / f"d{place}.sql"
        text = file.read_text()
        assert f"r.amount > {place})" in text, text
        file.write_text(text.replace(f"r.amount > {place})", f"r.amount > {place + count})"))


def lay_peer(folder: Path, count: int) -> None:
    """The same queries as models of SQLMesh, which has no scopes: the variables are values, partitions are columns."""
    (folder / "models").mkdir(parents=True)
    (folder / "config.yaml").write_text("model_defaults: {dialect: spark, start: 2020-01-01}\ndefault_gateway: local\n"
                                        "gateways: {local: {connection: {type: duckdb}}}\n")  # fmt: skip
    root = "CAST(1 AS BIGINT) AS id, CAST(1 AS DECIMAL(10, 2)) AS amount, 'a' AS label, 'b' AS day, 'c' AS store"
    (folder / "models" / "d0.sql").write_text(f"MODEL (name b.d0, kind FULL);\nSELECT {root}")
    for place in range(1, count + 1):
        query = body(place).replace("AS label\n    FROM", "AS label, r.day, r.store\n    FROM")
        text = re.sub(r"\bpd\b", "'2022-03-31'", query)
        (folder / "models" / f"d{place}.sql").write_text(f"MODEL (name b.d{place}, kind FULL);\n{text}")


def seconds_of(python: str, program: str, folder: Path) -> float:
    """What a fresh process says that it took."""
    done = subprocess.run([python, "-c", program, str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(done.stdout.strip().splitlines()[-1])


def peer_python(home: Path) -> str:
    """A Python that has SQLMesh: ours cannot, as it wants another sqlglot."""
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    python = str(home / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "sqlmesh"], check=True)
    return python


def load(table: Table, home: Path, given: argparse.Namespace) -> None:
    """Cold, warm, and the peer."""
    python = given.peer_python or (peer_python(home / "peer") if given.peer else "")
    cold, warm, changed, assets, bare, peer = [], [], [], [], [], []
    for place in track(range(given.rounds), "load"):
        folder = home / f"{place}" / "assets"
        lay(folder, given.datasets)
        cold.append(seconds_of(sys.executable, OURS, folder))
        warm.append(seconds_of(sys.executable, OURS, folder))
        assets.append(seconds_of(sys.executable, ASSETS, folder))
        bare.append(seconds_of(sys.executable, BARE, folder))
        change(folder, given.datasets)
        changed.append(seconds_of(sys.executable, OURS, folder))
        if python:
            lay_peer(home / f"{place}" / "sqlmesh", given.datasets)
            peer.append(seconds_of(python, PEER, home / f"{place}" / "sqlmesh"))
    ours, again = statistics.median(cold), statistics.median(warm)
    table.add_row(
        f"{given.datasets} datasets, warm (beside: cold)",
        f"{again * 1000:.0f} ms", f"{ours * 1000:.0f} ms", f"{ours / again:.0f} x cheaper", ">= 100",
    )  # fmt: skip
    some = statistics.median(changed)
    table.add_row(
        f"{given.datasets} datasets, a tenth changed (beside: cold)",
        f"{some * 1000:.0f} ms", f"{ours * 1000:.0f} ms", f"{ours / some:.1f} x cheaper", "<= 1.5 s of 1,000",
    )  # fmt: skip
    made, bare_ones = statistics.median(assets), statistics.median(bare)
    table.add_row(
        f"{given.datasets} Dagster assets made (beside: bare ones)",
        f"{made * 1000:.0f} ms", f"{bare_ones * 1000:.0f} ms", f"{bare_ones / made:.2f} x cheaper", "<= 0.5 s of 1,000",
    )  # fmt: skip
    if peer:
        theirs = statistics.median(peer)
        table.add_row(
            f"{given.datasets} datasets, cold (beside: SQLMesh)",
            f"{ours * 1000:.0f} ms", f"{theirs * 1000:.0f} ms", f"{theirs / ours:.2f} x cheaper", ">= 1",
        )  # fmt: skip


def planned(condition: str) -> Dependencies:
    query = sqlglot.parse_one(f"SELECT s.id FROM b.root s WHERE {condition}", dialect="spark")
    return dependencies(qualified(query, {"b.root": ROOT}, VARIABLES).tree, {"b.root": PARTITIONS})


def median(rounds: int, work: Callable[[], object], title: str) -> float:
    """Seconds of the middle round."""
    return statistics.median([timeit(work, number=1) for _ in track(range(rounds), title)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=int, default=1_000)
    parser.add_argument("--scopes", type=int, default=1_000, help="tasks, and partitions that they may read")
    parser.add_argument("--single", type=int, default=50, help="so many scopes are evaluated one by one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", action="store_true", help="install SQLMesh into a temporary environment, and compare")
    parser.add_argument("--peer-python", help="a Python that has SQLMesh already")
    given = parser.parse_args()
    console = Console()

    table = Table("what", "ours", "beside it", "ratio", "goal")
    with tempfile.TemporaryDirectory(prefix="varve-bench-") as home:
        load(table, Path(home), given)

    days = given.scopes // 2
    partitioning = Partitioning(
        (
            TimeDimension("day", Grain.DAY, START, START.add(days=days), key_format="%Y-%m-%d"),
            StaticDimension("store", ("Detroit", "Paris")),
        )
    )
    upstreams = {"b.root": Upstream("b.root", partitioning, PARTITIONS)}
    rows = [{"pd": str(key["day"]), "st": str(key["store"])} for key in partitioning.keys()]  # noqa: SIM118
    scopes = Bindings.of(VARIABLES, rows)
    ones = [scopes.part(place, place + 1) for place in range(0, scopes.count, max(1, scopes.count // given.single))]
    for name, condition in CONDITIONS.items():
        found = planned(condition)

        def together(found: Dependencies = found) -> None:
            list(readings(found, upstreams, scopes))

        def apart(found: Dependencies = found) -> None:
            for one in ones:
                list(readings(found, upstreams, one))

        at_once = median(given.rounds, together, name)
        single = median(given.rounds, apart, f"{name}, one by one") / len(ones)
        table.add_row(
            f"{scopes.count} scopes x {scopes.count} partitions: {name} (beside: one by one)",
            f"{at_once * 1000:.1f} ms",
            f"{single * scopes.count * 1000:.0f} ms",
            f"{single * scopes.count / at_once:.0f} x cheaper",
            ">= 30",
        )
        table.add_row("  one new scope", f"{single * 1000:.2f} ms", "", "", "")
    console.print(table)


if __name__ == "__main__":
    main()
