"""The queries of TPC-DS and TPC-H over small data: our rows are those of their text in a plain Spark session.

A literal of each query is made a variable, so that two scopes ask for different rows.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.sql.plain_session import SAME_NAME, Case, Report, compare
from tests.sql.short_tasks import one_short_task_each
from tests.sql.tpc import TABLES
from tests.sql.tpc_data import asked_values, queries, rows

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

# What is compared with a literal, the literal behind it; not one of LIMIT, of an interval or of a position.
_COMPARED = re.compile(
    r"""(?P<before>(?<![<>!\w])=\s*|\bBETWEEN\s+|\bIN\s*\(\s*|[<>]=?\s*)(?P<literal>'[^']*'|\d+)(?![\d.'])(?!\s*[-+*/])""",
    re.IGNORECASE,
)
HEADER = """CREATE DATASET t.out PARTITIONED BY (scope_ {kind})
FOR val_ IN ({first}, {second}) INSERT (scope_ = val_)
AS
"""


def case(name: str, text: str) -> Case:
    """A query with its first compared literal as a variable, in two scopes."""
    match = _COMPARED.search(text)
    if match is None or re.search(r"--|/\*", text[: match.start()]):
        header = HEADER.format(kind="BIGINT", first=1, second=2)
        return Case(text, {("1",): text, ("2",): text}, name, header)
    start, end = match.span("literal")
    literal = match["literal"]
    other_literal = (
        str(int(literal) + 1) if literal.isdecimal() else "'1998-02-02'" if re.match(r"'\d{4}-", literal) else "'a'"
    )
    header = HEADER.format(kind="BIGINT" if literal.isdecimal() else "STRING", first=literal, second=other_literal)
    plain = {(value.strip("'"),): f"{text[:start]}{value}{text[end:]}" for value in (literal, other_literal)}
    return Case(f"{text[:start]}:val_{text[end:]}", plain, f"{name} with {literal}", header)


def tables(spark: SparkSession, benchmark: str, only: Collection[str] = ()) -> dict[str, DataFrame]:
    spark.sql(f"DROP DATABASE IF EXISTS {benchmark} CASCADE")
    spark.sql(f"CREATE DATABASE {benchmark}")
    asked = asked_values(benchmark)
    names = only or TABLES[benchmark]
    for table in names:
        frame = spark.createDataFrame(rows(benchmark, table, asked), TABLES[benchmark][table])
        frame.coalesce(1).write.saveAsTable(f"{benchmark}.{table}", format="parquet")
    return {f"{benchmark}.{table}": spark.table(f"{benchmark}.{table}") for table in names}


def compared(spark: SparkSession, benchmark: str, inputs: dict[str, DataFrame], part: slice = slice(None)) -> Report:
    cases = [case(name, text) for name, text in queries(benchmark).items()]
    report = Report()
    with one_short_task_each(spark):
        # One job each: the optimizer takes more than ten minutes for all of them in one.
        for each in cases[part]:
            # Which of many equal rows LIMIT 100 leaves is nobody's to say.
            report += compare(spark, "", [replace(each, cut=100)], inputs)
    return report


def test_a_plan_in_which_spark_has_lost_the_scope_runs_scope_by_scope(spark: SparkSession) -> None:
    """A CTE of the scope, read by a query and by its correlated subquery: a job over all scopes failed while it ran."""
    inputs = tables(spark, "tpcds", only=["store_returns", "date_dim", "store", "customer"])
    with one_short_task_each(spark):
        report = compare(spark, "", [replace(case("q1", queries("tpcds")["q1"]), cut=100)], inputs)
    spark.sql("DROP DATABASE tpcds CASCADE")
    assert not report.wrong
    assert (report.compared, report.together, report.with_rows) == (1, 0, 1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("benchmark", "count"), [("tpch", 22), ("tpcds", 103)])
def test_rows_are_those_of_the_benchmarks_text(
    spark: SparkSession, benchmark: str, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(queries(benchmark)) == count
    report = compared(spark, benchmark, tables(spark, benchmark))
    spark.sql(f"DROP DATABASE {benchmark} CASCADE")
    with capsys.disabled():
        print(f"\n{benchmark}: {report}")  # noqa: T201
    assert not report.wrong, "\n".join(report.wrong)
    # Of TPC-DS: 14b, 39a, 39b and 64.
    assert report.refused == ({SAME_NAME: 4} if benchmark == "tpcds" else {})
    assert report.compared == count - sum(report.refused.values())
    assert report.with_rows > count / 2
