"""The landing resource: `context.resources.landing.read(context)` in the body of an asset returns what has arrived.

Not here: the format of landing files (varve/sources/formats), and external tables (varve/sources/external).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from varve.dagster.runs.failures import as_dagster_failure
from varve.model.errors import VarveError
from varve.planning.requested import LANDING_TAG, reuse_allowed
from varve.sources.external import read as external
from varve.sources.landing.landing import Landing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from varve.dagster.runs.builds.builds import Builds


class LandingResource(dg.ConfigurableResource[None]):
    """Reads the landing folder of the settings, and the external tables of datasets."""

    def read(self, context: dg.AssetExecutionContext) -> DataFrame:
        """Return the run's partitions as typed rows with partition columns; see `Landing.read` and `external.read`."""
        builds: Builds = context.resources.builds
        with as_dagster_failure(context):
            opened = builds.of(context)
            try:
                if opened.build.dataset.external is not None:
                    return external.read(opened, builds.settings, lambda: context.resources.spark.spark_session)
                root = context.run.tags.get(LANDING_TAG) or builds.settings.landing
                landing = Landing(root, builds.settings.settle_seconds)
                allowed = reuse_allowed(context.run.tags)
                return landing.read(opened, context.resources.spark.spark_session, reuse_allowed=allowed)
            except VarveError as error:
                builds.abandon(opened, error, blamed=error.reasons)
                raise
