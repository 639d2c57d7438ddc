"""What one dataset reads of another, as its author declares it: rules between dimensions, and how long to wait.

Not here: the algebra of mappings (varve/planning/mapping/dataset_mapping.py), and when a wait is over
(varve/planning/judgement/wait_policy.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from varve.model.errors import VarveError
from varve.model.partitions.key import text_of
from varve.model.partitions.texts import length_text

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator, Mapping

    from varve.model.dataset import Dataset
    from varve.model.partitions.key import Value


class Unit(StrEnum):
    """Whose windows an offset counts: the windows of the reader, or of the upstream dataset."""

    READER = "reader"
    UPSTREAM = "upstream"


@dataclass(frozen=True, slots=True)
class Overlap:
    """The upstream windows that overlap the reader's window, moved by `first` to `last` windows (negative: earlier).

    `Overlap(-6, 0)` between days are seven days, of which the reader's day is the last. Where the reader has weeks and
    the upstream has days, they are the days of seven weeks.
    """

    first: int = 0
    last: int = 0
    unit: Unit = Unit.READER

    def __str__(self) -> str:
        moved = f", from {self.first:+} to {self.last:+} windows of the {self.unit}" if self.first or self.last else ""
        return f"windows that overlap{moved}"


@dataclass(frozen=True, slots=True)
class Same:
    """The key that the reader has in its dimension `of` (None: in the dimension of the same name)."""

    of: str | None = None

    def __str__(self) -> str:
        return "the same key"


@dataclass(frozen=True, slots=True)
class All:
    """All keys of the dimension."""

    def __str__(self) -> str:
        return "every key"


@dataclass(frozen=True, slots=True)
class Latest:
    """The last complete window of a time dimension, or the last key of a static or dynamic dimension."""

    def __str__(self) -> str:
        return "the latest key"


@dataclass(frozen=True, slots=True)
class Only:
    """The same fixed keys for every partition of the reader."""

    keys: tuple[Value, ...]

    def __str__(self) -> str:
        return f"always {', '.join(map(text_of, self.keys))}"


@dataclass(frozen=True)
class TableReads:
    """For each key of the reader's dimension `of` the keys that it reads; a key that is not in the table reads none."""

    of: str
    keys: Mapping[Value, tuple[Value, ...]]

    def __hash__(self) -> int:
        return hash((self.of, tuple(self.keys.items())))

    def __str__(self) -> str:
        return f"by a table of {len(self.keys)} keys"


@dataclass(frozen=True, slots=True)
class Custom:
    """The keys that a function returns: `module:function`, called with the reader's key of dimension `of`.

    The function returns keys of the upstream dimension, and must be pure: the same keys for the same argument, always.
    `readers` names a function for the other direction. Without it `function` is called for every key of the reader.
    """

    function: str
    of: str
    readers: str | None = None

    def __str__(self) -> str:
        return f"by {self.function}"


Rule: TypeAlias = Overlap | Same | All | Latest | Only | TableReads | Custom


def trailing(windows: int, unit: Unit = Unit.READER) -> Overlap:
    """The reader's window and the ones before it, `windows` windows in all."""
    return Overlap(1 - _positive(windows), 0, unit)


def leading(windows: int, unit: Unit = Unit.READER) -> Overlap:
    """The reader's window and the ones after it, `windows` windows in all."""
    return Overlap(0, _positive(windows) - 1, unit)


def shifted(windows: int, unit: Unit = Unit.READER) -> Overlap:
    """The one window that lies `windows` windows later than the reader's; a negative number means earlier."""
    return Overlap(windows, windows, unit)


@dataclass(frozen=True, slots=True)
class Wait:
    """For how many of its upstream partitions a partition waits; by default for all of them.

    Attributes:
        at_least: it runs when this many are there.
        missing: it runs when no more than this many are missing.
        deadline: how long after the end of its window it runs with the partitions that are there, and records the
            missing ones; None: it waits without end.
    """

    at_least: int | None = None
    missing: int = 0
    deadline: dt.timedelta | None = None

    def __post_init__(self) -> None:
        if self.missing < 0 or (self.at_least is not None and self.at_least < 0):
            raise VarveError(f"{self}: counts of partitions are not negative.")
        if self.at_least is not None and self.missing:
            raise VarveError(f"{self}: say at_least or missing, not both.")

    @property
    def clause(self) -> str:
        """The wait as the clause of a SQL file; empty for the default, to wait for all."""
        if self == Wait():
            return ""
        amount = f"ALL BUT {self.missing}" if self.missing else "ALL"
        amount = amount if self.at_least is None else f"AT LEAST {self.at_least}"
        return f"WAIT {amount}" if self.deadline is None else f"WAIT {amount} UNTIL {length_text(self.deadline)}"


@dataclass(frozen=True)
class Reads:
    """The declaration that a dataset reads `dataset`, and which of its partitions and columns.

    Attributes:
        rules: for dimensions of the upstream dataset, by name, which keys are read. Without a rule a time dimension is
            read where its windows overlap, another dimension at the reader's key of the same name, and the whole
            dimension where the reader has none of that name.
        wait: for how many of the upstream partitions a partition waits.
        columns: the data columns that are fetched; None: all of them. Partition columns are always read.
    """

    dataset: Dataset
    rules: Mapping[str, Rule] = field(default_factory=dict)
    wait: Wait = field(default_factory=Wait)
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        self.dataset.read_columns(self.columns)

    def __iter__(self) -> Iterator[tuple[str, Rule]]:
        return iter(sorted(self.rules.items()))


def _positive(windows: int) -> int:
    if windows < 1:
        raise VarveError(f"{windows} windows: a span has one window or more; to leave the reader's out, use shifted().")
    return windows
