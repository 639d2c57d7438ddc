# ruff: noqa: E501 - queries, one a line
"""What runs is what was written: our rows beside those of the author's text in a plain Spark session.

The oracle is never of our making: the text itself over plain views, with the variables put in by hand.
"""

from __future__ import annotations

import re
from functools import reduce
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrame

from tests.sql.plain_session import Case, Report, compare, rows
from tests.sql.short_tasks import one_short_task_each
from varve.sql.partitions.comprehension import scopes_of
from varve.sql.spark.execute import per_scope_rows, together_rows
from varve.sql.syntax.errors import SourceFile
from varve.sql.syntax.header import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from varve.sql.partitions.scopes import Scopes

pytestmark = pytest.mark.spark

HEADER = """CREATE DATASET t.out PARTITIONED BY (d STRING, s STRING)
FOR moment IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01', END '2022-03-03'), shop IN ('O''Brien', "L'Aquila")
LET the_day = DATE_FORMAT(moment, 'yyyy-MM-dd')
INSERT (d = the_day, s = shop)
AS
"""
SCOPES = [("2022-03-01", "O'Brien"), ("2022-03-02", "L'Aquila")]
MINE = "WHERE a.day = :the_day AND a.store = :shop"
# `b` is a table, and a struct of another one has the name of its column; `st` is both too.
QUERIES = [
    f"SELECT 'O''Brien' AS n, id FROM t.a {MINE}",
    f"SELECT 'O' 'Brien' AS n, r'\\d' AS r, \"say \"\"hi\"\"\" AS q, '\\u0041\\%' AS e, X'1F' AS x, -128Y AS y, 1.50BD AS z FROM t.a {MINE}",
    f"SELECT TO_CHAR(sold, 'S999') AS c, LOG10(sold) AS l, sold / 3 AS t FROM t.a {MINE} AND sold > 0",
    f"SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY sold DESC) AS p, PERCENTILE(sold, 0.25, 2) AS q FROM t.a {MINE}",
    f"SELECT product, PERCENTILE_DISC(0.3) WITHIN GROUP (ORDER BY sold DESC) AS p FROM t.a {MINE} GROUP BY product",
    "SELECT u.st.a, st.a AS other FROM t.a u JOIN t.b st ON u.id = st.id WHERE u.day = :the_day AND u.store = :shop",
    "SELECT u.id FROM t.a u WHERE u.day = :the_day AND u.store = :shop AND EXISTS (SELECT 1 FROM t.b st WHERE st.a = u.st.a)",
    f"SELECT t.a.id, t.a.st.a AS f FROM t.a {MINE}",
    "SELECT x.st.a AS one, y.st.a AS two FROM t.a x JOIN t.a y ON x.id = y.id AND x.st.a <= y.st.a WHERE x.day = :the_day AND x.store = :shop",
    f"SELECT '{{varve_input_0}} varve_input_0 :shop __varve_v_shop' AS c, id /* :shop */ FROM t.a {MINE} -- :the_day",
    f"SELECT /*+ BROADCAST(b) */ a.id, b.a FROM t.a JOIN t.b ON a.id = b.id {MINE}",
    f"SELECT :shop, :the_day, id FROM t.a {MINE}",
    f"SELECT COUNT(*) AS n, MAX(:shop) AS s FROM t.a {MINE}",
    f"SELECT product, COUNT(DISTINCT id) AS n FROM t.a {MINE} GROUP BY ALL",
    f"SELECT COUNT(*) AS n FROM t.a {MINE} GROUP BY ALL",
    f"SELECT product, MAX(sold) AS m FROM t.a {MINE} GROUP BY (1)",
    f"SELECT HASH(*) AS h FROM t.a {MINE}",
    f"SELECT TO_JSON(STRUCT(:shop, id)) AS j FROM t.a {MINE}",
    f"SELECT TO_JSON(STRUCT(*)) AS j FROM t.a {MINE}",
    "SELECT a.id, b.id AS other FROM t.a, t.b WHERE a.id = b.id AND a.day = :the_day",
    "SELECT a.id FROM t.a, t.b z JOIN t.b y ON z.id = y.id WHERE a.id = z.id AND a.day = :the_day",
    f"SELECT product, sold IS DISTINCT FROM 3 AS d, EXTRACT(YEAR FROM DATE(day)) AS y FROM t.a {MINE} ORDER BY product",
    f"SELECT id, SUM(sold) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s, COUNT(*) OVER () AS n FROM t.a {MINE}",
    f"(SELECT product FROM t.a {MINE} UNION SELECT 'all') INTERSECT SELECT product FROM t.a",
    f"WITH q(p, n) AS (SELECT product, sold FROM t.a {MINE}), r AS (SELECT p, SUM(n) AS n FROM q GROUP BY p) SELECT r.*, q.n AS m FROM r JOIN q USING (p)",
    f"WITH q AS (SELECT * FROM t.a {MINE}) SELECT x.id, y.id AS other FROM q x LEFT JOIN q AS y ON x.id < y.id",
    f"SELECT product, i FROM t.a LATERAL VIEW POSEXPLODE(SEQUENCE(1, 2)) e AS p, i {MINE}",
    f"SELECT * FROM (SELECT product, sold FROM t.a {MINE}) PIVOT (SUM(sold) FOR product IN ('x', 'y'))",
    f"SELECT MAP('k', :shop)['k'] AS m, NAMED_STRUCT('a', :the_day).a AS s, ARRAY(1, sold)[1] AS i FROM t.a {MINE}",
    f"SELECT CASE WHEN :shop = 'O''Brien' THEN 1 ELSE 0 END AS c, COALESCE(product, :shop) AS p FROM t.a {MINE}",
    f"SELECT id FROM t.a TABLESAMPLE (100 PERCENT) {MINE}",
]  # fmt: skip
# Their values are another each time, or of the session; or they are there to fail or to wait.
CHANGING = (
    "rand", "uuid", "shuffle", "now", "current", "curdate", "localtime", "version", "user", "session_user", "input_file",
    "monotonically", "spark_partition", "unix_timestamp", "uniform", "reflect", "java_method", "try_reflect", "sleep",
    "raise_error", "assert_true", "aes_encrypt",
)  # fmt: skip
CALLS = ("rand", "current_timestamp", "now", "uuid", "current_date", "randn", "randstr")


