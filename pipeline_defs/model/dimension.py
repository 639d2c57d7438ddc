"""Dimensions, the axes of partitioning, and `Partitioning`, their product (seed 003).

A time dimension tiles time into half-open windows; a static one is an ordered list of keys. All functions answer by
arithmetic on windows; none lists a whole dimension unless asked to.

Not here: how partitions of two datasets depend on each other (planning/mapping.py) and Dagster's objects
(pipeline_defs/partitions.py).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import pendulum

from pipeline_defs.model.errors import UnknownPartition, VarveError
from pipeline_defs.model.grain import Grain, boundary
from pipeline_defs.model.partition import PartitionKey, Value, parse_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True)
class TimeDimension:
    """Windows of one grain in one zone, from `start` (inclusive) to `end` (exclusive; None: without end).

    Windows are half-open on the calendar of the zone, so that a day may have 23 or 25 hours. The key of a window is
    its start: a date, or for hours the text of `Grain.key_format` in the zone.
    """

    name: str
    grain: Grain
    start: pendulum.DateTime
    end: pendulum.DateTime | None = None

    def __post_init__(self) -> None:
        if self.floor(self.start) != self.start:
            raise VarveError(
                f"dimension {self.name}: start {self.start} is not on a boundary of its {self.grain} windows; "
                f"the nearest before it is {self.floor(self.start)}."
            )
        if self.end is not None and self.end <= self.start:
            raise VarveError(f"dimension {self.name}: end {self.end} is not after start {self.start}.")
        if self.grain is Grain.HOUR and self._clock_moves():
            raise VarveError(
                f"dimension {self.name}: the clock of {self.timezone} shows an hour twice when it goes back, so that "
                "two hours would have one key. Give start and end in UTC; days of any zone map onto UTC hours exactly."
            )

    @property
    def timezone(self) -> str:
        """The IANA zone of the windows."""
        return self.start.timezone_name or "UTC"

    def floor(self, instant: dt.datetime) -> pendulum.DateTime:
        """The start of the window that holds `instant`."""
        wall = pendulum.instance(instant).in_timezone(self.timezone).naive()
        start = boundary(self.grain.truncated(wall), self.timezone)
        # Where clocks go back over midnight, the wall shows the day before once more.
        # Timestamps, as Python compares times of one zone by their wall clocks.
        following = self.next(start)
        return following if following.timestamp() <= instant.timestamp() else start

    def next(self, start: pendulum.DateTime) -> pendulum.DateTime:
        """The start of the window after the one that starts at `start`: hours in absolute time, others by calendar."""
        if self.grain is Grain.HOUR:
            return start.add(hours=1)
        return boundary(self.grain.following(self.grain.truncated(start.naive())), self.timezone)

    def window(self, value: Value) -> pendulum.Interval[pendulum.DateTime]:
        """The half-open window of a key."""
        start = self._start_of(value)
        return pendulum.interval(start, self.next(start))

    def overlapping(self, window: pendulum.Interval[pendulum.DateTime]) -> list[Value]:
        """The keys of all windows that share an instant with `window`, in order, whether they exist or not."""
        found: list[Value] = []
        start = self.floor(window.start)
        while start < window.end:
            found.append(self._key_of(start))
            start = self.next(start)
        return found

    def exists(self, value: Value) -> bool:
        """Whether the key's window lies between `start` and `end`."""
        start = self._start_of(value)
        return start >= self.start and (self.end is None or self.next(start) <= self.end)

    def parse(self, text: str) -> Value:
        """The key that `text` spells. Raises UnknownPartition where it spells none, or one outside the dimension."""
        try:
            naive = dt.datetime.strptime(text, self.grain.key_format)  # noqa: DTZ007 - the zone is the dimension's
        except ValueError:
            raise UnknownPartition(
                f"{text!r} is no key of dimension {self.name}; its keys look like {self._text_of(self.start)}."
            ) from None
        start = boundary(naive, self.timezone)
        value = self._key_of(start)
        if self.floor(start) != start or self._text_of(start) != text:
            raise UnknownPartition(
                f"{text!r} is not the start of a {self.grain} of dimension {self.name}; "
                f"the one that holds it starts at {self._text_of(self.floor(start))}."
            )
        if not self.exists(value):
            raise UnknownPartition(f"{text!r} lies outside dimension {self.name}, which {self.extent}.")
        return value

    def keys(self) -> Iterator[Value]:
        """All keys from `start` to `end`; to now where there is no end."""
        end = self.end or pendulum.now(self.timezone)
        start = self.start
        while (following := self.next(start)) <= end:
            yield self._key_of(start)
            start = following

    @property
    def extent(self) -> str:
        """From when to when the dimension reaches, in words."""
        until = f"before {self._text_of(self.end)}" if self.end else "without end"
        return f"runs from {self._text_of(self.start)}, {until} ({self.timezone})"

    def _text_of(self, start: pendulum.DateTime) -> str:
        return start.strftime(self.grain.key_format)

    def _key_of(self, start: pendulum.DateTime) -> Value:
        return self._text_of(start) if self.grain is Grain.HOUR else start.date()

    def _start_of(self, value: Value) -> pendulum.DateTime:
        return _start_of(str(value), self.grain.key_format, self.timezone)

    def _clock_moves(self) -> bool:
        years = range(self.start.year, (self.end or pendulum.now()).year + 2)
        zone = pendulum.timezone(self.timezone)
        return (
            len({dt.datetime(year, month, 1, tzinfo=zone).utcoffset() for year in years for month in range(1, 13)}) > 1
        )


