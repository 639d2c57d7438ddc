"""Random queries with names that collide on purpose: our rows are those of the author's text in a plain session."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

import pytest

from tests.sql.colliding import TABLES, random_queries, table_rows
from tests.sql.constructs import words
from tests.sql.plain_session import Case, Report, compare
from tests.sql.short_tasks import one_short_task_each

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

HEADER = """CREATE DATASET t.out PARTITIONED BY (d STRING, s STRING)
FOR moment IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01', END '2022-03-04'), shop IN ('O''Brien', "L'Aquila")
LET the_day = DATE_FORMAT(moment, 'yyyy-MM-dd'), num = DAY(moment)
INSERT (d = the_day, s = shop)
AS
"""
# Few queries that have every construct between them; `make torture` asks thousands.
QUERIES, SEED = 32, 370
SCOPES = {("2022-03-01", "O'Brien"): 1, ("2022-03-02", "L'Aquila"): 2, ("2022-03-01", "L'Aquila"): 1}
# The queries of the suite have two scopes, in turn without a value in common and on one day; `make torture` has all.
FIRST, APART, SAME_DAY = SCOPES
PAIRS = [{scope: SCOPES[scope] for scope in (FIRST, other)} for other in (APART, SAME_DAY)]


# Names of another type than was meant must not end a whole job; and where a semi join reads fields of structs, Spark
# 4.3 looks for columns that it has pruned, whoever asks.
SETTINGS = {"spark.sql.ansi.enabled": "false", "spark.sql.optimizer.nestedSchemaPruning.enabled": "false"}


def case(
    template: str, place: int, *, is_bare: bool | None = None, scopes: Mapping[tuple[str, str], int] = SCOPES
) -> Case:
    """A query with its variables bare or with a colon, and the plain texts with their values."""
    draw = random.Random(place)
    # Most bare names are refused, as a column may have them too.
    colons = ["", ":", ":"] if (draw.random() < 0.15 if is_bare is None else is_bare) else [":"]
    query = re.sub(r"<<(\w+)>>", lambda match: draw.choice(colons) + match[1], template)
    plain = {}
    for (day, shop), number in scopes.items():
        values = {"the_day": f"'{day}'", "shop": f'"{shop}"', "num": f"INT('{number}')"}
        plain[day, shop] = re.sub(r"<<(\w+)>>", lambda match, of=values: of[match[1]], template)
    return Case(query, plain, f"query {place}: {template}")


@pytest.fixture(scope="module")
def inputs(spark: SparkSession) -> Iterator[dict[str, DataFrame]]:
    yield tables(spark)
    spark.sql("DROP DATABASE collide CASCADE")


def tables(spark: SparkSession) -> dict[str, DataFrame]:
    """The tables of the database `collide`, of which a plain session reads too."""
    spark.sql("DROP DATABASE IF EXISTS collide CASCADE")
    spark.sql("CREATE DATABASE collide")
    for name, columns in TABLES.items():
        kinds = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        spark.createDataFrame(table_rows(name), kinds).coalesce(1).write.saveAsTable(
            f"collide.{name}", format="parquet"
        )
    return {f"collide.{name}": spark.table(f"collide.{name}") for name in TABLES}


def compared(
    spark: SparkSession,
    inputs: dict[str, DataFrame],
    count: int,
    seed: int,
    scopes: Sequence[Mapping[tuple[str, str], int]],
) -> Report:
    """Report on so many random queries, which take turns with the scopes."""
    queries = random_queries(count, seed)
    with one_short_task_each(spark, SETTINGS):
        cases = [case(query, place, scopes=scopes[place % len(scopes)]) for place, query in enumerate(queries)]
        return compare(spark, HEADER, cases, inputs)


def test_the_queries_of_the_suite_have_every_construct_of_thousands() -> None:
    assert words(random_queries(QUERIES, SEED)) == words(random_queries(3_000, seed=1))


def test_random_queries_give_the_rows_of_plain_spark(
    spark: SparkSession, inputs: dict[str, DataFrame], capsys: pytest.CaptureFixture[str]
) -> None:
    report = compared(spark, inputs, QUERIES, SEED, PAIRS)
    with capsys.disabled():
        print(f"\n{report}")  # noqa: T201
    assert not report.wrong, "\n".join(report.wrong)
    assert report.compared > QUERIES / 3
    assert report.together > report.compared / 3


@pytest.mark.slow
@pytest.mark.timeout(2_400)
@pytest.mark.parametrize("seed", range(10))
def test_thousands_of_random_queries_do(
    spark: SparkSession, inputs: dict[str, DataFrame], seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    report = compared(spark, inputs, 300, seed, [SCOPES])
    with capsys.disabled():
        print(f"\n{report}")  # noqa: T201
    assert not report.wrong, "\n".join(report.wrong)
    assert report.compared > 100
