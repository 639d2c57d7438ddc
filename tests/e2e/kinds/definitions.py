"""A project of its own with every kind of partition there is; its rows are made up where they are asked for.

    dagster asset materialize -m tests.e2e.kinds.definitions --select kinds/nights --partition 2013-01-01

Not here: what the tests expect of it (tests/e2e/test_partition_kinds.py).
"""

import datetime as dt
from itertools import islice
from typing import Any

import dagster as dg
import pendulum
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from varve.dagster.assets.context import partitions_of
from varve.dagster.assets.datasets import dataset_asset
from varve.dagster.automation.schedules import partition_schedule
from varve.dagster.definitions import build_defs
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.calendar import Every
from varve.model.partitions.dimension import Dimension, DynamicDimension, StaticDimension, TimeDimension
from varve.model.partitions.key import PartitionKey, plain
from varve.model.partitions.partitioning import Partitioning
from varve.model.reads import Reads, Wait
from varve.model.schema import Column, ColumnType, Schema

NEW_YORK = "America/New_York"
ODD_KEYS = (
    "a|b", "x,y", "[z]", "it's", 'say "so"', "in/out", "👋🏽", "50%", "50%25", "a...b", "a~b", " a b ", "Ü" * 100,
)  # fmt: skip


class Position(PartitionKey):
    """A place in space, as the key of one dimension."""

    x: float
    y: float
    z: float = 0.0


DAY = TimeDimension.of("day", "@daily", "2013-01-01", "2013-02-01")
NIGHT = TimeDimension.of("night", "30 22 * * *", "2013-01-01T22:30", "2013-02-01T22:30", timezone="Europe/Paris")
SHIFT = TimeDimension(
    "shift",
    Every(dt.timedelta(minutes=90), pendulum.datetime(2013, 1, 1, 10, 35)),
    pendulum.datetime(2013, 1, 1, 10, 35),
    pendulum.datetime(2013, 1, 2, 10, 35),
)
HOUR = TimeDimension.of("hour", "@hourly", "2013-11-02", "2013-11-05", timezone=NEW_YORK)
LOCAL_DAY = TimeDimension.of("local_day", "@daily", "2013-11-02", "2013-11-05", timezone=NEW_YORK)
ODD = StaticDimension("odd", ODD_KEYS)
PART = StaticDimension("part", ("left", "middle", "right"))
LEVEL = StaticDimension("level", (3, 1, 20))
CELL = StaticDimension("cell", (Position(0, 0), Position(1.5, -2, 1e300)))
TENANT = DynamicDimension("tenant", "kinds.tenants")
PLACE = DynamicDimension("place", "kinds.places", Position)

ROWS = Schema((Column("text", ColumnType.STRING, "what the body knew its partition as"),))


def dataset(name: str, *dimensions: Dimension, store: StoreKind = StoreKind.LAKE) -> Dataset:
    """A dataset with one column."""
    return Dataset(f"kinds.{name}", Partitioning(dimensions), ROWS, store, "One row per partition.")


NIGHTS = dataset("nights", NIGHT)
SHIFTS = dataset("shifts", SHIFT)
HOURS = dataset("hours", HOUR)
LOCAL_DAYS = dataset("local_days", LOCAL_DAY)
ODDS = dataset("odds", ODD)
CELLS = dataset("cells", CELL, LEVEL)
TENANTS = dataset("tenants", TENANT)
PLACES = dataset("places", PLACE)
STOCKS = dataset("stocks", DAY, ODD)
ORDERS = dataset("orders", DAY, PART, TENANT, store=StoreKind.WAREHOUSE)
SIGNUPS = dataset("signups", DAY)
WELCOMES = dataset("welcomes", DAY, TENANT)
PARTS = dataset("parts", DAY, PART)
ENOUGH = dataset("enough", DAY)
NEARLY = dataset("nearly", DAY)
IN_TIME = dataset("in_time", DAY)
WHOLE = dataset("whole", DAY)
EVERYTHING = dataset("everything", store=StoreKind.WAREHOUSE)


def rows(context: dg.AssetExecutionContext) -> DataFrame:
    """One row for each partition of the run."""
    partitions = partitions_of(context)
    columns = partitions.dataset.partition_columns
    kinds = "".join(f", `{column.name}` {column.type}" for column in columns)
    values: list[tuple[Any, ...]] = [(str(key), *map(plain, key.values)) for key in partitions.keys]
    frame: DataFrame = context.resources.spark.spark_session.createDataFrame(values, f"text STRING{kinds}")
    return frame


