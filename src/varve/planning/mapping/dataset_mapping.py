"""Which partitions of one dataset read which of another, exactly and in both directions (docs/decisions/0005).

By interval algebra on boxes (partition_subset.py): a span of ten years maps as fast as one of an hour. What a partition
maps to and does not exist is told, never dropped.

Not here: which of the partitions have data (run_requests.py), and Dagster's mappings
(varve/dagster/partitions/mappings.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

from varve.model.errors import VarveError
from varve.model.partitions.dimension import TimeDimension
from varve.model.reads import All, Custom, Overlap, Rule, Same, TableReads
from varve.planning.mapping.dimension_mapping import DimensionMapping, everything, meet
from varve.planning.mapping.partition_subset import KeySelection, PartitionBox, TimeSpans

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from varve.model.partitions.dimension import Dimension, Members
    from varve.model.partitions.key import PartitionKey
    from varve.model.partitions.partitioning import Partitioning


@dataclass(frozen=True, slots=True)
class Mapped:
    """The partitions that some partitions map to, as boxes; `keys` lists them.

    Attributes:
        existing: those that lie within the dimensions of the other side.
        upcoming: those of them whose windows are not complete yet; only where the mapping was given a `now`.
        nonexistent: those that never will be: a week's days before the first day there is, a key no list has.
    """

    existing: tuple[PartitionBox, ...] = ()
    upcoming: tuple[PartitionBox, ...] = ()
    nonexistent: tuple[PartitionBox, ...] = ()

    @property
    def keys(self) -> list[PartitionKey]:
        """The existing ones, each once, in order."""
        return listed(self.existing)


def listed(boxes: Iterable[PartitionBox]) -> list[PartitionKey]:
    """The partitions of boxes, each once, in order."""
    return list(dict.fromkeys(key for box in boxes for key in box.partitions()))


@dataclass(frozen=True)
class Dependency:
    """What the partitions of one dataset read of another.

    Attributes:
        rules: what the reader's author says of dimensions of the upstream; for the others see `rule`.
    """

    reader: Partitioning
    upstream: Partitioning
    rules: Mapping[str, Rule] = field(default_factory=dict)

    @cached_property
    def ways(self) -> tuple[DimensionMapping, ...]:
        """For each dimension of the upstream how it is read."""
        return tuple(self._way(dimension) for dimension in self.upstream.dimensions)

    def check(self) -> None:
        """Raise VarveError, naming the dimension, where a rule cannot hold, or nothing is shared."""
        if unknown := sorted(set(self.rules) - set(self.upstream.names)):
            raise VarveError(
                f"it has no dimension {', '.join(unknown)}; its dimensions are {', '.join(self.upstream.names)}."
            )
        for way in self.ways:
            way.check()
        if not self.rules and all(way.of is None for way in self.ways):
            raise VarveError(
                f"its dimensions {', '.join(self.upstream.names)} share nothing with {', '.join(self.reader.names)}. "
                f"To read all of it, say so: Reads(..., {{{self.upstream.names[0]!r}: All()}})."
            )

    def upstream_of(
        self, what: PartitionKey | PartitionBox, *, members: Members | None = None, now: dt.datetime | None = None
    ) -> Mapped:
        """What a partition, or each of a box of them, reads.

        Args:
            what: of the reader.
            members: the members of dynamic sets; None: any key may exist.
            now: where given, windows that end later are `upcoming`.
        """
        return self._mapped(self._boxes(what, self.reader), members, now, self._upstream_choices, self.upstream)

    def upstream_of_each(
        self, keys: Sequence[PartitionKey], *, members: Members | None = None, now: dt.datetime | None = None
    ) -> list[Mapped]:
        """For each partition what it reads. Arguments as of `upstream_of`."""
        return [self.upstream_of(key, members=members, now=now) for key in keys]

    def readers_of(
        self, what: PartitionKey | PartitionBox, *, members: Members | None = None, now: dt.datetime | None = None
    ) -> Mapped:
        """What reads a partition, or any of a box of them. Arguments as of `upstream_of`."""
        return self._mapped(self._boxes(what, self.upstream), members, now, self._reader_choices, self.reader)

    def _boxes(self, what: PartitionKey | PartitionBox, partitioning: Partitioning) -> Iterator[PartitionBox]:
        box = what if isinstance(what, PartitionBox) else PartitionBox.at(partitioning, what)
        # Boxes map to boxes as each dimension of the upstream follows one of the reader's. Where two follow the same,
        # the product of their choices would be too much.
        of = [way.of.name for way in self.ways if way.of is not None]
        if len(set(of)) == len(of):
            yield box
        else:
            yield from (PartitionBox.at(partitioning, key) for key in box.partitions())

    def _mapped(
        self,
        boxes: Iterable[PartitionBox],
        members: Members | None,
        now: dt.datetime | None,
        choices: Callable[[PartitionBox, Members | None, dt.datetime | None], tuple[KeySelection, ...]],
        to: Partitioning,
    ) -> Mapped:
        found = [
            split_box(PartitionBox(to, mapped), members, now)
            for box in boxes
            if all(mapped := choices(box, members, now))
        ]
        return Mapped(*(tuple(box for parts in found for box in parts[part]) for part in range(3)))

    def _upstream_choices(
        self, box: PartitionBox, members: Members | None, now: dt.datetime | None
    ) -> tuple[KeySelection, ...]:
        given = dict(zip(self.reader.names, box.choices, strict=True))
        return tuple(way.read(given[way.of.name] if way.of else None, members, now) for way in self.ways)

    def _reader_choices(
        self, box: PartitionBox, members: Members | None, now: dt.datetime | None
    ) -> tuple[KeySelection, ...]:
        found: dict[str, KeySelection] = {}
        for way, choice in zip(self.ways, box.choices, strict=True):
            if way.of is None:
                if not way.meets(choice, members, now):
                    return ((),)
                continue
            reading = way.reading(choice, members, now)
            held = found.get(way.of.name)
            found[way.of.name] = reading if held is None else meet(held, reading)
        return tuple(
            found[dimension.name] if dimension.name in found else everything(dimension, members, now)
            for dimension in self.reader.dimensions
        )

    def _way(self, dimension: Dimension) -> DimensionMapping:
        same = next((each for each in self.reader.dimensions if each.name == dimension.name), None)
        rule = self.rules.get(dimension.name)
        if rule is None:
            if isinstance(dimension, TimeDimension):
                rule = Overlap() if self.reader.time else All()
            else:
                rule = Same() if same is not None and not isinstance(same, TimeDimension) else All()
        of: Dimension | None = None
        if isinstance(rule, Overlap):
            of = self.reader.time
        elif isinstance(rule, Same | TableReads | Custom):
            of = (
                same
                if rule.of is None
                else next((each for each in self.reader.dimensions if each.name == rule.of), None)
            )
        return DimensionMapping(dimension, rule, of)


def split_box(
    box: PartitionBox, members: Members | None, now: dt.datetime | None
) -> tuple[list[PartitionBox], list[PartitionBox], list[PartitionBox]]:
    """The box's existing, upcoming and nonexistent parts: for a product, one missing value makes the key missing."""
    parts = [
        _parts(dimension, choice, members, now)
        for dimension, choice in zip(box.partitioning.dimensions, box.choices, strict=True)
    ]
    split: tuple[list[PartitionBox], list[PartitionBox], list[PartitionBox]] = ([], [], [])
    for places in product(range(3), repeat=len(parts)):
        choices = tuple(part[place] for part, place in zip(parts, places, strict=True))
        if all(choices):
            split[max(places)].append(PartitionBox(box.partitioning, choices))
    return split


def _parts(
    dimension: Dimension, choice: KeySelection, members: Members | None, now: dt.datetime | None
) -> tuple[KeySelection, KeySelection, KeySelection]:
    if isinstance(choice, TimeSpans):
        assert isinstance(dimension, TimeDimension)
        inside, never = choice.within(dimension.first, dimension.last), choice.without(dimension.first, dimension.last)
        if now is None:
            return inside, TimeSpans(), never
        known = dimension.known_until(now)
        return inside.within(dimension.first, known), inside.without(dimension.first, known), never
    there = dict.fromkeys(value for value in choice if dimension.exists(value, members))
    return tuple(there), (), tuple(value for value in choice if value not in there)
