"""The function that `flights_carrier_model.sql` names: a straight line through a carrier's delays over the wind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession


def fit(spark: SparkSession, scope: Mapping[str, Any], history: DataFrame) -> DataFrame:
    """One row for the carrier of the scope. `history` has one row for each of its days at an airport."""
    from pyspark.sql import functions as F  # noqa: N812

    del spark, scope
    delay, wind = F.col("delay_minutes") / F.col("flights"), F.col("wind_speed")
    return history.agg(
        F.count("*").alias("days"),
        F.regr_intercept(delay, wind).alias("base_minutes"),
        F.regr_slope(delay, wind).alias("minutes_per_mph"),
    )
