"""The flights project with one more asset that does nothing: what a Dagster run of it costs by itself."""

import dagster as dg

from pipeline_defs import definitions


@dg.asset
def empty() -> None:
    """Nothing at all."""


defs = dg.Definitions.merge(definitions.defs, dg.Definitions(assets=[empty]))
