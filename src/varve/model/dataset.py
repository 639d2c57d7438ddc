"""A dataset: a named, partitioned table.

Not here: how it is computed (varve/sql, or the Python of a project) and where its batches lie (varve/stores).
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from varve.model.errors import VarveError, nearest
from varve.model.external import OF_FILES, VIEW
from varve.model.landing.options import LandingOptions
from varve.model.landing.pattern import FilePattern
from varve.model.landing.rejection import REJECTED_ROWS, RejectInto
from varve.model.partitions.dimension import DynamicDimension, TimeDimension
from varve.model.policy import Policy
from varve.model.schema import FOLDER_COLUMN, Column, ColumnType, Schema
from varve.model.store_options import LakeOptions, WarehouseOptions

if TYPE_CHECKING:
    from collections.abc import Collection

    from varve.model.expectation import Expectation
    from varve.model.external import ExternalTable
    from varve.model.landing.growth import Incremental
    from varve.model.partitions.dimension import Dimension
    from varve.model.partitions.partitioning import Partitioning

_NAME = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")

# What Dagster takes as an owner: with another the whole project fails to load.
_OWNER = re.compile(r"team:.+|[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}", re.DOTALL)

# The checks that Varve makes of a dataset itself: with another of such a name Dagster loads nothing of the project.
OWN_CHECKS = frozenset({"fresh", "every_arrival_is_taken"})

# Where installed packages name the stores that they add (varve/stores/open.py).
STORE_ENTRY_POINTS = "varve.stores"


class StoreKind(StrEnum):
    """The stores that Varve has itself: batch folders of parquet, and period tables in PostgreSQL."""

    LAKE = "lake"
    WAREHOUSE = "warehouse"


_OWN_STORES = (*map(str, StoreKind), VIEW)


def store_names() -> list[str]:
    """The names of all stores that there are here: Varve's own, and those of installed packages."""
    installed = {point.name for point in entry_points(group=STORE_ENTRY_POINTS)}
    return [*_OWN_STORES, *sorted(installed.difference(_OWN_STORES))]


def refuse_unknown_store(name: str) -> None:
    """Raise VarveError, which names those that there are, where no store has this name."""
    if name not in _OWN_STORES and name not in (names := store_names()):
        raise VarveError(
            f"there is no store {name!r}.{nearest(name, names)} There are {', '.join(names)}. Name one of these, or "
            f"install the package that adds it, by an entry point of the group {STORE_ENTRY_POINTS}."
        )


def owner_problem(owner: str) -> str | None:
    """Say why this can be no owner; None if it can."""
    if _OWNER.fullmatch(owner):
        return None
    return (
        f"{owner!r} is no owner that Dagster takes: write an e-mail address (its last part has two to seven letters), "
        "or a team, such as 'team:shops'."
    )


