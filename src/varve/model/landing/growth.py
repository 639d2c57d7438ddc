"""Partitions that grow file by file: the declaration of it, and what a run does with the files that are there.

Not here: which files are new (varve/planning/arrivals/growing.py), and how a store adds rows to a batch (varve/stores).
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
    """INCREMENTAL: a run of a landing partition reads only new files, and keeps the rows of the batch before.

    Attributes:
        closed_after: how long after the end of its window a partition is closed; None: never. A file that comes later
            is a rejected arrival until a person reopens the partition.
    """

    closed_after: dt.timedelta | None = None

    def check(self, partitioning: Partitioning) -> None:
        """Raise VarveError where partitions of these dimensions cannot grow."""
        if partitioning.time is None:
            raise VarveError("INCREMENTAL needs a time dimension: what grows is folded when its window is over.")
        if self.closed_after is not None and self.closed_after < dt.timedelta(0):
            raise VarveError(f"INCREMENTAL: closed after {self.closed_after} would be before its window is over.")

    def closes_at(self, partitioning: Partitioning, key: PartitionKey) -> float | None:
        """The instant from which a partition is closed, in seconds since 1970 (UTC); None: never."""
        return None if self.closed_after is None else self.folds_at(partitioning, key)

    def folds_at(self, partitioning: Partitioning, key: PartitionKey) -> float:
        """The instant from which no more files are expected, in seconds since 1970 (UTC): then its parts become one."""
        time = partitioning.time
        assert time is not None
        end = time.calendar.following(time.start_of(time.value_in(key)))
        return end + (self.closed_after or dt.timedelta(0)).total_seconds()


@dataclass(frozen=True, slots=True)
class Growth:
    """What a run does with the files of one partition.

    Attributes:
        files: the files that it reads; for a fold, all files from which the base was made.
        base: the batch whose rows it keeps; None where it reads all files.
        parts: the parts of the base, oldest first.
        fold: whether it reads no file, and puts the parts of the base together into one.
        reason: why it does so, as a phrase for people.
    """

    files: tuple[TakenFile, ...]
    base: Batch | None = None
    parts: tuple[Part, ...] = ()
    fold: bool = False
    reason: str = ""