def dataset(query: str) -> Scopes:
    return scopes_of(parse(SourceFile("t.sql", HEADER + query)))


@pytest.fixture(scope="module")
def inputs(spark: SparkSession) -> dict[str, DataFrame]:
    days, stores = ["2022-03-01", "2022-03-02", "2022-03-03"], ["O'Brien", "L'Aquila", "OBrien"]
    a = [
        (place, "xyz"[place % 3], place % 7 - 1, (place % 5, "f"), days[place % 11 % 3], stores[place % 7 % 3])
        for place in range(60)
        if (place % 11 % 3, place % 7 % 3) != (1, 1)
    ]
    b = [(place, place * 3 % 5) for place in range(0, 60, 2)]
    frames = {
        "t.a": spark.createDataFrame(a, "id INT, product STRING, sold INT, st STRUCT<a: INT, b: STRING>, day STRING, store STRING"),
        "t.b": spark.createDataFrame(b, "id INT, a INT"),
    }  # fmt: skip
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name.partition(".")[2])
    return frames


def by_hand(query: str, day: str, shop: str) -> str:
    """The text of one scope; a variable by itself among the results keeps its name."""
    values = {"the_day": f"'{day}'", "shop": f'"{shop}"'}

    def put(match: re.Match[str]) -> str:
        if match["variable"]:
            return values[match["variable"]]
        return match["table"] or ("a." if match["by"] else match[0])

    query = query.replace("SELECT :shop, :the_day,", "SELECT :shop AS shop, :the_day AS the_day,")
    texts = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|/\*.*?\*/|--[^\n]*"""
    return re.sub(texts + r"|:(?P<variable>the_day|shop)\b|\bt\.(?P<by>a\.)|\bt\.(?P<table>[ab])\b", put, query)


def test_rows_are_those_of_the_authors_text(spark: SparkSession, inputs: dict[str, DataFrame]) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    frames: list[DataFrame] = []
    # The place of the author's text, that of ours, and the query.
    pairs: list[tuple[int, int, str]] = []
    with one_short_task_each(spark):
        for query in QUERIES:
            scopes = dataset(query)
            tree = scopes.dataset.query
            assert tree is not None
            partition_scopes = [scopes.of(scopes.partitioning.key(values)) for values in SCOPES]
            plain = [
                spark.sql(by_hand(query, day, shop)).select(F.lit(day).alias("d"), F.lit(shop).alias("s"), "*")
                for day, shop in SCOPES
            ]
            together = together_rows(spark, scopes, tree, partition_scopes, inputs)
            ours = [
                per_scope_rows(spark, scopes, tree, partition_scopes, inputs),
                *([together] if together is not None else []),
            ]
            for frame in ours:
                assert (
                    frame.columns[2:] == [column.lower() for column in plain[0].columns[2:]]
                    or frame.columns == plain[0].columns
                ), query
            first = len(frames)
            pairs += [(first, first + 1 + place, query) for place in range(len(ours))]
            frames += [reduce(DataFrame.unionAll, plain), *ours]
        texts = rows(frames)
    wrong = [query for plain_text, ours_text, query in pairs if texts[plain_text] != texts[ours_text]]
    assert not wrong, "\n".join(wrong)
    assert sum(bool(texts[plain_text]) for plain_text, _, _ in pairs) > len(pairs) * 0.9


def examples(spark: SparkSession, step: int) -> Iterator[str]:
    """The documented examples of every so many of Spark's functions."""
    names = [row[0] for row in spark.sql("SHOW FUNCTIONS").collect()]
    for name in names[::step]:
        if name.startswith(CHANGING):
            continue
        quoted = name if re.fullmatch(r"\w+", name) else f"`{name}`"
        about = "\n".join(row[0] for row in spark.sql(f"DESCRIBE FUNCTION EXTENDED {quoted}").collect())
        for example in re.findall(r"> ((?:SELECT|WITH)\b.*?);\s*$", about, re.DOTALL | re.MULTILINE | re.IGNORECASE):
            if not any(f"{call}(" in example.lower() for call in CALLS):
                yield example


