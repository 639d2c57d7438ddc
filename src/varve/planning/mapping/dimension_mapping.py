"""The mapping of one upstream dimension: a rule, evaluated in both directions on sets of keys.

Not here: products of dimensions, and which of the keys exist (dataset_mapping.py).
"""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from varve.model.errors import UnknownPartition, VarveError, some
from varve.model.partitions.calendar import first_from
from varve.model.partitions.dimension import DynamicDimension, StaticDimension, TimeDimension
from varve.model.reads import All, Custom, Latest, Only, Overlap, Rule, Same, TableReads, Unit
from varve.planning.mapping.partition_subset import KeySelection, TimeSpans, choice_of, values_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from varve.model.partitions.calendar import WindowCalendar
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
                reads = (read for span in choice.spans for read in _read_spans(self, rule, span))
                return choice if same_windows else TimeSpans.of(reads)
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
                readers = (reader for span in choice.spans for reader in _reading_spans(self, rule, span))
                return choice if same_windows else TimeSpans.of(readers)
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
        return TimeSpans.of(dimension.calendar.runs(dimension.first, dimension.known_until(now)))
    return tuple(dimension.keys(members, now))


def _same_windows(mapping: DimensionMapping, rule: Overlap) -> bool:
    """Whether each window reads the same window, which is nearly always so; then no arithmetic is needed."""
    reader, upstream = _calendars(mapping)
    return rule.first == rule.last == 0 and reader == upstream


def _read_spans(mapping: DimensionMapping, rule: Overlap, span: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The spans of upstream windows that the reader's windows in a span read."""
    reader, upstream = _calendars(mapping)
    for start, end in _apart(reader, *span):
        if rule.unit is Unit.READER:
            low, high = _clipped(reader, *_reach(reader, start, end, rule))
            yield from upstream.runs(upstream.floor(low), _ceiling(upstream, high)) if low < high else ()
            continue
        low, high = _clipped(upstream, start, end)
        if low < high:
            yield from upstream.runs(*_reach(upstream, upstream.floor(low), high, rule))


def _reading_spans(mapping: DimensionMapping, rule: Overlap, span: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The spans of the reader's windows that read the upstream's windows in a span: the inverse of `_read_spans`."""
    reader, upstream = _calendars(mapping)
    for start, end in _apart(upstream, *span):
        if rule.unit is Unit.READER:
            low, high = _clipped(reader, start, end)
            if low < high:
                # From the first window that ends after `low` to the last one that begins before `high`.
                first = moved(reader, first_from(reader, low), -rule.last)
                last = moved(reader, reader.previous_start(high), -rule.first)
                yield from reader.runs(first, reader.following(last))
            continue
        last_start = upstream.floor(end - 1)
        # Where a gap lies beside the window that is so many windows away, a reader in it counts from there too.
        low = (
            moved(upstream, start, -rule.last)
            if rule.last >= 0
            else upstream.following(moved(upstream, start, -rule.last - 1))
        )
        high = (
            upstream.following(moved(upstream, last_start, -rule.first))
            if rule.first <= 0
            else moved(upstream, last_start, 1 - rule.first)
        )
        low, high = _clipped(upstream, low, high)
        if low < high:
            yield from reader.runs(reader.floor(low), _ceiling(reader, high))


def _apart(calendar: WindowCalendar, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The windows of a span one by one where there are gaps, as what each reads may not be beside the next one's."""
    if not calendar.has_gaps:
        yield start, end
        return
    for first, last in calendar.runs(start, end):
        at = first
        while at < last:
            yield at, (at := calendar.following(at))


def _reach(calendar: WindowCalendar, start: int, end: int, rule: Overlap) -> tuple[int, int]:
    """From `rule.first` windows after the one at `start` to the end of that `rule.last` after the one before `end`."""
    return moved(calendar, start, rule.first), calendar.following(moved(calendar, calendar.floor(end - 1), rule.last))


def _clipped(calendar: WindowCalendar, start: int, end: int) -> tuple[int, int]:
    first, last = calendar.extent
    return max(start, first), min(end, last)


def _calendars(mapping: DimensionMapping) -> tuple[WindowCalendar, WindowCalendar]:
    assert isinstance(mapping.reader_dimension, TimeDimension)
    assert isinstance(mapping.upstream, TimeDimension)
    return mapping.reader_dimension.calendar, mapping.upstream.calendar


def moved(calendar: WindowCalendar, start: int, windows: int) -> int:
    """The start of the window so many windows after the one that begins at `start`, or before it where negative."""
    for _ in range(windows):
        start = calendar.next_start(start)
    for _ in range(-windows):
        start = calendar.previous_start(start)
    return start


def _ceiling(calendar: WindowCalendar, instant: int) -> int:
    return calendar.following(instant - 1)


def _latest(dimension: Dimension, members: Members | None, now: dt.datetime | None) -> KeySelection:
    if isinstance(dimension, TimeDimension):
        # Where others send it, or OPEN WINDOWS are declared, a window that is not over is a partition too.
        complete = replace(dimension, end_offset=0)
        end = complete.known_until(now)
        last_start = complete.calendar.previous_start(end)
        return choice_of(dimension, [dimension.value_at(last_start)]) if last_start >= complete.first else TimeSpans()
    all_keys = everything(dimension, members, now)
    assert not isinstance(all_keys, TimeSpans)
    return all_keys[-1:]


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
