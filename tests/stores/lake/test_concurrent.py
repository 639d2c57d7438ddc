"""Many runs into one table at the same moment: every row arrives, or its run fails; none is lost in silence.

Plain appends into one table root lost rows in 10 of 52 jobs at exactly this point: several jobs, a table that no job
has written before.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest
from pyspark.errors import PySparkException

from tests.support.sales import DAY, sales_dataset
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import AlreadyBuilding
from varve.model.partitions.key import PartitionKey
from varve.model.schema import Column, ColumnType, Schema
from varve.services.settings import ContentHash
from varve.stores.folders.layout import Layout
from varve.stores.lake.store import LakeStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.workbench import Workbench

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WRITERS, ROUNDS, ROWS = 8, 26, 60


def dataset() -> Dataset:
    sales = sales_dataset(StoreKind.LAKE, dimensions=(DAY,))
    return dataclasses.replace(sales, schema=Schema((Column("n", ColumnType.BIGINT),)))


def days(writer: int) -> list[PartitionKey]:
    """The partitions of a writer: one or two, so that both ways of writing meet."""
    first = dt.date(2013, 1, 1) + dt.timedelta(days=2 * writer)
    return [PartitionKey.of(day=first + dt.timedelta(days=offset)) for offset in range(1 + writer % 2)]


def test_more_than_two_hundred_overlapping_writes_lose_no_row(workbench: Workbench) -> None:
    """208 writes, eight at a time, each round of eight into a table that nobody has written before."""
    together = threading.Barrier(WRITERS)
    catalogs = [workbench.catalog() for _ in range(WRITERS)]

    def write(writer: int, target: Dataset, salt: int) -> dict[str, tuple[int, str | None]]:
        catalog = catalogs[writer]
        store = LakeStore(Layout(workbench.settings.lake), catalog, lambda: workbench.spark, hashing=ContentHash.SINGLE)
        keys = days(writer)
        listed = ", ".join(f"DATE'{key['day']}'" for key in keys)
        frame = workbench.spark.sql(
            f"SELECT id + {salt} n, day FROM range({ROWS}) CROSS JOIN explode(array({listed})) t (day)"
        )
        together.wait(timeout=120)
        build = workbench.begin(catalog, target, keys)
        staged = store.stage(build, frame)
        catalog.staged(build, staged)
        catalog.publish(build)
        catalog.release(build)
        return {batch.partition.path: (batch.rows, batch.content) for batch in staged}

    try:
        with ThreadPoolExecutor(WRITERS) as pool:
            for number in range(ROUNDS):
                target = dataset()
                written: dict[str, tuple[int, str | None]] = {}
                for locations in pool.map(lambda writer: write(writer, target, number), range(WRITERS)):  # noqa: B023
                    written |= locations
                assert_whole(workbench, target, written, expected=range(number, number + ROWS))
    finally:
        for catalog in catalogs:
            catalog.connection.close()


def assert_whole(
    workbench: Workbench, target: Dataset, written: dict[str, tuple[int, str | None]], *, expected: Sequence[int]
) -> None:
    catalog = workbench.catalog()
    try:
        current = catalog.current(target.name)
    finally:
        catalog.connection.close()
    assert set(current) == {key.path for writer in range(WRITERS) for key in days(writer)}
    for path, batch in current.items():
        # Read by somebody who knows nothing of Spark.
        rows = ds.dataset(batch.location, format="parquet", exclude_invalid_files=True).to_table()["n"].to_pylist()
        assert sorted(rows) == list(expected)
        assert written[path][0] == batch.rows == ROWS
    # The same rows everywhere, so the same hash wherever there is one.
    hashes = {content for _, content in written.values() if content is not None}
    assert len(hashes) == 1


def test_jobs_that_fail_take_no_file_of_jobs_beside_them(workbench: Workbench) -> None:
    """Ten times three jobs of two partitions: one of them fails when tasks have written files already."""
    keys = [PartitionKey.of(day=dt.date(2013, 1, 1) + dt.timedelta(days=offset)) for offset in range(6)]
    catalogs = [workbench.catalog() for _ in range(3)]
    together = threading.Barrier(len(catalogs))

    def write(writer: int, target: Dataset) -> bool:
        catalog = catalogs[writer]
        store = LakeStore(Layout(workbench.settings.lake), catalog, lambda: workbench.spark)
        mine = keys[2 * writer : 2 * writer + 2]
        listed = ", ".join(f"DATE'{key['day']}'" for key in mine)
        # The last row of one day makes the first writer's job fail, after tasks of the other day have written theirs.
        value = f"if(id = {ROWS - 1} AND day = DATE'{mine[1]['day']}', raise_error('no'), id)" if writer == 0 else "id"
        frame = workbench.spark.sql(
            f"SELECT {value} n, day FROM range({ROWS}) CROSS JOIN explode(array({listed})) t (day)"
        )
        build = workbench.begin(catalog, target, mine)
        together.wait(timeout=120)
        try:
            staged = store.stage(build, frame)
        except PySparkException:
            store.discard(build)
            return False
        else:
            catalog.staged(build, staged)
            catalog.publish(build)
            return True
        finally:
            catalog.release(build)

    try:
        with ThreadPoolExecutor(len(catalogs)) as pool:
            for _ in range(10):
                target = dataset()
                assert list(pool.map(lambda writer: write(writer, target), range(3))) == [False, True, True]  # noqa: B023
                current = catalogs[0].current(target.name)
                assert set(current) == {key.path for key in keys[2:]}
                for batch in current.values():
                    rows = ds.dataset(batch.location, format="parquet", exclude_invalid_files=True).to_table()
                    assert sorted(rows["n"].to_pylist()) == list(range(ROWS))
                table = Path(Layout(workbench.settings.lake).table(target))
                # The jobs' own folders are gone, and so is what the failed one has left.
                assert [place for place in (table / "_temporary").iterdir() if place.is_dir()] == []
                assert not any(table.glob(f"{keys[0].path}/*"))
    finally:
        for catalog in catalogs:
            catalog.connection.close()


def test_of_two_runs_of_one_partition_at_the_same_moment_one_is_refused_at_once(workbench: Workbench) -> None:
    target, key = dataset(), days(0)[0]
    together = threading.Barrier(2)
    catalogs = [workbench.catalog() for _ in range(2)]
    refused = threading.Event()

    def run(place: int) -> str:
        catalog = catalogs[place]
        together.wait(timeout=30)
        try:
            build = workbench.begin(catalog, target, [key])
        except AlreadyBuilding:
            refused.set()
            return "refused"
        # The one that began goes on only when the other has been told.
        assert refused.wait(timeout=30)
        store = workbench.store(target, catalog)
        staged = store.stage(build, workbench.spark.range(5).withColumnRenamed("id", "n"))
        catalog.staged(build, staged)
        catalog.publish(build)
        return "published"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(run, range(2))) == ["published", "refused"]
    for catalog in catalogs:
        catalog.connection.close()