@dataset_asset(NIGHTS)
def nights(context: dg.AssetExecutionContext) -> DataFrame:
    """Says of itself what a body can know of time."""
    partitions = partitions_of(context)
    past = ", ".join(str(key["night"]) for key in islice(partitions.past(), 2))
    window = f"{partitions.window.start.isoformat()}/{partitions.window.end.isoformat()}"
    return rows(context).where(partitions.where).withColumn("text", F.lit(f"{window} after {past}"))


@dataset_asset(SHIFTS)
def shifts(context: dg.AssetExecutionContext) -> DataFrame:
    return rows(context)


@dataset_asset(HOURS)
def hours(context: dg.AssetExecutionContext) -> DataFrame:
    return rows(context)


@dataset_asset(LOCAL_DAYS)
def local_days(context: dg.AssetExecutionContext) -> DataFrame:
    return rows(context)


@dataset_asset(ODDS)
def odds(context: dg.AssetExecutionContext) -> DataFrame:
    return rows(context)


@dataset_asset(CELLS)
def cells(context: dg.AssetExecutionContext) -> DataFrame:
    return rows(context)


@dataset_asset(TENANTS)
def tenants(context: dg.AssetExecutionContext) -> DataFrame:
    return rows(context)


@dataset_asset(PLACES)
def places(context: dg.AssetExecutionContext) -> DataFrame:
    return rows(context)


@dataset_asset(STOCKS)
def stocks(context: dg.AssetExecutionContext) -> DataFrame:
    return rows(context)


@dataset_asset(ORDERS)
def orders(context: dg.AssetExecutionContext) -> DataFrame:
    return rows(context)


@dataset_asset(SIGNUPS)
def signups(context: dg.AssetExecutionContext) -> DataFrame:
    """Whoever signs up is a tenant from now on, and has a place."""
    partitions = partitions_of(context)
    day = partitions.key["day"]
    new = partitions.add(TENANT, [f"{day:%a} & co", f"{day:%a}|50%"])
    partitions.add(PLACE, [Position(day.day, 0)])
    context.log.info("new: %s", new)
    return rows(context)


@dataset_asset(WELCOMES, reads={"signups": SIGNUPS})
def welcomes(context: dg.AssetExecutionContext, signups: DataFrame) -> DataFrame:
    return rows(context)


@dataset_asset(PARTS)
def parts(context: dg.AssetExecutionContext) -> DataFrame:
    return rows(context)


@dataset_asset(ENOUGH, reads={"parts": Reads(PARTS, wait=Wait(at_least=2))})
def enough(context: dg.AssetExecutionContext, parts: DataFrame) -> DataFrame:
    return parts.select("day", "text")


@dataset_asset(NEARLY, reads={"parts": Reads(PARTS, wait=Wait(missing=1))})
def nearly(context: dg.AssetExecutionContext, parts: DataFrame) -> DataFrame:
    return parts.select("day", "text")


@dataset_asset(IN_TIME, reads={"parts": Reads(PARTS, wait=Wait(deadline=dt.timedelta(hours=2)))})
def in_time(context: dg.AssetExecutionContext, parts: DataFrame) -> DataFrame:
    return parts.select("day", "text")


@dataset_asset(WHOLE, reads={"parts": PARTS})
def whole(context: dg.AssetExecutionContext, parts: DataFrame) -> DataFrame:
    return parts.select("day", "text")


@dataset_asset(EVERYTHING)
def everything(context: dg.AssetExecutionContext) -> DataFrame:
    """One table without partitions."""
    return rows(context)


DATASETS = [
    nights, shifts, hours, local_days, odds, cells, tenants, places, stocks, orders, signups, welcomes,
    parts, enough, nearly, in_time, whole, everything,
]  # fmt: skip

defs = dg.Definitions.merge(
    build_defs(DATASETS),
    dg.Definitions(
        schedules=[
            partition_schedule(HOURS, "0 0 * * *", timezone=NEW_YORK),
            partition_schedule(LOCAL_DAYS, "@hourly", timezone=NEW_YORK),
        ]
    ),
)
