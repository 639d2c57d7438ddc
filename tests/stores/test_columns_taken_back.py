"""A column that was added and is taken away again: in both stores runs go on, and every batch stays readable."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.sales import PARIS, ZURICH, sales_dataset
from varve.catalog.history.history import History
from varve.model.dataset import StoreKind
from varve.model.errors import BadInput, VarveError
from varve.model.schema import Column, ColumnType, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.workbench import Workbench
    from varve.catalog.catalog import Catalog
    from varve.model.batch import Batch
    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey

pytestmark = pytest.mark.spark

INT, STRING = ColumnType.INT, ColumnType.STRING


@pytest.fixture
def catalog(workbench: Workbench) -> Iterator[Catalog]:
    with closing((opened := workbench.catalog()).connection):
        yield opened


@pytest.fixture(params=[StoreKind.LAKE, StoreKind.WAREHOUSE])
def narrow(request: pytest.FixtureRequest) -> Dataset:
    schema = Schema((Column("product", STRING, "what"), Column("sold", INT, "pieces")))
    return replace(sales_dataset(request.param), schema=schema)


def with_column(dataset: Dataset, name: str, kind: ColumnType = INT) -> Dataset:
    return replace(dataset, schema=Schema((*dataset.schema.columns, Column(name, kind, "for a week"))))


def publish(workbench: Workbench, dataset: Dataset, key: PartitionKey, columns: str) -> Batch:
    day, store = key.values
    frame = workbench.spark.sql(f"SELECT {columns}, DATE'{day}' day, '{store}' store")
    return workbench.publish_frame(dataset, [key], frame)[key.path]


def shown(workbench: Workbench, catalog: Catalog, dataset: Dataset) -> list[dict[str, object]]:
    """The rows that a reader by name gets, by product."""
    if dataset.store == StoreKind.LAKE:
        rows = [row.asDict() for row in workbench.spark.table(dataset.name).collect()]
    else:
        cursor = catalog.connection.execute(f"select * from {dataset}".encode())
        names = [column.name for column in cursor.description or ()]
        rows = [dict(zip(names, row, strict=True)) for row in cursor]
    return sorted(
        ({name: value for name, value in row.items() if name not in {"day", "store"}} for row in rows),
        key=lambda row: str(row["product"]),
    )


def read(workbench: Workbench, catalog: Catalog, dataset: Dataset) -> list[dict[str, object]]:
    """The same as another dataset reads it."""
    frame = workbench.store(dataset, catalog).read(dataset, list(catalog.current(dataset.name).values()))
    rows = [row.asDict() for row in frame.drop("day", "store").collect()]
    return sorted(rows, key=lambda row: str(row["product"]))


def test_a_column_that_is_taken_back_leaves_the_table_and_every_batch_stays_readable(
    workbench: Workbench, catalog: Catalog, narrow: Dataset
) -> None:
    wide = with_column(narrow, "rebate")
    publish(workbench, narrow, PARIS, "'pen' product, 1 sold")
    with_rebate = publish(workbench, wide, ZURICH, "'ink' product, 2 sold, 5 rebate")
    rows = [{"product": "ink", "sold": 2, "rebate": 5}, {"product": "pen", "sold": 1, "rebate": None}]
    assert shown(workbench, catalog, wide) == rows

    # Taken back: the batch of Zürich still has it, and nobody sees it.
    publish(workbench, narrow, PARIS, "'pen' product, 10 sold")
    assert shown(workbench, catalog, narrow) == [{"product": "ink", "sold": 2}, {"product": "pen", "sold": 10}]
    assert read(workbench, catalog, narrow) == [{"product": "ink", "sold": 2}, {"product": "pen", "sold": 10}]

    # Zürich too; then back to the batch that has the column.
    publish(workbench, narrow, ZURICH, "'ink' product, 20 sold")
    build = catalog.lock_partitions(narrow, [ZURICH], run_id="rollback")
    try:
        earlier = History(catalog.connection).batch(narrow.name, with_rebate.batch_id)
        workbench.store(narrow, catalog).republish(build, list(earlier.values()), reason="it was right")
    finally:
        catalog.release(build)
    assert shown(workbench, catalog, narrow) == [{"product": "ink", "sold": 2}, {"product": "pen", "sold": 10}]
    assert read(workbench, catalog, narrow) == [{"product": "ink", "sold": 2}, {"product": "pen", "sold": 10}]
    present = History(catalog.connection).present(narrow.name)
    assert workbench.store(narrow, catalog).examine(narrow, present) == []

    # Another type under that name would not read the batch of Zürich.
    with pytest.raises(BadInput, match="rebate was INT and is STRING now, as which older rows are not read"):
        publish(workbench, with_column(narrow, "rebate", STRING), PARIS, "'pen' product, 10 sold, 'much' rebate")
    # Declared again as it was, its values are there again; a wider type holds them too.
    wider = with_column(narrow, "rebate", ColumnType.BIGINT)
    publish(workbench, wider, PARIS, f"'pen' product, 10 sold, {1 << 40} rebate")
    rows = [{"product": "ink", "sold": 2, "rebate": 5}, {"product": "pen", "sold": 10, "rebate": 1 << 40}]
    assert shown(workbench, catalog, wider) == rows
    assert read(workbench, catalog, wider) == rows


def test_another_struct_is_refused_in_the_warehouse_which_has_the_same_type_for_it(
    workbench: Workbench, catalog: Catalog
) -> None:
    plain = replace(sales_dataset(StoreKind.WAREHOUSE), schema=Schema((Column("product", STRING),)))
    before, wider, other = (
        with_column(plain, "at", ColumnType(kind))
        for kind in ("STRUCT<lat: INT>", "STRUCT<lat: BIGINT, lon: INT>", "STRUCT<latitude: BIGINT>")
    )
    publish(workbench, before, PARIS, "'pen' product, named_struct('lat', 49) at")
    publish(workbench, wider, ZURICH, "'ink' product, named_struct('lat', 47L, 'lon', 9) at")
    with pytest.raises(BadInput, match="at was STRUCT<lat: BIGINT, lon: INT> and is STRUCT<latitude: BIGINT> now"):
        publish(workbench, other, ZURICH, "'ink' product, named_struct('latitude', 47L) at")
    assert [row["at"] for row in read(workbench, catalog, wider)] == [(47, 9), (49, None)]


def test_a_view_of_others_keeps_the_column_in_ours_until_it_is_migrated(workbench: Workbench, catalog: Catalog) -> None:
    narrow = replace(
        sales_dataset(StoreKind.WAREHOUSE), schema=Schema((Column("product", STRING), Column("sold", INT)))
    )
    publish(workbench, with_column(narrow, "rebate"), PARIS, "'pen' product, 1 sold, 5 rebate")
    catalog.connection.execute(f"create view {narrow.db}.pens as select product from {narrow}".encode())
    publish(workbench, narrow, PARIS, "'pen' product, 2 sold")
    assert shown(workbench, catalog, narrow) == [{"product": "pen", "sold": 2, "rebate": None}]
    assert catalog.connection.execute(f"select * from {narrow.db}.pens".encode()).fetchall() == [("pen",)]
    catalog.connection.execute(f"drop view {narrow.db}.pens".encode())
    publish(workbench, narrow, PARIS, "'pen' product, 3 sold")
    assert shown(workbench, catalog, narrow) == [{"product": "pen", "sold": 3}]


def test_what_may_be_a_new_name_is_refused_in_the_lake_and_told_apart_in_two_steps(workbench: Workbench) -> None:
    narrow = replace(sales_dataset(StoreKind.LAKE), schema=Schema((Column("product", STRING), Column("sold", INT))))
    publish(workbench, with_column(narrow, "rebate"), PARIS, "'pen' product, 1 sold, 5 rebate")
    renamed = with_column(narrow, "discount")
    with pytest.raises(VarveError, match=r"Renamed, or one dropped and another added: rebate INT -> discount INT\."):
        publish(workbench, renamed, PARIS, "'pen' product, 1 sold, 5 discount")
    publish(workbench, narrow, PARIS, "'pen' product, 1 sold")
    publish(workbench, renamed, PARIS, "'pen' product, 1 sold, 5 discount")
