"""A captured table: which source table a dataset follows, and what that table is like.

Not here: whether the declaration fits the table (declaration_checks.py), asking the source
(capture/source_database.py), and changes of the table (table_changes.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from varve.model.errors import VarveError
from varve.model.schema import Column, ColumnType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varve.model.dataset import Dataset

# Further columns of a history: the half-open time in which a version of a row was true; a current one has no end.
VALIDITY = (
    Column("valid_from_lsn", ColumnType.BIGINT, "end LSN of the commit that made the row so"),
    Column("valid_to_lsn", ColumnType.BIGINT, "end LSN of the commit that ended it; missing while it is so"),
    Column("valid_from", ColumnType.TIMESTAMP, "when that transaction committed"),
    Column("valid_to", ColumnType.TIMESTAMP, "when it was ended; missing while it is so"),
)

# So many characters of a dataset's name are in the name of its slot, which PostgreSQL limits to 63.
SLOT_LETTERS = 56


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column of the source.

    Attributes:
        number: its attnum, which stays the same when the column is renamed and is never used again.
        labels: the values of the enums in it in the order in which they were made, behind the parts of the composite
            types in it.
        type_oid: the OID of its type, which a relation message of the stream contains; 0 where it is not known.
        since: a commit LSN before the one that added it, as far as the events since then are kept and call it by its
            name; None: it was there when the snapshot was taken, or too long ago, or events may call it otherwise.
        missing: the text that rows have in it which were there before it was added; None: NULL.
        knows_missing: whether that text could be read.
        changed_by: the transaction that last changed its entry in the source's catalog; 0 where it is not known.
    """

    name: str
    number: int
    type: str
    typmod: int = -1
    labels: tuple[str, ...] = ()
    type_oid: int = 0
    since: int | None = None
    missing: str | None = None
    knows_missing: bool = True
    changed_by: int = 0


@dataclass(frozen=True, slots=True)
class SourceTable:
    """The description of a table in the source database.

    Attributes:
        key: the columns of the primary key, or of the index that is the replica identity.
        identity: the replica identity: `d`efault, `n`othing, `f`ull or `i`ndex.
        deferrable: whether the key is only checked at the end of transactions, so that two rows may share it before.
        filenode: the file that holds its rows; a TRUNCATE or a command that rewrites every row changes it.
        changed_by: the transaction that last changed its entry in the source's catalog, as both of these do.
        version: one more than the number of changes to its columns since the first capture.
        publication: the entries of its publication in the source's catalog as a text; empty where it is not published.
        unsent: generated columns that this server cannot publish: virtual ones and, before PostgreSQL 18, stored ones.
        blocked: whether such columns belong to the replica identity, so that the server would refuse changes of rows.
        last_number: the attnum of the column that was added last, whether it is there or dropped; 0: not known.
    """

    oid: int
    columns: tuple[SourceColumn, ...]
    key: tuple[str, ...]
    identity: str
    deferrable: bool = False
    filenode: int = 0
    changed_by: int = 0
    version: int = 1
    publication: str = ""
    unsent: tuple[str, ...] = ()
    blocked: bool = False
    last_number: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def layout(self) -> tuple[tuple[str, int], ...]:
        """The names and typmods of the columns, which a relation message of the stream contains as well."""
        return tuple((column.name, column.typmod) for column in self.columns)

    @property
    def keyed(self) -> bool:
        """Whether the key identifies a row at every moment; without such a key rows are counted as a multiset."""
        return bool(self.key) and not self.deferrable


class ChangeFormat(StrEnum):
    """The format of change files: wal2json of version 2 or 1, Debezium's envelopes, or plain events."""

    WAL2JSON = "wal2json"
    WAL2JSON_V1 = "wal2json_v1"
    DEBEZIUM = "debezium"
    EVENTS = "events"


