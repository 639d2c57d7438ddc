"""The version of a dataset's code follows what determines its rows, and nothing else."""

from __future__ import annotations

import datetime as dt
import textwrap
from typing import TYPE_CHECKING

import pytest

from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import DynamicDimension, StaticDimension, TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.own_calendar import Calendar
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.sql.cache import Cache
from varve.sql.code.python_text import code_of_source, function_code
from varve.sql.code.version import canonical, dataset_meaning, version_of
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile

if TYPE_CHECKING:
    from pathlib import Path

    from varve.model.partitions.calendar import Tiling

RECEIPTS = SourceFile(
    "receipts.sql",
    """CREATE DATASET shop.receipts (product STRING, price DOUBLE)
    PARTITIONED BY (day STRING)
    FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01')
    INSERT (day = DATE_FORMAT(t, 'yyyy-MM-dd'))
    EXTERNAL OPTIONS (source = 'landing')""",
)
SALES = """CREATE DATASET shop.sales (product STRING COMMENT 'what was sold', price DOUBLE)
    COMMENT 'sales'
    PARTITIONED BY (day STRING)
    FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01')
    LET today = DATE_FORMAT(t, 'yyyy-MM-dd'), cents = 100
    INSERT (day = today)
    AS
    SELECT product, price * cents AS price FROM shop.receipts WHERE day = today AND price > 0"""


def version(text: str) -> str:
    return compiled([RECEIPTS, SourceFile("sales.sql", text)], {}, Cache())["shop.sales"].code_version


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("FROM shop", "\n-- from the tills\n  FROM shop"),
        ("SELECT", "select"),
        ("COMMENT 'what was sold'", ""),
        ("COMMENT 'sales'", "COMMENT 'what was sold, by day' OWNER 'team:shop'"),
        ("today", "the_day"),
        ("LET today = DATE_FORMAT(t, 'yyyy-MM-dd'), cents = 100",
         "LET cents = 100, today = DATE_FORMAT(t, 'yyyy-MM-dd')"),
        ("cents = 100", "cents = 100, never_used = 5"),
        ("INSERT (day = today)", "INSERT (day = today) ON CODE CHANGE REBUILD ON UPSTREAM CHANGE IGNORE"),
        ("AS\n", "EXPECT cheap: price < 1000\n    AS\n"),
        ("START '2022-03-01'", "START '2022-01-01'"),
        ("START '2022-03-01'", "START '2022-03-01', RETENTION 30 DAYS"),
        ("today AND", ":today AND"),
    ],
)  # fmt: skip
def test_what_changes_no_row_is_the_same_code(was: str, becomes: str) -> None:
    assert was in SALES
    assert version(SALES.replace(was, becomes)) == version(SALES)


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("price > 0", "price > 50"),
        ("price > 0", "price > 00.0"),
        ("cents = 100", "cents = 1000"),
        ("yyyy-MM-dd", "yyyyMMdd"),
        ("INTERVAL 1 DAY", "INTERVAL 2 DAYS"),
        ("FROM shop.receipts WHERE day = today", "FROM shop.receipts WHERE day = 'today'"),
        ("SELECT product,", "SELECT DISTINCT product,"),
        ("price * cents", "price * today"),
    ],
)
def test_what_changes_rows_is_other_code(was: str, becomes: str) -> None:
    assert was in SALES
    text = SALES.replace(was, becomes)
    assert version(text) != version(SALES)


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("STRUCT(1 AS date)", "STRUCT(1 AS Date)"),
        ("STRUCT(1 AS Date)", "STRUCT(1 AS DATE)"),
        ("CAST(NULL AS STRUCT<date: INT>)", "CAST(NULL AS STRUCT<Date: INT>)"),
        ("CAST(NULL AS STRUCT<a: MAP<INT, DATE>, Map: INT>)", "CAST(NULL AS STRUCT<a: MAP<INT, DATE>, MAP: INT>)"),
    ],
)
def test_capitals_of_the_name_of_a_field_are_other_code(was: str, becomes: str) -> None:
    """Readers see the name as it is written, as in JSON."""
    texts = [SALES.replace("SELECT product", f"SELECT TO_JSON({struct}) AS product") for struct in (was, becomes)]
    assert version(texts[0]) != version(texts[1])


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("STRUCT(1 AS DATE)", "STRUCT(1 as `DATE`)"),
        ("STRUCT(CAST(day AS DATE) AS a)", "STRUCT(CAST(day AS date) AS a)"),
        ("CAST(NULL AS STRUCT<a: MAP<INT, DATE>, b: INT>)", "CAST(NULL AS STRUCT<a: map<int, date>, b: int>)"),
        ("STRUCT(DATE '2022-03-01' < DATE '2022-03-02' AS a)", "STRUCT(date '2022-03-01' < date '2022-03-02' AS a)"),
    ],
)
def test_capitals_of_types_and_keywords_are_the_same_code(was: str, becomes: str) -> None:
    texts = [SALES.replace("SELECT product", f"SELECT TO_JSON({struct}) AS product") for struct in (was, becomes)]
    assert version(texts[0]) == version(texts[1])


