# ruff: noqa: E501 - queries and sentences, one a line
"""Errors that rows cause while they are written: one sentence, at the place of the author's text, in each form of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from varve.sql.partitions.comprehension import scopes_of
from varve.sql.partitions.read_values import ReadValues
from varve.sql.spark.execute import rows_of
from varve.sql.spark.run_errors import run_message, run_problem
from varve.sql.syntax.errors import SourceFile
from varve.sql.syntax.header import parse
from varve.stores.frames import spark_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HEADER = """CREATE DATASET t.out PARTITIONED BY (d STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-20', END '2026-11-23')
LET the_day = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (d = the_day)
AS
"""
COLUMNS = {"t.a": ["day", "s", "n", "zero", "items"], "t.b": ["day", "m"]}
# The query, what is marked in it, and the end of the sentence.
CASES = [
    ("SELECT s,\n  CAST(a.s AS INT) AS n FROM t.a WHERE a.day = the_day", "CAST(a.s AS INT)",
     "the value 'bread' cannot be read as INT. Write TRY_CAST(... AS INT), which gives NULL for it, or leave such rows out."),
    ("SELECT u.n FROM t.a u JOIN t.b w ON u.day = w.day\nWHERE u.day = the_day AND u.n / u.zero > w.m", "u.n / u.zero",
     "a division by zero. Write TRY_DIVIDE(a, b), or a / NULLIF(b, 0), which give NULL for it."),
    ("SELECT SUM(n) AS n,\n MAX(DATE_ADD(the_day, CAST(s AS INT))) AS x FROM t.a WHERE day = the_day GROUP BY zero",
     "CAST(s AS INT)", "the value 'bread' cannot be read as INT."),
    ("SELECT a.n, (SELECT m FROM t.b) AS m FROM t.a WHERE a.day = the_day", "(SELECT m FROM t.b)",
     "has more than one row. Write an aggregate such as MAX, or LIMIT 1 behind an ORDER BY."),
    ("SELECT items[5] AS x FROM t.a WHERE day = :the_day", "items[5]",
     "the array has 2 elements, and was asked for the one at 5. Write GET(array, index), which gives NULL where there is none."),
    ("SELECT ELEMENT_AT(items, 3) AS x FROM t.a WHERE day = :the_day", "ELEMENT_AT(items, 3)", "TRY_ELEMENT_AT(array, index)"),
    ("SELECT CAST(n * 1000 AS DECIMAL(3, 1)) AS x FROM t.a WHERE day = the_day", "CAST(n * 1000 AS DECIMAL(3, 1))",
     "the value 1000 does not fit into DECIMAL(3, 1)."),
    ("SELECT CAST(n AS INT) + 2147483647 AS x FROM t.a WHERE day = the_day", "CAST(n AS INT) + 2147483647",
     "the result does not fit into its type. CAST to a wider one before counting, such as BIGINT or DECIMAL(38, 0)"),
    ("SELECT CAST(n + 2147483647 AS INT) + n AS x FROM t.a WHERE day = the_day", "CAST(n + 2147483647 AS INT) + n",
     "the result does not fit into its type. CAST to a wider one before counting, such as BIGINT or DECIMAL(38, 0)"),
    # Spark gives no place for these.
    ("SELECT RAISE_ERROR('no ' || s) AS x FROM t.a WHERE day = the_day", "", "shop.sql: it says: no bread"),
    ("SELECT TO_TIMESTAMP(s, 'yyyy') AS x FROM t.a WHERE day = the_day", "",
     "shop.sql: Text 'bread' could not be parsed at index 0. TRY_TO_TIMESTAMP gives NULL for a text of another format."),
    ("SELECT CAST(n * 1000 AS TINYINT) AS x FROM t.a WHERE day = the_day", "", "the value 1000 of type INT does not fit into TINYINT."),
]  # fmt: skip

# Over the rows of one partition, which are here few and known, Spark finds the sum within that already does not fit;
# over many it names the sum into which its optimizer has put both.
INNER = {"CAST(n + 2147483647 AS INT) + n": "n + 2147483647"}


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize(("query", "marked", "sentence"), CASES)
def test_rows_that_break_a_query_are_told_at_their_place(
    spark: SparkSession, query: str, marked: str, sentence: str, partitions: int
) -> None:
    scopes = scopes_of(parse(SourceFile("shop.sql", HEADER + query)))
    keys = list(scopes.partitioning.keys())[:partitions]
    rows = [(key["d"], "bread", 1, 0, [1, 2]) for key in keys]
    inputs = {
        "t.a": spark.createDataFrame(rows, "day string, s string, n int, zero int, items array<int>"),
        "t.b": spark.createDataFrame([(key["d"], m) for key in keys for m in (1, 2)], "day string, m int"),
    }
    tree = scopes.dataset.query
    assert tree is not None
    with pytest.raises(spark_errors()) as caught:
        rows_of(spark, scopes, tree, keys, inputs).write.format("noop").mode("overwrite").save()
    problem = run_problem(caught.value, scopes, keys, COLUMNS)
    message, *excerpt = problem.splitlines()
    assert sentence in message
    assert bool(excerpt) == bool(marked)
    if marked:
        line, carets = excerpt
        expected = INNER.get(marked, marked) if partitions == 1 else marked
        assert line[carets.index("^") : carets.index("^") + carets.count("^")] == expected
        number = HEADER.count("\n") + query[: query.index(marked)].count("\n") + 1
        assert message.startswith(f"shop.sql:{number}:{carets.index('^') - 3}: ")


def test_a_frame_of_python_is_told_by_its_call(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("bread",)], "s string").selectExpr("s")
    with pytest.raises(spark_errors()) as caught:
        frame.select(frame["s"].cast("int")).write.format("noop").mode("overwrite").save()
    assert run_message(caught.value).startswith("tests/sql/test_run_errors.py:")
    assert run_message(caught.value).partition(": ")[2].startswith("the value 'bread' cannot be read as INT.")


def test_an_error_that_no_row_has_caused_is_left_as_it_is() -> None:
    assert not run_message(ValueError("x"))


def test_so_are_they_where_the_scopes_are_joined_with_what_they_read(spark: SparkSession) -> None:
    query = "SELECT n DIV zero AS x FROM t.a WHERE day BETWEEN DATE_SUB(:the_day, 1) AND :the_day"
    scopes = scopes_of(parse(SourceFile("shop.sql", HEADER + query)))
    keys = list(scopes.partitioning.keys())[:3]
    days = [str(key["d"]) for key in keys]
    read = ReadValues(
        {"day": "string"}, tuple(tuple((day,) for day in days[max(0, at - 1) : at + 1]) for at in range(3))
    )
    rows = spark.createDataFrame(
        [(day, "bread", 1, 0, [1]) for day in days], "day string, s string, n int, zero int, items array<int>"
    )
    tree = scopes.dataset.query
    assert tree is not None
    with pytest.raises(spark_errors()) as caught:
        rows_of(spark, scopes, tree, keys, {"t.a": rows}, read={"t.a": read}).collect()
    problem = run_problem(caught.value, scopes, keys, COLUMNS, [{}, {"t.a": ("day",)}])
    assert problem.splitlines()[-1].strip() == "^" * len("n DIV zero")
    assert problem.startswith("shop.sql:")
    assert "a division by zero" in problem