@dataclass(frozen=True, slots=True)
class ChangeFiles:
    """Changes that others have captured into files: one JSON object per line, files in the order of their names.

    Attributes:
        key: the columns of the key; without any, rows are counted, and the files must contain whole old rows.
    """

    format: ChangeFormat
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """A dataset that follows a table of a PostgreSQL database.

    Attributes:
        source: `schema.table` in the source database.
        partition_by: for each partition column a Spark SQL expression over the dataset's columns; never NULL.
        renames: source column -> dataset column, where the names differ.
        history: whether to keep every version of each row (slowly changing dimension, type 2); the dataset then has
            the columns of VALIDITY.
        ignore_null_updates: whether an update that sends NULL leaves the value as it is.
        files: the change files from which changes come; None: changes come from the log of the source.
        verify: when Dagster compares the dataset with its source, as a cron schedule in UTC; None: when it is asked.
        changed_at: a TIMESTAMP column of the dataset in which each row has the time of the commit that sent it last; of
            a snapshot, the snapshot's. "": none.
    """

    dataset: Dataset
    source: str
    partition_by: Mapping[str, str]
    renames: Mapping[str, str] = field(default_factory=dict)
    history: bool = False
    ignore_null_updates: bool = False
    files: ChangeFiles | None = None
    verify: str | None = None
    changed_at: str = ""

    def __post_init__(self) -> None:
        if not self.dataset.partitioning.dimensions:
            raise VarveError(
                f"dataset {self.dataset}: a table that is captured as it changes has partitions, so that a change "
                "makes a small part of it anew, and this one has none. Give it a dimension and say in partition_by how "
                "to find it; for a small table, take OPTIONS (source = 'postgres'), which reads it whole."
            )
        if set(self.partition_by) != set(self.dataset.partitioning.names):
            raise VarveError(
                f"dataset {self.dataset}: partition_by says how to find {', '.join(self.partition_by)}, but it is "
                f"partitioned by {', '.join(self.dataset.partitioning.names)}."
            )

        if self.verify is not None and (self.files is not None or self.ignore_null_updates):
            option = "files" if self.files is not None else "ignore_null_updates"
            raise VarveError(
                f"dataset {self.dataset}: verify compares it with its source row for row, and with {option} there is "
                "nothing to compare it with. Take verify out."
            )
        if odd := [column.name for column in self.dataset.schema.columns if "." in column.name]:
            raise VarveError(
                f"dataset {self.dataset}: Spark takes the dots of {', '.join(odd)} for more than a name. "
                f"Declare other names and say so in renames, {{'{odd[0]}': 'plain_name'}}: the source may keep its own."
            )
        declared = {column.name: column.type for column in self.dataset.schema.columns}
        if self.changed_at:
            self._check_changed_at(declared.get(self.changed_at))
        lacking = [column for column in VALIDITY if declared.get(column.name) != column.type]
        if self.history and lacking:
            wanted = ", ".join(f"{column.name} {column.type}" for column in lacking)
            raise VarveError(f"dataset {self.dataset}: its history needs the columns {wanted}; add VALIDITY to them.")

    def _check_changed_at(self, kind: ColumnType | None) -> None:
        where = f"dataset {self.dataset}: changed_at = {self.changed_at!r}"
        if self.history:
            raise VarveError(f"{where}: a history has it already, as valid_from. Take changed_at out.")
        if kind is not ColumnType.TIMESTAMP:
            found = "is no column of it" if kind is None else f"is {kind}"
            raise VarveError(f"{where} {found}: declare the column as TIMESTAMP.")
        if self.changed_at in self.renames.values():
            raise VarveError(f"{where} is also a column of the source, by renames. Give one of them another name.")

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the dataset that come from the source."""
        ours = {column.name for column in VALIDITY} if self.history else {self.changed_at}
        return tuple(column for column in self.dataset.schema.columns if column.name not in ours)

    @property
    def names(self) -> frozenset[str]:
        """The names, in the dataset, of the columns that come from the source."""
        return frozenset(column.name for column in self.columns)

    @property
    def slot(self) -> str:
        """The name of its replication slot and publication in the source."""
        return slot_name(self.dataset.name)

    @property
    def declaration(self) -> dict[str, Any]:
        """The part of the declaration that decides how rows are stored, as JSON values."""
        return {
            "source": self.source,
            "columns": {column.name: str(column.type) for column in self.dataset.schema.columns},
            "partition_by": dict(self.partition_by),
            "renames": dict(self.renames),
            "history": self.history,
            "ignore_null_updates": self.ignore_null_updates,
            # Only where it is asked for: positions that were written before know nothing of it.
            **({"changed_at": self.changed_at} if self.changed_at else {}),
        }

    def column(self, source: str) -> str:
        """The name in the dataset of a source column; `schema.table.column` of one whose name another one has there."""
        if source not in self.renames and source in self.renames.values():
            # No column of the dataset: the name of one has no dot.
            return f"{self.source}.{source}"
        return self.renames.get(source, source)

    @property
    def source_columns(self) -> tuple[str, ...]:
        """The names in the source of the columns that the dataset declares."""
        renamed = {name for name, column in self.renames.items() if column in self.names}
        return tuple(sorted(renamed | (self.names - set(self.renames.values()))))


def slot_name(dataset: str) -> str:
    """The name, in the source, of the replication slot and the publication of the dataset with this name."""
    return "varve_" + dataset.replace(".", "_")[:SLOT_LETTERS]


class SourceRefused(VarveError):
    """The source table cannot be captured as it is, or as the dataset is declared; nothing was changed there."""


class NeedsResnapshot(VarveError):
    """The stream does not contain the present rows of the table; the dataset stays at its last exact state."""
