# ruff: noqa: E501 - queries, one a line
"""Many scopes joined by equality with what they read: the rows are those of the author's text, a scope at a time.

The datasets are those of the soundness suite. The oracle is the author's text in a plain session, in which the test has
put the values of each scope by hand, over everything that there is.
"""

from __future__ import annotations

import datetime as dt
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrame

from tests.sql import test_soundness as soundness
from tests.sql import time_columns
from tests.sql.constructs import constructs, random_queries
from tests.sql.plain_session import rows
from tests.sql.short_tasks import one_short_task_each
from varve.model.dataset import Dataset
from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.partitions.time_columns import TimeColumn
from varve.model.schema import Column, ColumnType, Schema
from varve.sql.names.written_query import text_of, written_query
from varve.sql.partitions.comprehension import scopes_of
from varve.sql.partitions.dependencies import PlannedDependency, QueryPlan
from varve.sql.partitions.read_values import ReadValues, read_values
from varve.sql.spark.execute import explain_extended, shared_query_forms, together_rows
from varve.sql.spark.scope_join import SCOPES, ScopeNames, scopes_reading
from varve.sql.spark.scope_table import scope_table
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile
from varve.sql.syntax.header import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from varve.sql.names.written_query import QueryPiece
    from varve.sql.partitions.scopes import Scopes

