"""A dropped dataset whose partitions share tables: its tables wait for the sweep, and none is left after it."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.stores.warehouse.test_projection import Shop, dataset, key
from varve.catalog.history.drops import Drops
from varve.catalog.history.history import History
from varve.cli.batches import sweep
from varve.cli.batches.sweep_report import Report
from varve.model.store_options import Period, WarehouseOptions
from varve.stores.folders.layout import Layout
from varve.stores.warehouse import compact
from varve.stores.warehouse.loading.load import Route
from varve.stores.warehouse.store import WarehouseStore

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from varve.catalog.catalog import Catalog
    from varve.model.dataset import Dataset

NONE = dt.timedelta(0)
OF_IT = """
    select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname in (%s, %s) and c.relkind in ('r', 'v') order by 1
"""


def no_spark() -> SparkSession:
    raise AssertionError("nothing here needs Spark")


@pytest.fixture
def store(catalog: Catalog, tmp_path: Path) -> WarehouseStore:
    return WarehouseStore(Route("", 1, no_spark), Layout(str(tmp_path)), catalog, no_spark, 5.0)


def objects_of(catalog: Catalog, sales: Dataset) -> list[str]:
    """The tables and views of the dataset's schemas."""
    schemas = (sales.db, f"{sales.db}_periods")
    return [name for (name,) in catalog.connection.execute(OF_IT, schemas)]


def test_tables_that_partitions_share_stay_until_the_sweep_and_go_with_it(
    catalog: Catalog, store: WarehouseStore
) -> None:
    shop, history, drops = Shop(catalog), History(catalog.connection), Drops(catalog.connection)
    sales = replace(dataset(), warehouse=WarehouseOptions(compact=Period.WEEK))
    shop.publish(sales, {key(day): [("pen", day)] for day in range(7, 15)})
    assert compact.compact_closed(catalog, sales, seconds=10) == 1
    dropped = store.drop(sales.name, lambda: drops.drop(sales.name, by="a test"))
    store.finish_drop(dropped)
    # Eight tables of their own, of which seven were replaced, and one that is shared.
    assert len(objects_of(catalog, sales)) == 9
    left = [leftover for leftover in store.leftovers() if leftover.dataset == sales.name]
    assert len(left) == 7
    assert [inventory for inventory in store.inventory() if inventory.dataset == sales.name] == []

    report = Report(done=True)
    sweep.mark(report, history, history.retired(dropped.remains, older_than=NONE, keep_last=0))
    sweep.delete_swept(report, history, {"warehouse": store}, dropped.remains)
    sweep.sweep_leftovers(report, history, store, sales.name, NONE)
    sweep.forget_dropped(history, {"warehouse": store}, sales.name)
    assert report.problems == []
    assert objects_of(catalog, sales) == []
    assert catalog.connection.execute(
        "select count(*) from varve.compacted where starts_with(dataset, %s)", (sales.name,)
    ).fetchone() == (0,)
    assert drops.of(sales.name) == []
