"""Spark: a session that is opened when a run first uses it, on the one server that all runs share.

Which server that is, is a setting: the embedded one, `VARVE_SPARK_REMOTE` or `VARVE_SPARK_MASTER` (docs/deploy.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.dagster.runs.spark import SparkResource

if TYPE_CHECKING:
    from varve.dagster.discovery import LoadedProject


def spark(loaded: LoadedProject) -> SparkResource:
    """The resource of the session, with the settings of this project."""
    return SparkResource.of(loaded.project)
