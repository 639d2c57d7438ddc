"""`Partitioning`, the product of a dataset's dimensions, and Dagster's spelling of its keys.

Dagster has at most two dimensions. Therefore one of ours (the time dimension, or the first one) stays alone, and all
others are folded into a second one; only Dagster sees that. Dagster's key of two dimensions is their texts joined by
`|`, in the order of the dimensions' names.

A dataset without partitions is the product of no dimensions, which has exactly one key. Everything else then holds for
it as for any other: it has one current batch, a history and a trace. In Dagster its asset has no partitions.

Not here: Dagster's own objects (varve/dagster/partitions/definitions.py).
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain, product
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote

import pendulum

from varve.model.errors import UnknownPartition, VarveError
from varve.model.partitions.dimension import Dimension, DynamicDimension, TimeDimension
from varve.model.partitions.key import WHOLE, PartitionKey, Value, made, parse_path, text_of
from varve.model.partitions.time_dimension import MovingDimension

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator, Mapping, Sequence

    from varve.model.partitions.dimension import Members

# Characters that Dagster refuses in keys or interprets, our separator between folded values, and the escape itself.
_ESCAPES = {ord(char): f"%{ord(char):02X}" for char in "%|,[]~"}
_FOLD = "~"
# With more partitions Dagster's UI becomes slow, as its documentation says.
DAGSTER_COMFORT = 100_000

Fold: TypeAlias = tuple[Dimension, ...]


@dataclass(frozen=True)
class Partitioning:
    """The product of a dataset's dimensions, of which at most one is a time dimension.

    `Partitioning()` is that of a dataset without partitions.

    Attributes:
        order: the partition columns in their order, where columns of another dimension stand between those of time.
    """

    dimensions: tuple[Dimension, ...] = ()
    order: tuple[str, ...] = field(default=(), repr=False)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the partition columns, in their order; a time dimension may have several."""
        return self.order or tuple(name for dimension in self.dimensions for name in dimension.column_names)

    @property
    def dimension_names(self) -> tuple[str, ...]:
        """The names of the dimensions; a dimension with one column is mostly named like it."""
        return tuple(dimension.name for dimension in self.dimensions)

    @cached_property
    def time(self) -> TimeDimension | None:
        """The time dimension; None where there is none."""
        return next((dimension for dimension in self.dimensions if isinstance(dimension, TimeDimension)), None)

    @cached_property
    def folds(self) -> dict[str, Fold]:
        """Dagster's dimensions by name, in the order of its keys; each with our dimensions that are folded into it."""
        if not self.dimensions:
            return {}
        lead: Dimension = self.time or self.dimensions[0]
        others = tuple(dimension for dimension in self.dimensions if dimension is not lead)
        folds: dict[str, Fold] = {lead.name: (lead,)}
        if others:
            folds[_FOLD.join(dimension.name for dimension in others)] = others
        return dict(sorted(folds.items()))

    def __getitem__(self, name: str) -> Dimension:
        """The dimension with this name, or with this partition column."""
        return self._by_name[name]

    def reaching(self, end_offset: int) -> Partitioning:
        """The same product, in which `end_offset` or more windows after the last complete are partitions already."""
        if self.time is None or end_offset <= self.time.end_offset:
            return self
        time = self.time.reaching(end_offset)
        return Partitioning(
            tuple(time if dimension is self.time else dimension for dimension in self.dimensions), self.order
        )

    def same_keys(self, other: Partitioning) -> bool:
        """Whether the other has the same keys, apart from how many windows are partitions already (`end_offset`)."""
        return self == other or (
            len(self.dimensions) == len(other.dimensions)
            and self.names == other.names
            and all(
                dimension.same_windows(other_dimension)
                if isinstance(dimension, TimeDimension)
                else dimension == other_dimension
                for dimension, other_dimension in zip(self.dimensions, other.dimensions, strict=True)
            )
        )

    def check(self) -> None:
        """Raise VarveError that names the dimension, what is wrong and what to do."""
        for dimension in self.dimensions:
            dimension.check()
        for names in (
            [name for dimension in self.dimensions for name in dimension.column_names],
            list(self.dimension_names),
            # What names a dimension must not name the column of another one.
            [name for dimension in self.dimensions for name in {dimension.name, *dimension.column_names}],
        ):
            if doubled := sorted({name for name in names if names.count(name) > 1}):
                raise VarveError(
                    f"dimension {', '.join(doubled)}: two dimensions of one name in {names}; give each its own."
                )
        if self.order and sorted(self.order) != sorted(
            name for dimension in self.dimensions for name in dimension.column_names
        ):
            raise VarveError(f"order: {', '.join(self.order)} are not the partition columns of its dimensions.")
        if sum(isinstance(dimension, TimeDimension) for dimension in self.dimensions) > 1:
            times = [dimension.name for dimension in self.dimensions if isinstance(dimension, TimeDimension)]
            raise VarveError(
                f"dimension {times[1]}: more than one time dimension, {' and '.join(times)}; a product may have one. "
                "Make the other a column, or a static dimension."
            )

    @property
    def text(self) -> str:
        """The names of the dimensions, for people: `day x origin`."""
        return " x ".join(self.dimension_names) or "without partitions"

    def key(self, values: Sequence[Value]) -> PartitionKey:
        """The key with these values of the dimensions, in their order."""
        if self._is_plain:
            return made(tuple(zip(self.names, values, strict=True)))
        columns = {
            name: column_value
            for dimension, value in zip(self.dimensions, values, strict=True)
            for name, column_value in zip(dimension.column_names, dimension.column_values(value), strict=True)
        }
        return made(tuple([(name, columns[name]) for name in self.names]))

    def keys_of(self, values: Sequence[Iterator[Value] | Sequence[Value]]) -> Iterator[PartitionKey]:
        """The keys of every combination of values of the dimensions, in their order; the last changes fastest."""
        if self._is_plain:
            return map(
                made,
                product(*[[(name, value) for value in axis] for name, axis in zip(self.names, values, strict=True)]),
            )
        columns = [
            [tuple(zip(dimension.column_names, dimension.column_values(value), strict=True)) for value in axis]
            for dimension, axis in zip(self.dimensions, values, strict=True)
        ]
        places = {name: place for place, name in enumerate(self.names)}
        flat = (chain.from_iterable(pairs) for pairs in product(*columns))
        if not self.order:
            return (made(tuple(pairs)) for pairs in flat)
        return (made(tuple(sorted(pairs, key=lambda pair: places[pair[0]]))) for pairs in flat)

    def values(self, key: PartitionKey) -> tuple[Value, ...]:
        """The values of the dimensions of a key, in the order of the dimensions. Raises UnknownPartition."""
        return tuple([dimension.value_in(key) for dimension in self.dimensions])

    def keys(self, members: Members | None = None, now: dt.datetime | None = None) -> Iterator[PartitionKey]:
        """All keys: every combination, where the last dimension changes fastest. See `keys` of the dimensions."""
        return self.keys_of([dimension.keys(members, now) for dimension in self.dimensions])

    def count(self, members: Members | None = None, now: dt.datetime | None = None) -> int:
        """The number of keys that `keys` would yield."""
        total = 1
        for dimension in self.dimensions:
            if isinstance(dimension, TimeDimension):
                total *= _windows(dimension, dimension.first, dimension.known_until(now))
            else:
                total *= sum(1 for _ in dimension.keys(members, now))
        return total

    def exists(self, key: PartitionKey, members: Members | None = None) -> bool:
        """Whether every value of the key exists in its dimension."""
        return all(dimension.exists(dimension.value_in(key), members) for dimension in self.dimensions)

    def from_dagster(self, text: str) -> PartitionKey:
        """The key from Dagster's spelling of it. Raises UnknownPartition where it is not the spelling of a key."""
        if not self.dimensions:
            if text != WHOLE:
                raise UnknownPartition(
                    f"{text!r} names no partition: the dataset has none, and is {WHOLE!r} as a whole."
                )
            return self.key(())
        parts = text.split("|")
        if len(parts) != len(self.folds):
            raise UnknownPartition(f"{text!r} must have {len(self.folds)} parts, {'|'.join(self.folds)}.")
        texts: dict[str, str] = {}
        for part, (name, fold) in zip(parts, self.folds.items(), strict=True):
            values = part.split(_FOLD)
            if len(values) != len(fold):
                raise UnknownPartition(f"{part!r} in {text!r} must have {len(fold)} parts, {name}.")
            texts |= {dimension.name: unquote(value) for dimension, value in zip(fold, values, strict=True)}
        return self.key([dimension.parse(texts[dimension.name]) for dimension in self.dimensions])

    def to_dagster(self, key: PartitionKey) -> str:
        """The key as Dagster spells it. Without dimensions it is a text of ours: Dagster has no key then."""
        return "|".join([self.text_of_fold(fold, key) for fold in self.folds.values()]) or WHOLE

    def text_of_fold(self, fold: Fold, key: PartitionKey) -> str:
        """The part of a key that is in one of Dagster's dimensions, as Dagster spells it."""
        return _FOLD.join([dagster_text(dimension.value_in(key)) for dimension in fold])

    def dagster_key(self, key: PartitionKey) -> str | None:
        """The key that Dagster has for it; None without dimensions, as its asset has no partitions."""
        return self.to_dagster(key) if self.dimensions else None

    def from_path(self, path: str) -> PartitionKey:
        """The key whose `PartitionKey.path` is `path`. Raises UnknownPartition where there is none."""
        texts = dict(parse_path(path))
        if texts.keys() != self._column_set:
            wanted = f"name the columns {', '.join(self.names)}" if self.names else f"be {WHOLE!r}"
            raise UnknownPartition(f"{path!r} must {wanted}.")
        return self.parsed(texts)

    def parsed(self, texts: Mapping[str, str]) -> PartitionKey:
        """The key from the texts of all partition columns. Raises UnknownPartition where they name none."""
        return self.key([dimension.parse_columns(texts) for dimension in self.dimensions])

    def text_in_paths(self, column: str, text: str) -> str:
        """The text of a column as paths spell it: `2026-10-25T02` on a zone's clock is a moment of UTC there.

        A text that spells no value of the column stays as it is.
        """
        dimension = self._by_name.get(column)
        if isinstance(dimension, TimeDimension) and dimension.columns:
            with suppress(UnknownPartition):
                return text_of(dimension.parse_column(column, text))
        return text

    @cached_property
    def _by_name(self) -> dict[str, Dimension]:
        return {name: dimension for dimension in self.dimensions for name in (dimension.name, *dimension.column_names)}

    @cached_property
    def _column_set(self) -> frozenset[str]:
        return frozenset(self.names)

    @cached_property
    def _is_plain(self) -> bool:
        """Whether every dimension has one column, named like itself, in which its key stands as it is."""
        return not self.order and (self.time is None or not self.time.columns)


