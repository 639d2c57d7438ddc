# ruff: noqa: E501 - queries, one a line
"""A bare name is a variable only where no column of that name can be seen; `:name` always is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from varve.sql.partitions.comprehension import scopes_of
from varve.sql.spark.analysis import analysis_problems
from varve.sql.spark.execute import per_scope_rows
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile, SqlErrors
from varve.sql.syntax.header import parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = """CREATE DATASET t.a (id INT, sold INT, items ARRAY<INT>, w STRUCT<cur: INT, other: INT>)
PARTITIONED BY (store STRING) FOR s IN ('Paris', 'Lyon') INSERT (store = s) EXTERNAL"""
HEAD = """CREATE DATASET t.out (x {kind}) PARTITIONED BY (st STRING) FOR cur IN ('Paris', 'Lyon') INSERT (st = cur)
ALLOW FULL SCAN AS
"""
# Where `cur` is also a column, by Spark's rules; `{}` is the place of the name.
CAPTURED = {
    "lateral view": "SELECT {} AS x FROM t.a LATERAL VIEW EXPLODE(items) e AS cur",
    "lateral view, filtered": "SELECT e.cur AS x FROM t.a LATERAL VIEW EXPLODE(items) e AS cur WHERE a.store = {}",
    "values": "SELECT {} AS x FROM VALUES (1), (2) AS v(cur)",
    "column list of a subquery": "SELECT {} AS x FROM (SELECT id FROM t.a) q(cur)",
    "column list of a CTE": "WITH q(cur) AS (SELECT id FROM t.a) SELECT {} AS x FROM q",
    "alias of a CTE": "WITH q AS (SELECT id AS cur FROM t.a) SELECT {} AS x FROM q",
    "star of a CTE": "WITH q AS (SELECT id AS cur FROM t.a), r AS (SELECT * FROM q) SELECT {} AS x FROM r",
    "pivot": "SELECT {} AS x FROM (SELECT id, sold FROM t.a) PIVOT (SUM(sold) FOR id IN (1 AS cur, 2 AS b))",
    "unpivot": "SELECT {} AS x FROM (SELECT id, sold FROM t.a) UNPIVOT (cur FOR n IN (id, sold))",
    "fields of a struct": "SELECT {} AS x FROM (SELECT w.* FROM t.a)",
    "inline": "SELECT {} AS x FROM (SELECT INLINE(ARRAY(w)) FROM t.a)",
    "lateral view of inline": "SELECT {} AS x FROM t.a LATERAL VIEW INLINE(ARRAY(w)) e",
    "lateral column alias": "SELECT id AS cur, {} AS x FROM t.a",
    "having": "SELECT SUM(sold) AS cur FROM t.a GROUP BY id HAVING {} > 1",
    "group by": "SELECT id % 2 AS cur, COUNT(*) AS x FROM t.a GROUP BY {}",
    "order by": "SELECT sold AS cur, id AS x FROM t.a ORDER BY {} LIMIT 1",
    "order by of a union": "SELECT sold AS cur FROM t.a UNION ALL SELECT id FROM t.a ORDER BY {} LIMIT 1",
    "correlated subquery": "SELECT id AS x FROM (SELECT id, id AS cur FROM t.a) q WHERE EXISTS (SELECT 1 FROM t.a WHERE a.id = {})",
    "lateral subquery": "SELECT l.x FROM (SELECT id AS cur FROM t.a) q, LATERAL (SELECT {} AS x) l",
    "table function": "SELECT {} AS x FROM EXPLODE(ARRAY(1, 2)) AS e(cur)",
    "unaliased cast": "SELECT {} AS x FROM (SELECT id::INT AS cur FROM t.a)",
    "semi join on": "SELECT a.id AS x FROM t.a LEFT SEMI JOIN (SELECT '1' AS cur) q ON a.store = {}",
    "join on": "SELECT y.id AS x FROM t.a JOIN (SELECT id, id AS cur FROM t.a) y ON {} = a.id",
}  # fmt: skip
# Where nobody else can be meant.
FREE = {
    "where": "SELECT id AS x FROM t.a WHERE store = {}",
    "beside an anti join": "SELECT a.id AS x FROM t.a LEFT ANTI JOIN (SELECT -1 AS cur) q ON a.id = q.cur WHERE store = {}",
    "beside an alias of its name": "SELECT id AS x, {} AS cur FROM t.a WHERE store = {}",
    "order by what repeats it": "SELECT {} AS cur, id AS x FROM t.a ORDER BY {}",
    "cte": "WITH q AS (SELECT id FROM t.a WHERE store = {}) SELECT id AS x FROM q",
    "a name beside, not seen there": "SELECT q.id AS x FROM (SELECT id FROM t.a WHERE store = {}) q, (SELECT 1 AS cur) r",
    "lambda": "SELECT SIZE(FILTER(items, cur -> cur > 1)) AS x FROM t.a WHERE store = {}",
    "lateral view": "SELECT e.i AS x FROM t.a LATERAL VIEW EXPLODE(items) e AS i WHERE store = {}",
    "subquery": "SELECT id AS x FROM t.a WHERE id IN (SELECT id FROM t.a WHERE store = {})",
    "where under a later alias": "SELECT SUM(sold) AS cur FROM t.a WHERE store = {} GROUP BY id",
}


def problems(query: str, kind: str = "INT") -> str:
    try:
        compiled([SourceFile("a.sql", ROOT), SourceFile("out.sql", HEAD.format(kind=kind) + query)], {})
    except SqlErrors as error:
        return "\n".join(problem.message for problem in error.problems)
    return ""


@pytest.mark.parametrize("name", CAPTURED)
def test_a_name_that_a_column_may_have_is_refused_where_it_stands(name: str) -> None:
    bare = problems(CAPTURED[name].replace("{}", "cur"))
    assert "write :cur for the variable" in bare
    assert "write :cur" not in problems(CAPTURED[name].replace("{}", ":cur"))


@pytest.mark.parametrize("name", FREE)
def test_a_name_that_only_the_variable_has_is_taken(name: str) -> None:
    assert "variable of the scope" not in problems(FREE[name].replace("{}", "cur"))


@pytest.mark.spark
def test_a_variable_with_a_colon_is_what_its_value_is_to_spark(spark: SparkSession) -> None:
    rows = [(1, 5, [1, 2], (7, 8), "Paris"), (2, 6, [3], (9, 1), "Lyon"), (2, 7, [], (0, 0), "Paris")]
    frame = spark.createDataFrame(
        rows, "id INT, sold INT, items ARRAY<INT>, w STRUCT<cur: INT, other: INT>, store STRING"
    ).coalesce(1)
    frame.createOrReplaceTempView("a")
    arms = []
    for query in [*CAPTURED.values(), *FREE.values()]:
        scopes = scopes_of(parse(SourceFile("out.sql", HEAD.format(kind="INT") + query.replace("{}", ":cur"))))
        assert scopes.dataset.query is not None
        if any(fragment in query for fragment in ("> 1", "a.id = {}", "{} = a.id", "GROUP BY {}")):
            # A text is no number, and a group of it is one of all rows.
            continue
        scope = scopes.of(scopes.partitioning.key(["Paris"]))
        ours = per_scope_rows(spark, scopes, scopes.dataset.query, [scope], {"t.a": frame}, partitions=False)
        plain = spark.sql(query.replace("{}", "'Paris'").replace("t.a", "a"))
        for result_frame in (ours, plain):
            text = result_frame.toDF(*[f"c{place}" for place in range(len(result_frame.columns))]).selectExpr(
                "TO_JSON(STRUCT(*)) AS row"
            )
            arms.append(text.selectExpr(f"{len(arms)} AS arm", "row"))
    rows_by_arm: dict[int, list[str]] = {}
    union = arms[0]
    for arm in arms[1:]:
        union = union.unionAll(arm)
    for row in union.collect():
        rows_by_arm.setdefault(row["arm"], []).append(row["row"])
    assert len(arms) > 50
    assert sum(bool(rows_by_arm.get(place)) for place in range(len(arms))) > len(arms) * 0.8
    for place in range(0, len(arms), 2):
        assert sorted(rows_by_arm.get(place, [])) == sorted(rows_by_arm.get(place + 1, [])), place


@pytest.mark.spark
def test_spark_has_the_last_word_on_a_bare_name(spark: SparkSession) -> None:
    files = compiled(
        [
            SourceFile("a.sql", ROOT),
            SourceFile(
                "out.sql", HEAD.format(kind="INT") + "SELECT id AS x FROM t.a WHERE store = cur AND cur = 'Paris'"
            ),
        ],
        {},
    )
    assert analysis_problems(spark, files["t.out"]) == []