HEADER = """CREATE DATASET t.out PARTITIONED BY (on_day DATE, in_store STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01', END '2022-05-01'), st IN ('Paris', 'Detroit', 'Lyon', 'Oslo')
LET dd = CAST(t AS DATE), pd = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (on_day = dd, in_store = st)
AS
"""
WEEK = "s.day BETWEEN DATE_SUB(pd, 6) AND pd"
# The scopes stand beside a source of which each of them reads several days.
BY_EQUALITY = [
    f"SELECT s.id, COUNT(*) AS c, SUM(s.n) AS n FROM b.sales s WHERE {WEEK} GROUP BY s.id",
    "SELECT id, COUNT(*) AS c FROM b.sales WHERE sales.day BETWEEN DATE_SUB(pd, 6) AND pd AND store = st GROUP BY id",
    "SELECT `a b`.n FROM b.sales AS `a b` /* st */ -- pd\nWHERE `a b`.day BETWEEN DATE_SUB(pd, 6) AND pd AND `a b`.store <> st",
    f"SELECT * FROM b.sales s JOIN b.products p ON s.id < p.id WHERE {WEEK}",
    f"SELECT s.*, p.name FROM b.products p JOIN b.sales s ON s.id = p.id AND {WEEK} OR s.n = 3 WHERE s.day <= pd AND s.day > DATE_SUB(pd, 9)",
    f"SELECT p.name, SUM(s.n) AS n FROM b.products p, b.sales s WHERE p.id = s.id AND {WEEK} GROUP BY p.name",
    f"SELECT p.name, s.n FROM b.products p CROSS JOIN b.sales s LEFT JOIN b.costs c ON c.day = s.day WHERE p.id = s.id AND {WEEK} AND c.day IS NULL",
    f"SELECT s.n, c.cost FROM b.sales s LEFT JOIN b.costs c ON c.id = s.id AND c.day BETWEEN DATE_SUB(dd, 1) AND dd WHERE {WEEK}",
    f"SELECT s.n FROM b.sales s LEFT SEMI JOIN b.costs c ON c.id = s.id AND c.day > DATE_SUB(dd, 3) WHERE {WEEK}",
    f"SELECT s.n FROM b.sales s LEFT ANTI JOIN b.costs c ON c.id = s.id AND c.day > DATE_SUB(dd, 3) WHERE {WEEK}",
    f"SELECT s.n FROM b.sales s WHERE {WEEK} AND EXISTS (SELECT 1 FROM b.costs c WHERE c.id = s.id AND c.day BETWEEN DATE_SUB(dd, 2) AND dd)",
    f"SELECT s.n FROM b.sales s WHERE {WEEK} AND s.id NOT IN (SELECT c.id FROM b.costs c WHERE c.day = dd)",
    f"SELECT s.n, (SELECT MAX(c.cost) FROM b.costs c WHERE c.id = s.id AND c.day <= dd) AS m FROM b.sales s WHERE {WEEK}",
    f"SELECT s.id FROM b.sales s WHERE {WEEK} UNION ALL SELECT c.id FROM b.costs c WHERE c.day > DATE_SUB(dd, 4) UNION ALL SELECT p.id FROM b.products p",
    f"SELECT s.id FROM b.sales s WHERE {WEEK} INTERSECT SELECT c.id FROM b.costs c WHERE c.day > DATE_SUB(dd, 4) AND c.day <= dd",
    f"(SELECT s.id, s.n FROM b.sales s WHERE {WEEK}) EXCEPT ALL SELECT c.id, c.cost FROM b.costs c WHERE c.day = dd",
    "SELECT a.n, b.n AS m FROM b.sales a JOIN b.sales b ON b.id = a.id AND b.day BETWEEN DATE_SUB(a.day, 2) AND a.day WHERE a.day = pd",
    "SELECT a.n, b.n AS m FROM b.sales a JOIN b.sales b ON a.id = b.id WHERE a.day BETWEEN DATE_SUB(pd, 5) AND DATE_SUB(pd, 3) AND b.day BETWEEN DATE_SUB(pd, 1) AND pd",
    "SELECT a.n, b.n AS m FROM b.sales a LEFT JOIN b.sales b ON a.id = b.id AND b.day > pd WHERE a.day >= DATE_SUB(pd, 1) AND a.day < pd",
    f"SELECT s.n, c.cost FROM b.sales s JOIN b.costs c ON c.id = s.id WHERE {WEEK} AND c.day >= DATE_SUB(dd, 2) AND c.day <= dd",
    f"SELECT DISTINCT s.store AS store FROM b.sales s WHERE {WEEK}",
    f"SELECT s.n, RANK() OVER (PARTITION BY s.store ORDER BY s.n) AS r, COUNT(*) OVER () AS c FROM b.sales s WHERE {WEEK}",
    f"SELECT s.store AS store, s.day AS day, SUM(s.n) AS n FROM b.sales s WHERE {WEEK} GROUP BY ROLLUP (s.store, s.day) HAVING COUNT(*) > 1",
    f"SELECT s.id, COUNT(DISTINCT s.day) AS days FROM b.sales s WHERE {WEEK} GROUP BY s.id ORDER BY days",
    f"SELECT s.n, e.i FROM b.sales s LATERAL VIEW OUTER EXPLODE(SEQUENCE(1, s.n)) e AS i WHERE {WEEK}",
    f"SELECT id, p.name, s.n FROM b.sales s JOIN b.products p USING (id) WHERE {WEEK}",
    f"SELECT s.n, x.m FROM b.sales s, LATERAL (SELECT MAX(c.cost) AS m FROM b.costs c WHERE c.id = s.id AND c.day <= dd) x WHERE {WEEK}",
    f"SELECT s.n, x.m FROM b.sales s JOIN (SELECT c.id, MAX(c.cost) AS m FROM b.costs c WHERE c.day <= dd GROUP BY c.id) x ON x.id = s.id WHERE {WEEK}",
    f"WITH x AS (SELECT c.id, c.day, c.cost FROM b.costs c WHERE c.day <= dd) SELECT s.n, x.cost FROM b.sales s LEFT JOIN x ON x.id = s.id AND x.day = s.day WHERE {WEEK}",
    "SELECT s.n FROM b.sales s WHERE s.day <= pd",
    "SELECT s.n FROM b.sales s WHERE s.day NOT BETWEEN DATE_SUB(pd, 2) AND pd",
    "SELECT s.n FROM b.sales s WHERE DAYOFWEEK(s.day) = DAYOFWEEK(pd)",
    "SELECT s.n FROM b.sales s WHERE s.day IN (pd, CAST(DATE_SUB(pd, 2) AS STRING)) OR s.store = st AND s.day < pd",
    "SELECT s.n FROM b.sales s WHERE CASE WHEN s.store = 'Paris' THEN s.day = pd ELSE s.day < pd END",
    "SELECT c.cost FROM b.costs c WHERE c.day BETWEEN DATE_SUB(dd, 6) AND dd AND c.store IN ('Paris', st)",
    "SELECT x.n FROM b.dumps x WHERE MAKE_DATE(x.year, x.month, x.day) BETWEEN DATE_SUB(dd, 1) AND dd AND x.hour % 3 = 0",
    "SELECT x.n, y.n AS m FROM b.dumps x JOIN b.logs y ON x.day = DAY(y.day) AND x.hour = y.hour WHERE y.day = pd AND x.year = YEAR(dd) AND x.month = MONTH(dd)",
    "SELECT x.n FROM b.logs x WHERE x.day = pd AND x.hour >= '20' OR x.day = DATE_SUB(pd, 1) AND x.hour < '03'",
    "SELECT x.n FROM b.local x WHERE x.day BETWEEN dd AND DATE_ADD(dd, 2) AND x.slot > 20",
    "SELECT x.n FROM b.ticks x WHERE x.ts >= t - INTERVAL 2 DAYS AND x.ts <= t",
]  # fmt: skip
# They stand first, or around the query, or each scope by itself.
OTHERWISE = [
    # One partition each: the author's own equality.
    "SELECT s.n FROM b.sales s WHERE s.day = pd AND s.store = st",
    # Rows that an outer join adds are of every scope.
    f"SELECT p.name, s.n FROM b.products p LEFT JOIN b.sales s ON s.id = p.id AND {WEEK}",
    f"SELECT p.name, s.n FROM b.products p LEFT JOIN b.costs c ON c.id = p.id AND c.day = dd JOIN b.sales s ON s.id = p.id AND {WEEK}",
    f"SELECT p.name, s.n FROM b.sales s RIGHT JOIN b.products p ON s.id = p.id AND {WEEK}",
    f"SELECT p.name, s.n FROM b.sales s FULL JOIN b.products p ON s.id = p.id AND {WEEK}",
    # Columns of these joins are those of both sides.
    f"SELECT id, p.name, s.n FROM b.products p JOIN b.sales s USING (id) WHERE {WEEK}",
    # What a join before it compares with a variable cannot see the scopes there.
    f"SELECT p.name, s.n FROM b.products p JOIN (SELECT id FROM b.costs WHERE day = dd) x ON x.id = p.id JOIN b.sales s ON s.id = p.id AND {WEEK}",
    f"SELECT q.name, s.n FROM b.products p JOIN b.products q ON p.id = q.id AND q.name <> st JOIN b.sales s ON s.id = p.id AND {WEEK}",
    # Not a source of the outermost SELECT.
    f"SELECT p.name FROM b.products p WHERE EXISTS (SELECT 1 FROM b.sales s WHERE s.id = p.id AND {WEEK})",
    f"SELECT p.name FROM b.products p LEFT ANTI JOIN b.sales s ON s.id = p.id AND {WEEK}",
    f"WITH x AS (SELECT s.n FROM b.sales s WHERE {WEEK}) SELECT x.n FROM x",
    f"SELECT x.n FROM (SELECT s.n FROM b.sales s WHERE {WEEK}) x",
    "WITH x AS (SELECT s.n, s.day FROM b.sales s) SELECT x.n FROM x WHERE x.day BETWEEN DATE_SUB(pd, 6) AND pd",
    # All rows of a scope at once.
    f"SELECT COUNT(*) AS c, SUM(s.n) AS n FROM b.sales s WHERE {WEEK}",
    f"SELECT s.n FROM b.sales s WHERE {WEEK} ORDER BY s.n, s.id LIMIT 3",
    f"SELECT * FROM (SELECT s.n, s.store FROM b.sales s WHERE {WEEK}) PIVOT (SUM(n) FOR store IN ('Paris' AS p, 'Lyon' AS q))",
    # Other names of its columns.
    "SELECT s.e FROM b.sales AS s (a, e, f, g) WHERE s.f BETWEEN DATE_SUB(pd, 6) AND pd",
    # All scopes read the same.
    "SELECT s.n, s.store FROM b.sales s WHERE s.day < '2022-03-29'",
]  # fmt: skip


