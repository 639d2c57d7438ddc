"""Which declarations begin another generation, and whose rows can be taken over."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace

import pendulum
import pytest

from tests.support.sales import DAY, STORE, sales_dataset
from varve.catalog.code.generations import dataset_of, shape_of
from varve.catalog.rows import columns_of, declaration, full_declaration
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.own_calendar import Calendar
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.changes.generation import Shape, begins_generation, breaks, not_rewritable

LAKE, WAREHOUSE = StoreKind.LAKE, StoreKind.WAREHOUSE
RETYPED = "sold was INT and is STRING"
PRODUCT, SOLD = Column("product", ColumnType.STRING), Column("sold", ColumnType.INT)


def dataset(*columns: Column, store: StoreKind = LAKE, dimensions: tuple[object, ...] = (DAY,)) -> Dataset:
    schema = Schema(columns or (PRODUCT, SOLD))
    return replace(sales_dataset(store, dimensions=dimensions), schema=schema)


def of_days(start: str = "2013-01-01", *, timezone: str = "UTC", grain: Grain = Grain.DAY) -> TimeDimension:
    return TimeDimension("day", grain, pendulum.parse(start, tz=timezone))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "lake", "warehouse"),
    [
        (dataset(PRODUCT, SOLD, Column("till", ColumnType.STRING)), "", ""),
        (dataset(PRODUCT), "", ""),
        (dataset(PRODUCT, Column("sold", ColumnType.BIGINT)), "", "sold was INT and is BIGINT"),
        (dataset(PRODUCT, Column("sold", ColumnType.STRING)), RETYPED, RETYPED),
        (dataset(PRODUCT, Column("pieces", ColumnType.INT, was=("sold",))), "Renamed: sold INT -> pieces INT.", ""),
            (dataset(PRODUCT, Column("pieces", ColumnType.INT)), "Renamed, or one dropped", ""),
        (dataset(dimensions=(DAY, STORE)), "partitioned by day DATE, and now", "partitioned by day DATE, and now"),
        (dataset(dimensions=(of_days("2012-12-31", grain=Grain.WEEK),)), "Its windows were", "Its windows were"),
        (dataset(dimensions=(of_days(timezone="Europe/Paris"),)), "Its windows were", "Its windows were"),
        # Later days, and the same ones otherwise spelt.
        (dataset(dimensions=(of_days("2013-02-01"),)), "", ""),
        (dataset(dimensions=(TimeDimension.of("day", "0  0 * * *", "2013-01-01"),)), "", ""),
        (dataset(dimensions=(TimeDimension.of("day", "@daily", "2013-01-01"),)), "", ""),
    ],
)  # fmt: skip
def test_what_begins_a_generation(changed: Dataset, lake: str, warehouse: str) -> None:
    for store, wanted in ((LAKE, lake), (WAREHOUSE, warehouse)):
        reasons = begins_generation(shape_of(dataset(store=store)), shape_of(replace(changed, store=store)))
        assert bool(reasons) == bool(wanted)
        assert wanted in " ".join(reasons)


def test_another_store_breaks_and_a_type_in_the_warehouse_could_be_migrated() -> None:
    assert breaks(shape_of(dataset()), shape_of(dataset(store=WAREHOUSE))) == (
        "It lies in the lake, and is declared in the warehouse.",
    )
    retyped = dataset(PRODUCT, Column("sold", ColumnType.BIGINT), store=WAREHOUSE)
    assert breaks(shape_of(dataset(store=WAREHOUSE)), shape_of(retyped)) == ()


@pytest.mark.parametrize(
    ("was", "now", "is_read"),
    [
        ("STRUCT<a: INT>", "STRUCT<b: STRING, a: BIGINT>", True),
        ("ARRAY<STRUCT<a: INT>>", "ARRAY<STRUCT<a: INT, b: INT>>", True),
        ("MAP<STRING, INT>", "MAP<STRING, BIGINT>", True),
        ("STRUCT<a: INT>", "STRUCT<b: INT>", False),
        ("STRUCT<a: INT, b: INT>", "STRUCT<a: INT>", False),
        ("ARRAY<STRING>", "ARRAY<INT>", False),
        ("ARRAY<INT>", "STRUCT<a: INT>", False),
        ("MAP<STRING, INT>", "STRUCT<a: INT>", False),
        ("TINYINT", "SMALLINT", True),
        ("SMALLINT", "TINYINT", False),
    ],
)
def test_what_the_view_shows_alike_and_is_read_as_null_breaks_in_the_warehouse(
    was: str,
    now: str,
    is_read: bool,  # noqa: FBT001
) -> None:
    before = dataset(PRODUCT, Column("at", ColumnType(was)), store=WAREHOUSE)
    for after in (Column("at", ColumnType(now)), Column("place", ColumnType(now), was=("at",))):
        problems = breaks(shape_of(before), shape_of(dataset(PRODUCT, after, store=WAREHOUSE)))
        assert not problems if is_read else problems == (
            f"{after.name} was {was} and is {now} now, as which older rows are not read.",
        )  # fmt: skip


def test_rows_are_taken_over_where_nothing_is_lost_without_a_word() -> None:
    before = shape_of(dataset())
    renamed = Column("pieces", ColumnType.BIGINT, was=("sold",))
    assert not not_rewritable(before, shape_of(dataset(PRODUCT, renamed)))
    assert not not_rewritable(before, shape_of(dataset(PRODUCT, renamed, Column("till", ColumnType.STRING))))
    assert not not_rewritable(before, shape_of(dataset(PRODUCT)))
    # One goes and another comes; or would be NULL, and may not; or partitions hold other rows.
    assert not_rewritable(before, shape_of(dataset(PRODUCT, Column("pieces", ColumnType.INT))))
    assert not_rewritable(before, shape_of(dataset(PRODUCT, SOLD, Column("till", ColumnType.STRING, "", False))))
    assert not_rewritable(before, shape_of(dataset(dimensions=(of_days("2012-12-31", grain=Grain.WEEK),))))


@pytest.mark.parametrize(
    ("was", "now", "taken_over"),
    [
        # Spark casts structs by the place of their fields: another order would exchange the values.
        ("STRUCT<lat: DOUBLE, lon: DOUBLE>", "STRUCT<lon: DOUBLE, lat: DOUBLE>", False),
        ("STRUCT<lat: DOUBLE, lon: DOUBLE>", "STRUCT<lat: DOUBLE, lon: DOUBLE, alt: DOUBLE>", False),
        ("STRUCT<lat: DOUBLE, lon: DOUBLE>", "STRUCT<lat: FLOAT, lon: STRING>", True),
        ("ARRAY<STRUCT<net: INT, gross: INT>>", "ARRAY<STRUCT<gross: INT, vat: INT>>", False),
        ("ARRAY<INT>", "ARRAY<BIGINT>", True),
        ("MAP<STRING, INT>", "MAP<STRING, BIGINT>", False),
        ("STRUCT<m: MAP<STRING, INT>, n: INT>", "STRUCT<m: MAP<STRING, INT>, n: BIGINT>", False),
        ("STRUCT<lat: DOUBLE>", "STRING", False),
        ("STRING", "ARRAY<STRING>", False),
        ("DATE", "INT", False),
        ("BINARY", "BIGINT", False),
        ("BOOLEAN", "DATE", False),
        ("DATE", "TIMESTAMP", True),
        ("TIMESTAMP", "BIGINT", True),
        ("BOOLEAN", "INT", True),
        ("BINARY", "STRING", True),
        ("DECIMAL(10,2)", "DECIMAL(8,2)", True),
    ],
)
def test_values_are_taken_over_where_they_can_be_cast_by_name(was: str, now: str, taken_over: bool) -> None:  # noqa: FBT001
    before, after = (shape_of(dataset(PRODUCT, Column("at", ColumnType(kind)))) for kind in (was, now))
    assert (not_rewritable(before, after) == "") is taken_over


def test_a_declaration_in_the_catalog_says_all_of_it() -> None:
    declared = dataset(PRODUCT, Column("pieces", ColumnType.INT, "how many", was=("sold",)))
    kept = columns_of(declaration(declared))
    assert kept.data == declared.schema.columns
    assert kept.windows == "0 0 * * *, UTC"
    again = dataset_of(declared.name, declared.store, declaration(declared))
    assert (again.partition_columns, again.schema, again.store) == (
        declared.partition_columns, declared.schema, declared.store,
    )  # fmt: skip


def test_partitioning_without_time_has_no_windows() -> None:
    assert columns_of(declaration(replace(dataset(), partitioning=Partitioning((STORE,))))).windows == ""


def test_a_day_of_a_calendar_that_becomes_shorter_begins_a_generation_and_one_more_does_not() -> None:
    """What the catalog keeps of a calendar, through JSON as there."""
    days = Calendar.of_days("nyse", [dt.date(2026, 11, 27), dt.date(2026, 11, 30)])
    longer = Calendar.of("nyse", [*days.windows, (dt.date(2026, 12, 1), dt.datetime(2026, 12, 1, 13))])  # noqa: DTZ001
    shorter = Calendar.of("nyse", [*days.windows[:1], (dt.date(2026, 11, 30), dt.datetime(2026, 11, 30, 13))])  # noqa: DTZ001
    before, more, moved = (
        Shape(LAKE, columns_of(json.loads(json.dumps(full_declaration(dataset(dimensions=(series,)))))))
        for series in (TimeDimension.of("day", calendar, "2026-11-27") for calendar in (days, longer, shorter))
    )
    assert begins_generation(before, more) == ()
    (problem,) = begins_generation(before, moved)
    assert "The windows of calendar nyse that begin in 2026-11 were others than they are now." in problem
    assert not_rewritable(before, moved)
