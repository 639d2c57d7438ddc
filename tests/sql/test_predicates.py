"""More than 500 conditions: nothing that matters is left out, and hardly more is planned than Spark opens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sql.predicates import conditions
from tests.sql.test_soundness import (
    ASKED,
    check,
    files,  # noqa: F401 - a fixture
    planned,
    tables,  # noqa: F401 - a fixture
    whole,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
# So much more than Spark's own pruning may be planned, over the whole suite.
MOST = 1.05


def test_there_are_five_hundred_of_them() -> None:
    assert len(set(conditions())) >= 500


@pytest.mark.usefixtures("tables")
def test_an_eighth_of_them_reads_enough(spark: SparkSession) -> None:
    queries = conditions()[::8]
    check(spark, queries, [[place % 2] for place in range(len(queries))], asking=True)


@pytest.mark.slow
@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("scope", [0, 1])
def test_each_of_them_reads_enough(spark: SparkSession, scope: int) -> None:
    queries = conditions()
    check(spark, queries, [[scope]] * len(queries), asking=True)


def tightness(spark: SparkSession, queries: list[str]) -> tuple[int, int, list[str]]:
    """Partitions planned and opened by Spark, over all queries, and the queries of which more are planned."""
    ours = theirs = 0
    wider = []
    # What the metastore cannot filter by, Spark prunes by itself then, as it does over tables of files.
    spark.conf.set("spark.sql.hive.metastorePartitionPruningFallbackOnException", "true")
    for query in queries:
        _, reads, _ = planned(query, spark)
        opened = {file.rpartition("/")[0] for file in spark.sql(whole(query, 0, "f")).inputFiles()}
        keys = {
            (scan_reading.scan.dataset, key.path)
            for scan_reading in reads
            for box in scan_reading.boxes(0)
            for key in box.partitions()
        }
        ours, theirs = ours + len(keys), theirs + len(opened)
        if len(keys) > len(opened):
            wider.append(f"{len(keys)} / {len(opened)}: {query}")
    return ours, theirs, wider


@pytest.mark.usefixtures("files")
def test_a_sample_is_planned_as_tightly_as_spark_prunes(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    report_tightness(capsys, *tightness(spark, conditions()[::12]))


@pytest.mark.slow
@pytest.mark.usefixtures("files")
def test_all_are_planned_as_tightly_as_spark_prunes(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    report_tightness(capsys, *tightness(spark, conditions()))


def report_tightness(capsys: pytest.CaptureFixture[str], ours: int, theirs: int, wider: list[str]) -> None:
    asked = sorted(set(ASKED))
    with capsys.disabled():
        print(f"\nSpark was asked for {len(asked)} calls:", *asked, sep="\n")  # noqa: T201
        print(f"\npartitions planned / opened by Spark: {ours} / {theirs} = {ours / theirs:.3f}", *wider, sep="\n")  # noqa: T201
    assert ours <= theirs * MOST, "\n".join(wider)
