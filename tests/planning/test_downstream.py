"""What follows from a change of partitions: all that read them, directly or not, and no partition that is over."""

from __future__ import annotations

import pendulum

from varve.dagster.assets.datasets import graph_of
from varve.dagster.assets.sql_assets import sql_assets
from varve.planning.backfill import with_downstream
from varve.sql.files.sql_files import SqlFiles
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile

NOW = pendulum.datetime(2026, 11, 26, 9)
HEAD = """CREATE DATASET shop.{name} (n BIGINT)
PARTITIONED BY (day STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-01-01'{kept})
LET today = DATE_FORMAT(t, 'yyyy-MM-dd'), before = DATE_FORMAT(t - INTERVAL 1 DAY, 'yyyy-MM-dd')
INSERT (day = today)
{query}
"""


def file(name: str, query: str, kept: str = "") -> SourceFile:
    return SourceFile(f"{name}.sql", HEAD.format(name=name, query=query, kept=kept))


def test_partitions_whose_retention_is_over_do_not_follow_nor_what_reads_only_them() -> None:
    query = "AS SELECT SUM(n) AS n FROM shop.{} AS it WHERE it.day IN (today, before)"
    files = [
        file("sales", "EXTERNAL"),
        file("recent", query.format("sales"), ", RETENTION INTERVAL 10 DAYS"),
        file("total", query.format("recent")),
    ]
    graph = graph_of(sql_assets(SqlFiles(compiled(files, {}))))
    sales = graph.datasets["shop.sales"]
    keys = [sales.partitioning.from_dagster(f"2026-11-{day:02}") for day in (1, 14, 15, 25)]
    reached = with_downstream(graph, sales, keys, None, members=None, now=NOW)
    days = {name: [key.path.removeprefix("day=2026-11-") for key in found] for name, found in reached.items()}
    assert days == {
        "shop.sales": ["01", "14", "15", "25"],
        # Of the 26th, which is not over, nothing is computed; kept are ten days before it.
        "shop.recent": ["16", "25"],
        "shop.total": ["16", "17", "25"],
    }
