"""The rows of written.prices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

PRICES = (("x", 1), ("x", 2), ("y", 10), ("y", 20), ("z", -128), ("O'Brien", 7), ("OBrien", 3))


def prices(spark: SparkSession, scope: Mapping[str, Any]) -> DataFrame:
    """What one shop sold; another shop has other prices."""
    return spark.createDataFrame(
        [(product, price * len(scope["shop"])) for product, price in PRICES], "product STRING, price INT"
    )
