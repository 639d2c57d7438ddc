"""The landing folder as a Dagster resource: `context.resources.landing.read(context)` in the body of an asset.

Not here: what a landing file must look like (landing.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from pipeline_defs.model.errors import VarveError
from resources.io_manager import told
from resources.landing import Landing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from resources.builds import Builds


class LandingResource(dg.ConfigurableResource[None]):
    """The landing folder of the settings."""

    def read(self, context: dg.AssetExecutionContext) -> DataFrame:
        """The files of the run's partitions as typed rows with their partition column; see `Landing.read`."""
        builds: Builds = context.resources.builds
        with told():
            opened = builds.of(context)
            try:
                return Landing(builds.settings.landing).read(opened, context.resources.spark.spark_session)
            except VarveError as error:
                builds.abandon(opened, str(error))
                raise
