"""What is asked of each row by itself: the keys of a set that data fill, and EXPECT."""

from __future__ import annotations

import pytest

from varve.model.partitions.dimension import DynamicDimension
from varve.sql.sql_project import usable
from varve.sql.syntax.errors import SourceFile

ORDERS = SourceFile(
    "orders.sql",
    "CREATE DATASET shop.orders (country STRING, customer STRUCT<country: STRING, active: BOOLEAN>) "
    "PARTITIONED BY (day STRING) FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2024-01-01') "
    "INSERT (day = DATE_FORMAT(t, 'yyyy-MM-dd')) EXTERNAL;",
)
SALES = """CREATE DATASET shop.sales (n BIGINT) PARTITIONED BY (country STRING)
FOR c IN DYNAMIC 'countries' FROM ({query})
INSERT (country = c) {clause}
AS SELECT COUNT(*) AS n FROM shop.orders WHERE orders.day = '2024-01-05' AND orders.country = c"""


def source_of(query: str) -> tuple[str, str]:
    """The key and the condition of the set, as they are kept."""
    files = usable([ORDERS, SourceFile("sales.sql", SALES.format(query=query, clause=""))], {})
    (dimension,) = files["shop.sales"].dataset.partitioning.dimensions
    assert isinstance(dimension, DynamicDimension)
    assert dimension.source is not None
    return dimension.source.expression, dimension.source.where


def problems_of(query: str, clause: str = "") -> list[str]:
    files = usable([ORDERS, SourceFile("sales.sql", SALES.format(query=query, clause=clause))], {})
    return [str(problem).splitlines()[0] for problem in files.problems]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT country FROM shop.orders", ("country", "")),
        ("SELECT orders.country FROM shop.orders", ("country", "")),
        ("SELECT shop.orders.country FROM shop.orders", ("country", "")),
        ("SELECT o.country FROM shop.orders o WHERE o.day > '2024'", ("country", "day > '2024'")),
        ("SELECT customer.country FROM shop.orders", ("customer.country", "")),
        (
            "SELECT o.customer.country FROM shop.orders AS o WHERE customer.active",
            ("customer.country", "customer.active"),
        ),
    ],
)
def test_a_field_of_a_struct_is_not_the_column_of_its_name(query: str, expected: tuple[str, str]) -> None:
    assert source_of(query) == expected


def test_of_a_path_the_column_must_be_there() -> None:
    (problem,) = problems_of("SELECT buyer.country FROM shop.orders")
    assert problem.endswith("shop.orders has no column buyer.")


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ("COUNT(*) > 0", "COUNT(*)"),
        ("n < 10 * AVG(n) OVER ()", "AVG(n)"),
        ("EVERY(n > 0)", "EVERY(n > 0)"),
        ("NOT ANY(n < 0)", "ANY(n < 0)"),
        ("n IS NULL OR MEAN(n) < 1000", "MEAN(n)"),
        ("TRY_SUM(n) > 3", "TRY_SUM(n)"),
    ],
)
def test_what_is_of_several_rows_is_no_expectation(condition: str, told: str) -> None:
    (problem,) = problems_of("SELECT country FROM shop.orders", f"EXPECT enough: {condition}")
    assert f"{told} is of several rows, and EXPECT enough is asked of each row by itself" in problem.replace(
        " OVER ()", ""
    )
