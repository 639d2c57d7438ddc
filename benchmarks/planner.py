"""Inference and dependencies of SQL datasets: `python -m benchmarks.planner [--datasets N] [--scopes N] [--rounds N]`.

Cold: every file is parsed, qualified, typed, and its conditions pushed to its scans. Warm: nothing changed, the cache
answers. Dependencies: all tasks of one dataset over as many partitions of its upstream, for all scopes at once beside
one evaluation for each scope; in turn, in one process, the median of the rounds. Goals: warm at least 100 times cheaper
than cold; all scopes at once at least 30 times cheaper than one by one; one new scope at the cost of one.
"""

from __future__ import annotations

import argparse
import statistics
from timeit import timeit
from typing import TYPE_CHECKING

import pendulum
import sqlglot
from rich.console import Console
from rich.progress import track
from rich.table import Table

from pipeline_defs.model.dimension import StaticDimension, TimeDimension
from pipeline_defs.model.grain import Grain
from pipeline_defs.model.partitioning import Partitioning
from pipeline_defs.sql.cache import Cache, Entry, entry_of, key_of
from pipeline_defs.sql.dependencies import Dependencies, dependencies
from pipeline_defs.sql.inference import qualified
from pipeline_defs.sql.reading import Bindings, Upstream, readings

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


def text(place: int) -> str:
    """A query of three blocks over the dataset before."""
    upstream = f"b.d{place - 1}" if place % 25 else "b.root"
    return f"""
    WITH recent AS (SELECT id, amount, label, day, store FROM {upstream} WHERE day BETWEEN DATE_SUB(pd, 2) AND pd),
    totals AS (SELECT id, store, SUM(amount) AS total, COUNT(*) AS n FROM recent GROUP BY id, store)
    SELECT r.id, CAST(r.amount + t.total / t.n AS DECIMAL(10, 2)) AS amount, UPPER(r.label) AS label, r.day, r.store
    FROM recent r JOIN totals t ON r.id = t.id AND r.store = t.store
    WHERE r.day = pd AND (r.label LIKE 'a%' OR r.amount > {place})"""


def load(count: int, cache: Cache) -> None:
    """The schemas and dependencies of all datasets, in order."""
    schemas = {"b.root": ROOT}
    for place in range(1, count + 1):
        written = text(place)
        upstream = f"b.d{place - 1}" if place % 25 else "b.root"
        upstream = upstream if upstream in schemas else "b.root"
        written = written.replace("b.d0 ", "b.root ")
        seen = {upstream: schemas[upstream]}

        def make(written: str = written, seen: dict[str, dict[str, str]] = seen) -> Entry:
            found = qualified(sqlglot.parse_one(written, dialect="spark"), seen, VARIABLES)
            return entry_of(found.outputs, [dependencies(found.tree, dict.fromkeys(seen, PARTITIONS))])

        schemas[f"b.d{place}"] = cache.entry(f"b.d{place}", key_of(written, seen), make).schema


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
    given = parser.parse_args()
    console = Console()

    kept = Cache()
    cold = timeit(lambda: load(given.datasets, kept), number=1)
    stored = kept.dumps()
    warm = median(given.rounds, lambda: load(given.datasets, Cache.loads(stored)), "warm")
    table = Table("what", "ours", "beside it", "ratio", "goal")
    table.add_row(
        f"{given.datasets} datasets, warm (beside: cold)",
        f"{warm * 1000:.0f} ms", f"{cold * 1000:.0f} ms", f"{cold / warm:.0f} x cheaper", ">= 100",
    )  # fmt: skip

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
