"""The options of a dataset for its parquet files or its period tables. The defaults fit nearly every dataset.

Not here: the code that follows them (varve/stores).
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
        sort: data columns by which the rows of each file are sorted, so that readers can skip row groups.
        bounds: data columns whose lowest and highest value the catalog keeps for each batch.
        file_bytes: the approximate largest size of a file in bytes, estimated from the batch before; None: no limit.
        file_rows: the largest number of rows in a file; where it is given, `file_bytes` does not count.
        iceberg: whether it is shown as an Iceberg table too; None: as the settings say.
    """

    sort: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()
    file_bytes: int | None = 256 << 20
    file_rows: int | None = None
    iceberg: bool | None = None

    def __post_init__(self) -> None:
        for name in ("file_bytes", "file_rows"):
            limit = getattr(self, name)
            if limit is not None and limit < 1:
                raise VarveError(f"{name} is {limit}; write a number above 0, or None for no limit.")

    @property
    def clauses(self) -> tuple[str, ...]:
        """The options that SQL can say, as the clauses of a file."""
        named = (("SORTED BY", self.sort), ("BOUNDS", self.bounds))
        iceberg = () if self.iceberg is None else (f"ICEBERG {'ON' if self.iceberg else 'OFF'}",)
        return (*(f"{words} ({', '.join(columns)})" for words, columns in named if columns), *iceberg)

    @property
    def columns(self) -> frozenset[str]:
        """Every data column that the options name."""
        return frozenset((*self.sort, *self.bounds))


class OldSnapshots(StrEnum):
    """What a publish does when a transaction older than the load outlasts its deadline.

    Such a transaction would see the new table through the new view, but none of its rows: a period would be missing
    without an error.
    """

    FAIL = "fail"
    """Publish nothing, and name the transaction that is in the way."""
    PUBLISH = "publish"
    """Publish. A reader that still uses the old snapshot may miss the published periods; the log names it."""


class Period(StrEnum):
    """A coarser period: when it is over, the tables of its partitions are put together into one."""

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
    """An index of every period table; it is built after the load and before the publish."""

    columns: tuple[str, ...]
    unique: bool = False

    def __post_init__(self) -> None:
        if not self.columns:
            raise VarveError("an index has at least one column.")

    def __str__(self) -> str:
        return f"{'UNIQUE ' if self.unique else ''}({', '.join(self.columns)})"


@dataclass(frozen=True, slots=True)
class WarehouseOptions:
    """Options of a dataset in the warehouse.

    Attributes:
        indexes: indexes over data columns. A partition column is constant within a table and needs no index.
        old_snapshots: what happens when an old transaction outlasts the deadline of a publish.
        stall_milliseconds: how long a publish may make readers wait, and how long a reader may have held the view for
            the publish to be tried at all. Where longer readers follow each other without a gap, no publish succeeds:
            then raise this number.
        compact: the period whose tables are put together into one when a later period has begun, for example a weekly
            table that is loaded every hour; None keeps one table for each partition.
        grants: the roles of the server that may select from the view. The administrator creates them.
    """

    indexes: tuple[Index, ...] = ()
    old_snapshots: OldSnapshots = OldSnapshots.FAIL
    stall_milliseconds: int = 80
    compact: Period | None = None
    grants: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.stall_milliseconds < 1:
            raise VarveError("stall_milliseconds is at least 1: without a limit readers would queue for ever.")

    @property
    def clauses(self) -> tuple[str, ...]:
        """The options that SQL can say, as the clauses of a file."""
        indexes = (f"INDEX {', '.join(map(str, self.indexes))}",) if self.indexes else ()
        compact = () if self.compact is None else (f"COMPACT {self.compact.upper()}",)
        return (*indexes, *compact, *((f"GRANT SELECT TO {', '.join(self.grants)}",) if self.grants else ()))
