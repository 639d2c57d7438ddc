"""Dependencies between datasets as Dagster's built-in partition mappings, for its daemon and its UI.

Our own planner always maps exactly (planning/mapping.py); where no built-in can say a mapping, all partitions cover it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from pipeline_defs.model.dimension import Dimension, Partitioning, TimeDimension

if TYPE_CHECKING:
    from collections.abc import Mapping


def partition_mapping(downstream: Partitioning, upstream: Partitioning) -> dg.PartitionMapping:
    """The tightest built-in that covers what a partition of `downstream` reads of `upstream`."""
    pairs = _pairs(downstream, upstream)
    if pairs is None:
        return dg.AllPartitionMapping()
    if len(downstream.dimensions) == len(upstream.dimensions) == 1:
        return _dimension(*pairs[upstream.names[0]])
    if len(downstream.dimensions) == 2 and len(upstream.dimensions) == 1:
        name = upstream.names[0]
        if pairs[name][0] == pairs[name][1]:
            return dg.MultiToSingleDimensionPartitionMapping(name)
    if len(downstream.dimensions) == len(upstream.dimensions) == 2:
        return dg.MultiPartitionMapping(
            {
                name: dg.DimensionPartitionMapping(ours.name, _dimension(ours, theirs))
                for name, (ours, theirs) in pairs.items()
            }
        )
    return dg.AllPartitionMapping()


def _pairs(downstream: Partitioning, upstream: Partitioning) -> Mapping[str, tuple[Dimension, Dimension]] | None:
    """For each dimension of the upstream the one of the downstream it matches, where Dagster can map every pair."""
    pairs: dict[str, tuple[Dimension, Dimension]] = {}
    for theirs in upstream.dimensions:
        if isinstance(theirs, TimeDimension):
            ours: Dimension | None = downstream.time
            # Dagster refuses to map windows of unlike zones, even where UTC hours tile every zone's days.
            if downstream.time is None or downstream.time.timezone != theirs.timezone:
                return None
        else:
            ours = next((dimension for dimension in downstream.dimensions if dimension == theirs), None)
        if ours is None:
            return None
        pairs[theirs.name] = (ours, theirs)
    return pairs


def _dimension(ours: Dimension, theirs: Dimension) -> dg.PartitionMapping:
    if isinstance(theirs, TimeDimension) and ours != theirs:
        # The windows before the first and after the last are no error: a first week has fewer days.
        return dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)
    return dg.IdentityPartitionMapping()