@lru_cache(maxsize=65_536)
def _start_of(text: str, key_format: str, timezone: str) -> pendulum.DateTime:
    return boundary(dt.datetime.strptime(text, key_format), timezone)  # noqa: DTZ007


@dataclass(frozen=True, slots=True)
class StaticDimension:
    """An ordered list of keys, known beforehand."""

    name: str
    members: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.members or len(set(self.members)) != len(self.members) or not all(self.members):
            raise VarveError(f"dimension {self.name}: keys must be given, unlike and not empty; found {self.members}.")

    def exists(self, value: Value) -> bool:
        """Whether the dimension has this key."""
        return value in self.members

    def parse(self, text: str) -> Value:
        """The key that `text` spells; UnknownPartition where it is not in the list."""
        if text not in self.members:
            raise UnknownPartition(f"{text!r} is no key of dimension {self.name}, which has {', '.join(self.members)}.")
        return text

    def keys(self) -> Iterator[Value]:
        """All keys, in the declared order."""
        return iter(self.members)


Dimension: TypeAlias = TimeDimension | StaticDimension


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The product of a dataset's dimensions, at most one of them time (AIP-76).

    Dagster spells a key of two dimensions as their texts joined by `|` in the order of the dimensions' *names*.
    """

    dimensions: tuple[Dimension, ...]

    def __post_init__(self) -> None:
        names = [dimension.name for dimension in self.dimensions]
        if len(set(names)) != len(names):
            raise VarveError(f"two dimensions of one name in {names}; give each its own.")
        if sum(isinstance(dimension, TimeDimension) for dimension in self.dimensions) > 1:
            raise VarveError(f"more than one time dimension in {names}; a product may have one (AIP-76).")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the dimensions, which are also the partition columns."""
        return tuple(dimension.name for dimension in self.dimensions)

    @property
    def time(self) -> TimeDimension | None:
        """The time dimension, if there is one."""
        return next((dimension for dimension in self.dimensions if isinstance(dimension, TimeDimension)), None)

    def key(self, values: Sequence[Value]) -> PartitionKey:
        """The key with these values, in the order of the dimensions."""
        return PartitionKey(tuple(zip(self.names, values, strict=True)))

    def exists(self, key: PartitionKey) -> bool:
        """Whether every value of the key exists in its dimension."""
        return all(dimension.exists(key[dimension.name]) for dimension in self.dimensions)

    def from_dagster(self, text: str) -> PartitionKey:
        """The key that Dagster spells so. Raises UnknownPartition."""
        ordered = sorted(self.names)
        texts = text.split("|") if len(ordered) > 1 else [text]
        if len(texts) != len(ordered):
            raise UnknownPartition(f"{text!r} must have {len(ordered)} parts, {'|'.join(ordered)}.")
        return self._parse(dict(zip(ordered, texts, strict=True)))

    def to_dagster(self, key: PartitionKey) -> str:
        """The key as Dagster spells it."""
        return "|".join(str(key[name]) for name in sorted(self.names))

    def from_path(self, path: str) -> PartitionKey:
        """The key whose `PartitionKey.path` is `path`. Raises UnknownPartition."""
        texts = dict(parse_path(path))
        if set(texts) != set(self.names):
            raise UnknownPartition(f"{path!r} must name the columns {', '.join(self.names)}.")
        return self._parse(texts)

    def _parse(self, texts: dict[str, str]) -> PartitionKey:
        return self.key([dimension.parse(texts[dimension.name]) for dimension in self.dimensions])
