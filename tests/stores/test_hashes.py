"""The hashes of batches that a build is compared with: the same whenever and however they are made, in both stores."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.sales import COLUMNS, DETROIT, PARIS, ZURICH, sales_dataset
from varve.catalog.planning.hashes import HashesOfBatches
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import MissingUpstream
from varve.model.schema import Column, ColumnType, Schema, column_set
from varve.stores.comparison import hash_replaced
from varve.stores.folders import content

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.workbench import Workbench
    from varve.catalog.catalog import Catalog
    from varve.model.batch import Batch, Hashes
    from varve.model.build import Build
    from varve.model.partitions.key import PartitionKey

pytestmark = pytest.mark.spark

ROWS = [(PARIS, "pen", 3), (PARIS, "ink", -4), (PARIS, "ink", -4), (ZURICH, "pen", 2**40)]
SOLD = tuple(column for column in COLUMNS.columns if column.name in {"sold", "at"})
Rows = list[tuple[Any, ...]]


@pytest.fixture(params=[StoreKind.LAKE, StoreKind.WAREHOUSE])
def sales(request: pytest.FixtureRequest) -> Dataset:
    return sales_dataset(request.param)


@pytest.fixture
def catalog(workbench: Workbench) -> Iterator[Catalog]:
    found = workbench.catalog()
    yield found
    found.connection.close()


def published(
    workbench: Workbench, catalog: Catalog, dataset: Dataset, keys: Sequence[PartitionKey], rows: Rows, *,
    compared: bool = True,
) -> dict[str, tuple[str | None, dict[str, str] | None]]:  # fmt: skip
    """Publish these partitions by one build; what the catalog has of its hashes."""
    build = replace(workbench.begin(catalog, dataset, keys), column_sets=(SOLD,), compared=compared)
    store = workbench.store(dataset, catalog)
    columns = [*dataset.partitioning.names, *(column.name for column in dataset.schema.columns)]
    staged = store.stage(build, workbench.frame(dataset, rows).select(*columns))
    catalog.staged(build, staged)
    hash_replaced(store, catalog, build)
    store.publish(build, staged)
    catalog.release(build)
    return hashes_of(catalog, dataset)


def hashes_of(catalog: Catalog, dataset: Dataset) -> dict[str, tuple[str | None, dict[str, str] | None]]:
    """What the catalog has of the hashes of current batches."""
    rows = catalog.connection.execute(
        "select partition, content, digests from varve.current join varve.batch using (dataset, partition, batch_id) "
        "where dataset = %s", (dataset.name,),
    )  # fmt: skip
    return {path: (whole, digests) for path, whole, digests in rows}


def still_unhashed(catalog: Catalog, build: Build, batches: dict[str, Batch]) -> list[Batch]:
    sets, whole = content.set_names(build), content.can_hash(build.dataset.schema.columns)
    return HashesOfBatches(catalog.connection).unhashed(build.dataset.name, list(batches.values()), sets, whole=whole)


def test_batches_have_the_same_hashes_whichever_run_made_them_and_when(
    workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    keys, name = [PARIS, ZURICH, DETROIT], column_set(SOLD)
    together = published(workbench, catalog, sales, keys, ROWS)
    for key in keys:
        each = published(workbench, catalog, sales, [key], [row for row in ROWS[::-1] if row[0] == key])
        assert each[key.path] == together[key.path]
    by_hash = published(workbench, catalog, sales, keys, ROWS, compared=False)
    assert set(by_hash.values()) == {(None, None)}
    # Another build is compared with these: whoever reads some columns may be spared where others have changed.
    without = catalog.current(sales.name)
    later = published(workbench, catalog, sales, keys, [*ROWS[:3], (DETROIT, "pen", 1)])
    build = replace(workbench.begin(catalog, sales, keys), column_sets=(SOLD,), compared=True)
    assert still_unhashed(catalog, build, without) == []
    made_later = {
        path: (whole, digests) for path, whole, digests in catalog.connection.execute(
            "select partition, content, digests from varve.batch where dataset = %s and batch_id = %s",
            (sales.name, without[PARIS.path].batch_id.millis),
        )
    }  # fmt: skip
    assert made_later == together
    assert {path for path in later if later[path] == together[path]} == {PARIS.path}
    assert all(digests is not None and set(digests) == {name} for _, digests in later.values())


def test_whole_rows_are_not_equal_to_rows_with_a_column_more(
    workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    """`colour` was dropped: who read it with all others got something else; who reads `sold` gets the same."""
    wide = replace(sales, schema=Schema((*COLUMNS.columns, Column("colour", ColumnType.STRING))))
    frame = workbench.frame(sales, ROWS).selectExpr("*", "'red' as colour")
    keys = [PARIS, ZURICH]
    before = workbench.publish_frame(wide, keys, frame)
    store = workbench.store(sales, catalog)
    build = replace(workbench.begin(catalog, sales, keys), column_sets=(SOLD,), compared=True)
    of_batches = store.hashes(build, list(before.values()))
    assert [of_rows.content for of_rows in of_batches.values()] == [None, None]
    catalog.release(build)
    narrow = published(workbench, catalog, sales, keys, ROWS)
    assert {path: digests for path, (_, digests) in narrow.items()} == {
        path: of_rows.digests for path, of_rows in of_batches.items()
    }
    assert all(whole is not None for whole, _ in narrow.values())


def test_a_batch_that_cannot_be_read_stops_no_build(
    workbench: Workbench,
    catalog: Catalog,
    sales: Dataset,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = [PARIS, ZURICH]
    published(workbench, catalog, sales, keys, ROWS, compared=False)

    def gone(*_: object) -> dict[str, Hashes]:
        raise MissingUpstream("day=2013-01-05 is gone")

    store = workbench.store(sales, catalog)
    monkeypatch.setattr(type(store), "hashes", gone)
    with caplog.at_level(logging.WARNING):
        after = published(workbench, catalog, sales, keys, ROWS)
    assert all(whole is not None for whole, _ in after.values())
    assert "its readers are computed even where they would get the same rows: day=2013-01-05 is gone" in caplog.text


def test_a_batch_that_somebody_publishes_or_sweeps_in_this_moment_is_not_waited_for(
    workbench: Workbench, catalog: Catalog, sales: Dataset
) -> None:
    keys = [PARIS, ZURICH]
    published(workbench, catalog, sales, keys, ROWS, compared=False)
    before = list(catalog.current(sales.name).values())
    build = replace(workbench.begin(catalog, sales, keys), column_sets=(SOLD,), compared=True)
    made = workbench.store(sales, catalog).hashes(build, before)
    somebody = workbench.catalog().connection
    with somebody.transaction():
        somebody.execute(
            "select from varve.batch where dataset = %s and partition = %s for update", (sales.name, PARIS.path)
        )
        HashesOfBatches(catalog.connection).record(sales.name, before, made)
    somebody.close()
    assert {path for path, (whole, _) in hashes_of(catalog, sales).items() if whole} == {ZURICH.path}


def test_what_cannot_be_hashed_is_not_read_again_and_again(workbench: Workbench, catalog: Catalog) -> None:
    """Spark hashes no maps: whole rows have no hash, and neither has a set of columns with one."""
    tags = Column("tags", ColumnType("MAP<STRING, STRING>"))
    tagged = replace(sales_dataset(StoreKind.LAKE), schema=Schema((*COLUMNS.columns, tags)))
    keys = [PARIS, ZURICH]
    frame = workbench.frame(tagged, ROWS).selectExpr("*", "map('a', product) as tags")
    before = workbench.publish_frame(tagged, keys, frame)
    build = replace(workbench.begin(catalog, tagged, keys), column_sets=(SOLD, (tags,)), compared=True)
    assert still_unhashed(catalog, build, before) == list(before.values())
    assert hash_replaced(workbench.store(tagged, catalog), catalog, build) == len(keys)
    assert set(hashes_of(catalog, tagged)[PARIS.path][1] or ()) == {column_set(SOLD)}
    assert hash_replaced(workbench.store(tagged, catalog), catalog, build) == 0
    catalog.release(build)


def test_a_folder_that_is_gone_is_told_and_stops_no_build(
    workbench: Workbench, catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    sales, keys = sales_dataset(StoreKind.LAKE), [PARIS, ZURICH]
    published(workbench, catalog, sales, keys, ROWS, compared=False)
    gone = catalog.current(sales.name)[PARIS.path].location
    shutil.rmtree(gone.removeprefix("file://"))
    with caplog.at_level(logging.WARNING):
        after = published(workbench, catalog, sales, keys, ROWS)
    assert all(whole is not None for whole, _ in after.values())
    assert gone in caplog.text
    assert "its readers are computed even where they would get the same rows" in caplog.text
