"""Which windows are listed for a condition: as many as it may hold for, whatever its other side is made of.

What a day reads is told by dates that are counted here, without the code that plans.
"""

from __future__ import annotations

import datetime as dt
from itertools import product
from typing import TYPE_CHECKING

import pytest
import sqlglot

from varve.model.partitions.key import PartitionKey
from varve.sql.evaluate.functions import Evaluator
from varve.sql.evaluate.vector import Vector
from varve.sql.pushdown.predicates import holds
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.sql.partitions.dependencies import PlannedDependency

V = dt.date(2025, 6, 16)
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
DAYS = "t IN TIMESERIES(INTERVAL 1 DAY, START '2025-01-01')"
SALES = (
    f"CREATE DATASET shop.sales (n INT) PARTITIONED BY (day DATE) FOR {DAYS} INSERT (day = CAST(t AS DATE)) EXTERNAL;"
)
PLAN = (
    "CREATE DATASET shop.plan (n INT) PARTITIONED BY (day DATE, lag BIGINT) "
    f"FOR {DAYS}, lag IN ({{lags}}) INSERT (day = CAST(t AS DATE)) EXTERNAL;"
)
READER = (
    f"CREATE DATASET shop.reader (n INT) PARTITIONED BY (day DATE) FOR {DAYS} "
    "LET today = CAST(t AS DATE), d = {d} INSERT (day = today) ALLOW FULL SCAN AS {query}"
)


def sales_read(query: str, *others: str, d: str = "CAST(t AS DATE)") -> PlannedDependency:
    """What the reader with this query, and this variable `d`, reads of the sales."""
    texts = [SALES, *others, READER.format(d=d, query=query)]
    assets = dict(compiled([SourceFile(f"{place}.sql", text) for place, text in enumerate(texts)], {}))
    return assets["shop.reader"].dependency("shop.sales")


def days(dependency: PlannedDependency, day: dt.date) -> set[object]:
    return {key["day"] for key in dependency.upstream_of(PartitionKey.of(day=day), now=NOW).keys}


def around(*offsets: int) -> set[object]:
    return {V + dt.timedelta(days=offset) for offset in offsets}


@pytest.mark.parametrize(
    ("condition", "first", "last"),
    [
        ("s.day >= d AND s.day <= DATE '9999-12-31'", V, NOW.date()),
        ("s.day BETWEEN d AND '9999-12-30'", V, NOW.date()),
        ("s.day BETWEEN d AND '2999-12-31'", V, NOW.date()),
        ("s.day BETWEEN d AND '2099-12-31'", V, NOW.date()),
        ("s.day >= d AND s.day < DATE_ADD(d, 100000)", V, NOW.date()),
        ("s.day >= ADD_MONTHS(d, -30000) AND s.day <= d", dt.date(2025, 1, 1), V),
        ("s.day = d OR s.day = '9999-12-31'", V, V),
        ("s.day = d OR s.day > DATE_ADD(d, 3000000) OR s.day < ADD_MONTHS(d, -30000)", V, V),
    ],
)
def test_a_bound_at_an_end_of_the_calendar_is_none(condition: str, first: dt.date, last: dt.date) -> None:
    expected = {first + dt.timedelta(days=place) for place in range((last - first).days + 1)}
    assert days(sales_read(f"SELECT s.n FROM shop.sales s WHERE {condition}"), V) == expected


def test_digits_of_another_script_are_compared_as_the_letters_that_they_are() -> None:
    arabic = "".join(chr(0x660 + int(sign)) if sign.isdecimal() else sign for sign in "2025-01-03")
    query = f"SELECT s.n FROM shop.sales s WHERE CAST(s.day AS STRING) < '{arabic}'"
    assert len(days(sales_read(query), V)) == 366


@pytest.mark.parametrize("count", [5, 6, 7])
@pytest.mark.parametrize(("function", "sign"), [("DATE_SUB", -1), ("DATE_ADD", 1)])
def test_two_dimensions_of_another_scan_are_computed_with_in_every_combination(
    count: int, function: str, sign: int
) -> None:
    # Around a day six windows are listed, so that six lags are as many.
    dependency = sales_read(
        f"SELECT s.n FROM shop.plan p JOIN shop.sales s ON s.day = {function}(p.day, CAST(p.lag AS INT)) "
        "WHERE p.day = d",
        PLAN.format(lags=", ".join(map(str, range(count)))),
    )
    assert days(dependency, V) == around(*(sign * lag for lag in range(count)))


@pytest.mark.parametrize("count", [5, 6, 7])
@pytest.mark.parametrize("difference", ["DATEDIFF(b.day, c.day)", "DATEDIFF(d, c.day)"])
def test_columns_of_several_other_scans_are_no_bound(count: int, difference: str) -> None:
    names = ("a", "b", "c")
    datasets = [SALES.replace("shop.sales", f"shop.{name}") for name in names]
    within = " AND ".join(f"{name}.day BETWEEN DATE_SUB(d, {count}) AND d" for name in names)
    dependency = sales_read(
        "SELECT s.n FROM shop.a a CROSS JOIN shop.b b CROSS JOIN shop.c c "
        f"JOIN shop.sales s ON s.day = DATE_ADD(a.day, {difference}) WHERE {within}",
        *datasets,
    )
    back = range(-count, 1)
    before = back if "b.day" in difference else [0]
    assert days(dependency, V) >= around(*(a + b - c for a, b, c in product(back, before, back)))


