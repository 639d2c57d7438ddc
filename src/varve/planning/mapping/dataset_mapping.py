"""Which partitions of one dataset read which of another, exactly and in both directions.

Mappings are computed by interval algebra on boxes (partition_subset.py): a span of ten years is as fast as one of an
hour (docs/decisions/0005-partition-keys.md). Partitions that do not exist are returned as such, never dropped.

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
    """The partitions to which some partitions map, as boxes; `keys` lists them.

    Attributes:
        existing: the partitions that the other dataset has.
        upcoming: partitions whose windows are not complete yet; only where the mapping was given a `now`.
        nonexistent: partitions that will never exist: days before the first day, keys that are in no list.
    """

    existing: tuple[PartitionBox, ...] = ()
    upcoming: tuple[PartitionBox, ...] = ()
    nonexistent: tuple[PartitionBox, ...] = ()

    @property
    def keys(self) -> list[PartitionKey]:
        """The existing partitions, each once, in order."""
        return listed(self.existing)


def listed(boxes: Iterable[PartitionBox]) -> list[PartitionKey]:
    """The partitions of some boxes, each once, in order."""
    return list(dict.fromkeys(key for box in boxes for key in box.partitions()))


@dataclass(frozen=True)
class Dependency:
    """Which partitions of an upstream dataset the partitions of a reader read.

    Attributes:
        rules: the declared rules, by dimension of the upstream; other dimensions get the defaults of `Reads`.
    """

    reader: Partitioning
    upstream: Partitioning
    rules: Mapping[str, Rule] = field(default_factory=dict)

    @cached_property
    def dimension_mappings(self) -> tuple[DimensionMapping, ...]:
        """The mapping of each dimension of the upstream, in their order."""
        return tuple(self._dimension_mapping(dimension) for dimension in self.upstream.dimensions)

    @cached_property
    def reads_all_windows(self) -> bool:
        """Whether every partition of the reader reads all windows of the upstream."""
        return any(
            isinstance(mapping.upstream, TimeDimension) and isinstance(mapping.rule, All)
            for mapping in self.dimension_mappings
        )

    @property
    def why_wider(self) -> str:
        """Why the dimension mappings cover more than is read, as a phrase; "" where they say what is read."""
        return ""

    @property
    def partitionings(self) -> tuple[Partitioning, ...]:
        """The partitionings whose dynamic sets must be known for a mapping: `members` are of all of them."""
        return self.reader, self.upstream

    def check(self) -> None:
        """Raise VarveError that names the dimension where a rule cannot hold, or the datasets share no dimension."""
        if unknown := sorted(set(self.rules) - set(self.upstream.dimension_names)):
            raise VarveError(
                f"it has no dimension {', '.join(unknown)}; its dimensions are "
                f"{', '.join(self.upstream.dimension_names) or 'none'}."
            )
        for mapping in self.dimension_mappings:
            mapping.check()
        # A dataset without partitions is read whole, and that needs no rule.
        if (
            not self.rules
            and self.upstream.dimensions
            and all(mapping.reader_dimension is None for mapping in self.dimension_mappings)
        ):
            raise VarveError(
                f"its dimensions {', '.join(self.upstream.dimension_names)} share nothing with "
                f"{', '.join(self.reader.dimension_names) or 'a dataset without partitions'}. "
                f"To read all of it, say so: Reads(..., {{{self.upstream.dimension_names[0]!r}: All()}})."
            )

    def upstream_of(
        self, partitions: PartitionKey | PartitionBox, *, members: Members | None = None, now: dt.datetime | None = None
    ) -> Mapped:
        """The upstream partitions that a partition of the reader, or a box of partitions, reads.

        Args:
            partitions: one partition or a box of partitions of the reader.
            members: the members of dynamic sets; None: every key of the right type counts as existing.
            now: where it is given, windows that end later are `upcoming`.
        """
        return self._mapped(self._boxes(partitions, self.reader), members, now, self._upstream_choices, self.upstream)

    def upstream_of_each(
        self, keys: Sequence[PartitionKey], *, members: Members | None = None, now: dt.datetime | None = None
    ) -> list[Mapped]:
        """For each partition of the reader what it reads. The arguments are those of `upstream_of`."""
        return [self.upstream_of(key, members=members, now=now) for key in keys]

    def readers_of(
        self, partitions: PartitionKey | PartitionBox, *, members: Members | None = None, now: dt.datetime | None = None
    ) -> Mapped:
        """The partitions that read an upstream partition or any of a box. The arguments are those of `upstream_of`."""
        return self._mapped(self._boxes(partitions, self.upstream), members, now, self._reader_choices, self.reader)

    def _boxes(self, partitions: PartitionKey | PartitionBox, partitioning: Partitioning) -> Iterator[PartitionBox]:
        box = partitions if isinstance(partitions, PartitionBox) else PartitionBox.at(partitioning, partitions)
        # A box maps to a box because each dimension of the upstream follows one of the reader's. Where two follow the
        # same one, the product of their choices would contain too many partitions.
        followed = [
            mapping.reader_dimension.name for mapping in self.dimension_mappings if mapping.reader_dimension is not None
        ]
        if len(set(followed)) == len(followed):
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
        split_boxes = [
            split_box(PartitionBox(to, mapped), members, now)
            for box in boxes
            if all(mapped := choices(box, members, now))
        ]
        return Mapped(*(tuple(box for groups in split_boxes for box in groups[group]) for group in range(3)))

    def _upstream_choices(
        self, box: PartitionBox, members: Members | None, now: dt.datetime | None
    ) -> tuple[KeySelection, ...]:
        reader_choices = dict(zip(self.reader.dimension_names, box.choices, strict=True))
        return tuple(
            mapping.upstream_keys(
                reader_choices[mapping.reader_dimension.name] if mapping.reader_dimension else None, members, now
            )
            for mapping in self.dimension_mappings
        )

    def _reader_choices(
        self, box: PartitionBox, members: Members | None, now: dt.datetime | None
    ) -> tuple[KeySelection, ...]:
        choice_of_dimension: dict[str, KeySelection] = {}
        for mapping, choice in zip(self.dimension_mappings, box.choices, strict=True):
            if mapping.reader_dimension is None:
                if not mapping.meets(choice, members, now):
                    return ((),)
                continue
            keys = mapping.reader_keys(choice, members, now)
            earlier_keys = choice_of_dimension.get(mapping.reader_dimension.name)
            choice_of_dimension[mapping.reader_dimension.name] = (
                keys if earlier_keys is None else meet(earlier_keys, keys)
            )
        return tuple(
            choice_of_dimension[dimension.name]
            if dimension.name in choice_of_dimension
            else everything(dimension, members, now)
            for dimension in self.reader.dimensions
        )

    def _dimension_mapping(self, dimension: Dimension) -> DimensionMapping:
        same_name = next((other for other in self.reader.dimensions if other.name == dimension.name), None)
        rule = self.rules.get(dimension.name)
        if rule is None:
            if isinstance(dimension, TimeDimension):
                rule = Overlap() if self.reader.time else All()
            else:
                rule = Same() if same_name is not None and not isinstance(same_name, TimeDimension) else All()
        reader_dimension: Dimension | None = None
        if isinstance(rule, Overlap):
            reader_dimension = self.reader.time
        elif isinstance(rule, Same | TableReads | Custom):
            reader_dimension = (
                same_name
                if rule.of is None
                else next((other for other in self.reader.dimensions if other.name == rule.of), None)
            )
        return DimensionMapping(dimension, rule, reader_dimension)


def split_box(
    box: PartitionBox, members: Members | None, now: dt.datetime | None
) -> tuple[list[PartitionBox], list[PartitionBox], list[PartitionBox]]:
    """The existing, upcoming and nonexistent parts of a box. One missing value of a key makes the whole key missing."""
    choices_by_state = [
        _parts(dimension, choice, members, now)
        for dimension, choice in zip(box.partitioning.dimensions, box.choices, strict=True)
    ]
    parts_by_state: tuple[list[PartitionBox], list[PartitionBox], list[PartitionBox]] = ([], [], [])
    for states in product(range(3), repeat=len(choices_by_state)):
        choices = tuple(
            choices_of_dimension[state] for choices_of_dimension, state in zip(choices_by_state, states, strict=True)
        )
        if all(choices):
            parts_by_state[max(states, default=0)].append(PartitionBox(box.partitioning, choices))
    return parts_by_state


def _parts(
    dimension: Dimension, choice: KeySelection, members: Members | None, now: dt.datetime | None
) -> tuple[KeySelection, KeySelection, KeySelection]:
    if isinstance(choice, TimeSpans):
        assert isinstance(dimension, TimeDimension)
        inside, never = choice.within(dimension.first, dimension.last), choice.without(dimension.first, dimension.last)
        if now is None:
            return inside, TimeSpans(), never
        known_until = dimension.known_until(now)
        return inside.within(dimension.first, known_until), inside.without(dimension.first, known_until), never
    existing = dict.fromkeys(value for value in choice if dimension.exists(value, members))
    return tuple(existing), (), tuple(value for value in choice if value not in existing)
