"""Dimensions, the axes of partitioning: time, static and dynamic.

A time dimension divides time into half-open windows, a static one is an ordered list of keys, a dynamic one a set of
keys that grows while the pipeline runs. The constructors check nothing: the dataset checks its dimensions, so that the
message can name the dataset.

Not here: their product (partitioning.py), and how partitions of two datasets depend on each other
(varve/planning/mapping/dataset_mapping.py).
"""

from __future__ import annotations

import datetime as dt
import re
import unicodedata
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from varve.model.errors import UnknownPartition, VarveError, some
from varve.model.partitions.key import Interval, PartitionKey, Value, checked, escape, text_of, value_of
from varve.model.partitions.time_dimension import Members, TimeDimension, check_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from varve.model.partitions.set_source import SetSource
    from varve.model.schema import ColumnType

# A longer list of static keys is more likely a mistake than intended; a dimension can have a limit of its own.
STATIC_LIMIT = 10_000
# The longest name that file systems allow for a folder.
_SEGMENT_BYTES = 255
# Hive's name for the partition of rows without a value.
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


class _OneColumn(ABC):
    """A dimension with one partition column, which has its name and holds the key itself."""

    name: str

    @abstractmethod
    def parse(self, text: str) -> Value:
        """The key that `text` spells."""

    @property
    def column_names(self) -> tuple[str, ...]:
        """The name of its partition column."""
        return (self.name,)

    def column_values(self, value: Value) -> tuple[Value, ...]:
        """The value of its partition column for a key."""
        return (value,)

    def value_in(self, partition: PartitionKey) -> Value:
        """The key of this dimension in a partition."""
        return partition[self.name]

    def parse_column(self, name: str, text: str) -> Value:
        """The value that a text spells in its partition column. Raises as `parse` does."""
        del name
        return self.parse(text)

    def parse_columns(self, texts: Mapping[str, str]) -> Value:
        """The key that the text of its partition column spells. Raises as `parse` does."""
        return self.parse(texts[self.name])


@dataclass(frozen=True)
class StaticDimension(_OneColumn):
    """An ordered list of keys, known beforehand.

    Attributes:
        members: the keys in their order, all of one type: texts, whole numbers, dates, intervals or a rich key class.
        limit: the largest number of keys that is accepted.
    """

    name: str
    members: tuple[Value, ...]
    limit: int = STATIC_LIMIT

    @property
    def value_type(self) -> type:
        """The type of the keys."""
        return type(self.members[0]) if self.members else str

    @cached_property
    def places(self) -> dict[Value, int]:
        """The position of each key in the order, from 0."""
        return {member: place for place, member in enumerate(self.members)}

    @cached_property
    def _by_text(self) -> dict[str, Value]:
        return {text_of(member): member for member in self.members}

    @cached_property
    def _by_composed(self) -> dict[str, str]:
        return {unicodedata.normalize("NFC", text): text for text in self._by_text}

    def _same_letters(self, text: str) -> str:
        """What to write in place of a text that looks like a key and has other characters; "" where none does."""
        key = None if text.isascii() else self._by_composed.get(unicodedata.normalize("NFC", text))
        if key is None:
            return ""
        return f" It looks like {key}, and spells its accents by other characters, as macOS does; write {key!a}."

    def check(self) -> None:
        """Raise VarveError with what is wrong and what to write instead."""
        check_name(self.name)
        if not self.members:
            raise VarveError(
                f"dimension {self.name}: it has no keys; give a tuple of them, or use a dynamic dimension."
            )
        if len(self.members) > self.limit:
            raise VarveError(
                f"dimension {self.name}: {len(self.members)} keys, above the limit of {self.limit}. Raise `limit` "
                "of the dimension if that is meant, or use a dynamic dimension or fewer, coarser keys."
            )
        if kinds := {type(member).__name__ for member in self.members if type(member) is not self.value_type}:
            raise VarveError(
                f"dimension {self.name}: its keys are of {self.value_type.__name__} and {', '.join(kinds)}."
            )
        for member in self.members:
            check_member(self.name, member)
        if len(self.places) != len(self.members):
            doubled = sorted({text_of(key) for key in self.members if self.members.count(key) > 1})
            raise VarveError(f"dimension {self.name}: {some(doubled)} is given more than once; give each key once.")
        for key, other in alike(self.members).items():
            raise VarveError(alike_message(self.name, key, other))

    def exists(self, value: Value, members: Members | None = None) -> bool:
        """Whether the dimension has this key."""
        del members
        return value in self.places

    def parse(self, text: str) -> Value:
        """The key that `text` spells. Raises UnknownPartition where it is not in the list."""
        if text not in self._by_text:
            raise UnknownPartition(
                f"{text!r} is no key of dimension {self.name}, which has {some(self.members, limit=8)}."
                f"{self._same_letters(text)}"
            )
        return self._by_text[text]

    def keys(self, members: Members | None = None, now: dt.datetime | None = None) -> Iterator[Value]:
        """All keys, in the declared order."""
        del members, now
        return iter(self.members)


