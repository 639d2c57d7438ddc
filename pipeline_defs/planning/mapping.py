"""Which partitions of one dataset read which of another, exactly and in both directions (seed 003).

By interval algebra on boxes (region.py): a span of ten years maps as fast as one of an hour. What a partition maps to
and does not exist is told, never dropped.

Not here: which of the partitions have data (triggers.py), and Dagster's mappings (pipeline_defs/mappings.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

from pipeline_defs.model.dimension import TimeDimension
from pipeline_defs.model.errors import VarveError
from pipeline_defs.model.reads import All, Custom, Overlap, Rule, Same, Table
from pipeline_defs.planning.region import Box, Choice, Spans
from pipeline_defs.planning.way import Way, everything, meet

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pipeline_defs.model.dimension import Dimension, Members
    from pipeline_defs.model.partition import PartitionKey
    from pipeline_defs.model.partitioning import Partitioning


@dataclass(frozen=True, slots=True)
class Mapped:
    """The partitions that some partitions map to, as boxes; `keys` lists them.

    Attributes:
        existing: those that lie within the dimensions of the other side.
        upcoming: those of them whose windows are not complete yet; only where the mapping was given a `now`.
        nonexistent: those that never will be: a week's days before the first day there is, a key no list has.
    """

    existing: tuple[Box, ...] = ()
    upcoming: tuple[Box, ...] = ()
    nonexistent: tuple[Box, ...] = ()

    @property
    def keys(self) -> list[PartitionKey]:
        """The existing ones, each once, in order."""
        return listed(self.existing)


def listed(boxes: Iterable[Box]) -> list[PartitionKey]:
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
    def ways(self) -> tuple[Way, ...]:
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
        self, what: PartitionKey | Box, *, members: Members | None = None, now: dt.datetime | None = None
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
        self, what: PartitionKey | Box, *, members: Members | None = None, now: dt.datetime | None = None
    ) -> Mapped:
        """What reads a partition, or any of a box of them. Arguments as of `upstream_of`."""
        return self._mapped(self._boxes(what, self.upstream), members, now, self._reader_choices, self.reader)

    def _boxes(self, what: PartitionKey | Box, partitioning: Partitioning) -> Iterator[Box]:
        box = what if isinstance(what, Box) else Box.at(partitioning, what)
        # Boxes map to boxes as each dimension of the upstream follows one of the reader's. Where two follow the same,
        # the product of their choices would be too much.
        of = [way.of.name for way in self.ways if way.of is not None]
        if len(set(of)) == len(of):
            yield box
        else:
            yield from (Box.at(partitioning, key) for key in box.partitions())

    def _mapped(
        self,
        boxes: Iterable[Box],
        members: Members | None,
        now: dt.datetime | None,
        choices: Callable[[Box, Members | None, dt.datetime | None], tuple[Choice, ...]],
        to: Partitioning,
    ) -> Mapped:
        found = [split_box(Box(to, mapped), members, now) for box in boxes if all(mapped := choices(box, members, now))]
        return Mapped(*(tuple(box for parts in found for box in parts[part]) for part in range(3)))

    def _upstream_choices(self, box: Box, members: Members | None, now: dt.datetime | None) -> tuple[Choice, ...]:
        given = dict(zip(self.reader.names, box.choices, strict=True))
        return tuple(way.read(given[way.of.name] if way.of else None, members, now) for way in self.ways)

    def _reader_choices(self, box: Box, members: Members | None, now: dt.datetime | None) -> tuple[Choice, ...]:
        found: dict[str, Choice] = {}
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

    def _way(self, dimension: Dimension) -> Way:
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
        elif isinstance(rule, Same | Table | Custom):
            of = (
                same
                if rule.of is None
                else next((each for each in self.reader.dimensions if each.name == rule.of), None)
            )
        return Way(dimension, rule, of)


def split_box(box: Box, members: Members | None, now: dt.datetime | None) -> tuple[list[Box], list[Box], list[Box]]:
    """The box's existing, upcoming and nonexistent parts: for a product, one missing value makes the key missing."""
    parts = [
        _parts(dimension, choice, members, now)
        for dimension, choice in zip(box.partitioning.dimensions, box.choices, strict=True)
    ]
    split: tuple[list[Box], list[Box], list[Box]] = ([], [], [])
    for places in product(range(3), repeat=len(parts)):
        choices = tuple(part[place] for part, place in zip(parts, places, strict=True))
        if all(choices):
            split[max(places)].append(Box(box.partitioning, choices))
    return split


def _parts(
    dimension: Dimension, choice: Choice, members: Members | None, now: dt.datetime | None
) -> tuple[Choice, Choice, Choice]:
    if isinstance(choice, Spans):
        assert isinstance(dimension, TimeDimension)
        inside, never = choice.within(dimension.first, dimension.last), choice.without(dimension.first, dimension.last)
        if now is None:
            return inside, Spans(), never
        known = dimension.known_until(now)
        return inside.within(dimension.first, known), inside.without(dimension.first, known), never
    there = dict.fromkeys(value for value in choice if dimension.exists(value, members))
    return tuple(there), (), tuple(value for value in choice if value not in there)