def test_the_name_of_a_column_in_small_letters_counts_as_ever() -> None:
    """Datasets that are deployed have it."""
    assert canonical("select 1 as date, CAST(x as date) as map") == "SELECT 1 AS DATE , CAST ( x AS DATE ) AS MAP"
    written = "SELECT MAP(1, 2) UNION ALL SELECT COUNT(*) OVER (ORDER BY x DESC RANGE UNBOUNDED PRECEDING) FROM t"
    assert canonical(written).replace(" ", "") == written.replace(" ", "")


@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris"])
def test_a_moment_of_let_is_another_one_in_the_query_where_the_series_has_another_zone(zone: str) -> None:
    moment = "TIMESTAMP '2022-03-01 00:00:00'"
    in_zone = SALES.replace("START '2022-03-01'", f"START '2022-03-01', TIMEZONE '{zone}'")
    in_let = in_zone.replace("cents = 100", f"cents = 100, since = {moment}").replace(
        "price > 0", "CAST(product AS TIMESTAMP) > since"
    )
    in_query = in_zone.replace("price > 0", f"CAST(product AS TIMESTAMP) > ({moment})")
    assert (version(in_let) == version(in_query)) is (zone == "UTC")


def in_python(tiling: Tiling, timezone: str = "UTC") -> str:
    """The version of what a dataset of Python declares, with windows of this tiling."""
    series = TimeDimension.of("day", tiling, "2026-11-02", timezone=timezone)
    schema = Schema((Column("price", ColumnType.DOUBLE),))
    partitioning = Partitioning((series, StaticDimension("shop", ("a", "b")), DynamicDimension("product", "products")))
    return version_of(dataset_meaning(Dataset("shop.prices", partitioning, schema, StoreKind.LAKE, "For a test.")))


def test_more_windows_of_a_calendar_are_the_same_code_of_a_dataset_of_python() -> None:
    days = [dt.date(2026, 11, 2), dt.date(2026, 11, 3)]
    nyse, longer, other = (
        Calendar.of_days("nyse", days[:1]),
        Calendar.of_days("nyse", days),
        Calendar.of_days("x", days),
    )
    assert in_python(nyse) == in_python(longer)
    assert len({in_python(nyse), in_python(other), in_python(nyse, "Europe/Paris")}) == 3
    # Of any other series it is what it was before: datasets that are deployed have it.
    assert in_python(Grain.DAY) == "681fe69883a6cc23"


def test_exchanged_names_of_variables_are_other_code() -> None:
    """Each name keeps its place in the query, and stands for the other value there."""
    with_two = SALES.replace("cents = 100", "cents = 100, dollars = 1").replace("price > 0", "price > dollars")
    exchanged = with_two.replace("cents = 100, dollars = 1", "dollars = 100, cents = 1")
    assert version(with_two) != version(exchanged)