@pytest.mark.parametrize(
    ("d", "asked"),
    [
        ("DATE_FORMAT(t, 'yyyy-M-d')", [dt.date(2025, 9, 15) + dt.timedelta(days=place) for place in range(25)]),
        # As texts they are in another order: '2025-02-01' < '2025-1-5' < '2025-12-01'.
        (
            "IF(MONTH(t) = 1, DATE_FORMAT(t, 'yyyy-M-d'), DATE_FORMAT(t, 'yyyy-MM-dd'))",
            [dt.date(2025, 1, 5), dt.date(2025, 2, 1), dt.date(2025, 12, 1)],
        ),
    ],
    ids=["unpadded", "mixed"],
)
def test_texts_of_dates_that_are_not_in_the_order_of_the_dates_bound_no_window_away(
    d: str, asked: Sequence[dt.date]
) -> None:
    dependency = sales_read("SELECT s.n FROM shop.sales s WHERE s.day = d", d=d)
    together = dependency.upstream_of_each([PartitionKey.of(day=day) for day in asked], now=NOW)
    assert [{key["day"] for key in mapped.keys} for mapped in together] == [{day} for day in asked]
    assert [days(dependency, day) for day in asked] == [{day} for day in asked]


@pytest.mark.parametrize(
    ("series", "columns", "condition", "read"),
    [
        ("YEAR", "year INT", "s.year = YEAR(d)", {"year": 2026}),
        ("YEAR", "year STRING", "s.year = DATE_FORMAT(d, 'yyyy')", {"year": "2026"}),
        ("YEAR", "year STRING", "s.year = YEAR(d)", {"year": "2026"}),
        ("MONTH", "year STRING, month STRING", "s.year = YEAR(d) AND s.month = DATE_FORMAT(d, 'MM')",
         {"year": "2026", "month": "06"}),
        ("MONTH", "month STRING", "s.month = DATE_FORMAT(d, 'yyyy-MM')", {"month": "2026-06"}),
    ],
)  # fmt: skip
def test_a_window_that_has_not_ended_is_waited_for_whatever_spells_it(
    series: str, columns: str, condition: str, read: dict[str, object]
) -> None:
    values = {"year INT": "YEAR(t)", "year STRING": "DATE_FORMAT(t, 'yyyy')", "month STRING": "DATE_FORMAT(t, 'MM')"}
    if columns == "month STRING":
        values[columns] = "DATE_FORMAT(t, 'yyyy-MM')"
    inserted = ", ".join(f"{column.split()[0]} = {values[column]}" for column in columns.split(", "))
    long = (
        f"CREATE DATASET shop.sales (n INT) PARTITIONED BY ({columns}) "
        f"FOR t IN TIMESERIES(INTERVAL 1 {series}, START '2024-01-01') INSERT ({inserted}) AS SELECT 1 AS n"
    )
    reader = READER.format(d="CAST(t AS DATE)", query=f"SELECT s.n FROM shop.sales s WHERE {condition}")
    assets = dict(compiled([SourceFile("sales.sql", long), SourceFile("reader.sql", reader)], {}))
    in_june = dt.datetime(2026, 6, 17, 1, tzinfo=dt.UTC)
    mapped = assets["shop.reader"].dependency("shop.sales").upstream_of(
        PartitionKey.of(day=dt.date(2026, 6, 16)), now=in_june
    )  # fmt: skip
    assert not mapped.keys
    assert [key for box in mapped.upcoming for key in box.partitions()] == [PartitionKey.of(**read)]


@pytest.mark.parametrize("odd", [{}, {700: "odd"}, {0: "odd", 1_023: "", 1_500: "2026-13-01"}])
def test_a_key_of_which_a_condition_says_nothing_is_read_and_no_other_for_its_sake(odd: dict[int, str]) -> None:
    begin = dt.date(2020, 1, 1)
    keys = [odd.get(place, str(begin + dt.timedelta(place))) for place in range(2_000)]
    scopes = ["2023-01-01", "2025-06-01"]
    condition = sqlglot.parse_one("CAST(k AS DATE) >= CAST(scope AS DATE)", read="spark")
    columns = {
        ("", "k"): Vector.of("string", keys).reshaped(1, len(keys)),
        ("", "scope"): Vector.of("string", scopes).reshaped(len(scopes), 1),
    }
    warned: list[str] = []
    found = holds(condition, Evaluator(columns), lambda _, why: warned.append(why))
    assert found.tolist() == [[place in odd or key >= scope for place, key in enumerate(keys)] for scope in scopes]
    assert bool(warned) == bool(odd)


def test_a_condition_that_no_part_of_the_keys_can_be_asked_for_reads_all_of_them_and_ends_soon() -> None:
    keys = Vector.of("string", [str(place) for place in range(100_000)]).reshaped(1, 100_000)
    condition = sqlglot.parse_one("what_is_this(k) = 1", read="spark")
    warned: list[str] = []
    assert holds(condition, Evaluator({("", "k"): keys}), lambda _, why: warned.append(why)).all()
    assert len(warned) == 1
