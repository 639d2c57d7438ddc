# ruff: noqa: E501 - queries, one a line
"""What Spark gets is the text of the file, character by character, but for the names that a run puts in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from varve.sql.names.written_query import text_of, written_query
from varve.sql.partitions.comprehension import scopes_of
from varve.sql.spark.execute import shared_query_forms, single_scope_query
from varve.sql.spark.scope_join import ScopeNames
from varve.sql.syntax.errors import SourceFile
from varve.sql.syntax.header import parse

if TYPE_CHECKING:
    from varve.sql.spark.scope_join import ReadColumns

HEADER = """CREATE DATASET t.out PARTITIONED BY (d STRING, s STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01', END '2022-03-03'), shop IN ('O\\'Brien')
LET the_day = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (d = the_day, s = shop)
AS
"""
COLUMNS = {"t.a": ["id", "st", "day", "store", "items"], "t.b": ["id", "price", "day"]}
DAY, SHOP = "CAST('2022-03-01' AS STRING)", "CAST('O\\'Brien' AS STRING)"


def texts(query: str, read: ReadColumns | None = None) -> tuple[str, list[str]]:
    """What runs for the first scope, and for all of them in each of the forms; datasets are called <db.table>."""
    scopes = scopes_of(parse(SourceFile("t.sql", HEADER + query)))
    tree = scopes.dataset.query
    assert tree is not None
    text = written_query(scopes.dataset, tree, COLUMNS.get)
    names = ScopeNames.beside(text.text, scopes.partitioning.names)
    shared_texts = [text_of(pieces, "<{}>".format) for pieces in shared_query_forms(text, names, read)]
    return text_of(single_scope_query(text, scopes.of(scopes.sample)), "<{}>".format), shared_texts


@pytest.mark.parametrize(
    ("query", "runs"),
    [
        ("SELECT  'O''Brien' AS x, r'\\d' AS y /* the_day */ -- :shop\n, -128Y AS z FROM t.a WHERE a.day = :the_day",
         f"SELECT  'O''Brien' AS x, r'\\d' AS y /* the_day */ -- :shop\n, -128Y AS z FROM <t.a> AS `a` WHERE a.day = {DAY}"),
        ("SELECT 'varve_input_0 {varve_input_0} {' AS x FROM t.a u WHERE day = the_day",
         f"SELECT 'varve_input_0 {{varve_input_0}} {{' AS x FROM <t.a> u WHERE day = {DAY}"),
        ("SELECT u.st.a FROM t.a u JOIN t.b st ON u.id = st.id", "SELECT u.st.a FROM <t.a> u JOIN <t.b> st ON u.id = st.id"),
        ("SELECT t.a.id, t.a.st.x, t.a.* FROM t.a", "SELECT a.id, a.st.x, a.* FROM <t.a> AS `a`"),
        ("SELECT t.a.x FROM t.b t JOIN t.a z ON t.id = z.id", "SELECT t.a.x FROM <t.b> t JOIN <t.a> z ON t.id = z.id"),
        ("SELECT /*+ BROADCAST(b), MERGE(a) */ b.id FROM t.a JOIN `t`.`b` ON a.id = b.id",
         "SELECT /*+ BROADCAST(b), MERGE(a) */ b.id FROM <t.a> AS `a` JOIN <t.b> AS `b` ON a.id = b.id"),
        ("SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY id DESC) AS p, TO_CHAR(id, '999') AS c FROM t.a",
         "SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY id DESC) AS p, TO_CHAR(id, '999') AS c FROM <t.a> AS `a`"),
        ("SELECT the_day, :shop, UPPER(:shop) AS u FROM t.a",
         f"SELECT {DAY} AS `the_day`, {SHOP} AS `shop`, UPPER({SHOP}) AS u FROM <t.a> AS `a`"),
        ("SELECT COALESCE(id, :shop) AS c, CAST(st AS STRUCT<shop:INT>) AS d FROM t.a",
         f"SELECT COALESCE(id, {SHOP}) AS c, CAST(st AS STRUCT<shop:INT>) AS d FROM <t.a> AS `a`"),
        ("SELECT id FROM t.a TABLESAMPLE (10 PERCENT) REPEATABLE (3) WHERE day = the_day",
         f"SELECT id FROM <t.a> TABLESAMPLE (10 PERCENT) REPEATABLE (3) AS `a` WHERE day = {DAY}"),
        ("SELECT * EXCEPT (day), DATEADD(DAY, 1, day) AS n FROM t.a", "SELECT * EXCEPT (day), DATEADD(DAY, 1, day) AS n FROM <t.a> AS `a`"),
        ("WITH x AS (SELECT id FROM t.a WHERE day = :the_day) (SELECT id FROM x) ORDER BY id LIMIT 3",
         f"WITH x AS (SELECT id FROM <t.a> AS `a` WHERE day = {DAY}) (SELECT id FROM x) ORDER BY id LIMIT 3"),
        ("(SELECT id FROM t.a UNION SELECT id FROM t.b) ORDER BY id = the_day, id LIMIT 3",
         f"(SELECT id FROM <t.a> AS `a` UNION SELECT id FROM <t.b> AS `b`) ORDER BY id = {DAY}, id LIMIT 3"),
        ("SELECT TRANSFORM(items, shop -> shop + 1) AS n FROM t.a", "SELECT TRANSFORM(items, shop -> shop + 1) AS n FROM <t.a> AS `a`"),
    ],
)  # fmt: skip
def test_one_scope_runs_the_authors_text(query: str, runs: str) -> None:
    assert texts(query)[0] == runs


def test_many_scopes_put_clauses_around_it_and_into_it() -> None:
    together, lateral = texts(
        "WITH x AS (SELECT id FROM t.a WHERE day = :the_day)\n"
        "SELECT x.id, COUNT(*) AS n, 'O''Brien' AS o FROM x, t.b y WHERE y.day < the_day GROUP BY x.id ORDER BY n"
    )[1]
    v, p = "__varve.`__varve_v_{}`".format, "__varve.`__varve_p_d`, __varve.`__varve_p_s`"
    assert together == (
        f"SELECT {p}, x.id, COUNT(*) AS n, 'O''Brien' AS o FROM <varve.scopes> AS __varve CROSS JOIN LATERAL "
        f"(SELECT id FROM <t.a> AS `a` WHERE day = {v('the_day')}) AS `x` CROSS JOIN  <t.b> y WHERE y.day < {v('the_day')} "
        f"GROUP BY {p}, {v('the_day')}, x.id "
    )
    assert lateral.startswith(f"SELECT {p}, __varve_rows.* FROM <varve.scopes> AS __varve, LATERAL (\nWITH x AS (")


def test_scopes_stand_beside_an_input_of_which_is_known_what_they_read() -> None:
    by_equality, together, _ = texts(
        "SELECT y.id FROM t.b y, /* t.a */ t.a WHERE y.id = a.id AND a.day BETWEEN '2022' AND the_day",
        {"t.a": ("day", "store")},
    )[1]
    equal = "`a`.`day` = __varve.`__varve_r_day` AND `a`.`store` = __varve.`__varve_r_store`"
    beside = f"(<varve.scopes_reading.t.a> AS __varve JOIN <t.a> AS `a` ON {equal})"
    rest = " WHERE y.id = a.id AND a.day BETWEEN '2022' AND __varve.`__varve_v_the_day`"
    assert by_equality.endswith(f" FROM <t.b> y CROSS JOIN  /* t.a */ {beside}{rest}")
    assert together.endswith(
        f" FROM <varve.scopes> AS __varve CROSS JOIN <t.b> y CROSS JOIN  /* t.a */ <t.a> AS `a`{rest}"
    )


def test_the_names_of_the_scopes_are_none_of_the_query() -> None:
    for text in texts("SELECT __varve_p_d FROM t.a WHERE day = the_day")[1]:
        assert "AS __varve_" in text


@pytest.mark.parametrize(
    "query",
    [
        "SELECT HASH(*) AS h FROM t.a WHERE day = the_day",
        "SELECT STRUCT(the_day) AS h FROM t.a",
        "SELECT x.id FROM t.a x FULL JOIN t.b y ON x.id = y.id WHERE x.day = the_day",
        "SELECT * FROM t.a PIVOT (SUM(id) FOR store IN ('x', 'y'))",
        "WITH RECURSIVE x AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM x WHERE n < 3) SELECT n FROM x",
    ],
)
def test_what_is_not_known_to_be_the_same_runs_scope_by_scope(query: str) -> None:
    assert texts(query)[1] == []


@pytest.mark.parametrize(
    "query",
    [
        "SELECT COUNT(*) AS n FROM t.a WHERE day = the_day",
        "SELECT MAX(id) AS n FROM t.a WHERE day = the_day GROUP BY ALL",
        "SELECT MAX(id) AS n FROM t.a WHERE day = the_day GROUP BY ()",
        "SELECT id, MAX(id) AS n FROM t.a WHERE day = the_day GROUP BY (1)",
        "SELECT id FROM t.a WHERE day = the_day LIMIT 3",
        "SELECT COUNT(DISTINCT id) AS n FROM t.a WHERE day = the_day HAVING COUNT(*) > 1",
    ],
)
def test_what_gives_a_row_for_no_rows_or_counts_columns_is_no_join(query: str) -> None:
    (lateral,) = texts(query)[1]
    assert "LATERAL (" in lateral
