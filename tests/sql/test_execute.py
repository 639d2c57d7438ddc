"""One join with many scopes gives the rows that a query for each scope gives: Spark is asked both ways."""

from __future__ import annotations

import random
from functools import reduce
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrame

from tests.sql import test_soundness as soundness
from tests.sql.constructs import constructs, random_queries
from tests.sql.short_tasks import one_short_task_each
from varve.sql.partitions.comprehension import scopes_of
from varve.sql.spark.execute import per_scope_rows, rows_of, together_rows
from varve.sql.syntax.errors import SourceFile, SqlError
from varve.sql.syntax.header import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HEADER = """CREATE DATASET t.out PARTITIONED BY (d STRING, s STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01', END '2022-03-03'), shop IN ('Paris', 'Nowhere')
LET the_day = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (d = the_day, s = shop)
AS
"""
PLANNER = """CREATE DATASET t.out PARTITIONED BY (on_day DATE, in_store STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-30', END '2022-04-01'), st IN ('Paris', 'Detroit')
LET dd = CAST(t AS DATE), pd = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (on_day = dd, in_store = st)
AS
"""
BATCH = 40
MINE = "WHERE a.day = the_day AND a.store = shop"
CONSTRUCTS = {
    "filter": f"SELECT product, sold FROM t.a {MINE}",
    "group by": f"SELECT product, SUM(sold) AS sold FROM t.a {MINE} GROUP BY product",
    "global aggregate": f"SELECT COUNT(*) AS n, SUM(sold) AS sold FROM t.a {MINE}",
    "global count of what may be nothing": f"SELECT COUNT(sold) + 1 AS n FROM t.a {MINE}",
    "count distinct": f"SELECT COUNT(DISTINCT product) AS n FROM t.a {MINE}",
    "having": f"SELECT product, COUNT(*) AS n FROM t.a {MINE} GROUP BY product HAVING COUNT(*) > 1",
    "having without group": f"SELECT MAX(sold) AS m FROM t.a {MINE} HAVING COUNT(*) > 1",
    "trailing": "SELECT product, SUM(sold) AS sold FROM t.a WHERE a.day BETWEEN DATE_SUB(the_day, 2) AND the_day "
    "AND store = shop GROUP BY product",
    "window": f"SELECT product, sold, ROW_NUMBER() OVER (PARTITION BY product ORDER BY sold, id) AS n FROM t.a {MINE}",
    "window over all": f"SELECT id, SUM(sold) OVER (ORDER BY id) AS running FROM t.a {MINE}",
    "window over days": "SELECT id, day, LAG(sold) OVER (PARTITION BY product ORDER BY day, id) AS before FROM t.a "
    "WHERE store = shop",
    "limit": f"SELECT id, sold FROM t.a {MINE} ORDER BY sold DESC, id LIMIT 2",
    "limit and offset": f"SELECT id FROM t.a {MINE} ORDER BY id LIMIT 2 OFFSET 1",
    "distinct": f"SELECT DISTINCT product FROM t.a {MINE}",
    "cte": f"WITH x AS (SELECT * FROM t.a {MINE}) SELECT product, MAX(sold) AS m FROM x GROUP BY product",
    "two ctes": f"WITH x AS (SELECT product, SUM(sold) AS sold FROM t.a {MINE} GROUP BY product), "
    "y AS (SELECT product, SUM(sold) AS past FROM t.a WHERE a.day < the_day AND store = shop GROUP BY product) "
    "SELECT x.product, x.sold, y.past FROM x LEFT JOIN y ON x.product = y.product",
    "subquery": f"SELECT x.product FROM (SELECT product, sold FROM t.a {MINE}) x WHERE x.sold > 3",
    "inner join": f"SELECT a.id, b.price FROM t.a JOIN t.b ON a.product = b.product AND b.day = a.day {MINE}",
    "left join": "SELECT a.id, b.price FROM t.a LEFT JOIN t.b ON a.product = b.product AND b.day = the_day "
    f"{MINE}",
    "right join": "SELECT a.id, b.price FROM t.a RIGHT JOIN t.b ON a.product = b.product AND a.day = the_day AND "
    "a.store = shop WHERE b.day = the_day",
    "full join": f"SELECT x.id, y.price FROM (SELECT * FROM t.a {MINE}) x FULL JOIN "
    "(SELECT * FROM t.b WHERE b.day = the_day) y ON x.product = y.product",
    "semi join": f"SELECT a.id FROM t.a LEFT SEMI JOIN t.b ON a.product = b.product AND b.day = the_day {MINE}",
    "anti join": f"SELECT a.id FROM t.a LEFT ANTI JOIN t.b ON a.product = b.product AND b.day = the_day {MINE}",
    "cross join": f"SELECT a.id, b.price FROM t.a CROSS JOIN t.b {MINE} AND b.day = the_day",
    "exists": f"SELECT a.id FROM t.a {MINE} AND "
    "EXISTS (SELECT 1 FROM t.b WHERE b.product = a.product AND b.day = the_day)",
    "not exists": f"SELECT a.id FROM t.a {MINE} AND NOT EXISTS (SELECT 1 FROM t.b WHERE b.product = a.product "
    "AND b.day = the_day)",
    "in": f"SELECT a.id FROM t.a {MINE} AND a.product IN (SELECT product FROM t.b WHERE b.day = the_day)",
    "not in": f"SELECT a.id FROM t.a {MINE} AND a.product NOT IN (SELECT product FROM t.b WHERE b.day = the_day)",
    "scalar subquery": f"SELECT a.id, (SELECT MAX(price) FROM t.b WHERE b.day = the_day) AS top FROM t.a {MINE}",
    "correlated scalar subquery": "SELECT a.id, (SELECT MAX(price) FROM t.b WHERE b.day = the_day AND "
    f"b.product = a.product) AS top FROM t.a {MINE}",
    "union all": f"SELECT product FROM t.a {MINE} UNION ALL SELECT product FROM t.b WHERE b.day = the_day",
    "union": f"SELECT product FROM t.a {MINE} UNION SELECT product FROM t.b WHERE b.day = the_day",
    "intersect": f"SELECT product FROM t.a {MINE} INTERSECT SELECT product FROM t.b WHERE b.day = the_day",
    "except": f"SELECT product FROM t.a {MINE} EXCEPT SELECT product FROM t.b WHERE b.day = the_day",
    "union of aggregates": f"SELECT COUNT(*) AS n FROM t.a {MINE} "
    "UNION ALL SELECT COUNT(*) FROM t.b WHERE b.day = the_day",
    "rollup": f"SELECT product, SUM(sold) AS sold FROM t.a {MINE} GROUP BY ROLLUP (product)",
    "grouping sets": f"SELECT product, id, COUNT(*) AS n FROM t.a {MINE} GROUP BY GROUPING SETS ((product), (id), ())",
    "variable as a column": f"SELECT the_day AS seen, id FROM t.a {MINE}",
    "variable in group by": f"SELECT product, the_day AS seen, COUNT(*) AS n FROM t.a {MINE} GROUP BY product, the_day",
    "variable in an expression": f"SELECT id, DATEDIFF(the_day, '2022-03-01') AS age FROM t.a {MINE}",
    "variable in a case": f"SELECT id, CASE WHEN shop = 'Paris' THEN sold * 2 ELSE sold END AS sold FROM t.a {MINE}",
    "variable in an aggregate": f"SELECT SUM(CASE WHEN shop = 'Paris' THEN sold ELSE 0 END) AS n FROM t.a {MINE}",
    "the moment itself": "SELECT id FROM t.a WHERE at >= t AND at < t_end AND store = shop",
    "explode": f"SELECT id, each FROM t.a LATERAL VIEW EXPLODE(SEQUENCE(1, sold)) e AS each {MINE}",
    "with before brackets": f"WITH x AS (SELECT id, product FROM t.a {MINE}) (SELECT x.id, the_day AS seen FROM x) "
    "ORDER BY id % 3 = 1, id LIMIT 2",
    "with before a union in brackets": f"WITH x AS (SELECT product FROM t.a {MINE}) ((SELECT x.product FROM x) UNION "
    "(SELECT b.product FROM t.b WHERE b.day = the_day)) ORDER BY product = 'x' LIMIT 30",
    "nulls": f"SELECT product, COUNT(note) AS n, MIN(note) AS m FROM t.a {MINE} GROUP BY product",
    "null group": f"SELECT note, COUNT(*) AS n FROM t.a {MINE} GROUP BY note",
    "or": "SELECT id FROM t.a WHERE (a.day = the_day AND store = shop) OR id = 1",
    "no variable at all": "SELECT product, COUNT(*) AS n FROM t.a GROUP BY product",
    "no table": "SELECT the_day AS seen, 1 AS one",
    "values": "SELECT x.n FROM VALUES (1), (2) AS x(n) WHERE shop = 'Paris'",
    "braces in a text": f"SELECT id, '{{x}}' AS text FROM t.a {MINE}",
    "self join": f"SELECT a.id, z.id AS other FROM t.a JOIN t.a z ON z.product = a.product AND z.day = the_day {MINE}",
    "first and last": f"SELECT product, MIN_BY(id, sold) AS least FROM t.a {MINE} GROUP BY product",
    "nested ctes": f"WITH x AS (WITH y AS (SELECT * FROM t.a {MINE}) SELECT product FROM y) "
    "SELECT COUNT(*) AS n FROM x",
    "qualified by the database": f"SELECT t.a.id FROM t.a {MINE}",
    "inequality": "SELECT COUNT(*) AS n FROM t.a WHERE a.day <= the_day AND store <> shop",
    "count over a left join": "SELECT x.product, COUNT(y.price) AS n FROM (SELECT DISTINCT product FROM t.a "
    f"{MINE}) x LEFT JOIN (SELECT * FROM t.b WHERE b.day = the_day) y ON x.product = y.product GROUP BY x.product",
}  # fmt: skip


