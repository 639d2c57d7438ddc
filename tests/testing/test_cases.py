"""Tests that are files: what passes and what fails, and that the run behind them is that of production."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest

from tests.testing.shop import run_tests, write_shop
from varve.testing.cases.shown import difference_values, outcome_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from syrupy.assertion import SnapshotAssertion

    from varve.project import Project

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return write_shop(tmp_path_factory.mktemp("shop"))


def revenue(inputs: str, result: str, *, partition: str = "{day: 2026-11-02}", name: str = "a test") -> str:
    return (
        f"- name: {name}\n  dataset: shop.revenue\n  partition: {partition}\n  inputs:\n"
        + textwrap.indent(textwrap.dedent(inputs).strip("\n"), "    ")
        + "\n"
        + textwrap.indent(textwrap.dedent(result).strip("\n"), "  ")
        + "\n"
    )


SOLD = """
shop.orders:
  - {day: 2026-11-01, store: Paris, product: ink, price: 0.10}
  - {day: 2026-11-02, store: Rome, product: ink, price: 0.20}
  - {day: 2026-11-02, store: Paris, product: pen, price: 2}
  - {day: 2026-11-02, store: Paris, product: pen}
shop.tariffs:
  - {product: pen, tax: 0.25}
"""


def test_the_rows_of_a_run_in_any_order_pass(project: Project, spark: SparkSession) -> None:
    expected = """
    columns: exact
    expected:
      - {product: pen, orders: 2, revenue: 2.00, tax: 0.5}
      - {product: ink, orders: 2, revenue: 0.30, tax: null}
    """
    (outcome,) = run_tests(project, spark, revenue(SOLD, expected))
    assert outcome.message == ""


def test_columns_that_a_row_does_not_name_are_not_compared(project: Project, spark: SparkSession) -> None:
    expected = "expected: [{product: pen}, {revenue: 0.30, day: 2026-11-02}]"
    (outcome,) = run_tests(project, spark, revenue(SOLD, expected))
    assert outcome.message == ""


def test_a_column_that_is_not_read_need_not_be_written_though_it_is_not_null(
    project: Project, spark: SparkSession
) -> None:
    text = """\
    - name: counts
      dataset: shop.counted
      partition: {day: 2026-11-02}
      inputs: {shop.orders: [{store: Rome}, {store: Rome}, {store: Paris}]}
      expected: [{orders: 3}]
    """
    assert run_tests(project, spark, text)[0].message == ""


def test_each_row_stands_for_one(project: Project, spark: SparkSession) -> None:
    """Two rows are expected that only one of those made is like."""
    (outcome,) = run_tests(project, spark, revenue(SOLD, "expected: [{product: pen}, {product: pen}]"))
    assert outcome.message == "2 rows were made, 2 expected: 1 changed."
    # The first one has a choice, and leaves the other what it needs.
    (outcome,) = run_tests(project, spark, revenue(SOLD, "expected: [{orders: 2}, {orders: 2, product: ink}]"))
    assert outcome.passed


def test_wrong_rows_are_shown_as_a_difference(
    project: Project, spark: SparkSession, snapshot: SnapshotAssertion
) -> None:
    expected = """
    expected:
      - {product: pen, orders: 3, revenue: 2.00, tax: 0.5}
      - {product: lamp, orders: 1, revenue: 90.00, tax: 9}
    """
    (outcome,) = run_tests(project, spark, revenue(SOLD, expected))
    assert outcome_text(outcome) == snapshot
    assert outcome.difference is not None
    assert difference_values(outcome.difference) == snapshot


@pytest.mark.parametrize(("tax", "tolerance", "passes"), [
    ("0.5000000001", "", True), ("0.51", "", False), ("0.51", "tolerance: 0.05\n", True),
    ("0.5000000001", "tolerance: 0\n", False),
])  # fmt: skip
def test_floating_point_numbers_are_compared_with_a_tolerance(
    project: Project, spark: SparkSession, tax: str, tolerance: str, *, passes: bool
) -> None:
    expected = f"{tolerance}expected: [{{product: pen, tax: {tax}}}, {{product: ink}}]"
    (outcome,) = run_tests(project, spark, revenue(SOLD, expected))
    assert outcome.passed is passes


def test_several_partitions_are_one_run(project: Project, spark: SparkSession) -> None:
    sold = SOLD.replace("{product: pen, tax", "{day: 2026-11-02, product: pen, tax")
    expected = """
    expected:
      - {day: 2026-11-02, product: pen, orders: 2, tax: 0.5}
      - {day: 2026-11-02, product: ink, orders: 2}
      - {day: 2026-11-03, product: pen, orders: 2, tax: null}
      - {day: 2026-11-03, product: ink, orders: 1}
    """
    text = revenue(sold, expected, partition="[{day: 2026-11-03}, {day: 2026-11-02}]")
    (outcome,) = run_tests(project, spark, text)
    assert outcome.message == ""


def test_an_expectation_that_rows_break_fails_the_test_unless_that_is_expected(
    project: Project, spark: SparkSession
) -> None:
    refund = "shop.orders: [{day: 2026-11-02, store: Rome, product: pen, price: -2}]\nshop.tariffs: []"
    texts = [
        revenue(refund, "expected: [{product: pen, revenue: -2}]", name="fails"),
        revenue(refund, "fails: no_refunds", name="passes"),
        revenue(refund, "fails: something else", name="fails otherwise"),
        revenue(SOLD, "fails: no_refunds", name="does not fail"),
    ]
    failed, passed, other, well = run_tests(project, spark, "".join(texts))
    assert failed.message == "shop.revenue: 1 row breaks no_refunds (revenue >= 0). A run would publish nothing."
    assert passed.passed
    assert other.message.startswith("It was to fail with 'something else'; it failed with: shop.revenue: 1 row breaks")
    assert well.message == "It was to fail with 'no_refunds'; it made 2 rows."


EVERY_TYPE = """\
- name: every type
  dataset: shop.same_types
  partition: {day: 2026-11-02}
  inputs:
    shop.types:
      - &row
        text: no
        flag: true
        tiny: -128
        small: 32767
        number: 007
        large: 9223372036854775807
        half: 0.1
        whole: .inf
        money: 1.5
        day_of: 2026-11-02
        at: 2026-11-02T10:00:00+01:00
        local: 2026-11-02T10:00:00.000001
        bytes: 0x00ff
        list: [1, null, 3]
        pairs: {b: 2.50, a: 1}
        place: {city: "null", at: 2026-11-02T09:00:00Z}
      - text: "only a text"
      - {whole: .nan, bytes: !!binary AP8=, list: [], pairs: {}, place: {}}
  expected:
    - <<: *row
      at: "2026-11-02T09:00:00"
      pairs: {a: 1.00, b: 2.5}
      bytes: !!binary AP8=
    - {text: only a text, flag: null, list: null, pairs: null, place: null}
    - {whole: .nan, bytes: "0x00ff", list: [], pairs: {}, place: {city: null, at: null}}