# A row of no partition, as a table that was not written by partitions may have.
WITHOUT_A_DAY = (3, 4, None, "Paris")


@pytest.fixture(scope="module")
def inputs(spark: SparkSession) -> dict[str, DataFrame]:
    """The tables of the soundness suite; `n_sales` is `b_sales` with a row more."""
    for dataset, columns in soundness.SCHEMAS.items():
        kinds = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        data = (
            [(number, f"p{number}") for number in range(1, 8)]
            if dataset == "b.products"
            else [row[:-1] for row in soundness.rows(dataset)]
        )
        spark.createDataFrame(data, kinds).coalesce(1).createOrReplaceTempView(dataset.replace(".", "_"))
        if dataset == "b.sales":
            spark.createDataFrame([*data, WITHOUT_A_DAY], kinds).coalesce(1).createOrReplaceTempView("n_sales")
    return {dataset: spark.table(dataset.replace(".", "_")) for dataset in soundness.SCHEMAS}


# As a dataset has it, whose columns are moments.
AT = TimeDimension(
    "moment", soundness.AT.tiling, soundness.AT.start, soundness.AT.end,
    columns=(TimeColumn("at", "%s", ColumnType.TIMESTAMP),),
)  # fmt: skip
PARTITIONINGS = {
    **{name: upstream.partitioning or Partitioning() for name, upstream in soundness.UPSTREAMS.items()},
    "b.hours": Partitioning((AT, StaticDimension("region", ("eu", "us")))),
}
DATASETS = {
    name: Dataset(
        name,
        partitioning,
        Schema(
            tuple(Column(*column) for column in soundness.SCHEMAS[name].items() if column[0] not in partitioning.names)
        ),
        "lake",
        "",
    )
    for name, partitioning in PARTITIONINGS.items()
}