def dagster_text(value: Value) -> str:
    """One value as it is written in a Dagster key: what Dagster would refuse or misread is escaped as in a URL."""
    text = text_of(value).translate(_ESCAPES)
    # Dagster reads three dots as a range.
    return re.sub(r"\.{3,}", lambda dots: "%2E" * len(dots[0]), text) if "..." in text else text


def fold_texts(fold: Fold, members: Members | None = None, now: dt.datetime | None = None) -> list[str]:
    """The keys of one of Dagster's dimensions in Dagster's spelling, in order."""
    return [
        _FOLD.join(texts)
        for texts in product(*[[dagster_text(value) for value in dimension.keys(members, now)] for dimension in fold])
    ]


def is_dynamic(fold: Fold) -> bool:
    """Whether the fold is a dynamic partition set in Dagster."""
    return any(isinstance(dimension, DynamicDimension) for dimension in fold)


def set_of(fold: Fold) -> str | None:
    """The name of Dagster's set for a fold with a dynamic dimension, else None. A deployment shares these names."""
    dynamic = [dimension for dimension in fold if isinstance(dimension, DynamicDimension)]
    if not dynamic:
        return None
    if len(fold) == 1:
        return base_set(dynamic[0])
    # Datasets with the same product share the set.
    digest = hashlib.blake2b(repr(fold).encode(), digest_size=4).hexdigest()
    return f"varve/{_FOLD.join(dimension.name for dimension in fold)}/{digest}"


def base_set(dimension: DynamicDimension) -> str:
    """The name of Dagster's set with the members of one dynamic dimension."""
    return f"varve/{dimension.set_name}"


def time_set(dimension: TimeDimension, retention: dt.timedelta | None = None) -> str:
    """The name of Dagster's set with the windows of a time dimension that Dagster cannot express, under a retention.

    Of a series without a start of its own, processes that have loaded it in unlike months share the set.
    """
    if isinstance(dimension, MovingDimension):
        dimension = replace(dimension, start=pendulum.datetime(1970, 1, 1, tz=dimension.timezone))
    text = repr(dimension) if retention is None else f"{dimension!r} kept {retention}"
    digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
    return f"varve/{dimension.name}/{digest}"


@lru_cache
def _windows(dimension: TimeDimension, start: int, end: int) -> int:
    """The number of windows between two instants; cached, as a thousand datasets may count the same at every load."""
    count = 0
    while start < end:
        start, count = dimension.calendar.next_start(start), count + 1
    return count
