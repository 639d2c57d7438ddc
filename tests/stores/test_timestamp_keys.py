"""Partitions by a TIMESTAMP, whose values Spark gives back in the zone of the process: rows are found all the same."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

import pendulum
import pytest

from tests.support.sales import sales_dataset
from varve.model.dataset import StoreKind
from varve.model.errors import ExpectationFailed
from varve.model.expectation import Expectation
from varve.model.partitions.grain import Grain
from varve.model.partitions.partitioning import Partitioning
from varve.model.partitions.time_columns import TimeColumn
from varve.model.partitions.time_dimension import TimeDimension
from varve.model.schema import Column, ColumnType, Schema
from varve.services.settings import ContentHash
from varve.stores.expectations import audit
from varve.stores.folders import content

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.workbench import Workbench
    from varve.model.dataset import Dataset

pytestmark = pytest.mark.spark

HOURS = TimeDimension(
    "hour", Grain.HOUR, pendulum.datetime(2026, 11, 22), columns=(TimeColumn("hour", "%s", ColumnType.TIMESTAMP),)
)


@pytest.fixture(params=["Asia/Kolkata", "UTC"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The zone of this process."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def hourly() -> Dataset:
    sales = sales_dataset(StoreKind.LAKE)
    return dataclasses.replace(
        sales, schema=Schema((Column("sold", ColumnType.INT),)), partitioning=Partitioning((HOURS,)),
        expectations=(Expectation("positive", "sold > 0"),),
    )  # fmt: skip


@pytest.mark.usefixtures("zone")
def test_an_expectation_that_rows_of_one_hour_break_is_told_of_that_hour_and_hashes_are_of_each(
    workbench: Workbench, hourly: Dataset
) -> None:
    catalog = workbench.catalog()
    try:
        store = dataclasses.replace(workbench.store(hourly, catalog), hashing=ContentHash.ALWAYS)
        keys = [hourly.partitioning.from_dagster(text) for text in ("2026-11-22T04", "2026-11-22T05")]
        build = workbench.begin(catalog, hourly, keys)
        frame = workbench.spark.sql(
            "select sold, timestamp(at) as hour from values (1, '2026-11-22 04:00:00Z'), (-1, '2026-11-22 05:00:00Z')"
            " as t (sold, at)"
        )
        frame = frame.selectExpr("cast(sold as int) as sold", "hour")
        staged = store.stage(build, frame)
        assert [batch.rows for batch in staged] == [1, 1]
        assert all(batch.content and batch.content.startswith("1:") for batch in staged)
        assert set(content.of_written(build, frame)) == {key.path for key in keys}
        catalog.staged(build, staged)
        with pytest.raises(ExpectationFailed, match="1 of 1 rows of 2026-11-22T05 break it, such as sold=-1") as broken:
            audit(store, build, staged)
        assert broken.value.partitions == {keys[1].path}
    finally:
        catalog.connection.close()
