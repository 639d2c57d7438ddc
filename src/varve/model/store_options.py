"""What a dataset may say about its parquet files or its period tables; the default of each is what nearly all need.

Not here: how they are obeyed (varve/stores).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from enum import StrEnum

from varve.model.errors import VarveError


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """Options of a dataset in the lake.

    Attributes:
        sort: data columns by which the rows of each file are sorted, so that readers may skip row groups.
        bounds: data columns whose lowest and highest value the catalog keeps for each batch.
        file_bytes: about so large a file becomes at most, judged by the rows of the batch before; None: any size.
        file_rows: at most so many rows in a file; goes before `file_bytes`.
    """

    sort: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()
    file_bytes: int | None = 256 << 20
    file_rows: int | None = None

    def __post_init__(self) -> None:
        for name in ("file_bytes", "file_rows"):
            limit = getattr(self, name)
            if limit is not None and limit < 1:
                raise VarveError(f"{name} is {limit}; write a number above 0, or None for no limit.")

    @property
    def columns(self) -> frozenset[str]:
        """Every column it names."""
        return frozenset((*self.sort, *self.bounds))


class OldSnapshots(StrEnum):
    """What a publish does when a transaction older than the load outlasts its deadline.

    Such a transaction would see the new table through the new view, but none of its rows: a period silently missing.
    """

    FAIL = "fail"
    """Publish nothing, and name who is in the way."""
    PUBLISH = "publish"
    """Publish: whoever still reads with that snapshot may miss the periods published, and is named in the log."""


class Period(StrEnum):
    """A coarser grain, into whose tables those of finer partitions are put together when it is over."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"

    def of(self, day: dt.date) -> dt.date:
        """The first day of the period in which a day lies; weeks begin on Monday."""
        match self:
            case Period.DAY:
                return day
            case Period.WEEK:
                return day - dt.timedelta(days=day.weekday())
            case Period.MONTH:
                return day.replace(day=1)
            case Period.YEAR:
                return day.replace(month=1, day=1)


@dataclass(frozen=True, slots=True)
class Index:
    """An index of every period table, built after its load and before its publish."""

    columns: tuple[str, ...]
    unique: bool = False

    def __post_init__(self) -> None:
        if not self.columns:
            raise VarveError("an index has at least one column.")


@dataclass(frozen=True, slots=True)
class WarehouseOptions:
    """Options of a dataset in the warehouse.

    Attributes:
        indexes: over data columns; a partition column is a constant of its table and needs none.
        old_snapshots: what happens when an old transaction outlasts the deadline of a publish.
        stall_milliseconds: how long readers may be made to wait by a publish, and how long somebody may have held the
            view for it to be tried at all. Where readers of more than that follow each other without a gap, no publish
            gets through, and this is what to raise.
        compact: put the tables of all partitions of such a period into one, when a later period has begun (for
            hourly loads of a weekly table, without an append ever); None keeps a table for each partition.
    """

    indexes: tuple[Index, ...] = ()
    old_snapshots: OldSnapshots = OldSnapshots.FAIL
    stall_milliseconds: int = 80
    compact: Period | None = None

    def __post_init__(self) -> None:
        if self.stall_milliseconds < 1:
            raise VarveError("stall_milliseconds is at least 1: without a limit readers would queue for ever.")
