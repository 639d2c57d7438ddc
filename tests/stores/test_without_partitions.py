"""Datasets without partitions in both stores: one batch, and every promise that a partition has."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.support.sales import STORE, sales_dataset
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import AlreadyBuilding, ExpectationFailed, VarveError
from varve.model.expectation import Expectation, Of
from varve.model.partitions.key import WHOLE, PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.services.postgres import warehouse_url
from varve.stores.expectations import audit
from varve.stores.folders.layout import Layout
from varve.stores.lake import drop, views

if TYPE_CHECKING:
    from tests.support.workbench import Workbench

pytestmark = pytest.mark.spark

ALL = PartitionKey.of()


@pytest.fixture(params=[StoreKind.LAKE, StoreKind.WAREHOUSE])
def products(request: pytest.FixtureRequest) -> Dataset:
    return sales_dataset(request.param, dimensions=())


def by_name(workbench: Workbench, dataset: Dataset) -> list[tuple[object, ...]]:
    """What any reader sees: through the Hive table, or through the view."""
    if dataset.store == StoreKind.LAKE:
        workbench.spark.catalog.refreshTable(dataset.name)
        rows = workbench.spark.sql(f"SELECT * FROM {dataset.name}").collect()
        return sorted((row["product"], row["sold"]) for row in rows)
    with psycopg.connect(warehouse_url(workbench.settings)) as connection:
        query = psycopg.sql.SQL("select product, sold from {} order by 1, 2")
        return list(connection.execute(query.format(psycopg.sql.Identifier(dataset.db, dataset.table))))


def columns(workbench: Workbench, dataset: Dataset) -> list[str]:
    if dataset.store == StoreKind.LAKE:
        return workbench.spark.table(dataset.name).columns
    with psycopg.connect(warehouse_url(workbench.settings)) as connection:
        query = psycopg.sql.SQL("select * from {} limit 0").format(psycopg.sql.Identifier(dataset.db, dataset.table))
        return [column.name for column in connection.execute(query).description or ()]


def test_a_dataset_without_partitions_is_one_batch_that_a_rerun_replaces_whole(
    workbench: Workbench, products: Dataset
) -> None:
    first = workbench.publish(products, [ALL], [(ALL, "pen", 1), (ALL, "ink", 2)])
    assert {path: batch.rows for path, batch in first.items()} == {WHOLE: 2}
    assert by_name(workbench, products) == [("ink", 2), ("pen", 1)]
    # No column stands for a partition that is none.
    assert columns(workbench, products) == list(products.schema.names)
    second = workbench.publish(products, [ALL], [(ALL, "pen", 10)])
    assert second[WHOLE].batch_id > first[WHOLE].batch_id
    assert by_name(workbench, products) == [("pen", 10)]
    assert workbench.publish(products, [ALL], [])[WHOLE].rows == 0
    assert by_name(workbench, products) == []


def test_it_goes_back_to_an_earlier_batch_and_readers_of_a_pinned_one_keep_it(
    workbench: Workbench, products: Dataset
) -> None:
    (first,) = workbench.publish(products, [ALL], [(ALL, "pen", 1)]).values()
    workbench.publish(products, [ALL], [(ALL, "pen", 2)])
    catalog = workbench.catalog()
    store = workbench.store(products, catalog)
    pinned = store.read(products, [first]).select("product", "sold")
    assert [tuple(row) for row in pinned.collect()] == [("pen", 1)]
    build = catalog.begin(products, [ALL], run_id="rollback", code_version="")
    store.republish(build, [first], reason="the second was half a file")
    catalog.release(build)
    catalog.connection.close()
    assert by_name(workbench, products) == [("pen", 1)]
    assert workbench.current(products)[WHOLE].batch_id == first.batch_id


def test_readers_during_reruns_see_one_batch_whole(workbench: Workbench, products: Dataset) -> None:
    workbench.publish(products, [ALL], [(ALL, f"p{row}", 0) for row in range(20)])
    seen: list[tuple[int, ...]] = []
    errors: list[BaseException] = []
    over = threading.Event()

    def read() -> None:
        try:
            while not over.is_set():
                rows = by_name(workbench, products)
                seen.append((len(rows), *sorted({int(str(sold)) for _, sold in rows})))
        except BaseException as error:  # noqa: BLE001 - the test tells it
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for sold in (1, 2, 3):
        workbench.publish(products, [ALL], [(ALL, f"p{row}", sold) for row in range(20 + sold)])
    over.set()
    reader.join(60)
    assert errors == []
    assert set(seen) <= {(20, 0), (21, 1), (22, 2), (23, 3)}
    assert by_name(workbench, products)[0] == ("p0", 3)


def test_it_shows_nothing_when_it_is_retired_and_its_batch_again_when_it_returns(
    workbench: Workbench, products: Dataset
) -> None:
    (first,) = workbench.publish(products, [ALL], [(ALL, "pen", 1)]).values()
    catalog = workbench.catalog()
    store = workbench.store(products, catalog)
    build = catalog.lock_partitions(products, [ALL], run_id="retire")
    store.republish(build, [], reason="retired")
    catalog.release(build)
    assert by_name(workbench, products) == []
    assert store.examine(products, []) == []
    catalog.connection.close()
    workbench.publish(products, [ALL], [(ALL, "ink", 2)])
    assert by_name(workbench, products) == [("ink", 2)]
    assert first.batch_id != workbench.current(products)[WHOLE].batch_id


def test_two_runs_of_it_at_once_are_refused_and_a_staged_batch_is_seen_by_nobody(
    workbench: Workbench, products: Dataset
) -> None:
    workbench.publish(products, [ALL], [(ALL, "pen", 1)])
    catalog, other = workbench.catalog(), workbench.catalog()
    build = workbench.begin(catalog, products, [ALL])
    with pytest.raises(AlreadyBuilding, match=rf"{products}.*all \(run {build.run_id}"):
        workbench.begin(other, products, [ALL])
    staged = workbench.store(products, catalog).stage(build, workbench.frame(products, [(ALL, "half", 9)]))
    catalog.staged(build, staged)
    assert by_name(workbench, products) == [("pen", 1)]
    for each in (catalog, other):
        each.connection.close()


def test_doctor_finds_nothing_and_repair_mends_a_table_that_shows_another_batch(
    workbench: Workbench, products: Dataset
) -> None:
    (first,) = workbench.publish(products, [ALL], [(ALL, "pen", 1)]).values()
    (second,) = workbench.publish(products, [ALL], [(ALL, "pen", 2)]).values()
    catalog = workbench.catalog()
    store = workbench.store(products, catalog)
    assert store.examine(products, [first, second]) == []
    if products.store == StoreKind.LAKE:
        workbench.spark.sql(f"ALTER TABLE {products.name} SET LOCATION '{first.location}'")
        (finding,) = store.examine(products, [second])
        assert (finding.partition, finding.batch_id) == (WHOLE, second.batch_id)
        assert "the Hive table shows batch_id=" in finding.problem
        store.repair(products)
        assert by_name(workbench, products) == [("pen", 2)]
    inventory = next(each for each in store.inventory() if each.dataset == products.name)
    assert {(batch.partition, batch.batch_id) for batch in inventory.batches} >= {(WHOLE, second.batch_id)}
    catalog.connection.close()


def test_a_dataset_neither_loses_its_partitions_nor_gets_some_under_its_name(
    workbench: Workbench, products: Dataset
) -> None:
    by_store = replace(products, partitioning=Partitioning((STORE,)))
    paris = PartitionKey.of(store="Paris")
    for before, now in ((products, by_store), (by_store, products)):
        name = f"{before.name}_{len(now.partition_columns)}"
        old, new = replace(before, name=name), replace(now, name=name)
        keys = {True: paris, False: ALL}
        workbench.publish(old, [keys[bool(old.partition_columns)]], [(keys[bool(old.partition_columns)], "pen", 1)])
        key = keys[bool(new.partition_columns)]
        with pytest.raises(VarveError, match=r"partitioned by|no partition column store"):
            workbench.publish(new, [key], [(key, "ink", 2)])
        assert [row[-2:] for row in workbench.read(old)] == [("pen", 1)]


def test_its_expectations_hold_for_its_rows_and_for_all_of_them_together(
    workbench: Workbench, products: Dataset
) -> None:
    expected = (Expectation("some", "count(*) > 0", Of.PARTITION), Expectation("sold", "sold > 0"))
    dataset = replace(products, expectations=expected)
    catalog = workbench.catalog()
    build = workbench.begin(catalog, dataset, [ALL])
    store = workbench.store(dataset, catalog)
    for rows, problem in (
        ([(ALL, "pen", 0), (ALL, "ink", 1)], r"Expectation sold \(sold > 0\): 1 of 2 rows of all break it"),
        ([], r"some \(count\(\*\) > 0\) does not hold for all"),
        ([(ALL, "pen", 1)], ""),
    ):
        staged = store.stage(build, workbench.frame(dataset, rows))
        with pytest.raises(ExpectationFailed, match=problem) if problem else nullcontext():
            audit(store, build, staged)
        store.discard(build)
    catalog.connection.close()


def test_an_environment_shows_it_and_a_drop_takes_its_table_away(workbench: Workbench) -> None:
    products = sales_dataset(StoreKind.LAKE, dimensions=())
    (batch,) = workbench.publish(products, [ALL], [(ALL, "pen", 1)]).values()
    layout = Layout(workbench.settings.lake)
    views.show_as(workbench.spark, layout, products, [batch], f"{products.db}__alice")
    rows = workbench.spark.sql(f"SELECT product, sold FROM {products.db}__alice.{products.table}").collect()
    assert [tuple(row) for row in rows] == [("pen", 1)]
    views.hide(workbench.spark, f"{products.db}__alice", [products.table])
    assert workbench.spark.catalog.tableExists(products.name)
    drop._drop_table(workbench.spark, layout, products.name)
    assert not workbench.spark.catalog.tableExists(products.name)
