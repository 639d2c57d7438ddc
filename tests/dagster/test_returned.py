"""A function that returns no rows publishes nothing, and its run fails: whatever its annotation says."""

import uuid
from contextlib import closing
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from tests.dagster import group_run
from varve.dagster.assets.datasets import dataset_asset
from varve.dagster.definitions import build_defs

if TYPE_CHECKING:
    from tests.support.workbench import Workbench

pytestmark = pytest.mark.spark


def test_a_function_that_says_it_returns_nothing_is_told_that_it_is_to_return_rows(workbench: "Workbench") -> None:
    """Dagster would call no IO manager: the run succeeded, and the sensor asked for it again at each tick."""
    dataset = group_run.datasets(f"none{uuid.uuid4().hex[:8]}")["lake_first"]

    @dataset_asset(dataset)
    def lake_first(context: dg.AssetExecutionContext) -> None:
        context.log.info("I have written it somewhere myself.")

    job = build_defs([lake_first]).resolve_implicit_global_asset_job_def()
    assert not job.execute_in_process(partition_key=group_run.DAYS[0], raise_on_error=False).success
    with closing(workbench.catalog().connection) as connection:
        statement = "select failure from varve.batch where dataset = %s and state = 'failed'"
        ((reason,),) = connection.execute(statement, (dataset.name,)).fetchall()
    assert "is to return a DataFrame of Spark, and returned nothing; is its `return` missing?" in reason
