"""Which partitions of one dataset read which of another, exactly and in both directions (seed 003).

By interval algebra on boxes (region.py): a span of ten years maps as fast as one of an hour. What a partition maps to
and does not exist is told, never dropped.

Not here: which of the partitions have data (triggers.py), and Dagster's mappings (pipeline_defs/mappings.py).
"""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

from pipeline_defs.model.dimension import DynamicDimension, StaticDimension, TimeDimension
from pipeline_defs.model.errors import UnknownPartition, VarveError, some
from pipeline_defs.model.reads import All, Custom, Latest, Only, Overlap, Rule, Same, Table, Unit
from pipeline_defs.planning.region import Box, Choice, Spans, choice_of, values_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pipeline_defs.model.calendar import Calendar
    from pipeline_defs.model.dimension import Dimension, Members
    from pipeline_defs.model.partition import PartitionKey, Value
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
            _check_way(way)
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
        return tuple(_read(way, given[way.of.name] if way.of else None, members, now) for way in self.ways)

    def _reader_choices(self, box: Box, members: Members | None, now: dt.datetime | None) -> tuple[Choice, ...]:
        found: dict[str, Choice] = {}
        for way, choice in zip(self.ways, box.choices, strict=True):
            if way.of is None:
                if not _meets(way, choice, members, now):
                    return ((),)
                continue
            reading = _reading(way, choice, members, now)
            held = found.get(way.of.name)
            found[way.of.name] = reading if held is None else _meet(held, reading)
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


@dataclass(frozen=True, slots=True)
class Way:
    """How one dimension of the upstream is read: by which rule, and following which dimension of the reader."""

    upstream: Dimension
    rule: Rule
    of: Dimension | None


def everything(dimension: Dimension, members: Members | None, now: dt.datetime | None) -> Choice:
    """All keys of a dimension that are there at `now` (None: at this moment)."""
    if isinstance(dimension, TimeDimension):
        return Spans.of([(dimension.first, dimension.known_until(now))])
    return tuple(dimension.keys(members, now))


def _read(way: Way, choice: Choice | None, members: Members | None, now: dt.datetime | None) -> Choice:
    """Which keys of the upstream's dimension are read by a choice of the reader's."""
    upstream, rule = way.upstream, way.rule
    match rule:
        case Overlap():
            assert isinstance(choice, Spans)
            return choice if _alike(way, rule) else Spans.of(_read_span(way, rule, *span) for span in choice.spans)
        case Same():
            assert way.of is not None
            assert choice is not None
            return choice
        case All():
            return everything(upstream, members, now)
        case Latest():
            return _latest(upstream, members, now)
        case Only():
            return choice_of(upstream, rule.keys)
        case Table() | Custom():
            assert way.of is not None
            assert choice is not None
            found = [key for value in values_of(way.of, choice) for key in _found(way, value)]
            return choice_of(upstream, list(dict.fromkeys(found)))


def _reading(way: Way, choice: Choice, members: Members | None, now: dt.datetime | None) -> Choice:
    """Which keys of the reader's dimension read a choice of the upstream's."""
    rule, of = way.rule, way.of
    assert of is not None
    match rule:
        case Overlap():
            assert isinstance(choice, Spans)
            return choice if _alike(way, rule) else Spans.of(_reading_span(way, rule, *span) for span in choice.spans)
        case Custom(readers=str() as function):
            called = _function(function)
            found = [key for value in values_of(way.upstream, choice) for key in called(value)]
            return choice_of(of, list(dict.fromkeys(found)))
        case Table() | Custom():
            wanted = set(values_of(way.upstream, choice))
            everyone = rule.keys if isinstance(rule, Table) else values_of(of, everything(of, members, now))
            return choice_of(of, [value for value in everyone if not wanted.isdisjoint(_found(way, value))])
        case _:
            return choice


def _alike(way: Way, rule: Overlap) -> bool:
    """Whether each window is read by the same window, as nearly always."""
    reader, upstream = _calendars(way)
    return rule.first == rule.last == 0 and reader == upstream


def _read_span(way: Way, rule: Overlap, start: int, end: int) -> tuple[int, int]:
    reader, upstream = _calendars(way)
    if rule.unit is Unit.READER:
        start, end = moved(reader, start, rule.first), moved(reader, end, rule.last)
        return upstream.floor(start), _ceiling(upstream, end)
    return moved(upstream, upstream.floor(start), rule.first), moved(upstream, _ceiling(upstream, end), rule.last)


def _reading_span(way: Way, rule: Overlap, start: int, end: int) -> tuple[int, int]:
    reader, upstream = _calendars(way)
    if rule.unit is Unit.READER:
        return moved(reader, reader.floor(start), -rule.last), moved(reader, _ceiling(reader, end), -rule.first)
    start, end = moved(upstream, start, -rule.last), moved(upstream, end, -rule.first)
    return reader.floor(start), _ceiling(reader, end)


