"""Ranges of partitions as Dagster counts them: from one key to another in each of its dimensions, in its order.

Where several of our dimensions are folded into one of Dagster's, a range goes through their combinations: of region x
kind, the one from `eu~b` to `us~a` may have just these two, and is no product of regions and kinds.

Not here: which partitions are asked for together (run_requests.py), and dynamic sets, whose order only Dagster knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.planning.mapping.partition_subset import TimeSpans, values_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varve.model.partitions.dimension import Dimension
    from varve.model.partitions.key import PartitionKey, Value
    from varve.model.partitions.partitioning import Fold, Partitioning


def rank_in(fold: Fold, values: Sequence[Value]) -> int:
    """The position of a combination of keys of static dimensions among all of them, in Dagster's order, from 0."""
    rank = 0
    for dimension, value in zip(fold, values, strict=True):
        assert isinstance(dimension, StaticDimension)
        rank = rank * len(dimension.members) + dimension.places[value]
    return rank


def partitions_between(partitioning: Partitioning, first: PartitionKey, last: PartitionKey) -> list[PartitionKey]:
    """The partitions of a range from one corner to another, both included; no dimension is a dynamic set."""
    folded = next((fold for fold in partitioning.folds.values() if len(fold) > 1), ())
    axes = {
        dimension.name: _between(dimension, dimension.value_in(first), dimension.value_in(last))
        for dimension in partitioning.dimensions
        if dimension not in folded
    }
    low, high = ([dimension.value_in(corner) for dimension in folded] for corner in (first, last))
    return [
        key
        for values in _combinations(folded, rank_in(folded, low), rank_in(folded, high))
        for key in partitioning.keys_of(
            [axes[name] if name in axes else (values[name],) for name in partitioning.dimension_names]
        )
    ]


def _between(dimension: Dimension, low: Value, high: Value) -> Sequence[Value]:
    """The keys of one dimension from one to another, both included."""
    if isinstance(dimension, TimeDimension):
        runs = dimension.calendar.runs(dimension.start_of(low), dimension.start_of(high) + 1)
        return values_of(dimension, TimeSpans.of(runs))
    assert isinstance(dimension, StaticDimension)
    return dimension.members[dimension.places[low] : dimension.places[high] + 1]


def _combinations(fold: Fold, first: int, last: int) -> Iterator[dict[str, Value]]:
    """The combinations of keys of static dimensions from one position to another, by the names of the dimensions."""
    for rank in range(first, last + 1):
        values: dict[str, Value] = {}
        rest = rank
        for dimension in reversed(fold):
            assert isinstance(dimension, StaticDimension)
            rest, place = divmod(rest, len(dimension.members))
            values[dimension.name] = dimension.members[place]
        yield values