@pytest.fixture(scope="module")
def inputs(spark: SparkSession) -> dict[str, DataFrame]:
    chance = random.Random(7)
    days = [f"2022-03-0{day}" for day in range(1, 5)]
    stores = ["Detroit", "Paris"]
    a = [
        (place, chance.choice("xyz"), chance.randint(1, 5), chance.choice([None, "n", "m"]), chance.choice(days), store)
        for place in range(40)
        for store in [chance.choice(stores)]
    ]
    b = [(chance.choice(["x", "y", "w", None]), chance.randint(1, 9), chance.choice(days[:3])) for _ in range(9)]
    return {
        "t.a": spark.createDataFrame(a, "id INT, product STRING, sold INT, note STRING, day STRING, store STRING")
        .selectExpr("*", "TIMESTAMP(day) + MAKE_INTERVAL(0, 0, 0, 0, id % 24) AS at"),
        "t.b": spark.createDataFrame(b, "product STRING, price INT, day STRING"),
    }  # fmt: skip


# A row of a FULL JOIN, or of an aggregate over nothing, has no scope that a join could give it.
BY_THEMSELVES = {"full join", "variable in an aggregate"}


def frames(
    spark: SparkSession, inputs: dict[str, DataFrame], header: str, query: str, chosen: Sequence[int]
) -> tuple[DataFrame, DataFrame | None]:
    """The rows of the scopes at these places of four, a query each and together."""
    scopes = scopes_of(parse(SourceFile("t.sql", header + query)))
    tree = scopes.dataset.query
    assert tree is not None
    all_scopes = [scopes.of(key) for key in iter(scopes.partitioning.keys())]
    assert len(all_scopes) == 4
    some = [all_scopes[place] for place in chosen]
    return per_scope_rows(spark, scopes, tree, some, inputs), together_rows(spark, scopes, tree, some, inputs)


