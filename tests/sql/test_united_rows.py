"""Rows of several queries over the same inputs, in one frame: in both modes of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from varve.sql.partitions.comprehension import scopes_of
from varve.sql.spark.execute import per_scope_rows, together_rows, union_all
from varve.sql.syntax.errors import SourceFile
from varve.sql.syntax.header import parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HEADER = """
CREATE DATASET t.x PARTITIONED BY (d STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01', END '2022-03-04') LET the_day = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (d = the_day) AS
"""
QUERIES = {
    "of the author": "SELECT a.id, y.price FROM t.a a LEFT JOIN LATERAL "
    "(SELECT b.product, b.price FROM t.b b WHERE b.day = a.day) y ON a.product = y.product WHERE a.day = the_day",
    "of ours": "SELECT x.id, y.price FROM (SELECT DISTINCT a.id, a.product FROM t.a a WHERE a.day = the_day) x "
    "LEFT JOIN (SELECT b.product, b.price FROM t.b b WHERE b.day = the_day) y ON x.product = y.product",
}
EXPECTED = [("2022-03-01", 1, 5), ("2022-03-02", 2, None), ("2022-03-02", 3, 7), ("2022-03-03", 4, None)]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("at_once", [1, 2])
def test_rows_of_joins_that_look_sideways_are_put_together(spark: SparkSession, query: str, at_once: int) -> None:
    a = [(1, "x", "2022-03-01"), (2, "x", "2022-03-02"), (3, "y", "2022-03-02"), (4, "y", "2022-03-03")]
    b = [("x", 5, "2022-03-01"), ("y", 7, "2022-03-02"), ("x", 9, "2022-03-03")]
    inputs = {
        "t.a": spark.createDataFrame(a, "id INT, product STRING, day STRING"),
        "t.b": spark.createDataFrame(b, "product STRING, price INT, day STRING"),
    }
    scopes = scopes_of(parse(SourceFile("t.sql", HEADER + QUERIES[query])))
    tree = scopes.dataset.query
    assert tree is not None
    each = [scopes.of(key) for key in scopes.partitioning.keys()]  # noqa: SIM118 - no dict
    if at_once == 1:
        rows = per_scope_rows(spark, scopes, tree, each, inputs)
    else:
        # Two runs of a query over some partitions, as a backfill of more than are asked for at once has them.
        halves = [together_rows(spark, scopes, tree, half, inputs) for half in (each[:2], each[2:])]
        rows = union_all([half for half in halves if half is not None])
    assert sorted(tuple(row) for row in rows.collect()) == EXPECTED
