"""A year of a daily SQL dataset in one run, beside a query a day and a run a day: `python -m benchmarks.backfill`.

The queries: one job beside one Spark query a day in the same warm session, the rows compared; some days are timed by
themselves and extrapolated. The runs: `flights.trailing_delay` and `flights.delays` from one airport, as whole
processes of `dagster asset materialize` against warm services; a month of single runs is timed and extrapolated. Goals:
40 times, and 100 times. `--no-runs` leaves the second part out.
"""

from __future__ import annotations

import argparse
import datetime as dt
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks.commands import home_of_its_own, materialize
from resources import partner
from varve.sql.spark.execute import per_scope_rows, rows_of
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.services.settings import Settings

FIRST, YEAR = dt.date(2013, 1, 1), 365
# The first UTC hour of a day in New York.
LATE = 5
SALES = """CREATE DATASET t.sales (product STRING, price BIGINT) PARTITIONED BY (day STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-01-01', END '2023-01-01')
LET today = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (day = today)
EXTERNAL
"""
HEADER = SALES.replace("t.sales (product STRING, price BIGINT)", "t.out").replace("EXTERNAL", "AS")
GROUPED = "SELECT product, SUM(price) AS s FROM t.sales WHERE sales.day {} GROUP BY product"
QUERIES = {
    "grouped, one day": GROUPED.format("= today"),
    "grouped, trailing week": GROUPED.format("BETWEEN DATE_SUB(today, 6) AND today"),
    "grouped, trailing 28 days": GROUPED.format("BETWEEN DATE_SUB(today, 27) AND today"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=336_776, help="rows of the input over the year")
    parser.add_argument("--days", type=int, default=365, help="days in the one job")
    parser.add_argument("--singles", type=int, default=20, help="days that are timed by themselves")
    parser.add_argument("--runs", type=int, default=30, help="single Dagster runs that are timed")
    parser.add_argument("--no-runs", action="store_true", help="leave the Dagster runs out")
    found = parser.parse_args(arguments)
    console = Console()
    with home_of_its_own() as settings:
        _queries(console, settings, found)
        if not found.no_runs:
            _runs(console, settings, found.runs)
    return 0


def _queries(console: Console, settings: Settings, found: argparse.Namespace) -> None:
    from varve.services.spark import open_session

    spark = open_session(settings)
    with console.status("Making sales..."):
        sales = _sales(spark, str(settings.home_dir), found.rows)
    table = Table("query", f"{found.days} days, one job (s)", "by the day (s, extrapolated)", "ratio", "goal")
    for name, query in QUERIES.items():
        with console.status(name):
            one, each = _timed(spark, sales, query, found.days, found.singles)
        table.add_row(name, f"{one:.1f}", f"{each * found.days:.1f}", f"{each * found.days / one:.0f}", ">= 40")
    console.print(table)


def _runs(console: Console, settings: Settings, singles: int) -> None:
    """The year in one run, then its first days again one by one; everything they read is there."""
    days = [FIRST + dt.timedelta(number) for number in range(YEAR)]
    hours = [f"{FIRST + dt.timedelta(hour // 24)}T{hour % 24:02}" for hour in range(24 * (YEAR + 1))]
    with console.status("Landing a year of flights and weather, and loading it...") as status:
        for _ in partner.send_days(Path(settings.landing), days, hours[LATE:]):
            pass
        status.update("flights.departures")
        materialize("flights/departures", "--partition-range", f"{days[0]}...{days[-1]}")
        status.update("flights.weather")
        materialize("flights/weather", "--partition-range", f"{hours[LATE]}...{hours[LATE + 24 * YEAR - 1]}")
    table = Table("dataset", f"{YEAR} days, one run (s)", "a run a day (s, extrapolated)", "ratio", "goal")
    for name in ("flights/delays", "flights/trailing_delay"):
        with console.status(f"{name}: the year in one run") as status:
            year = materialize(name, "--partition-range", f"{days[0]}|EWR...{days[-1]}|EWR")
            each = 0.0
            for number, day in enumerate(days[-singles:], 1):
                status.update(f"{name}: single run {number} of {singles}")
                each += materialize(name, "--partition", f"{day}|EWR") / singles
        table.add_row(name, f"{year:.1f}", f"{each * YEAR:.0f}", f"{each * YEAR / year:.0f}", ">= 100")
    console.print(table)


def _sales(spark: SparkSession, home: str, rows: int) -> DataFrame:
    spark.range(rows).selectExpr(
        "CONCAT('p', id % 16) AS product", "id % 1000 AS price",
        "CAST(DATE_ADD(DATE'2022-01-01', CAST(id % 365 AS INT)) AS STRING) AS day",
    ).repartition("day").write.partitionBy("day").parquet(f"{home}/sales")  # fmt: skip
    return spark.read.schema("product STRING, price BIGINT, day STRING").parquet(f"{home}/sales")


def _timed(spark: SparkSession, sales: DataFrame, query: str, days: int, singles: int) -> tuple[float, float]:
    """Seconds of all days in one job, and of one day by itself."""
    out = compiled([SourceFile("sales.sql", SALES), SourceFile("bench.sql", HEADER + query)], {})["t.out"]
    scopes, tree, inputs = out.scopes, out.sql.query, {"t.sales": sales}
    keys = list(scopes.partitioning.keys())[:days]
    assert tree is not None
    # Once before, so that both ways are timed warm.
    _run(rows_of(spark, scopes, tree, keys, inputs, read=out.read_values(keys)))
    began = time.perf_counter()
    together = _run(rows_of(spark, scopes, tree, keys, inputs, read=out.read_values(keys)))
    seconds = time.perf_counter() - began
    alone: dict[str, tuple[int, int]] = {}
    began = time.perf_counter()
    for key in keys[:singles]:
        alone |= _run(per_scope_rows(spark, scopes, tree, [scopes.of(key)], inputs))
    each = (time.perf_counter() - began) / max(1, min(singles, days))
    assert all(together[day] == answer for day, answer in alone.items()), "the two ways give other rows"
    return seconds, each


def _run(frame: DataFrame) -> dict[str, tuple[int, int]]:
    """The rows of each day, counted and summed."""
    rows = frame.groupBy("day").agg({"s": "sum", "product": "count"}).collect()
    return {row["day"]: (row["count(product)"], row["sum(s)"]) for row in rows}


if __name__ == "__main__":
    raise SystemExit(main())
