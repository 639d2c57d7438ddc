# ruff: noqa: E501 - queries, one a line
"""Which operators of Spark's plans many scopes share: each is compared with plain Spark, and no other is on the list."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sql.plain_session import compare, dataset
from tests.sql.short_tasks import one_short_task_each
from tests.sql.test_random_queries import HEADER, case, tables
from varve.sql.names.written_query import written_query
from varve.sql.spark.execute import explain_extended, single_scope_query
from varve.sql.spark.plans import READS, SHARED, cannot_run, not_shared, operators

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

# Each in both forms: with the scopes as a table of the query, or, where it cannot be, around it.
TOGETHER = [
    "SELECT a.id, a.k FROM collide.a WHERE a.day = <<the_day>> AND a.store = <<shop>>",
    "SELECT 1 AS n, <<shop>> AS s",
    "SELECT a.k, COUNT(*) AS n, SUM(a.v) AS m FROM collide.a WHERE a.day = <<the_day>> GROUP BY a.k",
    "SELECT COUNT(*) AS n, MAX(a.v) AS m FROM collide.a WHERE a.store = <<shop>> AND a.v > 3",
    "SELECT a.k, a.day, SUM(a.v) AS n FROM collide.a WHERE a.store <= <<shop>> GROUP BY CUBE (a.k, a.day)",
    "SELECT a.k, SUM(a.v) AS n, GROUPING_ID() AS g FROM collide.a WHERE a.store <= <<shop>> GROUP BY ROLLUP (a.k, a.day)",
    "SELECT a.v + <<num>> AS v, <<num>> AS m, a.k, COUNT(*) AS n FROM collide.a GROUP BY ROLLUP (a.v + <<num>>, a.k)",
    "SELECT DISTINCT a.k FROM collide.a WHERE a.day >= <<the_day>>",
    "SELECT a.id, b.shop AS s FROM collide.a JOIN collide.b ON a.id = b.id AND b.shop = <<shop>>",
    "SELECT a.id, b.shop AS s FROM collide.a LEFT JOIN collide.b ON a.id = b.id AND b.shop = <<shop>> WHERE a.day = <<the_day>>",
    "SELECT a.id, b.shop AS s FROM collide.a RIGHT JOIN collide.b ON a.id = b.id AND a.store = <<shop>> WHERE b.day = <<the_day>>",
    "SELECT a.id FROM collide.a LEFT SEMI JOIN collide.b ON a.id = b.id AND b.shop = <<shop>>",
    "SELECT a.id FROM collide.a LEFT ANTI JOIN collide.b ON a.id = b.id AND b.shop = <<shop>>",
    "SELECT a.id, b.id AS m FROM collide.a CROSS JOIN collide.b WHERE a.day = <<the_day>> AND b.shop = <<shop>>",
    "SELECT o.id FROM collide.a o WHERE EXISTS (SELECT 1 FROM collide.b WHERE b.id = o.id AND b.shop = <<shop>>)",
    "SELECT a.id FROM collide.a WHERE a.v NOT IN (SELECT b.a FROM collide.b WHERE b.shop = <<shop>> AND b.a IS NOT NULL)",
    "SELECT o.id, (SELECT MAX(b.a) FROM collide.b WHERE b.id = o.id AND b.day <= <<the_day>>) AS m FROM collide.a o WHERE o.store = <<shop>>",
    "SELECT o.id, x.n FROM collide.a o, LATERAL (SELECT COUNT(*) AS n FROM collide.b WHERE b.id = o.id AND b.shop = <<shop>>) x",
    "SELECT a.id, e.i FROM collide.a LATERAL VIEW OUTER EXPLODE(a.items) e AS i WHERE a.day = <<the_day>>",
    "SELECT a.k, SUM(a.v) OVER (PARTITION BY a.k) AS w, RANK() OVER (ORDER BY a.v) AS r FROM collide.a WHERE a.day = <<the_day>>",
    "SELECT a.k FROM collide.a WHERE a.day = <<the_day>> UNION ALL SELECT b.k FROM collide.b WHERE b.shop = <<shop>>",
    "SELECT a.k FROM collide.a WHERE a.day = <<the_day>> INTERSECT SELECT b.k FROM collide.b WHERE b.shop = <<shop>>",
    "SELECT a.k, a.v FROM collide.a WHERE a.day = <<the_day>> EXCEPT ALL SELECT b.k, b.a FROM collide.b WHERE b.shop = <<shop>>",
    "WITH q AS (SELECT a.id, a.v FROM collide.a WHERE a.day = <<the_day>>) SELECT x.id, y.v FROM q x JOIN q y ON x.id <= y.id",
    "SELECT a.id, a.v, a.k FROM collide.a WHERE a.day = <<the_day>> ORDER BY a.id, a.v, a.k LIMIT 4 OFFSET 1",
    "SELECT x.id FROM (SELECT a.id, a.v, a.k FROM collide.a WHERE a.store = <<shop>> ORDER BY a.id, a.v, a.k LIMIT 5) x WHERE x.v > 1",
    "SELECT a.id, v.n FROM collide.a JOIN (VALUES (1, 'x'), (2, 'y')) AS v(n, k) ON a.k = v.k WHERE a.store = <<shop>>",
    "SELECT a.id, r.id AS n FROM RANGE(1, 3) r JOIN collide.a ON a.v >= r.id WHERE a.store = <<shop>>",
    "SELECT WINDOW(TIMESTAMP_SECONDS(a.v * 3600), '2 hours').start AS w, COUNT(*) AS n FROM collide.a WHERE a.store = <<shop>> GROUP BY WINDOW(TIMESTAMP_SECONDS(a.v * 3600), '2 hours')",
    "SELECT /*+ BROADCAST(b) */ a.id FROM collide.a JOIN collide.b ON a.id = b.id WHERE b.shop = <<shop>>",
]  # fmt: skip
# What Spark itself does not run as it means it, or nobody has compared.
ALONE = {
    "Join FullOuter": "SELECT a.id, b.shop AS s FROM collide.a FULL JOIN collide.b ON a.id = b.id AND b.shop = <<shop>>",
    "Pivot": "SELECT * FROM (SELECT a.v, a.k FROM collide.a WHERE a.store = <<shop>>) PIVOT (SUM(v) FOR k IN ('x' AS x, 'y' AS y))",
    "Sample": "SELECT a.id FROM collide.a TABLESAMPLE (100 PERCENT) WHERE a.store = <<shop>>",
    "UnionLoop": "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT r.n, a.id FROM r JOIN collide.a ON a.v = r.n WHERE a.store = <<shop>>",
    "RepartitionByExpression": "SELECT a.id FROM collide.a WHERE a.store = <<shop>> DISTRIBUTE BY a.id",
}  # fmt: skip

# What is the same in the whole scope is NULL in the rows of the grouping sets without it. The scopes' table cannot give
# that: there, each variable is part of every set.
SAME_IN_ITS_SCOPE = [
    "SELECT <<shop>> AS v, a.k FROM collide.a GROUP BY ROLLUP (<<shop>>, a.k)",
    "SELECT <<shop>> AS v, a.k, COUNT(*) AS n FROM collide.a GROUP BY GROUPING SETS ((<<shop>>), (a.k), ())",
    "SELECT <<shop>> AS s, a.k AS k, COUNT(*) AS n FROM collide.a GROUP BY CUBE (s, k)",
    "SELECT a.k, COUNT(*) AS n, GROUPING_ID() AS g FROM collide.a GROUP BY ROLLUP (<<shop>>, a.k)",
    "SELECT a.k, <<shop>> AS s, 'O''Brien' AS o, COUNT(*) AS n FROM collide.a GROUP BY ROLLUP (a.k, 'O''Brien')",
]  # fmt: skip


@pytest.fixture(scope="module")
def inputs(spark: SparkSession) -> Iterator[dict[str, DataFrame]]:
    yield tables(spark)
    spark.sql("DROP DATABASE collide CASCADE")


def plan(spark: SparkSession, inputs: dict[str, DataFrame], template: str) -> str:
    """What Spark says of the query of one scope."""
    scopes = dataset(HEADER, case(template, 1, is_bare=False).query, inputs)
    assert not isinstance(scopes, str), scopes
    query = scopes.dataset.query
    assert query is not None
    return explain_extended(
        spark, single_scope_query(written_query(scopes.dataset, query), scopes.of(scopes.sample)), inputs
    )


def test_every_operator_of_the_list_gives_the_rows_of_plain_spark(
    spark: SparkSession, inputs: dict[str, DataFrame]
) -> None:
    with one_short_task_each(spark):
        report = compare(
            spark, HEADER, [case(query, place, is_bare=False) for place, query in enumerate(TOGETHER)], inputs
        )
        plans = {query: plan(spark, inputs, query) for query in TOGETHER}
    assert not report.wrong, "\n".join(report.wrong)
    assert report.compared == report.together == len(TOGETHER)
    assert report.with_rows > len(TOGETHER) * 0.9
    used = {operator for plan_text in plans.values() for operator in operators(plan_text)}
    # `View` is of classic mode only: there an input is a view of the session.
    assert SHARED - used <= {"View"}
    assert used - SHARED <= READS


@pytest.mark.parametrize("operator", ALONE)
def test_what_is_not_on_the_list_is_named(spark: SparkSession, inputs: dict[str, DataFrame], operator: str) -> None:
    explained_ = plan(spark, inputs, ALONE[operator])
    assert operator in operators(explained_)
    assert not_shared(explained_)


@pytest.mark.parametrize("operator", ALONE)
def test_and_runs_scope_by_scope(spark: SparkSession, inputs: dict[str, DataFrame], operator: str) -> None:
    with one_short_task_each(spark):
        report = compare(spark, HEADER, [case(ALONE[operator], 1, is_bare=False)], inputs)
    assert not report.wrong
    assert (report.compared, report.together) == (1, 0)


def test_sets_of_what_is_the_same_in_a_scope_are_grouped_scope_by_scope(
    spark: SparkSession, inputs: dict[str, DataFrame]
) -> None:
    with one_short_task_each(spark):
        report = compare(spark, HEADER, [case(query, 1, is_bare=False) for query in SAME_IN_ITS_SCOPE], inputs)
    assert not report.wrong, "\n".join(report.wrong)
    assert (report.compared, report.with_rows, report.together) == (len(SAME_IN_ITS_SCOPE),) * 2 + (0,)


def test_what_the_optimizer_leaves_correlated_is_seen() -> None:
    plans = "== Analyzed Logical Plan ==\nn: int\nProject [n#1]\n\n== Optimized Logical Plan ==\n{}\n\n== Physical Plan ==\n"
    assert cannot_run(plans.format("Filter (outer(v#2) > 1)\n+- LocalRelation [n#1]"))
    assert cannot_run(plans.format("Project [n#1, ... 3 more fields]"))
    assert cannot_run(plans.format("Project [n#1]\n:  +- !Join Inner, (v#3 = n#1)\n:     +- LocalRelation [n#1]"))
    assert not cannot_run(plans.format("Project [n#1]\n+- Filter NOT (n#1 = !)\n+- LocalRelation [n#1]"))


def test_a_text_within_a_plan_hides_no_operator() -> None:
    plans = "== Analyzed Logical Plan ==\nn: string\nProject [a\nSample b AS n#1]\n+- OneRowRelation\n\n== Optimized Logical Plan =="
    assert operators(plans) == {"Project", "Sample", "OneRowRelation"}
