"""What one dataset reads of another, in the words of its author: rules between dimensions, and how long to wait.

Not here: the algebra (varve/planning/mapping/dataset_mapping.py), and when a wait is over
(varve/planning/judgement/wait_policy.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from varve.model.errors import VarveError
from varve.model.partitions.key import text_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator, Mapping

    from varve.model.dataset import Dataset
    from varve.model.partitions.key import Value


class Unit(StrEnum):
    """Whose windows an offset counts: those of the dataset that reads, or of the one it reads."""

    READER = "reader"
    UPSTREAM = "upstream"


@dataclass(frozen=True, slots=True)
class Overlap:
    """Every window that shares an instant with the reader's, from `first` to `last` windows later (negative: earlier).

    `Overlap(-6, 0)` of days by days are the seven days up to the reader's; of days by weeks the days of seven weeks.
    """

    first: int = 0
    last: int = 0
    unit: Unit = Unit.READER

    def __str__(self) -> str:
        moved = f", from {self.first:+} to {self.last:+} windows of the {self.unit}" if self.first or self.last else ""
        return f"windows that overlap{moved}"


@dataclass(frozen=True, slots=True)
class Same:
    """The key that the reader has in a dimension (None: the one of the same name)."""

    of: str | None = None

    def __str__(self) -> str:
        return "the same key"


@dataclass(frozen=True, slots=True)
class All:
    """Every key there is."""

    def __str__(self) -> str:
        return "every key"


@dataclass(frozen=True, slots=True)
class Latest:
    """The last complete window, or the last key of the list or set."""

    def __str__(self) -> str:
        return "the latest key"


@dataclass(frozen=True, slots=True)
class Only:
    """Always these keys."""

    keys: tuple[Value, ...]

    def __str__(self) -> str:
        return f"always {', '.join(map(text_of, self.keys))}"


@dataclass(frozen=True)
class TableReads:
    """For each key of the reader's dimension the keys it reads; a key that is not in the table reads none."""

    of: str
    keys: Mapping[Value, tuple[Value, ...]]

    def __hash__(self) -> int:
        return hash((self.of, tuple(self.keys.items())))

    def __str__(self) -> str:
        return f"by a table of {len(self.keys)} keys"


@dataclass(frozen=True, slots=True)
class Custom:
    """The keys that a function finds: `module:function`, called with the reader's key of dimension `of`.

    It returns the keys of the upstream dimension, and must be pure: the same for ever. `readers`, another such
    function, answers the other way round; without it all keys of the reader are tried, which costs a call for each.
    """

    function: str
    of: str
    readers: str | None = None

    def __str__(self) -> str:
        return f"by {self.function}"


Rule: TypeAlias = Overlap | Same | All | Latest | Only | TableReads | Custom


def trailing(windows: int, unit: Unit = Unit.READER) -> Overlap:
    """The reader's window and those before it: `windows` of them in all."""
    return Overlap(1 - _positive(windows), 0, unit)


def leading(windows: int, unit: Unit = Unit.READER) -> Overlap:
    """The reader's window and those after it: `windows` of them in all."""
    return Overlap(0, _positive(windows) - 1, unit)


def shifted(windows: int, unit: Unit = Unit.READER) -> Overlap:
    """The window that lies so many windows later, or earlier where negative."""
    return Overlap(windows, windows, unit)


@dataclass(frozen=True, slots=True)
class Wait:
    """How many of the partitions that it reads a partition waits for; all of them, where nothing else is said.

    Attributes:
        at_least: it is enough that so many are there.
        missing: it is enough that at most so many are missing.
        deadline: so long after the end of its window it does with what is there, and records what was missing.
    """

    at_least: int | None = None
    missing: int = 0
    deadline: dt.timedelta | None = None

    def __post_init__(self) -> None:
        if self.missing < 0 or (self.at_least is not None and self.at_least < 0):
            raise VarveError(f"{self}: counts of partitions are not negative.")
        if self.at_least is not None and self.missing:
            raise VarveError(f"{self}: say at_least or missing, not both.")


@dataclass(frozen=True)
class Reads:
    """A dataset that another one reads, and which of its partitions.

    Attributes:
        rules: for dimensions of the dataset that is read, which keys; by default a time dimension is read where it
            overlaps, another one at the key of the same name, and whole where the reader has none of that name.
        wait: how many of them a partition waits for.
        columns: which of its data columns; None where all. Nothing else is fetched. Partition columns always come.
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
