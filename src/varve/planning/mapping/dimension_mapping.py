"""The mapping of one upstream dimension: a rule, evaluated in both directions on sets of keys.

Not here: products of dimensions, and which of the keys exist (dataset_mapping.py).
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
    """How one dimension of the upstream is read.

    Attributes:
        upstream: the dimension of the upstream dataset.
        rule: the rule that says which of its keys are read.
        reader_dimension: the dimension of the reader that the rule follows; None where it follows none.
    """

    upstream: Dimension
    rule: Rule
    reader_dimension: Dimension | None

    def upstream_keys(
        self, choice: KeySelection | None, members: Members | None, now: dt.datetime | None
    ) -> KeySelection:
        """The keys of the upstream dimension that some keys of the reader's dimension read."""
        upstream, rule = self.upstream, self.rule
        match rule:
            case Overlap():
                assert isinstance(choice, TimeSpans)
                same_windows = _same_windows(self, rule)
                return choice if same_windows else TimeSpans.of(_read_span(self, rule, *span) for span in choice.spans)
            case Same():
                assert self.reader_dimension is not None
                assert choice is not None
                return choice
            case All():
                return everything(upstream, members, now)
            case Latest():
                return _latest(upstream, members, now)
            case Only():
                return choice_of(upstream, rule.keys)
            case TableReads() | Custom():
                assert self.reader_dimension is not None
                assert choice is not None
                keys = [key for value in values_of(self.reader_dimension, choice) for key in _mapped_keys(self, value)]
                return choice_of(upstream, list(dict.fromkeys(keys)))

    def reader_keys(self, choice: KeySelection, members: Members | None, now: dt.datetime | None) -> KeySelection:
        """The keys of the reader's dimension that read any of some keys of the upstream dimension."""
        rule, reader = self.rule, self.reader_dimension
        assert reader is not None
        match rule:
            case Overlap():
                assert isinstance(choice, TimeSpans)
                same_windows = _same_windows(self, rule)
                return (
                    choice if same_windows else TimeSpans.of(_reading_span(self, rule, *span) for span in choice.spans)
                )
            case Custom(readers=str() as function):
                readers_of = _function(function)
                keys = [key for value in values_of(self.upstream, choice) for key in readers_of(value)]
                return choice_of(reader, list(dict.fromkeys(keys)))
            case TableReads() | Custom():
                wanted = set(values_of(self.upstream, choice))
                candidates = (
                    rule.keys if isinstance(rule, TableReads) else values_of(reader, everything(reader, members, now))
                )
                return choice_of(
                    reader, [value for value in candidates if not wanted.isdisjoint(_mapped_keys(self, value))]
                )
            case _:
                return choice

    def meets(self, choice: KeySelection, members: Members | None, now: dt.datetime | None) -> bool:
        """Whether a rule that follows no dimension of the reader reads any key of the choice."""
        return (
            bool(meet(self.upstream_keys(None, members, now), choice))
            if not isinstance(self.rule, All)
            else bool(choice)
        )

    def check(self) -> None:
        """Raise VarveError that names the dimension where the rule cannot hold."""
        upstream, rule, reader = self.upstream, self.rule, self.reader_dimension
        where = f"dimension {upstream.name}"
        is_time = isinstance(upstream, TimeDimension)
        if isinstance(rule, Overlap):
            if not is_time or reader is None:
                raise VarveError(f"{where}: only time dimensions overlap; name its keys with Same, Only, Table or All.")
            if rule.first > rule.last:
                raise VarveError(f"{where}: {rule} ends before it begins.")
        if isinstance(rule, Same | TableReads | Custom) and reader is None:
            named = rule.of or upstream.name
            raise VarveError(f"{where}: the reader has no dimension {named} to follow.")
        if isinstance(rule, Same):
            _check_same(where, upstream, reader)
        if isinstance(rule, Only | TableReads):
            keys = rule.keys if isinstance(rule, Only) else [key for values in rule.keys.values() for key in values]
            if unknown_keys := [key for key in keys if not _has_key(upstream, key)]:
                raise VarveError(f"{where}: {some(unknown_keys)} is no key of it; its keys are {_described(upstream)}.")
        if isinstance(rule, TableReads):
            assert reader is not None
            if unknown_keys := [key for key in rule.keys if not _has_key(reader, key)]:
                raise VarveError(f"{where}: {some(unknown_keys)} is no key of the reader's dimension {reader.name}.")
        if isinstance(rule, Custom):
            for name in (rule.function, rule.readers):
                _check_function(where, name)


