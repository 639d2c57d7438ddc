"""The environment of the processes that tests start."""

from __future__ import annotations

import os

SETTINGS = ("VARVE_", "DAGSTER_", "SPARK_", "PG")
# The options of the suite's JVMs, without which each Spark that is started costs half a minute more.
KEPT = "SPARK_SUBMIT_OPTS"


def clean_environment(*without: str) -> dict[str, str]:
    """The caller's environment without any setting of Varve, Dagster, Spark and PostgreSQL, or without these prefixes.

    PySpark, too, leaves settings there, once it has a session on a server.
    """
    unwanted = without or SETTINGS
    return {name: value for name, value in os.environ.items() if name == KEPT or not name.startswith(unwanted)}
