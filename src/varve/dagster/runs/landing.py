"""What arrives from others as a Dagster resource: `context.resources.landing.read(context)` in the body of an asset.

Not here: what a landing file must look like (varve/sources/landing/landing.py), and tables of
others (varve/sources/external).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from varve.dagster.runs.failures import as_dagster_failure
from varve.model.errors import VarveError
from varve.planning.requested import AGAIN_TAG
from varve.sources.external import tables as outside
from varve.sources.landing.landing import Landing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from varve.dagster.runs.builds import Builds


class LandingResource(dg.ConfigurableResource[None]):
    """The landing folder of the settings, and the outside tables of datasets."""

    def read(self, context: dg.AssetExecutionContext) -> DataFrame:
        """The run's partitions as typed rows with their partition columns: see `Landing.read` and `outside.read`."""
        builds: Builds = context.resources.builds
        with as_dagster_failure():
            opened = builds.of(context)
            try:
                if opened.build.dataset.outside is not None:
                    return outside.read(opened, builds.settings, lambda: context.resources.spark.spark_session)
                landing = Landing(builds.settings.landing, builds.settings.settle_seconds)
                again = context.run.tags.get(AGAIN_TAG) == "yes"
                return landing.read(opened, context.resources.spark.spark_session, again=again)
            except VarveError as error:
                builds.abandon(opened, str(error))
                raise
