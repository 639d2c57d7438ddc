"""Partitions that grow file by file: what a header says of it, and what a run makes of the files that are there.

Not here: which files are new (varve/planning/arrivals/growing.py), and how a store adds rows (varve/stores).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.model.errors import VarveError

if TYPE_CHECKING:
    from varve.model.batch import Batch, Part, TakenFile
    from varve.model.partitions.key import PartitionKey
    from varve.model.partitions.partitioning import Partitioning


@dataclass(frozen=True, slots=True)
class Incremental:
    """A run of a landing partition reads only the files that are new, and keeps the rows of the batch before.

    Attributes:
        closed_after: how long after the end of its window a partition is closed, so that a file that comes later is a
            rejected arrival until a person reopens it; None: never.
    """

    closed_after: dt.timedelta | None = None

    def check(self, partitioning: Partitioning) -> None:
        """Raise VarveError where partitions of these dimensions cannot grow."""
        if partitioning.time is None:
            raise VarveError("INCREMENTAL needs a time dimension: what grows is folded when its window is over.")
        if self.closed_after is not None and self.closed_after < dt.timedelta(0):
            raise VarveError(f"INCREMENTAL: closed after {self.closed_after} would be before its window is over.")

    def closes_at(self, partitioning: Partitioning, key: PartitionKey) -> float | None:
        """From when on a partition is closed, in seconds since 1970; None: never."""
        return None if self.closed_after is None else self.folds_at(partitioning, key)

    def folds_at(self, partitioning: Partitioning, key: PartitionKey) -> float:
        """From when on a partition that grew is put together, in seconds since 1970: when no more is expected."""
        time = partitioning.time
        assert time is not None
        end = time.calendar.following(time.start_of(key[time.name]))
        return end + (self.closed_after or dt.timedelta(0)).total_seconds()


@dataclass(frozen=True, slots=True)
class Growth:
    """What a run makes of the files of one partition.

    Attributes:
        files: those that it reads; where it folds, all that the batch before was made from.
        base: the batch whose rows it keeps; None where it reads all files.
        parts: the parts of that batch, in order.
        fold: whether it reads no file, and puts the parts of the base together.
        reason: why, in words.
    """

    files: tuple[TakenFile, ...]
    base: Batch | None = None
    parts: tuple[Part, ...] = ()
    fold: bool = False
    reason: str = ""
