"""The clauses that say how batches are stored are the options that a declaration in Python has, and change no row."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from varve.model.store_options import Index, LakeOptions, Period, WarehouseOptions
from varve.sql.cache import Cache
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile, SqlErrors
from varve.sql.syntax.formatting import formatted

if TYPE_CHECKING:
    from varve.sql.sql_asset import SqlAsset

HEAD = """CREATE DATASET shop.{} {}
PARTITIONED BY (day STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01')
LET day = DATE_FORMAT(t, 'yyyy-MM-dd')
{}
"""
RECEIPTS = HEAD.format("receipts", "(product STRING, price DOUBLE, index INT, sizes ARRAY<INT>)", "EXTERNAL")
QUERY = "AS SELECT product, price, index, sizes FROM shop.receipts WHERE receipts.day = :day"


def sales(clauses: str) -> str:
    return HEAD.format("sales", "", f"{clauses}\n{QUERY}")


def asset(clauses: str) -> SqlAsset:
    sources = [SourceFile("receipts.sql", RECEIPTS), SourceFile("sales.sql", sales(clauses))]
    return compiled(sources, {}, Cache())["shop.sales"]


def test_indexes_of_the_warehouse_are_declared_over_data_columns() -> None:
    declared = asset("STORED IN WAREHOUSE INDEX (product), UNIQUE (PRICE, product)").dataset
    assert declared.warehouse == WarehouseOptions(
        indexes=(Index(("product",)), Index(("price", "product"), unique=True))
    )
    assert declared.warehouse.clauses == ("INDEX (product), UNIQUE (price, product)",)


def test_roles_are_granted_the_view() -> None:
    declared = asset("STORED IN WAREHOUSE grant select to Analysts, 'Bi-team'").dataset
    assert declared.warehouse == WarehouseOptions(grants=("analysts", "Bi-team"))
    assert declared.warehouse.clauses == ("GRANT SELECT TO analysts, Bi-team",)


def test_tables_are_put_together_by_a_period() -> None:
    declared = asset("STORED IN WAREHOUSE COMPACT WEEK").dataset
    assert declared.warehouse == WarehouseOptions(compact=Period.WEEK)
    assert declared.warehouse.clauses == ("COMPACT WEEK",)


def test_rows_are_sorted_in_their_files() -> None:
    declared = asset("SORTED BY (product, PRICE)").dataset
    assert declared.lake == LakeOptions(sort=("product", "price"))
    assert declared.lake.clauses == ("SORTED BY (product, price)",)


def test_the_catalog_keeps_the_bounds_of_columns() -> None:
    declared = asset("SORTED BY (product) BOUNDS (price, index)").dataset
    assert declared.lake == LakeOptions(sort=("product",), bounds=("price", "index"))
    assert declared.lake.clauses == ("SORTED BY (product)", "BOUNDS (price, index)")


@pytest.mark.parametrize(("clause", "said"), [("ICEBERG ON", True), ("ICEBERG OFF", False)])
def test_a_dataset_says_whether_it_is_an_iceberg_table(clause: str, said: bool) -> None:  # noqa: FBT001
    declared = asset(f"{clause} ON UPSTREAM CHANGE IGNORE").dataset
    assert declared.lake.iceberg is said
    assert declared.lake.clauses == (clause,)


@pytest.mark.parametrize(
    ("clause", "age", "last"),
    [
        ("RETAIN BATCHES 30 DAYS", dt.timedelta(days=30), 0),
        ("RETAIN BATCHES LAST 3", None, 3),
        ("RETAIN BATCHES 6 HOURS AND LAST 2", dt.timedelta(hours=6), 2),
    ],
)
def test_a_dataset_retains_its_replaced_batches(clause: str, age: dt.timedelta | None, last: int) -> None:
    policy = asset(clause.lower()).dataset.policy
    assert (policy.retain_batches, policy.retain_last) == (age, last)
    assert policy.clauses == (clause,)


def test_a_dataset_says_how_soon_its_partitions_are_there() -> None:
    policy = asset("fresh within 120 minutes").dataset.policy
    assert policy.fresh_within == dt.timedelta(hours=2)
    assert policy.clauses == ("FRESH WITHIN 2 HOURS",)


@pytest.mark.parametrize(
    ("store", "clause"),
    [
        ("WAREHOUSE", "INDEX (product)"),
        ("WAREHOUSE", "COMPACT MONTH"),
        ("WAREHOUSE", "GRANT SELECT TO analysts"),
        ("LAKE", "SORTED BY (price)"),
        ("LAKE", "BOUNDS (price)"),
        ("LAKE", "ICEBERG OFF"),
        ("LAKE", "RETAIN BATCHES 3 DAYS"),
        ("LAKE", "FRESH WITHIN 2 HOURS"),
    ],
)
def test_a_clause_that_changes_no_row_is_the_same_code(store: str, clause: str) -> None:
    assert asset(f"STORED IN {store} {clause}").code_version == asset(f"STORED IN {store}").code_version


def test_a_column_may_have_the_name_of_a_clause() -> None:
    clauses = "EXPECT small: price > 0 AND index < 3 INDEX (index)"
    declared = asset(f"STORED IN WAREHOUSE {clauses}")
    assert declared.dataset.warehouse.indexes == (Index(("index",)),)
    assert declared.compiled.expectations == (("small", "price > 0 AND index < 3"),)
    laid_out = formatted(SourceFile("sales.sql", sales(f"STORED IN WAREHOUSE {clauses}")))
    assert "\n  EXPECT small: price > 0 AND index < 3\n  INDEX (index)\n" in laid_out


@pytest.mark.parametrize(
    "clause",
    [
        "INDEX (product), UNIQUE (price, product)",
        "COMPACT MONTH",
        "SORTED BY (product, price)",
        "GRANT SELECT TO analysts, 'bi-team'",
        "RETAIN BATCHES 30 DAYS AND LAST 2",
        "BOUNDS (product, price)",
        "INDEX (" + ", ".join(f"column_{number}" for number in range(12)) + "), UNIQUE (product)",
    ],
)
def test_the_layout_of_a_clause_says_the_same(clause: str) -> None:
    text = sales(f"STORED IN WAREHOUSE {clause.lower()}")
    once = formatted(SourceFile("sales.sql", text))
    assert formatted(SourceFile("sales.sql", once)) == once
    assert f"\n  {clause.split(' ', maxsplit=1)[0]}" in once


def problems(clauses: str) -> list[str]:
    with pytest.raises(SqlErrors) as caught:
        asset(clauses)
    return [f"{problem.place} {problem.message}" for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("clauses", "place", "message"),
    [
        ("STORED IN WAREHOUSE INDEX (prodct)", "5:28", "shop.sales has no column prodct. Did you mean product?"),
        ("STORED IN WAREHOUSE INDEX (day)", "5:28", "day is a partition column, which has one value in each batch"),
        ("STORED IN WAREHOUSE INDEX product", "5:27", "expected '(', found 'product'; write INDEX (product)"),
        (
            "STORED IN WAREHOUSE INDEX ()",
            "5:27",
            "no column between the parentheses; write for example INDEX (product)",
        ),
        ("STORED IN WAREHOUSE INDEX (product, PRODUCT)", "5:37", "PRODUCT is named twice; take one out."),
        ("STORED IN WAREHOUSE INDEX (price), (price)", "5:36", "this index is declared twice; take one of them out."),
        ("STORED IN WAREHOUSE COMPACT WEEKLY", "5:29", "found 'WEEKLY'. Did you mean WEEK?"),
        ("STORED IN WAREHOUSE COMPACT", "6:1", "the period whose tables are put together: DAY, WEEK, MONTH, YEAR"),
        ("COMPACT WEEK", "5:1", "COMPACT is for tables of the warehouse, and shop.sales is stored in the lake"),
        ("SORTED BY (prize)", "5:12", "shop.sales has no column prize. Did you mean price?"),
        (
            "SORTED BY (price, sizes)",
            "5:19",
            "sizes is of type ARRAY<INT>, whose values have no order: SORTED BY needs",
        ),
        ("BOUNDS (price, prize)", "5:16", "shop.sales has no column prize. Did you mean price?"),
        ("BOUNDS (day)", "5:9", "day is a partition column, which has one value in each batch: BOUNDS is about"),
        ("BOUNDS (sizes)", "5:9", "sizes is of type ARRAY<INT>, whose values have no order: BOUNDS needs"),
        ("BOUNDS price", "5:8", "expected '(', found 'price'; write BOUNDS (price)."),
        ("ICEBERG 'no'", "5:9", "expected whether it is an Iceberg table too"),
        ("STORED IN WAREHOUSE ICEBERG ON", "5:21", "is stored in the warehouse; leave it out."),
        ("STORED IN WAREHOUSE BOUNDS (price)", "5:21", "is stored in the warehouse; leave it out."),
        ("RETAIN BATCHES", "6:1", "expected a length, for example 1 DAY, a whole number from 1, found 'AS'."),
        ("RETAIN BATCHES -3 DAYS", "5:16", "a whole number from 1, found '-'."),
        ("RETAIN BATCHES 3 DAYS AND 2", "5:27", "expected LAST, found '2'; write RETAIN BATCHES 30 DAYS AND LAST 3."),
        ("RETAIN 3 DAYS", "5:1", "unexpected 'RETAIN' in the header. Write RETAIN BATCHES 30 DAYS, of batches that"),
        ("FRESH WITHIN 0 HOURS", "5:14", "expected a length, for example 1 DAY, a whole number from 1, found '0'."),
        ("FRESH WITHIN 2 HOURZ", "5:16", "found 'HOURZ'. Did you mean HOUR?"),
        ("FRESH WITHIN", "6:1", "expected a length, for example 1 DAY, a whole number from 1, found 'AS'."),
        ("FRESH 2 HOURS", "5:1", "unexpected 'FRESH' in the header. Write FRESH WITHIN 2 HOURS, of the end of a"),
        ("FRESH WITHIN 1 HOUR FRESH WITHIN 2 HOURS", "5:21", "FRESH WITHIN is given twice; the first stands in line 5"),
        ("STORED IN WAREHOUSE GRANT SELECT TO a, A", "5:40", "a is named twice; take one out."),
        ("STORED IN WAREHOUSE GRANT SELECT TO", "6:1", "expected a role, found 'AS'"),
        ("STORED IN WAREHOUSE GRANT SELECT TO (a)", "5:37", "found '('; write for example GRANT SELECT TO analysts"),
        ("STORED IN WAREHOUSE GRANT ALL TO a", "5:21", "unexpected 'GRANT' in the header. Write GRANT SELECT TO analy"),
        ("GRANT SELECT TO a", "5:1", "GRANT SELECT TO is for tables of the warehouse, and shop.sales is stored in"),
        ("SORTED BY price", "5:11", "expected '(', found 'price'; write SORTED BY (product)."),
        ("SORTED product", "5:1", "unexpected 'SORTED' in the header. Write SORTED BY (product)."),
        (
            "STORED IN WAREHOUSE SORTED BY (price)",
            "5:21",
            "SORTED BY is for files of the lake, and shop.sales is stored",
        ),
        ("INDEX (product)", "5:1", "shop.sales is stored in the lake; write STORED IN WAREHOUSE, or leave it out."),
    ],
)
def test_what_cannot_be_is_told_at_its_place(clauses: str, place: str, message: str) -> None:
    assert [
        problem for problem in problems(clauses) if problem.startswith(f"sales.sql:{place} ") and message in problem
    ]


def test_tables_are_put_together_only_by_time() -> None:
    text = (
        "CREATE DATASET shop.by_store (n INT) STORED IN WAREHOUSE PARTITIONED BY (store STRING) "
        "FOR store IN ('Paris', 'Detroit') COMPACT WEEK AS SELECT 1 AS n"
    )
    with pytest.raises(SqlErrors, match="COMPACT WEEK puts windows of time together, and no generator is a TIMESERIES"):
        compiled([SourceFile("by_store.sql", text)], {}, Cache())