def _calendars(way: Way) -> tuple[Calendar, Calendar]:
    assert isinstance(way.of, TimeDimension)
    assert isinstance(way.upstream, TimeDimension)
    return way.of.calendar, way.upstream.calendar


def moved(calendar: Calendar, boundary: int, windows: int) -> int:
    """The boundary so many windows later, or earlier where negative."""
    for _ in range(windows):
        boundary = calendar.following(boundary)
    for _ in range(-windows):
        boundary = calendar.floor(boundary - 1)
    return boundary


def _ceiling(calendar: Calendar, instant: int) -> int:
    return calendar.following(instant - 1)


def _latest(dimension: Dimension, members: Members | None, now: dt.datetime | None) -> Choice:
    found = everything(dimension, members, now)
    if not isinstance(found, Spans):
        return found[-1:]
    assert isinstance(dimension, TimeDimension)
    if not found:
        return found
    end = found.spans[-1][1]
    return Spans(((dimension.calendar.floor(end - 1), end),))


def _found(way: Way, value: Value) -> Sequence[Value]:
    if isinstance(way.rule, Table):
        return way.rule.keys.get(value, ())
    assert isinstance(way.rule, Custom)
    return list(_function(way.rule.function)(value))


def _function(name: str) -> Callable[[Value], Iterable[Value]]:
    found: Any = pkgutil.resolve_name(name)
    return found  # type: ignore[no-any-return]


def _meets(way: Way, choice: Choice, members: Members | None, now: dt.datetime | None) -> bool:
    """Whether a rule that follows no dimension of the reader reads anything of the choice."""
    return bool(_meet(_read(way, None, members, now), choice)) if not isinstance(way.rule, All) else bool(choice)


def _meet(one: Choice, other: Choice) -> Choice:
    if isinstance(one, Spans):
        assert isinstance(other, Spans)
        return one.meet(other)
    assert not isinstance(other, Spans)
    others = set(other)
    return tuple(value for value in one if value in others)


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


def _check_way(way: Way) -> None:
    upstream, rule, of = way.upstream, way.rule, way.of
    at = f"dimension {upstream.name}"
    time = isinstance(upstream, TimeDimension)
    if isinstance(rule, Overlap):
        if not time or of is None:
            raise VarveError(f"{at}: only time dimensions overlap; name its keys with Same, Only, Table or All.")
        if rule.first > rule.last:
            raise VarveError(f"{at}: {rule} ends before it begins.")
    if isinstance(rule, Same | Table | Custom) and of is None:
        raise VarveError(f"{at}: the reader has no dimension {getattr(rule, 'of', None) or upstream.name} to follow.")
    if isinstance(rule, Same):
        _check_same(at, upstream, of)
    if isinstance(rule, Only | Table):
        keys = rule.keys if isinstance(rule, Only) else [key for found in rule.keys.values() for key in found]
        if strangers := [key for key in keys if not _known(upstream, key)]:
            raise VarveError(f"{at}: {some(strangers)} is no key of it; its keys are {_described(upstream)}.")
    if isinstance(rule, Table):
        assert of is not None
        if strangers := [key for key in rule.keys if not _known(of, key)]:
            raise VarveError(f"{at}: {some(strangers)} is no key of the reader's dimension {of.name}.")
    if isinstance(rule, Custom):
        for name in (rule.function, rule.readers):
            _check_function(at, name)


def _check_same(at: str, upstream: Dimension, of: Dimension | None) -> None:
    assert of is not None
    if isinstance(upstream, TimeDimension) or isinstance(of, TimeDimension):
        raise VarveError(
            f"{at}: windows of time are not the same but Overlap; map other keys by a Table or a Custom function."
        )
    if upstream.value_type is not of.value_type:
        raise VarveError(
            f"{at}: its keys are of another kind than those of the reader's dimension {of.name}: none is the same; "
            "map them by a Table or a Custom function."
        )
    if isinstance(upstream, StaticDimension) and isinstance(of, StaticDimension):
        if not set(upstream.members).isdisjoint(of.members):
            return
        raise VarveError(
            f"{at}: no key of it ({some(upstream.members)}) is one of the reader's dimension {of.name} "
            f"({some(of.members)}); map them by a Table, or read All()."
        )


def _check_function(at: str, name: str | None) -> None:
    if name is None:
        return
    try:
        found = pkgutil.resolve_name(name)
    except (ValueError, ImportError, AttributeError) as error:
        raise VarveError(f"{at}: no function {name!r} ({error}); name it as module:function.") from None
    if not callable(found):
        raise VarveError(f"{at}: {name!r} is no function; name it as module:function.")


def _known(dimension: Dimension, key: Value) -> bool:
    try:
        return type(key) is dimension.value_type and dimension.exists(key)
    except UnknownPartition:
        return False


def _described(dimension: Dimension) -> str:
    if isinstance(dimension, StaticDimension):
        return some(dimension.members)
    if isinstance(dimension, DynamicDimension):
        return f"of type {dimension.value_type.__name__}"
    return f"windows: it {dimension.extent}"