def reading(query: str) -> tuple[Scopes, dict[str, ReadValues]]:
    """The scopes of a query, and what those of the soundness suite read according to the planner."""
    scopes = scopes_of(parse(SourceFile("t.sql", HEADER + query)))
    found = soundness.planned(query)[0]
    keys = [scopes.partitioning.key([scope["dd"], scope["st"]]) for scope in soundness.SCOPES]
    read = {}
    for name in dict.fromkeys(scan.dataset for scan in found.scans if scan.columns):
        upstream = DATASETS[name]
        plan = QueryPlan(DATASETS, lambda: (scopes, (found,)))
        dependency = PlannedDependency(scopes.partitioning, upstream.partitioning, plan=plan, name=name)
        if (values := read_values(upstream, dependency, keys)) is not None:
            read[name] = values
    return scopes, read


def form(scopes: Scopes, read: dict[str, ReadValues]) -> list[QueryPiece]:
    """The first form of a query for many scopes; nothing where it has none."""
    assert scopes.dataset.query is not None
    text = written_query(scopes.dataset, scopes.dataset.query, lambda name: list(soundness.SCHEMAS[name]))
    names = ScopeNames.beside(text.text, scopes.partitioning.names)
    return next(shared_query_forms(text, names, {name: values.types for name, values in read.items()}), [])


def is_by_equality(query: str) -> bool:
    return any(piece.dataset.startswith(scopes_reading("")) for piece in form(*reading(query)))


def check(
    spark: SparkSession, inputs: dict[str, DataFrame], queries: Sequence[str], *, least: float = 0.5, views: str = "b"
) -> None:
    """Compare each query over all scopes of the soundness suite with its text in each of them."""
    from pyspark.sql import functions as F  # noqa: N812

    frames: list[DataFrame] = []
    compared = []
    with one_short_task_each(spark):
        for query in queries:
            scopes, read = reading(query)
            tree = scopes.dataset.query
            assert tree is not None
            keys = [scopes.partitioning.key([scope["dd"], scope["st"]]) for scope in soundness.SCOPES]
            ours = together_rows(spark, scopes, tree, [scopes.of(key) for key in keys], inputs, read=read)
            if ours is None:
                continue
            plain = [
                spark.sql(soundness.whole(query, place, views)).select(
                    F.lit(scope["dd"]).alias("on_day"), F.lit(scope["st"]).alias("in_store"), "*"
                )
                for place, scope in enumerate(soundness.SCOPES)
            ]
            frames += [reduce(DataFrame.unionAll, plain), ours]
            compared.append(query)
        texts = rows(frames)
    wrong = [query for query, theirs, mine in zip(compared, texts[::2], texts[1::2], strict=True) if theirs != mine]
    assert not wrong, "\n".join(wrong)
    # A comparison of nothing with nothing would prove nothing.
    assert sum(bool(theirs) for theirs in texts[::2]) > len(queries) * least


@pytest.mark.parametrize("query", BY_EQUALITY)
def test_the_scopes_stand_beside_what_they_read(query: str) -> None:
    assert is_by_equality(query)


@pytest.mark.parametrize("query", OTHERWISE)
def test_elsewhere_they_do_not(query: str) -> None:
    assert not is_by_equality(query)


