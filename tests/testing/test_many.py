"""Hundreds of tests in one session, each in a second or less on an idle machine: as many as a project grows to have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.testing.shop import run_tests, write_shop

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TESTS = 200


@pytest.mark.spark
@pytest.mark.slow
def test_hundreds_of_tests_do_not_see_each_other(tmp_path: Path, spark: SparkSession) -> None:
    text = "".join(
        f"""\
- name: test {number}
  dataset: shop.revenue
  partition: {{day: 2026-11-02}}
  inputs:
    shop.orders:
      - {{day: 2026-11-02, store: Rome, product: pen, price: {number}}}
      - {{day: 2026-11-01, store: Paris, product: pen, price: 1}}
    shop.tariffs: [{{product: pen, tax: 0.5}}]
  expected:
    - {{product: pen, orders: 2, revenue: {number + 1 + (number == 77)}, tax: {(number + 1) / 2}}}
"""
        for number in range(TESTS)
    )
    outcomes = run_tests(write_shop(tmp_path), spark, text)
    assert len(outcomes) == TESTS
    assert [outcome.case.name for outcome in outcomes if not outcome.passed] == ["test 77"]