- name: of CSV
  dataset: shop.same_types
  partition: {day: 2026-11-02}
  inputs:
    shop.types:
      csv: |
        text, flag, money, at,                   list,     pairs
        a b,  TRUE, 2.125, 2026-11-02T09:00:00Z, "[1, 2]", "{a: 1}"
        c,    ,     ,      ,                     ,
  expected:
    csv: |
      text,money,list,pairs,flag
      c,,,,
      a b,2.125,"[1, 2]","{a: 1}",true
"""


def test_every_type_has_values(project: Project, spark: SparkSession) -> None:
    assert [outcome.message for outcome in run_tests(project, spark, EVERY_TYPE)] == ["", ""]


@pytest.mark.parametrize(
    ("changed", "other"),
    [
        ("text: no\n", "text: nein\n"), ("flag: true", "flag: false"), ("tiny: -128", "tiny: 1"), ("0.1", "0.100001"),
        ("money: 1.5", "money: 1.501"), ("at: 2026-11-02T10:00:00+01:00", "at: 2026-11-02T10:00:00Z"),
        ("00.000001", "00.000002"), ("0x00ff", "0x00fe"), ("[1, null, 3]", "[1, 3, null]"), ("b: 2.50", "b: 2.51"),
        ('city: "null"', "city: null"), ("whole: .inf", "whole: 1e300"), ("day_of: 2026-11-02", "day_of: 2026-11-03"),
    ],
)  # fmt: skip
def test_another_value_of_any_type_is_another_row(
    project: Project, spark: SparkSession, changed: str, other: str
) -> None:
    both = EVERY_TYPE.partition("- name: of CSV")[0]
    before, row, after = both.partition("      - &row\n")
    expected = after.partition("    - <<: *row\n")[2].partition("    - {text")[0]
    # The row is written out in what is expected, with the one value changed.
    written = textwrap.dedent(after.partition('      - text: "only')[0])
    result = textwrap.indent(written.replace(changed, other, 1), "      ").replace("      ", "    - ", 1)
    text = f"{before}{row}{after.partition('      - text')[0]}  expected:\n{result}"
    assert expected
    (outcome,) = run_tests(project, spark, text)
    assert "1 changed" in outcome.message


def test_a_day_of_25_hours_and_its_window_of_two_days(project: Project, spark: SparkSession) -> None:
    """In Paris, 2026-10-25 has 25 hours; the days are dates, whatever their length."""
    sold = """
    shop.orders:
      - {day: 2026-10-24, store: Paris, product: pen, price: 1, at: 2026-10-24T23:59:00+02:00}
      - {day: 2026-10-25, store: Paris, product: pen, price: 2, at: 2026-10-25T02:30:00+01:00}
    shop.tariffs: []
    """
    text = revenue(sold, "expected: [{product: pen, orders: 2, revenue: 3}]", partition="{day: 2026-10-25}")
    assert run_tests(project, spark, text)[0].message == ""


def test_a_dataset_without_partitions_is_tested_without_one(project: Project, spark: SparkSession) -> None:
    (project.assets / "dearest.sql").write_text(
        "CREATE DATASET shop.dearest COMMENT 'One row per product.' ALLOW FULL SCAN OF shop.orders\n"
        "AS SELECT product, MAX(price) AS price FROM shop.orders GROUP BY product;\n"
    )
    text = """\
    - name: of all days and stores
      dataset: shop.dearest
      inputs:
        shop.orders:
          - {day: 2026-10-24, store: Rome, product: pen, price: 2}
          - {day: 2026-10-25, store: Paris, product: pen, price: 3}
      expected: [{product: pen, price: 3.00}]
    """
    assert [outcome.message for outcome in run_tests(project, spark, text)] == [""]


def test_keys_of_dynamic_sets_are_those_that_the_test_names(project: Project, spark: SparkSession) -> None:
    text = """\
    - name: of one key
      dataset: shop.by_product
      partition: {product: pen}
      inputs:
        shop.orders:
          - {store: Rome, product: pen, price: 2}
          - {store: Paris, product: pen, price: 3}
          - {store: Paris, product: ink, price: 9}
      expected: [{price: 3.00}]
    - name: of a dataset with the same set
      dataset: shop.doubled
      partition: {product: pen}
      inputs:
        shop.by_product: [{price: 2}]
      expected: [{price: 4.00}]
    """
    assert [outcome.message for outcome in run_tests(project, spark, text)] == ["", ""]


def test_python_datasets_run_as_the_functions_that_they_are(project: Project, spark: SparkSession) -> None:
    text = """\
    - name: an asset
      dataset: shop.best
      partition: {day: 2026-11-02, store: Rome}
      inputs: {shop.orders: [{product: pen, price: 2}, {product: ink, price: 3}]}
      expected: [{product: ink, day: 2026-11-02, store: Rome}]
    - name: a partition that is empty breaks an expectation
      dataset: shop.best
      partition: {day: 2026-11-02, store: Rome}
      inputs: {shop.orders: []}
      fails: Expectation some (count(*) > 0) does not hold for 2026-11-02|Rome
    - name: rows of another partition are refused as a run refuses them
      dataset: shop.best
      partition: {day: 2026-11-02, store: Rome}
      inputs: {shop.orders: [{product: stray}]}
      fails: 1 of 1 rows lie outside the partitions of this run (day=2026-11-02/store=Rome)
    - name: a function that a file names
      dataset: shop.shouted
      partition: {day: 2026-11-02}
      inputs: {shop.orders: [{store: Rome, product: pen}, {store: Paris, product: pen}]}
      expected: [{product: PEN}]
    - name: a function that raises
      dataset: shop.shouted
      partition: {day: 2026-11-02}
      inputs: {shop.orders: [{store: Rome, product: secret}]}
      fails: "ValueError: nobody shouts a secret"
    """
    assert [outcome.message for outcome in run_tests(project, spark, text)] == [""] * 5


def test_the_test_of_a_broken_dataset_fails_and_others_run(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> None:
    project = write_shop(tmp_path_factory.mktemp("broken"))
    file = project.assets / "revenue.sql"
    file.write_text(file.read_text().replace("SUM(orders.price)", "SUM(orders.prise)"))
    by_product = """\
- name: of one key
  dataset: shop.by_product
  partition: {product: pen}
  inputs: {shop.orders: [{store: Rome, product: pen, price: 2}]}
  expected: [{price: 2}]
"""
    broken, other = run_tests(project, spark, revenue(SOLD, "expected: []") + by_product)
    assert "assets/revenue.sql:" in broken.message
    assert "prise" in broken.message
    assert other.passed