@pytest.mark.spark
def test_rows_are_those_of_the_authors_text_in_each_scope(spark: SparkSession, inputs: dict[str, DataFrame]) -> None:
    check(spark, inputs, BY_EQUALITY, least=0.9)


@pytest.mark.spark
def test_a_row_without_a_day_is_in_no_week(spark: SparkSession, inputs: dict[str, DataFrame]) -> None:
    with_one_more = {**inputs, "b.sales": spark.table("n_sales")}
    check(spark, with_one_more, [query for query in BY_EQUALITY[:3] if "b.products" not in query], views="n")


@pytest.mark.spark
def test_so_are_those_of_a_part_of_the_constructs_of_the_planner(
    spark: SparkSession, inputs: dict[str, DataFrame]
) -> None:
    some = [*constructs()[::4], *random_queries(20, seed=5), *time_columns.column_queries()[::5]]
    check(spark, inputs, [query for query in some if is_by_equality(query)])


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(4))
def test_so_are_those_of_all_of_them(spark: SparkSession, inputs: dict[str, DataFrame], seed: int) -> None:
    everything = [*constructs(), *time_columns.column_queries(), *OTHERWISE][seed::4]
    random_ones = [*random_queries(150, seed), *time_columns.random_column_queries(100, seed)]
    check(spark, inputs, [query for query in [*everything, *random_ones] if is_by_equality(query)], least=0.4)


FILES = {
    "sales": "CREATE DATASET b.sales (n INT) PARTITIONED BY (day STRING, shop STRING) FOR t IN TIMESERIES(INTERVAL 1 DAY, "
    "START '2022-01-01', END '2023-01-01'), shop IN ('a', 'b') LET day = DATE_FORMAT(t, 'yyyy-MM-dd') EXTERNAL",
    "week": "CREATE DATASET b.week (n BIGINT) PARTITIONED BY (day STRING) FOR t IN TIMESERIES(INTERVAL 1 DAY, START "
    "'2022-01-01', END '2023-01-01') LET day = DATE_FORMAT(t, 'yyyy-MM-dd') AS SELECT SUM(n) AS n FROM b.sales WHERE "
    "sales.day BETWEEN DATE_SUB(:day, 6) AND :day GROUP BY shop",
}


def test_columns_in_which_scopes_do_not_differ_are_left_out() -> None:
    week = compiled([SourceFile(f"{name}.sql", text) for name, text in FILES.items()], {})["b.week"]
    keys = list(week.dataset.partitioning.keys())[:9]
    read = week.read_values(keys)["b.sales"]
    assert dict(read.types) == {"day": "string"}
    days = [str(dt.date(2022, 1, 1) + dt.timedelta(number)) for number in range(9)]
    assert [[day for (day,) in values] for values in read.by_scope] == [
        days[max(0, at - 6) : at + 1] for at in range(9)
    ]
    assert all(set(before) & set(after) for before, after in pairwise(read.by_scope))
    assert week.read_values(keys[:1]) == {}


@pytest.mark.spark
def test_a_trailing_week_has_no_nested_loop(spark: SparkSession, inputs: dict[str, DataFrame]) -> None:
    scopes, read = reading(BY_EQUALITY[0])
    tree = scopes.dataset.query
    assert tree is not None
    text = written_query(scopes.dataset, tree)
    names = ScopeNames.beside(text.text, scopes.partitioning.names)
    some = [scopes.of(scopes.partitioning.key([scope["dd"], scope["st"]])) for scope in soundness.SCOPES]
    frames = {
        **inputs, SCOPES: scope_table(spark, scopes, some, names),
        scopes_reading("b.sales"): scope_table(spark, scopes, some, names, read["b.sales"]),
    }  # fmt: skip
    by_equality, as_it_was, _ = shared_query_forms(text, names, {"b.sales": read["b.sales"].types})
    assert "NestedLoop" in explain_extended(spark, as_it_was, frames) or "CartesianProduct" in explain_extended(
        spark, as_it_was, frames
    )
    explained = explain_extended(spark, by_equality, frames)
    assert "NestedLoop" not in explained
    assert "CartesianProduct" not in explained
    assert "HashJoin" in explained or "SortMergeJoin" in explained
    assert text_of(by_equality, str).endswith(text_of(as_it_was, str).partition("b.sales")[2].partition("WHERE")[2])
