"""Reading as of a batch, a time or a run, from either store; the batch of each row; and what a sweep leaves readers."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import TYPE_CHECKING

import pytest

from tests.support.sales import PARIS, ZURICH, sales_dataset
from varve.catalog.history.history import History
from varve.dagster.reading import Reader
from varve.model.batch import BatchId
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import NotKept, UnknownPartition, VarveError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from tests.support.workbench import Workbench

pytestmark = pytest.mark.spark


@pytest.fixture(params=[StoreKind.LAKE, StoreKind.WAREHOUSE])
def sales(request: pytest.FixtureRequest) -> Dataset:
    return sales_dataset(request.param)


@pytest.fixture
def reader(workbench: Workbench) -> Iterator[Reader]:
    catalog = workbench.catalog()
    yield Reader(workbench.settings, catalog, lambda: workbench.spark)
    catalog.connection.close()


def sold(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted((row["store"], row["sold"]) for row in frame.collect())


def test_a_dataset_is_read_as_of_a_batch_a_time_and_a_run(workbench: Workbench, reader: Reader, sales: Dataset) -> None:
    first = workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "pen", 1), (ZURICH, "ink", 2)])[PARIS.path]
    second = workbench.publish(sales, [PARIS], [(PARIS, "pen", 10)])[PARIS.path]
    workbench.publish(sales, [ZURICH], [(ZURICH, "ink", 20)])
    assert sold(reader.read(sales)) == [("Paris", 10), ("Zürich", 20)]
    assert sold(reader.read(sales, as_of=first.batch_id)) == [("Paris", 1), ("Zürich", 2)]
    assert sold(reader.read(sales, as_of=second.batch_id)) == [("Paris", 10)]
    assert sold(reader.read(sales, as_of=first.published_at)) == [("Paris", 1), ("Zürich", 2)]
    assert sold(reader.read(sales, as_of=second.published_at)) == [("Paris", 10), ("Zürich", 2)]
    assert sold(reader.read(sales, run=second.run_id)) == [("Paris", 10), ("Zürich", 2)]
    assert sold(reader.read(sales, as_of=first.published_at, where={"store": "Zürich"})) == [("Zürich", 2)]
    assert reader.batches(sales, as_of=first.published_at - dt.timedelta(seconds=1)) == []
    for wrong, expected_message in (
        ({"where": {"store": "Rome"}}, "no partition with {'store': 'Rome'}"),
        ({"where": {"shop": "Paris"}}, "is not partitioned by shop"),
    ):
        with pytest.raises(UnknownPartition, match=expected_message):
            reader.read(sales, **wrong)
    with pytest.raises(VarveError, match="run 'nobody' has published nothing"):
        reader.read(sales, run="nobody")
    with pytest.raises(NotKept, match="there is no batch 7"):
        reader.read(sales, as_of=BatchId(7))


def test_each_row_tells_its_batch_where_asked(workbench: Workbench, reader: Reader, sales: Dataset) -> None:
    first = workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "pen", 1), (ZURICH, "ink", 2)])
    batch_frame = reader.read(sales, with_batch_id=True)
    assert batch_frame.columns[-1] == "_batch_id"
    assert {row["_batch_id"] for row in batch_frame.collect()} == {first[PARIS.path].batch_id.millis}
    second = workbench.publish(sales, [PARIS], [(PARIS, "pen", 10)])
    batch_by_store = {row["store"]: row["_batch_id"] for row in reader.read(sales, with_batch_id=True).collect()}
    assert batch_by_store == {
        "Paris": second[PARIS.path].batch_id.millis,
        "Zürich": first[ZURICH.path].batch_id.millis,
    }


def test_a_sweep_leaves_what_is_being_read_as_of_then(workbench: Workbench, reader: Reader, sales: Dataset) -> None:
    first = workbench.publish(sales, [PARIS], [(PARIS, "pen", 1)])[PARIS.path]
    workbench.publish(sales, [PARIS], [(PARIS, "pen", 10)])
    frame = reader.read(sales, as_of=first.published_at)
    history = History(reader.catalog.connection)
    (retired,) = history.retired(sales.name, older_than=dt.timedelta(0), keep_last=0)
    assert retired.kept == "pinned"
    assert sold(frame) == [("Paris", 1)]
    history.unpin(sales.name, first.batch_id)
    history.mark_swept([dataclasses.replace(retired, kept="")])
    with pytest.raises(NotKept, match=f"was swept since: {PARIS} batch {first.batch_id}"):
        reader.read(sales, as_of=first.published_at)
