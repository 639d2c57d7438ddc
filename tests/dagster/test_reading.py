"""Reading as of a batch, a time or a run, from either store; the batch of each row; and what a sweep leaves readers."""

from __future__ import annotations

import dataclasses
import datetime as dt
import time
from typing import TYPE_CHECKING

import pendulum
import pytest

from tests.support.sales import PARIS, ZURICH, sales_dataset
from varve.catalog.history.history import History
from varve.dagster.reading import Reader
from varve.model.batch import BatchId
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import NotKept, UnknownPartition, VarveError
from varve.model.partitions.grain import Grain
from varve.model.partitions.time_columns import TimeColumn
from varve.model.partitions.time_dimension import TimeDimension
from varve.model.schema import ColumnType

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


@pytest.fixture
def in_berlin(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The zone of this process."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_berlin")
def test_a_partition_is_found_as_its_key_is_spelt_as_sql_spells_it_and_as_python_has_it(
    workbench: Workbench, reader: Reader
) -> None:
    columns = (TimeColumn("hour", "%s", ColumnType.TIMESTAMP), TimeColumn("month", "%m", ColumnType.INT))
    start = pendulum.datetime(2026, 9, 30, tz="Europe/Berlin")
    hours = sales_dataset(StoreKind.LAKE, dimensions=(TimeDimension("t", Grain.HOUR, start, columns=columns),))
    with pytest.raises(UnknownPartition, match="is not partitioned by t, but by hour, month"):
        reader.batches(hours, where={"t": "2026-10-25T02"})
    texts = ("2026-09-30T23", "2026-10-25T00", "2026-10-25T02")
    september, before, wanted = keys = [hours.partitioning.from_dagster(text) for text in texts]
    workbench.publish(hours, keys, [(key, "pen", sold) for sold, key in enumerate(keys)])

    def found(**where: object) -> list[str]:
        return [batch.partition for batch in reader.batches(hours, where=where)]

    for moment in (
        "2026-10-25T02", "2026-10-25 00:00:00", dt.datetime(2026, 10, 25, tzinfo=dt.UTC),
        dt.datetime(2026, 10, 25, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))),
        # Without a zone it is UTC, also where the clock of this machine is another.
        dt.datetime.fromisoformat("2026-10-25T00:00:00"),
    ):  # fmt: skip
        assert found(hour=moment) == [wanted.path]
    for month in ("9", "09", 9):
        assert found(month=month) == [september.path]
    assert found(hour="2026-10-25T00", month=10) == [before.path]
    for nothing in ({"hour": "2026-10-25T03"}, {"hour": "2026-10-25T02", "month": 9}, {"month": "October"}):
        with pytest.raises(UnknownPartition, match=f"no partition with {nothing} had a batch then"):
            found(**nothing)


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
