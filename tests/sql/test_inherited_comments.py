"""A column that a query passes on as it is means what it meant: it has the comment of the column that it copies."""

from __future__ import annotations

import pytest

from varve.sql.cache import Cache
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile

HEAD = """CREATE DATASET shop.{} {}
PARTITIONED BY (day STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01')
LET today = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (day = today)
{}
"""
PRODUCTS = "(product STRING COMMENT 'what was sold', price DOUBLE COMMENT 'euros', pieces INT)"
JOINED = """SELECT s.product, r.product AS again FROM shop.sales s
LEFT JOIN shop.returns r ON r.product = s.product AND r.day = s.day WHERE s.day = today"""
BOTH = """SELECT product, price FROM shop.sales WHERE day = today
UNION ALL SELECT product, price FROM shop.returns WHERE day = today"""
RETURNS = "(product STRING COMMENT 'what came back', price DOUBLE COMMENT 'euros')"


def comments(query: str, *, columns: str = "", cache: Cache | None = None, products: str = PRODUCTS) -> dict[str, str]:
    """The comments of the columns of a dataset that reads one with this query."""
    texts = [
        HEAD.format("sales", products, "EXTERNAL"),
        HEAD.format("returns", RETURNS, "EXTERNAL"),
        HEAD.format("middle", "", f"AS {query}"),
        HEAD.format("out", columns, "AS SELECT * EXCEPT (day) FROM shop.middle WHERE middle.day = today"),
    ]
    sources = [SourceFile(f"{place}.sql", text) for place, text in enumerate(texts)]
    files = compiled(sources, {}, cache or Cache())
    return {column.name: column.comment for column in files["shop.out"].dataset.schema.columns}


@pytest.mark.parametrize(
    ("query", "inherited"),
    [
        ("SELECT product, price AS cost FROM shop.sales WHERE day = today",
         {"product": "what was sold", "cost": "euros"}),
        ("SELECT UPPER(product) AS product, SUM(price) AS price FROM shop.sales WHERE day = today GROUP BY product",
         {"product": "", "price": ""}),
        ("SELECT product, SUM(price) AS price FROM shop.sales WHERE day = today GROUP BY product",
         {"product": "what was sold", "price": ""}),
        ("WITH a AS (SELECT product p FROM shop.sales WHERE day = today) SELECT x.p AS goods FROM (SELECT p FROM a) x",
         {"goods": "what was sold"}),
        (JOINED, {"product": "what was sold", "again": "what came back"}),
        (BOTH, {"product": "", "price": "euros"}),
        ("SELECT product FROM shop.sales WHERE day = today UNION ALL SELECT 'none' AS product", {"product": ""}),
        ("SELECT pieces, today AS sold_on FROM shop.sales WHERE day = today", {"pieces": "", "sold_on": ""}),
    ],
)  # fmt: skip
def test_what_is_passed_on_as_it_is_keeps_its_comment(query: str, inherited: dict[str, str]) -> None:
    assert comments(query) == inherited


QUERY = "SELECT product, price FROM shop.sales WHERE day = today"


def test_a_comment_that_is_written_goes_before_an_inherited_one() -> None:
    written = "(product STRING COMMENT 'its name', price DOUBLE)"
    assert comments(QUERY, columns=written) == {"product": "its name", "price": "euros"}


def test_another_comment_reaches_the_readers_of_files_that_have_not_changed() -> None:
    cache = Cache()
    assert comments(QUERY, cache=cache)["price"] == "euros"
    assert comments(QUERY, cache=cache, products=PRODUCTS.replace("euros", "dollars"))["price"] == "dollars"
