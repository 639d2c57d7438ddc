"""What Spark's analyzer has against files: types that only it can tell, functions that it does not know."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline_defs.sql.analysed import analysed
from pipeline_defs.sql.errors import Source
from pipeline_defs.sql.project import compiled, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[3]
HEAD = """CREATE DATASET b.{name} ({columns})
PARTITIONED BY (day STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01')
LET today = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (day = today)
"""
EXTERNAL = HEAD.format(name="root", columns="words ARRAY<STRING>, nb INT") + "EXTERNAL"


def said(spark: SparkSession, columns: str, body: str) -> list[tuple[str, str]]:
    files = [Source("root.sql", EXTERNAL), Source("one.sql", HEAD.format(name="one", columns=columns) + body)]
    found = compiled(files, {})
    assert analysed(spark, found["b.root"]) == []
    return [(each.place, each.message) for each in analysed(spark, found["b.one"])]


def test_the_shipped_pipeline_and_the_example_are_what_spark_says(spark: SparkSession) -> None:
    for folder in (ROOT / "assets", ROOT / "docs" / "examples" / "bigdataflow"):
        assert [problem for found in load(folder).values() for problem in analysed(spark, found)] == []


def test_a_type_that_only_spark_can_tell_is_compared_with_the_declared_one(spark: SparkSession) -> None:
    body = "AS SELECT TRANSFORM(words, w -> LENGTH(w)) AS long FROM b.root WHERE root.day = today"
    assert said(spark, "long ARRAY<INT>", body) == []
    ((place, message),) = said(spark, "long ARRAY<STRING>", body)
    assert place == "one.sql:1:23"
    assert "long is declared ARRAY<STRING>, but Spark says that the query gives ARRAY<INT>" in message


def test_what_spark_refuses_is_told_in_its_words_at_the_query(spark: SparkSession) -> None:
    ((place, message),) = said(spark, "n INT", "AS SELECT NO_SUCH_FUNCTION(nb) AS n FROM b.root WHERE root.day = today")
    assert place == "one.sql:6:11"
    assert "Spark has no function NO_SUCH_FUNCTION" in message
    body = "AS SELECT nb AS n, 'O''Brien' AS o\n  , UPPR(today)\n AS u FROM b.root WHERE root.day = :today"
    ((place, message),) = said(spark, "n INT, o STRING, u STRING", body)
    assert place == "one.sql:7:5"
    assert "Did you mean upper?" in message
    body = "AS SELECT\n  nb + today + ARRAY(nb) AS n FROM b.root WHERE root.day = today"
    ((place, message),) = said(spark, "n INT", body)
    assert place.startswith("one.sql:7:3")
    assert "varve_check" not in message


def test_an_expectation_that_spark_does_not_understand_is_told(spark: SparkSession) -> None:
    query = "AS SELECT nb FROM b.root WHERE root.day = today"
    ((place, message),) = said(spark, "nb INT", f"EXPECT few: nubmer < 3\n{query}")
    assert place.startswith("one.sql:6:")
    assert "nubmer" in message
    ((_, message),) = said(spark, "nb INT", f"EXPECT few: nb + 1\n{query}")
    assert "few is INT" in message


def test_the_inputs_of_a_foreign_function_are_looked_at_too(spark: SparkSession) -> None:
    ((_, message),) = said(
        spark, "nb INT",
        "PYTHON 'assets.carrier_model:fit' USING x AS (SELECT NO_SUCH(nb) AS n FROM b.root WHERE root.day = today)",
    )  # fmt: skip
    assert "Spark has no function NO_SUCH." in message
