"""Sets of partitions that need no list: boxes, which are products of spans of time and tuples of keys.

Not here: how a box of one dataset maps to one of another (dataset_mapping.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from varve.model.partitions.dimension import TimeDimension

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from varve.model.partitions.dimension import Dimension
    from varve.model.partitions.key import PartitionKey, Value
    from varve.model.partitions.partitioning import Partitioning


@dataclass(frozen=True, slots=True)
class TimeSpans:
    """A set of windows of a time dimension: sorted, disjoint, half-open spans in seconds since 1970.

    Where a calendar has gaps, no span reaches over one.
    """

    spans: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, spans: Iterable[tuple[int, int]]) -> TimeSpans:
        """The union of any spans; empty spans are ignored."""
        union: list[tuple[int, int]] = []
        for start, end in sorted(span for span in spans if span[0] < span[1]):
            if union and start <= union[-1][1]:
                union[-1] = (union[-1][0], max(end, union[-1][1]))
            else:
                union.append((start, end))
        return cls(tuple(union))

    def __bool__(self) -> bool:
        return bool(self.spans)

    def within(self, start: int, end: int | None) -> TimeSpans:
        """The part between two boundaries (None: without end)."""
        ends = [(max(first, start), last if end is None else min(last, end)) for first, last in self.spans]
        return TimeSpans.of(ends)

    def without(self, start: int, end: int | None) -> TimeSpans:
        """The part that is not between two boundaries."""
        before = [(first, min(last, start)) for first, last in self.spans]
        after = [] if end is None else [(max(first, end), last) for first, last in self.spans]
        return TimeSpans.of([*before, *after])

    def meet(self, other: TimeSpans) -> TimeSpans:
        """The windows that both sets have."""
        common, place = [], 0
        for start, end in self.spans:
            while place < len(other.spans) and other.spans[place][1] <= start:
                place += 1
            for first, last in islice(other.spans, place, None):
                if first >= end:
                    break
                common.append((max(start, first), min(end, last)))
        return TimeSpans.of(common)

    def starts(self, dimension: TimeDimension) -> Iterator[int]:
        """The starts of the windows, in order."""
        following = dimension.calendar.following
        for start, end in (run for span in self.spans for run in dimension.calendar.runs(*span)):
            at = start
            while at < end:
                yield at
                at = following(at)


# A set of keys of one dimension: spans for a time dimension, a tuple of keys in their order for any other.
KeySelection: TypeAlias = "TimeSpans | tuple[Value, ...]"


@dataclass(frozen=True, slots=True)
class PartitionBox:
    """The product of one set of keys for each dimension of a partitioning, in the order of the dimensions."""

    partitioning: Partitioning
    choices: tuple[KeySelection, ...]

    @classmethod
    def at(cls, partitioning: Partitioning, key: PartitionKey) -> PartitionBox:
        """The box of one partition. Raises UnknownPartition where the key begins no window."""
        return cls(
            partitioning,
            tuple(choice_of(dimension, [dimension.value_in(key)]) for dimension in partitioning.dimensions),
        )

    def __bool__(self) -> bool:
        return all(self.choices)

    def partitions(self) -> Iterator[PartitionKey]:
        """The partitions of the box; the last dimension changes fastest."""
        dimensions = self.partitioning.dimensions
        values = [values_of(dimension, choice) for dimension, choice in zip(dimensions, self.choices, strict=True)]
        return self.partitioning.keys_of(values)

    def __contains__(self, key: PartitionKey) -> bool:
        for dimension, choice in zip(self.partitioning.dimensions, self.choices, strict=True):
            value = dimension.value_in(key)
            if isinstance(choice, TimeSpans):
                assert isinstance(dimension, TimeDimension)
                start = dimension.start_of(value)
                if not any(first <= start < last for first, last in choice.spans):
                    return False
            elif value not in choice:
                return False
        return True


def choice_of(dimension: Dimension, values: Sequence[Value]) -> KeySelection:
    """These keys of a dimension as a set of keys."""
    if not isinstance(dimension, TimeDimension):
        return tuple(values)
    starts = [dimension.start_of(value) for value in values]
    return TimeSpans.of((start, dimension.calendar.following(start)) for start in starts)


def values_of(dimension: Dimension, choice: KeySelection) -> Sequence[Value]:
    """The keys of a set of keys, in order."""
    if not isinstance(choice, TimeSpans):
        return choice
    assert isinstance(dimension, TimeDimension)
    return [dimension.value_at(start) for start in choice.starts(dimension)]


def boxes_of(partitioning: Partitioning, keys: Iterable[PartitionKey]) -> list[PartitionBox]:
    """The partitions as few boxes: one box for all windows that share the keys of the other dimensions."""
    others = [dimension.name for dimension in partitioning.dimensions if dimension is not partitioning.time]
    rows: dict[tuple[Value, ...], list[PartitionKey]] = {}
    for key in keys:
        rows.setdefault(tuple([key[name] for name in others]), []).append(key)
    return [
        PartitionBox(
            partitioning,
            tuple(
                choice_of(
                    dimension, [dimension.value_in(key) for key in (row if dimension is partitioning.time else row[:1])]
                )
                for dimension in partitioning.dimensions
            ),
        )
        for row in rows.values()
    ]
