"""Datasets whose windows are those of now: some that arrive from a partner, one of 2013, and what reads them.

LIVE_ZONE is the time zone of their days and hours: a test chooses one in which today does not end while it runs.
"""

import datetime as dt
import os

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from varve.dagster.assets.datasets import dataset_asset
from varve.dagster.definitions import build_defs
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.policy import Policy
from varve.model.schema import Column, ColumnType, Schema

ZONE = os.environ.get("LIVE_ZONE", "UTC")
DAY = TimeDimension.of("day", "@daily", "2026-11-01", timezone=ZONE)
HOUR = TimeDimension.of("hour", "@hourly", "2026-11-01", timezone=ZONE)
REGION = StaticDimension("region", ("EU", "US"))
OLD_DAY = TimeDimension.of("day", "@daily", "2013-01-01", "2014-01-01", timezone="America/New_York")
N = Schema((Column("n", ColumnType.BIGINT, "a number"),))


def arriving(table: str, *dimensions: TimeDimension | StaticDimension, policy: Policy | None = None) -> Dataset:
    """A dataset of landing files."""
    return Dataset(
        f"live.{table}", Partitioning(dimensions), N, StoreKind.LAKE, "As it arrives.", landing=True,
        policy=policy or Policy(),
    )  # fmt: skip


DAYS = arriving("days", DAY)
HOURS = arriving("hours", HOUR)
OLD = arriving("old", OLD_DAY)
REGIONS = arriving("regions", DAY, REGION)
KEPT = arriving("kept", DAY, policy=Policy(retention=dt.timedelta(days=3)))
TOTALS = Dataset("live.totals", Partitioning((DAY,)), N, StoreKind.LAKE, "The sum of each day that is over.")
RUNNING = Dataset(
    "live.running", Partitioning((DAY.reaching(1),)), N, StoreKind.LAKE, "The sum of each day, and of today so far."
)


@dataset_asset(DAYS)
def days(context: dg.AssetExecutionContext) -> DataFrame:
    return context.resources.landing.read(context)  # type: ignore[no-any-return]


@dataset_asset(HOURS)
def hours(context: dg.AssetExecutionContext) -> DataFrame:
    return context.resources.landing.read(context)  # type: ignore[no-any-return]


@dataset_asset(OLD)
def old(context: dg.AssetExecutionContext) -> DataFrame:
    return context.resources.landing.read(context)  # type: ignore[no-any-return]


@dataset_asset(REGIONS)
def regions(context: dg.AssetExecutionContext) -> DataFrame:
    return context.resources.landing.read(context)  # type: ignore[no-any-return]


@dataset_asset(KEPT)
def kept(context: dg.AssetExecutionContext) -> DataFrame:
    return context.resources.landing.read(context)  # type: ignore[no-any-return]


@dataset_asset(TOTALS, reads={"days": DAYS})
def totals(context: dg.AssetExecutionContext, days: DataFrame) -> DataFrame:
    return days.groupBy("day").agg(F.sum("n").alias("n"))


@dataset_asset(RUNNING, reads={"hours": HOURS})
def running(context: dg.AssetExecutionContext, hours: DataFrame) -> DataFrame:
    return hours.groupBy(F.to_date(F.substring("hour", 1, 10)).alias("day")).agg(F.sum("n").alias("n"))


DATASETS = [days, hours, old, regions, kept, totals, running]
defs = build_defs(DATASETS)
