# ruff: noqa: E501 - queries, one a line
"""Mistakes of people who come from another SQL, each told at its place with what to write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile, SqlErrors
from varve.sql.syntax.lexer import tokens_of
from varve.sql.syntax.other_dialects import FUNCTIONS, TYPES
from varve.sql.syntax.refused_tokens import refused_syntax

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

SALES = """CREATE DATASET shop.sales (id INT, price DOUBLE, product STRING) PARTITIONED BY (day STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01') LET day = DATE_FORMAT(t, 'yyyy-MM-dd') EXTERNAL"""
HEAD = """CREATE DATASET shop.out PARTITIONED BY (day STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01') LET today = DATE_FORMAT(t, 'yyyy-MM-dd') INSERT (day = today)
AS
"""
MINE = "FROM shop.sales WHERE sales.day = today"


# What the files may not say, as the running Spark does not take it; a statement each, over a table `sales`.
REFUSED = (
    "SELECT TOP 3 id FROM sales", "SELECT id FROM sales FETCH FIRST 3 ROWS ONLY", "SELECT [id] FROM sales",
    'SELECT id AS "x" FROM sales', 'SELECT s."id" FROM sales s', 'SELECT id FROM "sales"',
    "SELECT ARRAY[1, 2] AS x FROM sales", "SELECT {'a': 1} AS x FROM sales", "SELECT * EXCLUDE (id) FROM sales",
    "SELECT * REPLACE (1 AS id) FROM sales", "SELECT DISTINCT ON (id) id FROM sales", "SELECT product ~ 'a' AS x FROM sales",
    "SELECT product SIMILAR TO 'a' AS x FROM sales", "SELECT id,, price FROM sales", "SELECT id, FROM sales",
    "SELECT CAST(id AS DOUBLE PRECISION) AS x FROM sales", "SELECT CAST(id AS VARCHAR) AS x FROM sales",
    "SELECT id::TEXT AS x FROM sales", "SELECT DATEADD('day', 1, DATE'2022-01-01') AS x FROM sales",
    "SELECT DATEDIFF('day', DATE'2022-01-01', DATE'2022-01-01') AS x FROM sales",
    "SELECT DATE_ADD(DATE'2022-01-01', INTERVAL 1 DAY) AS x FROM sales", "SELECT x FROM UNNEST(ARRAY(1, 2)) AS x",
    "SELECT id FROM sales WHERE id IN UNNEST(ARRAY(1, 2))",
    "SELECT x FROM sales LATERAL VIEW UNNEST(xs) e AS x", "SELECT TIMESTAMP'2022-01-01' AT TIME ZONE 'UTC' AS x FROM sales",
    "SELECT id \N{EN DASH} 1 AS x FROM sales", "SELECT \N{LEFT SINGLE QUOTATION MARK}a\N{RIGHT SINGLE QUOTATION MARK} AS x FROM sales",
    "SELECT id FROM sales\N{ZERO WIDTH SPACE}", "SELECT product->>'a' AS x FROM sales",
)  # fmt: skip
# And what they may, though it looks much alike.
TAKEN = (
    "SELECT id FROM sales WHERE product ILIKE 'a%'", "SELECT id, ROW_NUMBER() OVER (ORDER BY id) AS n FROM sales QUALIFY n = 1",
    "SELECT id FROM sales WHERE id != 2 OR id <> 2 OR id == 2", "SELECT id::STRING AS x FROM sales",
    "SELECT DATE_TRUNC(\"month\", DATE'2022-01-01') AS x FROM sales", 'SELECT id FROM sales WHERE day = "2022-03-01"',
    "SELECT DATEADD(DAY, 1, DATE'2022-01-01') AS x FROM sales", "SELECT * EXCEPT (xs, day) FROM sales",
    "SELECT x FROM UNNEST(ARRAY(1, 2)) AS t(x)", "SELECT id, x FROM sales, LATERAL UNNEST(xs) AS t(x)",
    "SELECT /*+ BROADCAST(b) */ a.id FROM sales a JOIN sales b ON a.id = b.id", "SELECT xs[0] AS x FROM sales",
    "SELECT ZEROIFNULL(id) AS x, NVL(id, 1) AS y FROM sales", 'SELECT DATE "2022-01-01" AS x FROM sales',
    "SELECT id FROM sales GROUP BY ALL", "SELECT CAST(id AS VARCHAR(3)) AS x FROM sales", "SELECT ~id AS x FROM sales",
    "SELECT TRANSFORM(xs, x -> x + 1) AS y FROM sales", "SELECT LISTAGG(product, ',') AS x FROM sales",
    "SELECT id FROM sales LIMIT 3", "SELECT id * REPLACE('1', '2') AS x FROM sales", 'SELECT TRIM("a" FROM "ab") AS x FROM sales',
    'SELECT EXTRACT(DAY FROM "2022-03-01") AS x FROM sales', "SELECT DATE_ADD(DATE'2022-01-01', 1) AS x FROM sales", "SELECT id AS text FROM sales",
    "SELECT id\N{NO-BREAK SPACE}AS x FROM sales", "SELECT id, 'a, FROM [x] \N{EN DASH} ->>' AS x FROM sales -- , FROM",
)  # fmt: skip
UNITS = (
    "D", "DD", "DAY", "W", "WEEK", "M", "MM", "MON", "MONTH", "Q", "QUARTER", "Y", "YY", "YYYY", "YEAR", "H", "HOUR", "MINUTE",
    "S", "SECOND", "MS", "MILLISECOND", "US", "MICROSECOND", "NS",
)  # fmt: skip


def problems(query: str) -> list[tuple[str, str]]:
    try:
        compiled([SourceFile("a.sql", SALES), SourceFile("b.sql", HEAD + query)], {})
    except SqlErrors as error:
        return [(problem.place, problem.message) for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("query", "place", "message"),
    [
        (f"SELECT COUNT(*) {MINE}", "b.sql:4:8", "this column has no name; write AS and one behind it."),
        (f"SELECT id\n  price product {MINE}", "b.sql:5:9", "Is a comma missing before it?"),
        ("SELECT id FROM {{ ref('sales') }}", "b.sql:4:16", "this is a template"),
        (f"SELECT id {MINE} {{% if x %}}", "b.sql:4:51", "this is a template"),
        (f"SELECT IFF(id > 1, 1, 2) AS x {MINE}", "b.sql:4:8", "write IF(condition, then, else)."),
        ("SELECT x FROM UNNEST(ARRAY(1, 2)) AS x", "b.sql:4:15", "write UNNEST(values) AS e(value)."),
        ("SELECT id FROM `shop.sales` WHERE day = today", "b.sql:4:16", "write shop.sales without them."),
        ("SELECT id FROM IDENTIFIER('shop.sales')", "b.sql:4:16", "must stand in the text"),
        (f"SELECT TRUNC(CAST(today AS DATE), 'q') AS x {MINE}", "b.sql:4:35", "no unit 'q' of TRUNC and gives NULL; write 'QUARTER'."),
        (f"SELECT TRUNC(CAST(today AS DATE), 'DAY') AS x {MINE}", "b.sql:4:35", "write DATE_TRUNC('DAY', ...)."),
        (f"SELECT SENTENCES(product) AS x {MINE}", "b.sql:4:8", "only Spark can tell the type of x"),
        (f"SELECT id -- so \\\n {MINE}", "b.sql:4:11", "goes on in the next line"),
    ],
)  # fmt: skip
def test_a_habit_is_told_at_its_place(query: str, place: str, message: str) -> None:
    query_problems = problems(query)
    assert any(at.startswith(place) and message in text for at, text in query_problems), query_problems


def test_a_unit_that_spark_does_not_have_is_refused_in_a_let_too() -> None:
    """The query's text gives NULL, while the variable had the first day of the quarter."""
    head = HEAD.replace("LET today", "LET quarter = TRUNC(t, 'Q'), today")
    with pytest.raises(SqlErrors, match="no unit 'Q' of TRUNC and gives NULL"):
        compiled([SourceFile("a.sql", SALES), SourceFile("b.sql", f"{head}SELECT id {MINE} AND quarter < t")], {})


def test_a_hint_is_no_table() -> None:
    query = "SELECT /*+ BROADCAST(b) */ a.id, b.price FROM shop.sales a JOIN shop.sales b ON a.id = b.id "
    assert problems(f"{query} WHERE a.day = today AND b.day = today") == []


def test_braces_in_a_text_are_no_template() -> None:
    assert problems(f"SELECT id, '{{{{x}}}} ${{y}}' AS text /* {{{{ }}}} */ {MINE}") == []


@pytest.fixture
def sales(spark: SparkSession) -> Iterator[SparkSession]:
    """A session with the table that the statements read."""
    spark.sql(
        "SELECT 1 AS id, 2.5D AS price, 'a' AS product, '2022-03-01' AS day, ARRAY(1) AS xs"
    ).createOrReplaceTempView("sales")
    yield spark
    spark.catalog.dropTempView("sales")


@pytest.mark.spark
def test_what_is_refused_is_what_spark_refuses_and_nothing_else(sales: SparkSession) -> None:
    """Of the syntax; functions are below."""
    wrong = []
    for statement in (*REFUSED, *TAKEN):
        refused = refused_syntax(statement, tokens_of(statement)) is not None
        try:
            assert sales.sql(statement).schema is not None
            by_spark = False
        except PySparkException:
            by_spark = True
        if not refused == by_spark == (statement in REFUSED):
            wrong.append((statement, refused, by_spark))
    assert wrong == []


@pytest.mark.spark
def test_a_unit_of_trunc_is_refused_exactly_where_spark_gives_null(spark: SparkSession) -> None:
    calls = [call for unit in UNITS for call in (f"TRUNC(DATE'2022-03-05', '{unit}')", f"DATE_TRUNC('{unit}', NOW())")]
    calls += [call.lower() for call in calls]
    (row,) = spark.sql(f"SELECT {', '.join(f'{call} AS c{place}' for place, call in enumerate(calls))}").collect()
    refused = [refused_syntax(f"SELECT {call}", tokens_of(f"SELECT {call}")) is not None for call in calls]
    assert {call for call, is_refused in zip(calls, refused, strict=True) if is_refused} == {
        call for call, value in zip(calls, row, strict=True) if value is None
    }


@pytest.mark.spark
def test_spark_has_none_of_the_functions_and_types_that_we_say_it_has_not(sales: SparkSession) -> None:
    there = {str(row[0]).upper() for row in sales.sql("SHOW FUNCTIONS").collect()}
    assert set(FUNCTIONS) & there == set()
    for name in TYPES:
        with pytest.raises(PySparkException):
            assert sales.sql(f"SELECT CAST(NULL AS {name}) AS x").schema is None