def compare(
    spark: SparkSession,
    inputs: dict[str, DataFrame],
    header: str,
    queries: dict[str, str],
    scopes: Sequence[Sequence[int]] = ((0, 1, 2, 3),),
) -> set[str]:
    """Raise where the two ways differ; returns the queries that are not run together."""
    from pyspark.sql import functions as F  # noqa: N812

    apart, arms, compared_names = set(), [], []
    for number, (name, query) in enumerate(queries.items()):
        expected, together = frames(spark, inputs, header, query, scopes[number % len(scopes)])
        if together is None:
            apart.add(name)
            continue
        assert together.dtypes == expected.dtypes, name
        for frame in (expected, together):
            numbered = frame.toDF(*[f"c{place}" for place in range(len(frame.columns))])
            hashes = F.sum(F.xxhash64(*numbered.columns).cast("decimal(38, 0)"))
            arms.append(numbered.agg(F.lit(len(arms)).alias("arm"), F.count("*"), hashes))
        compared_names.append(name)
    hashes_by_arm: list[tuple[object, ...]] = [()] * len(arms)
    for start in range(0, len(arms), BATCH):
        for row in reduce(DataFrame.unionAll, arms[start : start + BATCH]).collect():
            hashes_by_arm[row["arm"]] = tuple(row)[1:]
    wrong = [
        f"{name}: {expected} by themselves, {together} together"
        for name, expected, together in zip(compared_names, hashes_by_arm[::2], hashes_by_arm[1::2], strict=True)
        if expected != together
    ]
    assert not wrong, "\n".join(wrong)
    # A comparison of nothing with nothing would prove nothing.
    assert sum(row[0] > 0 for row in hashes_by_arm[::2]) > len(compared_names) * 0.6  # type: ignore[operator]
    return apart


