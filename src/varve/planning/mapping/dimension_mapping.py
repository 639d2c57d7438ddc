"""How one dimension of a dataset is read by another dataset: a rule, and both directions of it, on sets of keys.

Not here: products of dimensions, and what of the keys exists (dataset_mapping.py).
"""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.model.errors import UnknownPartition, VarveError, some
from varve.model.partitions.dimension import DynamicDimension, StaticDimension, TimeDimension
from varve.model.reads import All, Custom, Latest, Only, Overlap, Rule, Same, TableReads, Unit
from varve.planning.mapping.partition_subset import KeySelection, TimeSpans, choice_of, values_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Sequence

    from varve.model.partitions.calendar import Calendar
    from varve.model.partitions.dimension import Dimension, Members
    from varve.model.partitions.key import Value


@dataclass(frozen=True, slots=True)
class DimensionMapping:
    """How one dimension of the upstream is read: by which rule, and following which dimension of the reader."""

    upstream: Dimension
    rule: Rule
    of: Dimension | None

    def read(self, choice: KeySelection | None, members: Members | None, now: dt.datetime | None) -> KeySelection:
        """Which keys of the upstream's dimension are read by a choice of the reader's."""
        upstream, rule = self.upstream, self.rule
        match rule:
            case Overlap():
                assert isinstance(choice, TimeSpans)
                alike = _alike(self, rule)
                return choice if alike else TimeSpans.of(_read_span(self, rule, *span) for span in choice.spans)
            case Same():
                assert self.of is not None
                assert choice is not None
                return choice
            case All():
                return everything(upstream, members, now)
            case Latest():
                return _latest(upstream, members, now)
            case Only():
                return choice_of(upstream, rule.keys)
            case TableReads() | Custom():
                assert self.of is not None
                assert choice is not None
                found = [key for value in values_of(self.of, choice) for key in _found(self, value)]
                return choice_of(upstream, list(dict.fromkeys(found)))

    def reading(self, choice: KeySelection, members: Members | None, now: dt.datetime | None) -> KeySelection:
        """Which keys of the reader's dimension read a choice of the upstream's."""
        rule, of = self.rule, self.of
        assert of is not None
        match rule:
            case Overlap():
                assert isinstance(choice, TimeSpans)
                alike = _alike(self, rule)
                return choice if alike else TimeSpans.of(_reading_span(self, rule, *span) for span in choice.spans)
            case Custom(readers=str() as function):
                called = _function(function)
                found = [key for value in values_of(self.upstream, choice) for key in called(value)]
                return choice_of(of, list(dict.fromkeys(found)))
            case TableReads() | Custom():
                wanted = set(values_of(self.upstream, choice))
                everyone = rule.keys if isinstance(rule, TableReads) else values_of(of, everything(of, members, now))
                return choice_of(of, [value for value in everyone if not wanted.isdisjoint(_found(self, value))])
            case _:
                return choice

    def meets(self, choice: KeySelection, members: Members | None, now: dt.datetime | None) -> bool:
        """Whether a rule that follows no dimension of the reader reads anything of the choice."""
        return bool(meet(self.read(None, members, now), choice)) if not isinstance(self.rule, All) else bool(choice)

    def check(self) -> None:
        """Raise VarveError, naming the dimension, where the rule cannot hold."""
        upstream, rule, of = self.upstream, self.rule, self.of
        at = f"dimension {upstream.name}"
        time = isinstance(upstream, TimeDimension)
        if isinstance(rule, Overlap):
            if not time or of is None:
                raise VarveError(f"{at}: only time dimensions overlap; name its keys with Same, Only, Table or All.")
            if rule.first > rule.last:
                raise VarveError(f"{at}: {rule} ends before it begins.")
        if isinstance(rule, Same | TableReads | Custom) and of is None:
            named = rule.of or upstream.name
            raise VarveError(f"{at}: the reader has no dimension {named} to follow.")
        if isinstance(rule, Same):
            _check_same(at, upstream, of)
        if isinstance(rule, Only | TableReads):
            keys = rule.keys if isinstance(rule, Only) else [key for found in rule.keys.values() for key in found]
            if strangers := [key for key in keys if not _known(upstream, key)]:
                raise VarveError(f"{at}: {some(strangers)} is no key of it; its keys are {_described(upstream)}.")
        if isinstance(rule, TableReads):
            assert of is not None
            if strangers := [key for key in rule.keys if not _known(of, key)]:
                raise VarveError(f"{at}: {some(strangers)} is no key of the reader's dimension {of.name}.")
        if isinstance(rule, Custom):
            for name in (rule.function, rule.readers):
                _check_function(at, name)


def everything(dimension: Dimension, members: Members | None, now: dt.datetime | None) -> KeySelection:
    """All keys of a dimension that are there at `now` (None: at this moment)."""
    if isinstance(dimension, TimeDimension):
        return TimeSpans.of([(dimension.first, dimension.known_until(now))])
    return tuple(dimension.keys(members, now))


def _alike(way: DimensionMapping, rule: Overlap) -> bool:
    """Whether each window is read by the same window, as nearly always."""
    reader, upstream = _calendars(way)
    return rule.first == rule.last == 0 and reader == upstream


def _read_span(way: DimensionMapping, rule: Overlap, start: int, end: int) -> tuple[int, int]:
    reader, upstream = _calendars(way)
    if rule.unit is Unit.READER:
        start, end = moved(reader, start, rule.first), moved(reader, end, rule.last)
        return upstream.floor(start), _ceiling(upstream, end)
    return moved(upstream, upstream.floor(start), rule.first), moved(upstream, _ceiling(upstream, end), rule.last)


def _reading_span(way: DimensionMapping, rule: Overlap, start: int, end: int) -> tuple[int, int]:
    reader, upstream = _calendars(way)
    if rule.unit is Unit.READER:
        return moved(reader, reader.floor(start), -rule.last), moved(reader, _ceiling(reader, end), -rule.first)
    start, end = moved(upstream, start, -rule.last), moved(upstream, end, -rule.first)
    return reader.floor(start), _ceiling(reader, end)


def _calendars(way: DimensionMapping) -> tuple[Calendar, Calendar]:
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


def _latest(dimension: Dimension, members: Members | None, now: dt.datetime | None) -> KeySelection:
    found = everything(dimension, members, now)
    if not isinstance(found, TimeSpans):
        return found[-1:]
    assert isinstance(dimension, TimeDimension)
    if not found:
        return found
    end = found.spans[-1][1]
    return TimeSpans(((dimension.calendar.floor(end - 1), end),))


def _found(way: DimensionMapping, value: Value) -> Sequence[Value]:
    if isinstance(way.rule, TableReads):
        return way.rule.keys.get(value, ())
    assert isinstance(way.rule, Custom)
    return list(_function(way.rule.function)(value))


def _function(name: str) -> Callable[[Value], Iterable[Value]]:
    found: Any = pkgutil.resolve_name(name)
    return found  # type: ignore[no-any-return]


def meet(one: KeySelection, other: KeySelection) -> KeySelection:
    """What two choices of one dimension have in common."""
    if isinstance(one, TimeSpans):
        assert isinstance(other, TimeSpans)
        return one.meet(other)
    assert not isinstance(other, TimeSpans)
    others = set(other)
    return tuple(value for value in one if value in others)


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
