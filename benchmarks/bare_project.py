"""A Dagster project with one asset that does nothing, and nothing of Varve: what a Dagster run costs by itself."""

import dagster as dg


@dg.asset
def empty() -> None:
    """Nothing at all."""


defs = dg.Definitions(assets=[empty])
