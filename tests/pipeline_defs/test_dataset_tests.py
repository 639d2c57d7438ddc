"""The tests that lie beside the datasets of this project: `varve test`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.project import PROJECT
from varve.testing.cases.shown import outcome_text
from varve.testing.cases.suite import bound_cases, outcomes
from varve.testing.files.reading import cases_of, files_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_the_files_beside_the_datasets_pass(spark: SparkSession) -> None:
    cases = cases_of(files_in(PROJECT.assets), PROJECT.root)
    assert {case.dataset.text for case in cases} >= {
        "flights.delays",
        "flights.trailing_delay",
        "flights.weekly_delays",
        "flights.carrier_model",
    }
    results = list(outcomes(bound_cases(PROJECT, cases, lambda: spark), spark))
    assert [f"{outcome.case.title}: {outcome_text(outcome)}" for outcome in results if not outcome.passed] == []