@dataclass(frozen=True, slots=True)
class Dataset:
    """A named, partitioned table; one Dagster asset.

    Attributes:
        name: `db.name`, lower case, which readers use in Spark and in PostgreSQL.
        partitioning: its dimensions, which are also its partition columns. Where others produce the partitions (see
            `arrives`), the window that is still open is a partition too, whatever was declared.
        schema: its data columns, without the partition columns.
        store: where its batches lie: one of `StoreKind`, or the name of a store that an installed package adds. Of an
            external table that is read in place it is that of such views, whatever was declared.
        comment: what one row means, shown to readers.
        landing: whether its partitions come from files in the landing folder. `LandingOptions` say how to read the
            files; True means CSV with the default of every option.
        external: the external table from which its partitions come.
        incremental: whether a run of a landing partition reads only the files that are new.
        owners: who is responsible for it, as Dagster shows them.
        warehouse: how its period tables are made, where its store is the warehouse.
        lake: how its parquet files are made, where its store is the lake.
        expectations: the conditions that a batch must meet before it is published, in either store.
        policy: what the planner may do with it without being asked.
        reject_into: how many rows of a landing partition may be unreadable, and the dataset that takes those rows.
        rejected_of: the landing dataset whose rejected rows this dataset holds, and whose runs write it; "" for any
            other dataset.
        of_project: the project that computes it, where that is another one over the same catalog: here it is only read.
    """

    name: str
    partitioning: Partitioning
    schema: Schema
    store: str
    comment: str
    landing: bool | LandingOptions = False
    owners: tuple[str, ...] = field(default=())
    warehouse: WarehouseOptions = field(default=WarehouseOptions())
    lake: LakeOptions = field(default=LakeOptions())
    expectations: tuple[Expectation, ...] = field(default=())
    # repr=False keeps it out of the code version: a policy decides when a batch is made, not what is in it.
    policy: Policy = field(default=Policy(), repr=False)
    external: ExternalTable | None = field(default=None, repr=False)
    incremental: Incremental | None = field(default=None, repr=False)
    # Not in the code version either: a batch without rejected rows is the same under any tolerance.
    reject_into: RejectInto | None = field(default=None, repr=False)
    rejected_of: str = field(default="", repr=False)
    of_project: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise VarveError(f"dataset {self.name!r}: a name is `db.table` in lower-case letters, digits and _.")
        if self.arrives or self.of_project:
            # Others may send data for the window that is still open.
            object.__setattr__(self, "partitioning", self.partitioning.reaching(1))
        if self.is_view:
            object.__setattr__(self, "store", VIEW)
        try:
            self.partitioning.check()
            self.policy.check(has_time=self.partitioning.time is not None)
            if isinstance(self.landing, LandingOptions):
                FilePattern.of(self.landing, self.partitioning)
            self._check_incremental()
        except VarveError as error:
            raise VarveError(f"dataset {self.name}: {error}") from None
        if both := set(self.schema.names) & set(self.partitioning.names):
            raise VarveError(
                f"dataset {self.name}: {', '.join(sorted(both))} is both a data and a partition column; "
                "take it out of the columns."
            )
        self._check_column_names()
        indexed = {column for index in self.warehouse.indexes for column in index.columns}
        if unknown := indexed - set(self.schema.names):
            raise VarveError(f"dataset {self.name}: an index names {', '.join(sorted(unknown))}, no data column of it.")

        if unknown := set(self.lake.columns) - set(self.schema.names):
            raise VarveError(
                f"dataset {self.name}: sort or bounds name {', '.join(sorted(unknown))}, no data column of it."
            )
        self._check_reject_into()
        if self.external is not None and self.external.in_place and self.external.kind not in OF_FILES:
            raise VarveError(
                f"dataset {self.name}: a view is of files of others, of a table of the metastore or a folder of "
                "parquet; name one of these as `external`, or leave `in_place` out."
            )
        if self.arrives and (self.policy.schedule is not None or not self.policy.catchup):
            raise VarveError(
                f"dataset {self.name}: a schedule and catchup are about what is computed, and its partitions arrive "
                "from others: they are taken when they come. Leave them out of its policy, and give them to what reads "
                "it."
            )
        for problem in filter(None, map(owner_problem, self.owners)):
            raise VarveError(f"dataset {self.name}: {problem}")
        self._check_expectations()

    def _check_expectations(self) -> None:
        """Raise VarveError where Dagster could not tell the checks of the expectations apart from others."""
        names = [expectation.name for expectation in self.expectations]
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise VarveError(f"dataset {self.name}: two expectations are called {', '.join(doubled)}.")
        if taken := sorted(OWN_CHECKS.intersection(names)):
            raise VarveError(f"dataset {self.name}: {taken[0]} is a check of Varve's own; take another name.")

    def _check_column_names(self) -> None:
        """Raise VarveError for a name of a data column by which Spark does not read what is in it."""
        for name in self.schema.names:
            if name.lower() == FOLDER_COLUMN and not self.is_view:
                raise VarveError(
                    f"dataset {self.name}: a data column cannot be called {name}, which names the folders of batches: "
                    "Spark would read the number of the folder in its place. Give it another name."
                )
            if "`" in name:
                raise VarveError(
                    f"dataset {self.name}: a data column cannot be called {name}: names stand between backquotes in "
                    "Spark. Give it another one; of a captured table, renames says what its source calls it."
                )

    def _check_incremental(self) -> None:
        """Raise VarveError where INCREMENTAL is declared and the partitions cannot grow."""
        if self.incremental is None:
            return
        if not self.landing or not FilePattern.of(self.landing_options, self.partitioning).many:
            raise VarveError(
                "INCREMENTAL adds files to a partition, and it has no more than one: its partitions must be folders of "
                "the landing folder, as files = 'day={day}/*.csv' says it."
            )
        self.incremental.check(self.partitioning)
        if any(index.unique for index in self.warehouse.indexes):
            raise VarveError(
                "a unique index holds within a table, and INCREMENTAL has a table for each addition: what comes "
                "twice would be found when they are put together. Leave the index or INCREMENTAL out."
            )
        if self.reject_into is not None:
            raise VarveError(
                "INCREMENTAL keeps the rows of files that are not read again, and REJECT UP TO counts the bad rows of "
                "all files of a partition: take one of the two."
            )
        if self.warehouse.compact is not None:
            raise VarveError(
                "INCREMENTAL puts each partition together when its window is over, and compact several of them: take "
                "one of the two."
            )

    def _check_reject_into(self) -> None:
        rejection = self.reject_into
        if rejection is None:
            return
        if not self.landing:
            raise VarveError(
                f"dataset {self.name}: reject into {rejection.dataset}: only rows of landing files are rejected."
            )
        if not _NAME.fullmatch(rejection.dataset):
            raise VarveError(
                f"dataset {self.name}: reject into {rejection.dataset!r}: a name is `db.table` in lower-case letters, "
                "digits and _."
            )
        if rejection.dataset == self.name:
            raise VarveError(f"dataset {self.name}: its rejected rows cannot go into itself; name another dataset.")
        if both := set(REJECTED_ROWS.names) & set(self.partitioning.names):
            raise VarveError(
                f"dataset {self.name}: reject into {rejection.dataset}: a column of rejected rows is called "
                f"{', '.join(sorted(both))}, as a partition column is; rename that."
            )

    def rejected_dataset(self) -> Dataset | None:
        """The dataset of its rejected rows, with the same partitions, store and retention; None if it has none."""
        if self.reject_into is None:
            return None
        return Dataset(
            name=self.reject_into.dataset,
            partitioning=self.partitioning,
            schema=REJECTED_ROWS,
            store=self.store,
            comment=f"Rows of the files of {self.name} that cannot be read as they are declared.",
            owners=self.owners,
            policy=Policy(
                retention=self.policy.retention,
                retain_batches=self.policy.retain_batches,
                retain_last=self.policy.retain_last,
            ),
            rejected_of=self.name,
        )

    @property
    def published_with(self) -> str:
        """The dataset that the same runs publish: of its rejected or its accepted rows; "" if there is none."""
        return self.rejected_of or (self.reject_into.dataset if self.reject_into else "")

    @property
    def db(self) -> str:
        """The database (Spark) or schema (PostgreSQL) in which readers find it."""
        return self.name.partition(".")[0]

    @property
    def table(self) -> str:
        """The name of the table or view, without its database."""
        return self.name.partition(".")[2]

    @property
    def arrives(self) -> bool:
        """Whether its partitions come from landing files or an external table; such a dataset reads no other."""
        return bool(self.landing) or self.external is not None

    @property
    def is_computed(self) -> bool:
        """Whether runs of its own compute it from what it reads, or from nothing."""
        return not (self.arrives or self.rejected_of or self.of_project)

    @property
    def is_view(self) -> bool:
        """Whether its batches are files of others, who may change them at any time.

        A build of it gets a listing of files in the place of rows. What reads a batch of it asks the store again, right
        before it is published (`Store.refuse_missing`).
        """
        return self.external is not None and self.external.in_place

    @property
    def recomputes(self) -> bool:
        """Whether partitions are computed again in the course of time, though nothing that they read has changed."""
        return bool(self.policy.refresh_last) or (self.policy.schedule is not None and self.partitioning.time is None)

    @property
    def landing_options(self) -> LandingOptions:
        """The options with which its landing files are read; the defaults where none were declared."""
        return self.landing if isinstance(self.landing, LandingOptions) else LandingOptions()

    @property
    def partition_columns(self) -> tuple[Column, ...]:
        """The partition columns, typed as the keys of their dimensions."""
        columns = {
            name: Column(name, kind, nullable=False)
            for dimension in self.partitioning.dimensions
            for name, kind in partition_types(dimension).items()
        }
        return tuple(columns[name] for name in self.partitioning.names)

    def read_columns(self, names: Collection[str] | None = None) -> tuple[Column, ...]:
        """The columns that a reader of these data columns (None: of all) gets; partition columns come last.

        Raises VarveError for a name that is no data column.
        """
        data_columns = [column.name for column in self.schema.columns]
        if unknown := [name for name in names or () if name not in data_columns]:
            raise VarveError(
                f"dataset {self} has no data column {', '.join(unknown)}; it has "
                f"{', '.join(data_columns)}, and its partition columns are always read."
            )
        wanted = [column for column in self.schema.columns if names is None or column.name in names]
        return (*wanted, *self.partition_columns)

    def __str__(self) -> str:
        return self.name


def partition_types(dimension: Dimension) -> dict[str, ColumnType]:
    """The types of a dimension's partition columns by name; intervals and rich keys are stored as text.

    Hours are text too, where nothing else is declared: a TIMESTAMP partition column means another instant in each
    session time zone.
    """
    if isinstance(dimension, TimeDimension) and dimension.columns:
        return {column.name: column.type for column in dimension.columns}
    if isinstance(dimension, DynamicDimension) and dimension.column_type is not None:
        return {dimension.name: dimension.column_type}
    key_type = {dt.date: ColumnType.DATE, int: ColumnType.BIGINT}.get(dimension.value_type, ColumnType.STRING)
    return {dimension.name: key_type}