def test_a_let_that_stands_for_a_column_of_the_result_may_not_be_renamed() -> None:
    """The column's name is what readers read."""
    as_column = SALES.replace("product STRING COMMENT 'what was sold', price DOUBLE", "today STRING").replace(
        "product, price * cents AS price", "today"
    )
    renamed = as_column.replace("AS\n    SELECT today", "AS\n    SELECT the_day AS today").replace(
        "LET today =", "LET the_day ="
    ).replace("day = today", "day = the_day")  # fmt: skip
    assert version(renamed) == version(as_column)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "jobs/__init__.py": "",
        "jobs/score.py": '''
            """Scores."""
            import math
            from jobs.rates import RATES as rates, unused
            from . import words
            LIMIT = 3
            OTHER = 4

            RATES_OF = {}
            RATES_OF.update(a=1)
            if LIMIT:
                BONUS = 7

            def helper(x):
                """Twice."""
                from jobs import inner
                import jobs.first, jobs.second
                x += RATES_OF["a"] + BONUS + inner.f() + jobs.first.f() + jobs.second.f()
                return x * LIMIT  # not more

            def score(scope, rows):
                return helper(rows) * rates["a"] + words.count(rows)

            def another(scope, rows):
                return OTHER
            ''',
        "jobs/rates.py": "RATES = {'a': base()}\ndef base():\n    return 2\nunused = 1\n",
        **dict.fromkeys(("jobs/inner.py", "jobs/first.py", "jobs/second.py"), "def f():\n    return 1\n"),
        "jobs/words.py": "def count(rows):\n    return 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text))
    return tmp_path


@pytest.mark.parametrize(
    ("file", "was", "becomes", "counts"),
    [
        ("score", "x * LIMIT  # not more", "x * LIMIT", False),
        ("score", '"""Twice."""', '"""Three times."""', False),
        ("score", "return OTHER", "return 5", False),
        ("score", "OTHER = 4", "OTHER = 5", False),
        ("rates", "unused = 1", "unused = 2", False),
        ("score", "x * LIMIT", "x + LIMIT", True),
        ("score", "LIMIT = 3", "LIMIT = 4", True),
        ("rates", "return 2", "return 3", True),
        ("words", "return 1", "return 2", True),
        ("inner", "return 1", "return 2", True),
        ("first", "return 1", "return 2", True),
        ("second", "return 1", "return 2", True),
        ("score", "update(a=1)", "update(a=2)", True),
        ("score", "BONUS = 7", "BONUS = 8", True),
    ],
)
def test_a_function_counts_with_what_it_needs_of_the_project(
    project: Path, file: str, was: str, becomes: str, *, counts: bool
) -> None:
    before = function_code(project / "jobs/score.py", "score", project)
    path = project / f"jobs/{file}.py"
    assert was in path.read_text()
    path.write_text(path.read_text().replace(was, becomes))
    after = function_code(project / "jobs/score.py", "score", project)
    assert (before != after) is counts


def test_where_the_project_lies_is_no_part_of_its_code(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "jobs").mkdir()
    for file in (project / "jobs").iterdir():
        (elsewhere / "jobs" / file.name).write_bytes(file.read_bytes())
    assert function_code(project / "jobs/score.py", "score", project) == function_code(
        elsewhere / "jobs/score.py", "score", elsewhere
    )


def test_a_function_in_a_function_counts_with_what_it_names(project: Path) -> None:
    source = "@decorated(comment='x')\ndef inner(rows):\n    return helper(rows)\n"
    file = project / "jobs/score.py"
    text, _ = code_of_source(source, file, project)
    assert "x * LIMIT" in text
    assert "decorated" not in text
    assert code_of_source(source.replace("'x'", "'y'"), file, project)[0] == text


def test_modules_that_import_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import b\ndef f():\n    return b.g()\n")
    (tmp_path / "b.py").write_text("import a\ndef g():\n    return a.f\n")
    assert "return a.f" in function_code(tmp_path / "a.py", "f", tmp_path)
