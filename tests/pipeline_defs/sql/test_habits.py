"""Mistakes of people who come from another SQL, each told at its place with what to write."""

from __future__ import annotations

import pytest

from pipeline_defs.sql.errors import Source, SqlErrors
from pipeline_defs.sql.project import compiled

SALES = """CREATE DATASET shop.sales (id INT, price DOUBLE, product STRING) PARTITIONED BY (day STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01') LET day = DATE_FORMAT(t, 'yyyy-MM-dd') EXTERNAL"""
HEAD = """CREATE DATASET shop.out PARTITIONED BY (day STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01') LET today = DATE_FORMAT(t, 'yyyy-MM-dd') INSERT (day = today)
AS
"""
MINE = "FROM shop.sales WHERE sales.day = today"


def problems(query: str) -> list[tuple[str, str]]:
    try:
        compiled([Source("a.sql", SALES), Source("b.sql", HEAD + query)], {})
    except SqlErrors as error:
        return [(each.place, each.message) for each in error.problems]
    return []


@pytest.mark.parametrize(
    ("query", "place", "message"),
    [
        (f"SELECT COUNT(*) {MINE}", "b.sql:4:8", "COUNT(*) has no name; add AS and one."),
        (f"SELECT id\n  price product {MINE}", "b.sql:5:9", "Is a comma missing before it?"),
        ("SELECT id FROM {{ ref('sales') }}", "b.sql:4:16", "this is a template"),
        (f"SELECT id {MINE} {{% if x %}}", "b.sql:4:51", "this is a template"),
        (f"SELECT IFF(id > 1, 1, 2) AS x {MINE}", "b.sql:4:", "write IF(condition, then, else)."),
        ("SELECT x FROM UNNEST(ARRAY(1, 2)) AS x", "b.sql:4:", "write LATERAL VIEW EXPLODE(values) e AS value."),
        ("SELECT id FROM `shop.sales` WHERE day = today", "b.sql:4:16", "write shop.sales without them."),
        ("SELECT id FROM IDENTIFIER('shop.sales')", "b.sql:4:", "must stand in the text"),
        (f"SELECT ENCODE(product, 'utf-8') AS x {MINE}", "b.sql:1:16", "only Spark knows the type of"),
        (f"SELECT id -- so \\\n {MINE}", "b.sql:4:11", "goes on in the next line"),
    ],
)  # fmt: skip
def test_a_habit_is_told_at_its_place(query: str, place: str, message: str) -> None:
    found = problems(query)
    assert any(at.startswith(place) and message in told for at, told in found), found


def test_a_hint_is_no_table() -> None:
    query = "SELECT /*+ BROADCAST(b) */ a.id, b.price FROM shop.sales a JOIN shop.sales b ON a.id = b.id "
    assert problems(f"{query} WHERE a.day = today AND b.day = today") == []


def test_braces_in_a_text_are_no_template() -> None:
    assert problems(f"SELECT id, '{{{{x}}}} ${{y}}' AS text /* {{{{ }}}} */ {MINE}") == []
