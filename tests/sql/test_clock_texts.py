"""Texts such as 'today' that Spark takes for the clock's where it casts them: they are refused, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from varve.sql.sql_project import usable
from varve.sql.syntax.errors import source_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SALES = b"""CREATE DATASET shop.sales (n INT, product STRING, sold DATE, seen TIMESTAMP, days ARRAY<DATE>)
PARTITIONED BY (day STRING) FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01')
LET day = DATE_FORMAT(t, 'yyyy-MM-dd') EXTERNAL"""
OUT = """CREATE DATASET shop.out PARTITIONED BY (day STRING) FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01')
{clauses} LET sale_day = DATE_FORMAT(t, 'yyyy-MM-dd'), this_day = CAST(t AS DATE) INSERT (day = sale_day)
AS SELECT CAST({expression} AS STRING) AS x FROM shop.sales AS s WHERE s.day = sale_day"""
ROWS = """VALUES (1, 'tea', DATE '2022-03-01', TIMESTAMP '2022-03-01 00:00:00', ARRAY(DATE '2022-03-01'), '2022-03-01')
AS s (n, product, sold, seen, days, day)"""
CLOCKS = [
    "sold < 'today'", "('today') > sold", "sold = 'now'", "sold <> 'now'", "sold <=> 'now'", "seen >= 'yesterday'",
    "seen IS DISTINCT FROM 'now'", "sold BETWEEN '2022-01-01' AND 'tomorrow'", "sold IN ('2022-01-01', 'today')",
    "COALESCE(NULLIF(sold, sold), 'today')", "IF(n > 1, sold, 'today')", "CASE WHEN n > 1 THEN sold ELSE 'today' END",
    "CASE sold WHEN 'today' THEN 1 END", "NULLIF(sold, 'today')", "ARRAY(sold, 'today')", "sold - 'today'",
    "'today' - sold", "sold + INTERVAL 1 DAY < 'today'",
    "(SELECT MAX(u.sold) FROM shop.sales AS u WHERE u.day = sale_day) < 'today'",
    "this_day < 'today'", "DATE_ADD(sold, 1) < 'Today UTC'", "DATE_ADD('now', 1)", "DATE_SUB('now', 1)",
    "ADD_MONTHS('now', 1)", "NEXT_DAY('now', 'MON')", "LAST_DAY('now')", "MONTHS_BETWEEN('now', sold)",
    "TRUNC('now', 'MM')", "DATE_TRUNC('DAY', 'now')", "TIMESTAMPADD(DAY, 1, 'now')", "TIMESTAMPDIFF(DAY, 'now', sold)",
    "DATE_FORMAT('now', 'yyyy')", "EXTRACT(YEAR FROM 'now')", "QUARTER('now')", "HOUR('now')", "MINUTE('now')",
    "SECOND('now')", "DAYNAME('now')", "MONTHNAME('now')", "CONVERT_TIMEZONE('UTC', 'now')", "WEEKDAY('now')",
    "DATE_PART('YEAR', 'now')", "TO_TIMESTAMP_NTZ('now')", "TO_TIMESTAMP_LTZ('now')", "YEAR('now')",
    "DATEDIFF('now', sold)", "TO_DATE('now')", "TO_TIMESTAMP('now')", "FROM_UTC_TIMESTAMP('now', 'UTC')",
]  # fmt: skip
TEXTS = [
    "product = 'now'", "product IN ('today', 'tea')", "COALESCE(product, 'today')", "IF(sold > seen, product, 'now')",
    "CASE WHEN sold > seen THEN 'now' ELSE 'later' END", "CASE sold WHEN DATE '2022-01-01' THEN 'today' END",
    "CONCAT(sold, 'now')", "CASE product WHEN 'now' THEN sold END", "UPPER('today')",
    "CASE WHEN product = 'now' THEN sold ELSE seen END",
]  # fmt: skip


def problems(expression: str, clauses: str = "") -> list[str]:
    sources = [
        source_of(SALES, "sales.sql"),
        source_of(OUT.format(expression=expression, clauses=clauses).encode(), "o"),
    ]
    return [problem.message for problem in usable(sources, {}).problems if "NULL in every row" not in problem.message]


@pytest.mark.parametrize("expression", CLOCKS)
def test_a_text_that_is_cast_to_a_moment_is_a_clock(expression: str) -> None:
    assert [message.partition(" so that")[0] for message in problems(expression)] != []
    assert all("depends on when it runs" in message for message in problems(expression))
    assert problems(expression, "ALLOW CLOCK") == []


@pytest.mark.parametrize("expression", TEXTS)
def test_a_text_that_stays_a_text_is_none(expression: str) -> None:
    assert problems(expression) == []


@pytest.mark.spark
def test_spark_casts_exactly_those(spark: SparkSession) -> None:
    def works(expression: str) -> bool:
        query = expression.replace("this_day", "DATE '2022-03-01'").replace("sale_day", "'2022-03-01'")
        query = query.replace("shop.sales AS u", ROWS.replace("AS s", "AS u"))
        try:
            spark.sql(f"SELECT CAST({query} AS STRING) AS x FROM {ROWS}").collect()
        except PySparkException as error:
            if error.getCondition() != "CAST_INVALID_INPUT":
                raise
            return False
        return True

    def no_day(expression: str) -> str:
        for word in ("today", "Today UTC", "now", "yesterday", "tomorrow"):
            expression = expression.replace(f"'{word}'", "'no day'")
        return expression

    assert [expression for expression in [*CLOCKS, *TEXTS] if not works(expression)] == []
    assert [expression for expression in CLOCKS if works(no_day(expression))] == []
    assert [expression for expression in TEXTS if not works(no_day(expression))] == []