def compare_examples(spark: SparkSession, inputs: dict[str, DataFrame], step: int, part: int | None = None) -> Report:
    """Each example as it is documented; and, where it reads nothing, over the rows of a scope too.

    With `part`, a fourth of them.
    """
    cases = []
    for example in [*examples(spark, step)][slice(None) if part is None else slice(part, None, 4)]:
        cases.append(Case(example, dict.fromkeys(SCOPES, example)))
        if not re.search(r"\bFROM\b", example, re.IGNORECASE):
            plain = {
                (day, shop): f"{example} FROM a WHERE a.day = '{day}' AND a.store = \"{shop}\"" for day, shop in SCOPES
            }
            cases.append(Case(f"{example} FROM t.a {MINE}", plain))
    with one_short_task_each(spark):
        return compare(spark, HEADER, cases, inputs)


def test_documented_examples_of_functions_give_what_they_give_in_a_plain_session(
    spark: SparkSession, inputs: dict[str, DataFrame], capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of every 74th function; `make torture` has all."""
    check_report(compare_examples(spark, inputs, step=74), 10, capsys)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(4))
def test_so_do_those_of_every_function(
    spark: SparkSession, inputs: dict[str, DataFrame], part: int, capsys: pytest.CaptureFixture[str]
) -> None:
    check_report(compare_examples(spark, inputs, step=1, part=part), 150, capsys)


def check_report(report: Report, least: int, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{report}")  # noqa: T201
    assert not report.wrong, "\n".join(report.wrong)
    assert report.compared > least
    assert report.together > report.compared / 2
