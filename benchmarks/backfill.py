"""A stretch of a daily SQL dataset in one LATERAL job beside one Spark query a day: `python -m benchmarks.backfill`.

Both compute the same rows in the same warm session and are compared by count and sum; the days by themselves are timed
for a few and extrapolated, said so in the row. Goal: at least 20 times.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from pipeline_defs.sql.comprehension import scopes_of
from pipeline_defs.sql.errors import Source
from pipeline_defs.sql.execute import per_scope_rows, rows_of
from pipeline_defs.sql.header import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

HEADER = """CREATE DATASET t.out PARTITIONED BY (day STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-01-01', END '2023-01-01')
LET today = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (day = today)
AS
"""
QUERIES = {
    "grouped, one day": "SELECT product, SUM(price) AS s FROM t.sales WHERE sales.day = today GROUP BY product",
    "grouped, trailing week": "SELECT product, SUM(price) AS s FROM t.sales WHERE sales.day BETWEEN DATE_SUB(today, 6) "
    "AND today GROUP BY product",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=336_776, help="rows of the input over the year")
    parser.add_argument("--days", type=int, default=365, help="days in the one job")
    parser.add_argument("--singles", type=int, default=20, help="days that are timed by themselves")
    found = parser.parse_args(arguments)
    console = Console()
    from resources.services.spark_server import SparkServer
    from resources.settings import Settings
    from resources.spark import open_session

    with tempfile.TemporaryDirectory(prefix="varve-bench-") as home:
        Path(home).chmod(0o755)
        settings = Settings(home=Path(home))
        try:
            spark = open_session(settings)
            sales = _sales(spark, home, found.rows)
            table = Table("query", f"{found.days} days, one job (s)", "by the day (s, extrapolated)", "ratio")
            for name, query in QUERIES.items():
                one, each = _timed(spark, sales, query, found.days, found.singles)
                table.add_row(name, f"{one:.1f}", f"{each * found.days:.1f}", f"{each * found.days / one:.0f}")
            console.print(table)
        finally:
            SparkServer(settings).stop()
    return 0


def _sales(spark: SparkSession, home: str, rows: int) -> DataFrame:
    spark.range(rows).selectExpr(
        "CONCAT('p', id % 16) AS product", "id % 1000 AS price",
        "CAST(DATE_ADD(DATE'2022-01-01', CAST(id % 365 AS INT)) AS STRING) AS day",
    ).repartition("day").write.partitionBy("day").parquet(f"{home}/sales")  # fmt: skip
    return spark.read.schema("product STRING, price BIGINT, day STRING").parquet(f"{home}/sales")


def _timed(spark: SparkSession, sales: DataFrame, query: str, days: int, singles: int) -> tuple[float, float]:
    """Seconds of all days in one job, and of one day by itself."""
    scopes = scopes_of(parse(Source("bench.sql", HEADER + query)))
    keys = list(scopes.partitioning.keys())[:days]
    tree, inputs = scopes.dataset.query, {"t.sales": sales}
    assert tree is not None
    # Once before, so that both ways are timed warm.
    _run(rows_of(spark, scopes, tree, keys, inputs))
    began = time.perf_counter()
    together = _run(rows_of(spark, scopes, tree, keys, inputs))
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
