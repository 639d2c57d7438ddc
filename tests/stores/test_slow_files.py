"""Nothing is serial in partitions: what is asked of a file system that is far away, and how many calls wait at once.

No time is measured: what counts is how many calls there are for a partition, and that they overlap.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pyarrow.parquet as pq
import pytest

from tests.support.sales import key, sales_dataset
from tests.support.slow_files import Calls, slow_files
from varve.catalog.catalog import Catalog
from varve.model.batch import BatchId
from varve.model.dataset import StoreKind
from varve.stores.folders import write
from varve.stores.folders.file_calls import AT_ONCE
from varve.stores.folders.layout import Layout
from varve.stores.frames import arrow_schema
from varve.stores.lake import projection
from varve.stores.lake.store import LakeStore
from varve.stores.warehouse.loading import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.support.slow_files import SlowFiles
    from varve.model.batch import StagedBatch
    from varve.model.build import Build

DAYS = 28
PARTITIONS = [key(store, day) for store in ("Paris", "Zürich") for day in range(1, DAYS + 1)]


@pytest.fixture
def catalog(fresh_database: str) -> Iterator[Catalog]:
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        opened = Catalog(connection)
        opened.ensure_schema()
        yield opened


@pytest.fixture
def far_away() -> Iterator[type[SlowFiles]]:
    with slow_files() as files:
        yield files


@pytest.fixture
def lake(catalog: Catalog, tmp_path: Path, far_away: type[SlowFiles]) -> LakeStore:
    del far_away
    return LakeStore(Layout(f"hdfs://{tmp_path}"), catalog, no_spark)


def no_spark() -> SparkSession:
    raise AssertionError("files alone are asked")


def write_files(lake: LakeStore, build: Build) -> None:
    """One file for each partition, as Spark would have written it."""
    rows = arrow_schema(build.dataset.schema.columns).empty_table()
    for partition in build.partitions:
        folder = Path(lake.layout.batch(build.dataset, partition, build.batch_id).removeprefix("hdfs://"))
        folder.mkdir(parents=True)
        pq.write_table(rows, folder / "part-00000.parquet")


def begun(lake: LakeStore) -> Build:
    build = lake.catalog.begin(sales_dataset(StoreKind.LAKE), PARTITIONS, run_id="run", code_version="1")
    write_files(lake, build)
    return build


def published(lake: LakeStore) -> tuple[Build, list[StagedBatch]]:
    build = begun(lake)
    staged = write.survey(lake.layout, build)
    lake.catalog.staged(build, staged)
    lake.catalog.publish(build)
    lake.catalog.release(build)
    return build, staged


def overlap(calls: Calls) -> bool:
    return AT_ONCE // 2 <= calls.most_at_once <= AT_ONCE


def test_a_survey_and_a_verification_ask_twice_and_once_for_a_partition(
    lake: LakeStore, far_away: type[SlowFiles]
) -> None:
    build = begun(lake)
    far_away.calls = Calls()
    staged = write.survey(lake.layout, build)
    assert far_away.calls.of == {"ls": len(PARTITIONS), "open": len(PARTITIONS)}
    assert overlap(far_away.calls)
    far_away.calls = Calls()
    lake.verify(build, staged)
    assert far_away.calls.of == {"exists": len(PARTITIONS)}
    assert overlap(far_away.calls)
    far_away.calls = Calls()
    lake.discard(build)
    assert far_away.calls.of["rm"] == len(PARTITIONS)
    assert overlap(far_away.calls)
    lake.discard(build)


def test_the_pieces_of_a_load_are_asked_for_many_at_once(lake: LakeStore, far_away: type[SlowFiles]) -> None:
    build, staged = published(lake)
    far_away.calls = Calls()
    tables = [(f"table {place}", batch) for place, batch in enumerate(staged)]
    assert load.pieces_of(lake.catalog.connection, build.dataset, tables) == []
    assert far_away.calls.of == {"ls": len(PARTITIONS), "open": len(PARTITIONS)}
    assert overlap(far_away.calls)


def test_a_walk_lists_each_folder_of_a_partition_once_and_nothing_of_what_the_catalog_keeps(
    lake: LakeStore, far_away: type[SlowFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    build, _ = published(lake)
    far_away.calls = Calls()
    assert lake.leftovers() == []
    # The root, the database, the table, the folders of days, those of shops in them.
    assert far_away.calls.of == {"ls": 3 + DAYS + len(PARTITIONS)}
    assert overlap(far_away.calls)

    class Orphan:
        partitions, dataset, batch_id = build.partitions, build.dataset, BatchId(7)

    write_files(lake, Orphan)  # type: ignore[arg-type]
    far_away.calls = Calls()
    leftovers = lake.leftovers()
    assert {leftover.dataset for leftover in leftovers} == {build.dataset.name}
    assert len(leftovers) == len(PARTITIONS)
    assert all(leftover.size > 0 and leftover.changed_at is not None for leftover in leftovers)
    assert all(dt.datetime.now(dt.UTC) - leftover.changed_at < dt.timedelta(hours=1) for leftover in leftovers)  # type: ignore[operator]
    assert far_away.calls.of["ls"] == 3 + DAYS + 2 * len(PARTITIONS)
    far_away.calls = Calls()
    # The catalog does not know these batches, so that Spark is asked whether the Hive table shows them; there is none.
    monkeypatch.setattr(projection, "shown", lambda *_: {})
    replace(lake, spark=lambda: None).sweep(build.dataset.name, [leftover.location for leftover in leftovers])
    assert far_away.calls.of["rm"] == len(PARTITIONS)
    assert overlap(far_away.calls)
    assert lake.leftovers() == []
