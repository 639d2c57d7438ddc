"""Dimensions as Dagster's own partition definitions, so that its UI, backfills and CLI understand ours.

Not here: what a key means (model/dimension.py) and how datasets depend on each other (mappings.py).
"""

from __future__ import annotations

from functools import lru_cache

import dagster as dg

from pipeline_defs.model.dimension import Dimension, Partitioning, TimeDimension


@lru_cache
def partitions_def(partitioning: Partitioning) -> dg.PartitionsDefinition[str]:
    """The partitions of a product of one or two dimensions; one object for equal products, as Dagster compares them."""
    if len(partitioning.dimensions) == 1:
        return _dimension(partitioning.dimensions[0])
    return dg.MultiPartitionsDefinition(
        {dimension.name: _dimension(dimension) for dimension in partitioning.dimensions}
    )


def _dimension(dimension: Dimension) -> dg.PartitionsDefinition[str]:
    if isinstance(dimension, TimeDimension):
        text = dimension.grain.key_format
        return dg.TimeWindowPartitionsDefinition(
            cron_schedule=dimension.grain.cron,
            timezone=dimension.timezone,
            fmt=text,
            start=dimension.start.strftime(text),
            end=dimension.end.strftime(text) if dimension.end else None,
        )
    return dg.StaticPartitionsDefinition(list(dimension.members))
