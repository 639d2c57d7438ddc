"""What Spark's analyzer has against files: types that only it can tell, functions that it does not know."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from varve.cli.files import sql as sql_command
from varve.model.partitions.key import PartitionKey
from varve.sql.spark.analysis import analysis_problems
from varve.sql.spark.execute import rows_of
from varve.sql.sql_project import compiled, load
from varve.sql.syntax.errors import SourceFile, SqlError, SqlErrors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
HEAD = """CREATE DATASET b.{name} ({columns})
PARTITIONED BY (day STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01')
LET today = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (day = today)
"""
EXTERNAL = HEAD.format(name="root", columns="words ARRAY<STRING>, nb INT") + "EXTERNAL"


def spark_problems(spark: SparkSession, columns: str, body: str) -> list[tuple[str, str]]:
    files = [SourceFile("root.sql", EXTERNAL), SourceFile("one.sql", HEAD.format(name="one", columns=columns) + body)]
    assets = compiled(files, {})
    assert analysis_problems(spark, assets["b.root"]) == []
    return [(problem.place, problem.message) for problem in analysis_problems(spark, assets["b.one"])]


def test_the_shipped_pipeline_and_the_example_are_what_spark_says(spark: SparkSession) -> None:
    for folder in (ROOT / "assets", ROOT / "docs" / "examples" / "bigdataflow"):
        assert [problem for asset in load(folder).values() for problem in analysis_problems(spark, asset)] == []


def test_a_type_that_only_spark_can_tell_is_compared_with_the_declared_one(spark: SparkSession) -> None:
    body = "AS SELECT TRANSFORM(words, w -> LENGTH(w)) AS long FROM b.root WHERE root.day = today"
    assert spark_problems(spark, "long ARRAY<INT>", body) == []
    ((place, message),) = spark_problems(spark, "long ARRAY<STRING>", body)
    assert place == "one.sql:1:23"
    assert "long is declared ARRAY<STRING>, but Spark says that the query gives ARRAY<INT>" in message


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("today COLLATE UTF8_LCASE", "STRING COLLATE UTF8_LCASE"),
        ("ARRAY(today COLLATE UTF8_LCASE)", "ARRAY<STRING COLLATE UTF8_LCASE>"),
        ("PARSE_JSON('[1]')", "VARIANT"),
        ("MAKE_DT_INTERVAL(nb)", "INTERVAL DAY TO SECOND"),
    ],
)
def test_a_column_of_a_type_that_no_store_has_is_told_at_its_place(
    spark: SparkSession, expression: str, kind: str
) -> None:
    body = f"AS SELECT {expression} AS odd FROM b.root WHERE root.day = today"
    ((place, message),) = spark_problems(spark, "odd STRING", body)
    assert (place, message) == (
        "one.sql:1:23",
        f"odd is {kind} to Spark, and no store has columns of this type; write CAST(... AS STRING) AS odd.",
    )


def test_what_spark_refuses_is_told_in_its_words_at_the_query(spark: SparkSession) -> None:
    ((place, message),) = spark_problems(
        spark, "n INT", "AS SELECT NO_SUCH_FUNCTION(nb) AS n FROM b.root WHERE root.day = today"
    )
    assert place == "one.sql:6:11"
    assert "Spark has no function NO_SUCH_FUNCTION" in message
    body = "AS SELECT nb AS n, 'O''Brien' AS o\n  , UPPR(today)\n AS u FROM b.root WHERE root.day = :today"
    ((place, message),) = spark_problems(spark, "n INT, o STRING, u STRING", body)
    assert place == "one.sql:7:5"
    assert "Did you mean upper?" in message
    body = "AS SELECT\n  nb + today + ARRAY(nb) AS n FROM b.root WHERE root.day = today"
    ((place, message),) = spark_problems(spark, "n INT", body)
    assert place.startswith("one.sql:7:3")
    assert "varve_check" not in message


def test_an_expectation_that_spark_does_not_understand_is_told(spark: SparkSession) -> None:
    query = "AS SELECT nb FROM b.root WHERE root.day = today"
    ((place, message),) = spark_problems(spark, "nb INT", f"EXPECT few: nb < 3 AND\n  LENGHT(day) = 10\n{query}")
    assert place == "one.sql:7:3"
    assert "Spark has no function LENGHT. Did you mean length?" in message
    ((_, message),) = spark_problems(spark, "nb INT", f"EXPECT few: nb + 1\n{query}")
    assert "few is INT" in message


@pytest.mark.parametrize("condition", ["SIZE(HISTOGRAM_NUMERIC(nb, 5)) > 0", "EXPLODE(ARRAY(nb > 0, nb > 1))"])
def test_an_expectation_that_spark_computes_of_several_rows_is_told(spark: SparkSession, condition: str) -> None:
    query = "AS SELECT nb FROM b.root WHERE root.day = today"
    ((place, message),) = spark_problems(spark, "nb INT", f"EXPECT few: {condition}\n{query}")
    assert place.startswith("one.sql:6:")
    assert message.startswith("EXPECT few is asked of each row by itself, and this is of several rows.")
    assert spark_problems(spark, "nb INT", f"EXPECT few: ARRAY_MAX(ARRAY(nb, 1)) < 3 OR RAND() < 2\n{query}") == []


def test_the_inputs_of_a_foreign_function_are_looked_at_too(spark: SparkSession) -> None:
    ((_, message),) = spark_problems(
        spark, "nb INT",
        "PYTHON 'assets.carrier_model:fit' USING x AS (SELECT NO_SUCH(nb) AS n FROM b.root WHERE root.day = today)",
    )  # fmt: skip
    assert "Spark has no function NO_SUCH." in message


def test_what_spark_refuses_in_a_run_stands_at_its_place_in_the_file(spark: SparkSession) -> None:
    body = "AS SELECT nb,\n  UPPR(today) AS n FROM b.root WHERE root.day = today"
    files = [
        SourceFile("root.sql", EXTERNAL),
        SourceFile("one.sql", HEAD.format(name="one", columns="nb INT, n STRING") + body),
    ]
    asset = compiled(files, {})["b.one"]
    rows = spark.createDataFrame([], "words ARRAY<STRING>, nb INT, day STRING")
    keys = [PartitionKey.of(day=f"2022-03-0{day}") for day in (1, 2)]
    assert asset.sql.query is not None
    with pytest.raises(SqlError) as caught:
        rows_of(spark, asset.scopes, asset.sql.query, keys, {"b.root": rows})
    assert str(caught.value).splitlines() == [
        "one.sql:7:3: Spark has no function UPPR. Did you mean upper?",
        "      UPPR(today) AS n FROM b.root WHERE root.day = today",
        "      ^^^^^^^^^^^",
    ]


def test_columns_that_only_spark_can_tell_are_asked_once_and_need_no_declaration(
    spark: SparkSession, settings: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "assets"
    folder.mkdir()
    head = HEAD.replace("({columns})", "")
    pivot = (
        "AS SELECT * FROM (SELECT nb, SIZE(words) AS n FROM b.root WHERE root.day = today) "
        "PIVOT (SUM(n) FOR nb IN (1 AS a, 2 AS b))"
    )
    texts = {
        "root": EXTERNAL,
        "pivot": head.format(name="pivot") + pivot,
        "reader": head.format(name="reader")
        + "AS SELECT a AS one, GROUPING(a) AS g FROM b.pivot WHERE pivot.day = today "
        "GROUP BY ROLLUP(a)",
    }
    for name, text in texts.items():
        (folder / f"{name}.sql").write_text(text)
    with pytest.raises(SqlErrors, match="only Spark can tell the type of a, b, and was not asked"):
        load(folder)
    monkeypatch.setattr("varve.services.spark.open_session", lambda _: spark)
    sql_command.check(Console(file=io.StringIO()), folder, as_json=False)
    monkeypatch.setattr("varve.services.spark.open_session", lambda _: pytest.fail("Spark was asked again"))
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    assets = load(folder)
    types = {name: {column.name: str(column.type) for column in assets[name].dataset.schema.columns} for name in assets}
    assert types["b.pivot"] == {"a": "BIGINT", "b": "BIGINT"}
    assert types["b.reader"] == {"one": "BIGINT", "g": "TINYINT"}
    # Another query is another question.
    (folder / "pivot.sql").write_text(texts["pivot"].replace("SUM(n)", "AVG(n)"))
    with pytest.raises(SqlErrors, match="only Spark can tell"):
        load(folder)
