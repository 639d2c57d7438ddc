"""Every publish is also an Iceberg snapshot, which other engines read by the pointer."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pendulum
import pytest
from pyiceberg.exceptions import NoSuchTableError

from tests.stores.lake.iceberg.every_type import NOON, STORES, every_type
from tests.stores.lake.iceberg.readers import by_duckdb, by_polars, by_pyiceberg, by_text, iceberg_table
from tests.support.sales import DETROIT, PARIS, ZURICH, key, sales_dataset
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.model.partitions.time_columns import TimeColumn
from varve.model.schema import Column, ColumnType, Schema
from varve.model.store_options import LakeOptions

if TYPE_CHECKING:
    from tests.stores.lake.iceberg.builder import Builder


def sold(*products: str, price: float = 1.5) -> list[dict[str, Any]]:
    return [{"product": product, "sold": place, "price": price, "at": NOON} for place, product in enumerate(products)]


def all_agree(builder: Builder, dataset: Dataset) -> None:
    """Each engine reads by the pointer what is current by the catalog."""
    table, expected = iceberg_table(builder.settings, dataset), builder.rows(dataset)
    names = [field.name for field in table.schema().fields]
    assert by_pyiceberg(table) == by_text([{name: row[name] for name in names} for row in expected])
    assert by_polars(table) == by_duckdb(table) == by_pyiceberg(table)


def test_one_partition_and_many_are_read_as_published(builder: Builder, sales: Dataset) -> None:
    builder.publish(sales, {PARIS: sold("pen")})
    all_agree(builder, sales)
    builder.publish(sales, {PARIS: sold("ink", "pen"), ZURICH: sold("pen"), DETROIT: [], key("Paris", 31): sold("pad")})
    all_agree(builder, sales)
    table = iceberg_table(builder.settings, sales)
    assert [snapshot.summary["operation"].value for snapshot in table.snapshots()] == ["append", "overwrite"]
    assert table.current_snapshot().summary["total-records"] == "4"
    assert table.properties["gc.enabled"] == "false"
    assert {row["store"] for row in by_pyiceberg(table, row_filter="day = '2013-01-31'")} == {"Paris"}
    assert table.scan(row_filter="store = 'Paris' and day < '2013-01-10'").count() == 2


def test_a_rerun_is_one_more_snapshot_and_the_one_before_is_still_read(builder: Builder, sales: Dataset) -> None:
    builder.publish(sales, {PARIS: sold("pen")})
    before = iceberg_table(builder.settings, sales)
    builder.publish(sales, {PARIS: sold("ink")})
    table = iceberg_table(builder.settings, sales)
    assert [row["product"] for row in by_pyiceberg(table)] == ["ink"]
    assert [row["product"] for row in by_pyiceberg(table, snapshot_id=before.current_snapshot().snapshot_id)] == ["pen"]
    assert [row["product"] for row in by_pyiceberg(before)] == ["pen"]


def test_all_types_nested_ones_nulls_and_odd_partition_values_are_read_right(builder: Builder) -> None:
    dataset, rows = every_type()
    builder.publish(dataset, rows)
    all_agree(builder, dataset)
    table = iceberg_table(builder.settings, dataset)
    for place, store in enumerate(STORES):
        texts = store.replace("'", "''")
        assert [row["i"] for row in by_pyiceberg(table, row_filter=f"store = '{texts}' and n is not null")] == [place]
    assert table.scan(row_filter="price < -1.000 and on < '1600-01-01'").count() == len(STORES)
    assert table.scan(row_filter="price > 0.000").count() == 0


def test_a_dataset_without_partitions_is_a_table_too(builder: Builder) -> None:
    dataset = sales_dataset(StoreKind.LAKE, dimensions=())
    builder.publish(dataset, {PartitionKey.of(): sold("pen")})
    builder.publish(dataset, {PartitionKey.of(): sold("ink", "pad")})
    all_agree(builder, dataset)


def test_columns_come_go_and_widen_as_declared(builder: Builder, sales: Dataset) -> None:
    narrow = (Column("product", ColumnType.STRING), Column("sold", ColumnType.INT), Column("gone", ColumnType.STRING))
    first = replace(sales, schema=Schema(narrow))
    builder.publish(first, {PARIS: [{"product": "pen", "sold": 1, "gone": "x"}]})
    wide = replace(sales, schema=Schema((narrow[0], Column("sold", ColumnType.BIGINT, "pieces"))))
    builder.publish(wide, {ZURICH: [{"product": "ink", "sold": 2**40}]})
    more = replace(wide, schema=Schema((*wide.schema.columns, Column("colour", ColumnType.array(ColumnType.STRING)))))
    builder.publish(more, {DETROIT: [{"product": "pad", "sold": 3, "colour": ["red"]}]})
    table = iceberg_table(builder.settings, sales)
    assert [(row["product"], row["sold"], row["colour"]) for row in by_polars(table)] == [
        ("ink", 2**40, None), ("pad", 3, ["red"]), ("pen", 1, None),
    ]  # fmt: skip
    assert by_pyiceberg(table) == by_polars(table) == by_duckdb(table)
    assert table.schema().find_field("sold").doc == "pieces"
    assert [field.name for field in table.schema().fields] == ["product", "sold", "colour", "day", "store"]


def test_a_column_with_a_dot_in_its_name_comes_is_described_and_goes(builder: Builder, sales: Dataset) -> None:
    product, net = Column("product", ColumnType.STRING), Column("price.net", ColumnType.INT)
    builder.publish(replace(sales, schema=Schema((product,))), {PARIS: [{"product": "pen"}]})
    wider = replace(net, type=ColumnType.BIGINT)
    for column, price in ((net, 1), (wider, 2**40), (replace(wider, comment="euros"), 3)):
        dotted = replace(sales, schema=Schema((column, product)))
        builder.publish(dotted, {ZURICH: [{"price.net": price, "product": "ink"}]})
        table = iceberg_table(builder.settings, sales)
        rows = [("ink", price), ("pen", None)]
        assert sorted((row["product"], row["price.net"]) for row in by_pyiceberg(table)) == rows
        assert sorted((row["product"], row["price.net"]) for row in by_duckdb(table)) == rows
    builder.publish(replace(sales, schema=Schema((product,))), {ZURICH: [{"product": "ink"}]})
    names = [field.name for field in iceberg_table(builder.settings, sales).schema().fields]
    assert names == ["product", "day", "store"]


def test_a_column_that_goes_and_comes_back_is_read_in_all_snapshots(builder: Builder, sales: Dataset) -> None:
    product = Column("product", ColumnType.STRING)
    nested = ColumnType("ARRAY<STRUCT<name: STRING, n: MAP<STRING, INT>>>")
    parts = [{"name": "cap", "n": [("g", 2)]}]
    first = replace(sales, schema=Schema((Column("sold", ColumnType.INT), product, Column("parts", nested))))
    builder.publish(first, {PARIS: [{"sold": 1, "product": "pen", "parts": parts}]})
    less = replace(sales, schema=Schema((product,)))
    builder.publish(less, {ZURICH: [{"product": "ink"}]})
    back = (product, Column("new", nested), Column("parts", nested, "all of them"), Column("sold", ColumnType.BIGINT))
    row: dict[str, Any] = {"product": "pad", "sold": 2**40, "parts": parts, "new": parts}
    builder.publish(replace(sales, schema=Schema(back)), {DETROIT: [row]})
    more = replace(sales, schema=Schema((Column("more", ColumnType.INT), *back)))
    builder.publish(more, {DETROIT: [row | {"more": 7}]})

    table = iceberg_table(builder.settings, sales)
    assert by_pyiceberg(table) == by_polars(table) == by_duckdb(table)
    names = ("product", "sold", "parts", "new", "more")
    seen = [
        {tuple(str(row.get(name)) for name in names) for row in by_pyiceberg(table, snapshot_id=each.snapshot_id)}
        for each in table.snapshots()
    ]
    none, pieces = "None", str(parts)
    pen, ink = ("pen", "1", pieces, none, none), ("ink", none, none, none, none)
    pad = ("pad", str(2**40), pieces, pieces)
    assert seen == [{pen}, {ink, ("pen", *ink[1:])}, {pen, ink, (*pad, none)}, {pen, ink, (*pad, "7")}]
    columns = {field.name: field for field in table.schema().fields}
    assert [*columns] == ["more", "product", "new", "parts", "sold", "day", "store"]
    assert columns["parts"].doc == "all of them"


@pytest.mark.parametrize(("before", "after"), [("INT", "DOUBLE"), ("DECIMAL(9,2)", "DECIMAL(12,4)")])
def test_a_type_that_iceberg_cannot_follow_hides_the_table_until_all_is_rewritten(
    builder: Builder, sales: Dataset, before: str, after: str
) -> None:
    first = replace(sales, schema=Schema((Column("price", ColumnType(before)),)))
    old = builder.publish(first, {PARIS: [{"price": 1}], ZURICH: [{"price": 2}]})
    wider = replace(sales, schema=Schema((Column("price", ColumnType(after)),)))
    builder.publish(wider, {PARIS: [{"price": 3}]})
    with pytest.raises(NoSuchTableError):
        iceberg_table(builder.settings, sales)
    with builder.store() as store:
        assert store.iceberg is not None
        assert store.iceberg.write_again(wider) == 0
        pointer = store.iceberg.pointers.of(sales.name)
        assert pointer is not None
        assert f"price was {before} and is {after} now" in pointer.hidden_because
    builder.publish(wider, {ZURICH: [{"price": 4}]})
    with builder.store() as store:
        assert store.iceberg is not None
        assert store.iceberg.write_again(wider) == 2
    all_agree(builder, wider)
    assert sorted(float(row["price"]) for row in by_pyiceberg(iceberg_table(builder.settings, sales))) == [3.0, 4.0]
    builder.go_back(wider, {PARIS: old.millis})
    with pytest.raises(NoSuchTableError):
        iceberg_table(builder.settings, sales)
    with builder.store() as store:
        assert store.iceberg is not None
        # Its metadata fits today's declaration; the batch that has become current again does not.
        assert store.iceberg.write_again(wider) == 0
    with pytest.raises(NoSuchTableError):
        iceberg_table(builder.settings, sales)
    for path in (Path(builder.settings.lake) / sales.db / sales.table / "_iceberg").glob("snap-*.avro"):
        path.unlink()
    with builder.store() as store:
        assert store.iceberg is not None
        assert store.iceberg.write_again(wider) == 0
    with pytest.raises(NoSuchTableError):
        iceberg_table(builder.settings, sales)
    builder.publish(wider, {PARIS: [{"price": 5}]})
    with builder.store() as store:
        assert store.iceberg is not None
        assert store.iceberg.write_again(wider) == 2
    all_agree(builder, wider)


def test_a_hidden_table_is_not_shown_with_an_earlier_batch_in_place_of_a_damaged_one(
    builder: Builder, sales: Dataset
) -> None:
    first = replace(sales, schema=Schema((Column("price", ColumnType.INT),)))
    old = builder.publish(first, {PARIS: [{"price": 1}]})
    wider = replace(sales, schema=Schema((Column("price", ColumnType.DOUBLE),)))
    builder.publish(wider, {PARIS: [{"price": 2}]})
    with builder.store() as store:
        assert store.iceberg is not None
        assert store.iceberg.write_again(wider) == 1
    builder.go_back(wider, {PARIS: old.millis})
    number = builder.publish(wider, {PARIS: [{"price": 3}]})
    folder = Path(builder.settings.lake) / sales.db / sales.table / PARIS.path / number.folder
    (file,) = folder.glob("*.parquet")
    shutil.copy(file, folder / "part-9.parquet")
    with builder.store() as store:
        assert store.iceberg is not None
        assert store.iceberg.write_again(wider) == 0
        with pytest.raises(NoSuchTableError):
            iceberg_table(builder.settings, sales)
        (folder / "part-9.parquet").unlink()
        assert store.iceberg.write_again(wider) == 1
    all_agree(builder, wider)


def test_where_it_is_turned_off_nobody_is_shown_what_is_not_current(builder: Builder, sales: Dataset) -> None:
    builder.publish(sales, {PARIS: sold("pen")})
    off = replace(sales, lake=LakeOptions(iceberg=False))
    builder.publish(off, {PARIS: sold("ink"), ZURICH: sold("ink")})
    with pytest.raises(NoSuchTableError):
        iceberg_table(builder.settings, sales)
    builder.publish(sales, {PARIS: sold("pad")})
    all_agree(builder, sales)


def test_columns_of_time_are_partition_values_of_their_own_types(builder: Builder, sales: Dataset) -> None:
    """An hour by its year, its day, its number and its moment, on the day on which New York has 25."""
    columns = (
        TimeColumn("year", "%Y", ColumnType.INT), TimeColumn("day", "%Y-%m-%d", ColumnType.DATE),
        TimeColumn("second", "%s", ColumnType.BIGINT), TimeColumn("moment", "%s", ColumnType.TIMESTAMP),
    )  # fmt: skip
    hours = TimeDimension("t", "@hourly", pendulum.datetime(2022, 11, 6, tz="America/New_York"), columns=columns)
    dataset = replace(sales, partitioning=Partitioning((hours,)))
    keys = list(dataset.partitioning.keys(now=pendulum.datetime(2022, 11, 7, tz="America/New_York")))
    assert len(keys) == 25
    builder.publish(dataset, {each: sold(str(place)) for place, each in enumerate(keys)})
    all_agree(builder, dataset)
    builder.publish(dataset, {keys[1]: sold("a", "b")})
    all_agree(builder, dataset)
    table = iceberg_table(builder.settings, dataset)
    # The first of two hours that the clock shows as one.
    for condition in ("second = 1667710800", "moment = '2022-11-06T05:00:00+00:00'"):
        assert [row["product"] for row in by_pyiceberg(table, row_filter=condition)] == ["a", "b"], condition
    assert table.scan(row_filter="year = 2022 and day = '2022-11-06'").count() == 26