def everything(dimension: Dimension, members: Members | None, now: dt.datetime | None) -> KeySelection:
    """All keys of a dimension that are partitions at `now` (None: at this moment)."""
    if isinstance(dimension, TimeDimension):
        return TimeSpans.of([(dimension.first, dimension.known_until(now))])
    return tuple(dimension.keys(members, now))


def _same_windows(mapping: DimensionMapping, rule: Overlap) -> bool:
    """Whether each window reads the same window, which is nearly always so; then no arithmetic is needed."""
    reader, upstream = _calendars(mapping)
    return rule.first == rule.last == 0 and reader == upstream


def _read_span(mapping: DimensionMapping, rule: Overlap, start: int, end: int) -> tuple[int, int]:
    reader, upstream = _calendars(mapping)
    if rule.unit is Unit.READER:
        start, end = moved(reader, start, rule.first), moved(reader, end, rule.last)
        return upstream.floor(start), _ceiling(upstream, end)
    return moved(upstream, upstream.floor(start), rule.first), moved(upstream, _ceiling(upstream, end), rule.last)


def _reading_span(mapping: DimensionMapping, rule: Overlap, start: int, end: int) -> tuple[int, int]:
    reader, upstream = _calendars(mapping)
    if rule.unit is Unit.READER:
        return moved(reader, reader.floor(start), -rule.last), moved(reader, _ceiling(reader, end), -rule.first)
    start, end = moved(upstream, start, -rule.last), moved(upstream, end, -rule.first)
    return reader.floor(start), _ceiling(reader, end)


def _calendars(mapping: DimensionMapping) -> tuple[Calendar, Calendar]:
    assert isinstance(mapping.reader_dimension, TimeDimension)
    assert isinstance(mapping.upstream, TimeDimension)
    return mapping.reader_dimension.calendar, mapping.upstream.calendar


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
    all_keys = everything(dimension, members, now)
    if not isinstance(all_keys, TimeSpans):
        return all_keys[-1:]
    assert isinstance(dimension, TimeDimension)
    if not all_keys:
        return all_keys
    end = all_keys.spans[-1][1]
    return TimeSpans(((dimension.calendar.floor(end - 1), end),))


def _mapped_keys(mapping: DimensionMapping, value: Value) -> Sequence[Value]:
    if isinstance(mapping.rule, TableReads):
        return mapping.rule.keys.get(value, ())
    assert isinstance(mapping.rule, Custom)
    return list(_function(mapping.rule.function)(value))


def _function(name: str) -> Callable[[Value], Iterable[Value]]:
    function: Any = pkgutil.resolve_name(name)
    return function  # type: ignore[no-any-return]


def meet(first: KeySelection, second: KeySelection) -> KeySelection:
    """The keys that two choices of one dimension have in common."""
    if isinstance(first, TimeSpans):
        assert isinstance(second, TimeSpans)
        return first.meet(second)
    assert not isinstance(second, TimeSpans)
    keys = set(second)
    return tuple(value for value in first if value in keys)


def _check_same(where: str, upstream: Dimension, reader: Dimension | None) -> None:
    assert reader is not None
    if isinstance(upstream, TimeDimension) or isinstance(reader, TimeDimension):
        raise VarveError(
            f"{where}: windows of time are not the same but Overlap; map other keys by a Table or a Custom function."
        )
    if upstream.value_type is not reader.value_type:
        raise VarveError(
            f"{where}: its keys are of another kind than those of the reader's dimension {reader.name}: none is the "
            "same; map them by a Table or a Custom function."
        )
    if isinstance(upstream, StaticDimension) and isinstance(reader, StaticDimension):
        if not set(upstream.members).isdisjoint(reader.members):
            return
        raise VarveError(
            f"{where}: no key of it ({some(upstream.members)}) is one of the reader's dimension {reader.name} "
            f"({some(reader.members)}); map them by a Table, or read All()."
        )


def _check_function(where: str, name: str | None) -> None:
    if name is None:
        return
    try:
        function = pkgutil.resolve_name(name)
    except (ValueError, ImportError, AttributeError) as error:
        raise VarveError(f"{where}: no function {name!r} ({error}); name it as module:function.") from None
    if not callable(function):
        raise VarveError(f"{where}: {name!r} is no function; name it as module:function.")


def _has_key(dimension: Dimension, key: Value) -> bool:
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
