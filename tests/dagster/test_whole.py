"""Earlier batches that may be taken in the place of computing them: those that lie there as they were published."""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.sales import PARIS, ZURICH, sales_dataset
from varve.dagster.runs.whole import still_whole
from varve.model.dataset import StoreKind
from varve.stores.warehouse.tables.naming import periods_schema

if TYPE_CHECKING:
    from tests.support.workbench import Workbench
    from varve.model.batch import Batch
    from varve.model.dataset import Dataset

pytestmark = pytest.mark.spark


def data_file(batch: Batch) -> Path:
    (file,) = Path(batch.location.removeprefix("file:")).glob("*.parquet")
    return file


@pytest.mark.parametrize(
    ("kind", "damage", "said"),
    [
        (StoreKind.LAKE, "deleted", "is gone"),
        (StoreKind.LAKE, "cut", "footer|Parquet|parquet|magic"),
        (StoreKind.WAREHOUSE, "deleted", "is gone"),
        (StoreKind.WAREHOUSE, "cut", "has 0 rows, and batch .* had 1"),
    ],
)
def test_what_was_deleted_or_damaged_since_is_left_out_and_the_log_says_why(
    kind: StoreKind, damage: str, said: str, workbench: Workbench, caplog: pytest.LogCaptureFixture
) -> None:
    sales = sales_dataset(kind)
    earlier = workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "pen", 1), (ZURICH, "pen", 2)])
    workbench.publish(sales, [PARIS, ZURICH], [(PARIS, "pen", 3), (ZURICH, "pen", 4)])
    catalog = workbench.catalog()
    store = workbench.store(sales, catalog)
    assert still_whole(store, sales, earlier) == earlier
    assert not caplog.records
    disturb(workbench, sales, earlier[PARIS.path], damage)
    with caplog.at_level(logging.WARNING):
        assert still_whole(store, sales, earlier) == {ZURICH.path: earlier[ZURICH.path]}
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{sales} {PARIS.path} is computed again")
    caplog.clear()
    catalog.connection.close()
    assert re.search(said, record.getMessage())


def disturb(workbench: Workbench, dataset: Dataset, batch: Batch, damage: str) -> None:
    if dataset.store is StoreKind.LAKE:
        if damage == "deleted":
            shutil.rmtree(data_file(batch).parent)
        else:
            data_file(batch).write_bytes(data_file(batch).read_bytes()[:400])
        return
    table = f'"{periods_schema(dataset)}"."{batch.location}"'
    catalog = workbench.catalog()
    with catalog.connection as connection:
        connection.execute((f"drop table {table}" if damage == "deleted" else f"delete from {table}").encode())