# Of two days in two stores: where there are no rows and where there are, on one day and in one store in turn.
TWO_OF_FOUR = ((0, 1), (0, 2))


@pytest.mark.parametrize(
    "scopes", [TWO_OF_FOUR, pytest.param(((0, 1, 2, 3),), marks=pytest.mark.slow)], ids=["two scopes", "all scopes"]
)
def test_one_job_over_all_scopes_gives_the_rows_of_a_query_each(
    spark: SparkSession, inputs: dict[str, DataFrame], scopes: Sequence[Sequence[int]]
) -> None:
    """Two scopes of each construct; `make torture` has all four of each."""
    with one_short_task_each(spark):
        assert compare(spark, inputs, HEADER, CONSTRUCTS, scopes) == BY_THEMSELVES


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_so_does_every_construct_of_the_planner(spark: SparkSession) -> None:
    tables = {
        dataset: spark.createDataFrame(
            [(number, f"p{number}") for number in range(1, 8)]
            if dataset == "b.products"
            else [row[:-1] for row in soundness.rows(dataset)],
            ", ".join(f"{name} {kind}" for name, kind in columns.items()),
        )
        for dataset, columns in soundness.SCHEMAS.items()
    }
    queries = [query for query in [*constructs(), *random_queries(60, seed=11)] if "TABLESAMPLE" not in query]
    with one_short_task_each(spark):
        apart = compare(spark, tables, PLANNER, {query: query for query in queries})
    assert len(apart) < len(queries) / 4, "\n".join(apart)


def test_what_is_wrong_with_a_query_is_told_by_spark(spark: SparkSession, inputs: dict[str, DataFrame]) -> None:
    scopes = scopes_of(parse(SourceFile("t.sql", HEADER + f"SELECT nobody_has_it AS x FROM t.a {MINE}")))
    assert scopes.dataset.query is not None
    with pytest.raises(SqlError, match=r"t.sql:6:8: there is no column nobody_has_it here"):
        rows_of(spark, scopes, scopes.dataset.query, [*scopes.partitioning.keys()], inputs).collect()
