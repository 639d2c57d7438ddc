"""What both stores promise, on real Spark and real PostgreSQL; the same tests for the lake and for the warehouse."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from tests.support.sales import sales_dataset
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import AlreadyBuilding, BadInput, StalePublish
from varve.model.partitions.key import PartitionKey

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.workbench import Workbench

pytestmark = pytest.mark.spark

FIRST, SECOND, THIRD = dt.date(2013, 1, 5), dt.date(2013, 1, 6), dt.date(2013, 1, 7)


def key(day: dt.date, store: str) -> PartitionKey:
    return PartitionKey.of(day=day, store=store)


@pytest.fixture(params=[StoreKind.LAKE, StoreKind.WAREHOUSE])
def sales(request: pytest.FixtureRequest) -> Dataset:
    return sales_dataset(request.param)


def test_one_partition_is_published_and_read_back(workbench: Workbench, sales: Dataset) -> None:
    paris = key(FIRST, "Paris")
    current = workbench.publish(sales, [paris], [(paris, "pen", 3), (paris, "ink", 1)])
    assert {path: batch.rows for path, batch in current.items()} == {paris.path: 2}
    assert workbench.read(sales) == [(FIRST, "Paris", "ink", 1), (FIRST, "Paris", "pen", 3)]


def test_many_partitions_are_one_build_and_empty_ones_exist(workbench: Workbench, sales: Dataset) -> None:
    keys = [key(day, store) for day in (FIRST, SECOND) for store in ("Detroit", "Zürich")]
    current = workbench.publish(sales, keys, [(keys[0], "pen", 1), (keys[3], "ink", 2)])
    assert {path: batch.rows for path, batch in current.items()} == {
        keys[0].path: 1, keys[1].path: 0, keys[2].path: 0, keys[3].path: 1,
    }  # fmt: skip
    assert len({batch.batch_id for batch in current.values()}) == 1
    assert workbench.read(sales, [keys[1]]) == []
    assert workbench.read(sales) == [(FIRST, "Detroit", "pen", 1), (SECOND, "Zürich", "ink", 2)]


def test_a_rerun_replaces_its_partition_only(workbench: Workbench, sales: Dataset) -> None:
    paris, zurich = key(FIRST, "Paris"), key(FIRST, "Zürich")
    before = workbench.publish(sales, [paris, zurich], [(paris, "pen", 1), (zurich, "pen", 2)])
    after = workbench.publish(sales, [paris], [(paris, "pen", 10), (paris, "ink", 20)])
    assert after[zurich.path] == before[zurich.path]
    assert after[paris.path].batch_id > before[paris.path].batch_id
    assert workbench.read(sales) == [
        (FIRST, "Paris", "ink", 20), (FIRST, "Paris", "pen", 10), (FIRST, "Zürich", "pen", 2),
    ]  # fmt: skip


def test_a_rerun_without_rows_empties_its_partition(workbench: Workbench, sales: Dataset) -> None:
    paris = key(FIRST, "Paris")
    workbench.publish(sales, [paris], [(paris, "pen", 1)])
    assert workbench.publish(sales, [paris], [])[paris.path].rows == 0
    assert workbench.read(sales) == []


def test_rows_outside_the_partitions_are_refused_by_name(workbench: Workbench, sales: Dataset) -> None:
    paris, zurich, detroit = (key(FIRST, store) for store in ("Paris", "Zürich", "Detroit"))
    workbench.publish(sales, [paris], [(paris, "pen", 1)])
    with pytest.raises(BadInput, match=r"1 of 2 rows lie outside.*day=2013-01-05/store=Zürich"):
        workbench.publish(sales, [paris], [(paris, "pen", 9), (zurich, "pen", 9)])
    with pytest.raises(BadInput, match=r"1 of 3 rows lie outside.*store=Detroit"):
        workbench.publish(sales, [paris, zurich], [(paris, "pen", 9), (zurich, "pen", 9), (detroit, "pen", 9)])
    assert workbench.read(sales) == [(FIRST, "Paris", "pen", 1)]


def test_a_frame_that_does_not_fit_is_refused_by_column(
    workbench: Workbench, spark: SparkSession, sales: Dataset
) -> None:
    paris = key(FIRST, "Paris")
    catalog = workbench.catalog()
    build = workbench.begin(catalog, sales, [paris])
    frame = spark.sql("SELECT 'pen' product, 'many' sold, 1.5D price, 3 colour")
    with pytest.raises(BadInput) as refused:
        workbench.store(sales, catalog).stage(build, frame)
    assert "Missing: at TIMESTAMP." in str(refused.value)
    assert "Not declared: colour int." in str(refused.value)
    assert "sold is declared BIGINT, found STRING." in str(refused.value)
    catalog.connection.close()


def test_a_second_run_of_a_partition_is_refused_at_once(workbench: Workbench, sales: Dataset) -> None:
    paris, zurich = key(FIRST, "Paris"), key(FIRST, "Zürich")
    first, second = workbench.catalog(), workbench.catalog()
    build = workbench.begin(first, sales, [paris])
    with pytest.raises(AlreadyBuilding, match=rf"store=Paris \(run {build.run_id}"):
        workbench.begin(second, sales, [zurich, paris])
    assert workbench.begin(second, sales, [zurich]).partitions == (zurich,)
    first.connection.close()
    second.connection.close()


def test_an_older_build_is_refused_where_a_newer_one_was_published(workbench: Workbench, sales: Dataset) -> None:
    paris = key(FIRST, "Paris")
    slow = workbench.catalog()
    build = workbench.begin(slow, sales, [paris])
    staged = workbench.store(sales, slow).stage(build, workbench.frame(sales, [(paris, "slow", 1)]))
    slow.staged(build, staged)
    slow.release(build)
    workbench.publish(sales, [paris], [(paris, "fast", 2)])
    with pytest.raises(StalePublish):
        workbench.store(sales, slow).publish(build, staged)
    slow.connection.close()
    assert workbench.read(sales) == [(FIRST, "Paris", "fast", 2)]


def test_a_staged_batch_is_seen_by_no_reader(workbench: Workbench, sales: Dataset) -> None:
    paris = key(FIRST, "Paris")
    workbench.publish(sales, [paris], [(paris, "pen", 1)])
    catalog = workbench.catalog()
    build = workbench.begin(catalog, sales, [paris])
    staged = workbench.store(sales, catalog).stage(build, workbench.frame(sales, [(paris, "pen", 2)]))
    catalog.staged(build, staged)
    assert workbench.read(sales) == [(FIRST, "Paris", "pen", 1)]
    catalog.connection.close()
    assert workbench.publish(sales, [paris], [(paris, "pen", 3)])[paris.path].rows == 1
    assert workbench.read(sales) == [(FIRST, "Paris", "pen", 3)]
