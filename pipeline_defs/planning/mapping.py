"""Which partitions of one dataset belong to which of another (seed 003), by the windows and keys of their dimensions.

Time dimensions match by overlap, whatever their grains and zones: a day in New York reads the 23, 24 or 25 UTC hours it
shares an instant with. Other dimensions match by name; one that only the other side has matches all of its keys.

Not here: which of the partitions have data (triggers.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from pipeline_defs.model.dimension import TimeDimension

if TYPE_CHECKING:
    from pipeline_defs.model.dimension import Dimension, Partitioning
    from pipeline_defs.model.partition import PartitionKey, Value


@dataclass(frozen=True, slots=True)
class Mapped:
    """The partitions that a partition maps to.

    Attributes:
        existing: those that lie within the dimensions of the other side, in order.
        nonexistent: those that do not: a week's days before the first day there is.
    """

    existing: tuple[PartitionKey, ...]
    nonexistent: tuple[PartitionKey, ...]


def related(key: PartitionKey, of: Partitioning, to: Partitioning) -> Mapped:
    """The partitions of `to` that the partition `key` of `of` reads, or is read by: overlap works both ways."""
    found = [to.key(values) for values in product(*(_matching(dimension, key, of) for dimension in to.dimensions))]
    return Mapped(
        tuple(partition for partition in found if to.exists(partition)),
        tuple(partition for partition in found if not to.exists(partition)),
    )


def _matching(dimension: Dimension, key: PartitionKey, of: Partitioning) -> list[Value]:
    if isinstance(dimension, TimeDimension):
        if of.time is None:
            return list(dimension.keys())
        return dimension.overlapping(of.time.window(key[of.time.name]))
    if dimension.name in of.names:
        return [key[dimension.name]]
    return list(dimension.keys())