@dataclass(frozen=True)
class DynamicDimension(_OneColumn):
    """Keys that are added to a named set while the pipeline runs, and may be removed from it.

    Attributes:
        set_name: the name of the set; dimensions of several datasets that name the same set share its keys.
        value_type: the type of the keys: str, int, date, Interval or a class of rich keys.
        column_type: the type of the partition column; None: as the keys.
        source: the data that fill the set; None: assets and people add its keys.
    """

    name: str
    set_name: str
    value_type: type = str
    # repr=False: Dagster's folded sets are named after the repr.
    column_type: ColumnType | None = field(default=None, repr=False)
    # compare=False: datasets that share a set have equal dimensions, whichever of them says what fills it.
    source: SetSource | None = field(default=None, repr=False, compare=False)

    def check(self) -> None:
        """Raise VarveError with what is wrong and what to write instead."""
        check_name(self.name)
        if not re.fullmatch(r"[a-z][a-z0-9_.]*", self.set_name):
            raise VarveError(
                f"dimension {self.name}: a set is named in lower-case letters, digits, _ and ., not {self.set_name!r}."
            )
        if self.value_type is float or not issubclass(self.value_type, str | int | dt.date | PartitionKey | Interval):
            raise VarveError(f"dimension {self.name}: keys cannot be of {self.value_type.__name__}; take text instead.")
        if self.source is not None and self.value_type not in {str, int, dt.date}:
            raise VarveError(
                f"dimension {self.name}: keys that come from {self.source.dataset} are str, int or date, not "
                f"{self.value_type.__name__}."
            )

    def exists(self, value: Value, members: Members | None = None) -> bool:
        """Whether the set has this key; where its members are not given, whether the key has the right type."""
        return type(value) is self.value_type if members is None else value in members.get(self.set_name, ())

    def parse(self, text: str) -> Value:
        """The key that `text` spells, in the set or not. Raises UnknownPartition where it cannot be a key."""
        try:
            value = checked(value_of(text, self.value_type))
            check_member(self.name, value)
        except (ValueError, VarveError) as error:
            raise UnknownPartition(
                f"{text!r} is no key of dimension {self.name}, whose keys are of {self.value_type.__name__}: {error}"
            ) from None
        return value

    def keys(self, members: Members | None = None, now: dt.datetime | None = None) -> Iterator[Value]:
        """The keys of the set, in order. Raises VarveError where its members are not given."""
        del now
        if members is None:
            raise VarveError(
                f"dimension {self.name}: the members of the dynamic set {self.set_name} are not known here."
            )
        return iter(sorted(members.get(self.set_name, ())))


# Every dimension can be imported from here.
__all__ = ["Dimension", "DynamicDimension", "Members", "StaticDimension", "TimeDimension", "check_member"]

Dimension: TypeAlias = TimeDimension | StaticDimension | DynamicDimension


def alike(keys: Iterable[Value]) -> dict[Value, Value]:
    """The keys that differ from an earlier one in blanks at the end alone, with that one."""
    first: dict[str, Value] = {}
    found = {key: first.setdefault(text_of(key).rstrip(" "), key) for key in keys}
    return {key: other for key, other in found.items() if key != other}


def alike_message(dimension: str, key: Value, other: Value) -> str:
    """What is wrong with two such keys: a Hive metastore compares texts without blanks at the end."""
    return (
        f"dimension {dimension}: the keys {text_of(other)!r} and {text_of(key)!r} differ in blanks at the end alone, "
        "and a Hive metastore takes them for one. Take the blanks away where the keys are made, as by RTRIM."
    )


def check_member(dimension: str, value: Value) -> None:
    """Raise VarveError for a value that a store could not hold, or could not tell from another value."""
    try:
        checked(value)
    except VarveError as error:
        raise VarveError(f"dimension {dimension}: {error}") from None
    text = text_of(value)
    if not text or text == _HIVE_NULL or type(value) is float:
        problem = {"": "an empty key", _HIVE_NULL: f"{text} (Hive's name for no value)"}.get(text, f"the float {text}")
        raise VarveError(f"dimension {dimension}: {problem} is no key; give each key a text, whole number or date.")
    if (size := len(f"{dimension}={escape(text)}".encode())) > _SEGMENT_BYTES:
        raise VarveError(
            f"dimension {dimension}: the key {text[:40]!r}... takes {size} bytes as a folder name, above the "
            f"{_SEGMENT_BYTES} that file systems allow; give it a shorter name."
        )
