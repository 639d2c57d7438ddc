"""Batches, their life and what they were made from: the values the catalog stores and the stores pass around.

Not here: the SQL (varve/catalog) and the paths of folders (varve/stores/folders/layout.py).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varve.model.partitions.key import PartitionKey


class BatchState(StrEnum):
    """`building -> staged -> published -> retired -> swept`, or `failed`; nothing else changes state."""

    BUILDING = "building"
    STAGED = "staged"
    PUBLISHED = "published"
    RETIRED = "retired"
    SWEPT = "swept"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, order=True)
class BatchId:
    """The instant at which the writer of a batch started, in epoch milliseconds; unique within a catalog.

    The partitions of one run share the id: a batch is one partition of one run.
    """

    millis: int

    @property
    def folder(self) -> str:
        """The name of the batch's folder below the folder of its partition: `batch_id=1385164800000`."""
        return f"batch_id={self.millis}"

    @property
    def started(self) -> dt.datetime:
        """The start of the writer as a datetime in UTC."""
        return dt.datetime.fromtimestamp(self.millis / 1000, tz=dt.UTC)

    def __str__(self) -> str:
        return str(self.millis)


@dataclass(frozen=True, slots=True, order=True)
class Input:
    """One input of a batch: a partition of a dataset at a version.

    The version is a batch id, or for a landing file the fingerprint of its content.
    """

    source: str
    partition: str
    version: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """The lowest and the highest value of a column in a batch, as text; None where the column holds only NULL."""

    column: str
    low: str | None
    high: str | None


@dataclass(frozen=True, slots=True, order=True)
class TakenFile:
    """A landing file whose rows are in a batch.

    Attributes:
        name: its path below the landing folder of its dataset.
        token: the state of the file when it was read (its name, size and time of change), as one text.
        fingerprint: a hash of its content.
        size: its size in bytes.
    """

    name: str
    token: str
    fingerprint: str
    size: int


@dataclass(frozen=True, slots=True)
class Part:
    """The rows that one run added to a partition that grows. A batch of such a partition holds the rows of all parts.

    Attributes:
        batch_id: the batch id of the run that read these rows.
        location: the table that holds the rows, or the batch folder to which they were written first.
        rows: how many rows there are.
        size: their size in bytes.
        files: the landing files from which they were read; empty where the caller did not ask for them.
    """

    batch_id: BatchId
    location: str
    rows: int
    size: int
    files: tuple[TakenFile, ...] = ()


class Hashes(NamedTuple):
    """The hashes of the rows of a batch: see `StagedBatch.content` and `StagedBatch.digests`."""

    content: str | None
    digests: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """The output of a build for one partition: it lies in its store, is verified, and waits to be published.

    Attributes:
        partition: the partition whose rows it holds.
        location: a folder of the lake (URI) or the name of a period table.
        rows: how many rows it holds.
        size: its size in bytes: of the files in the lake, of the table with its indexes in the warehouse.
        files: how many data files it has (1 for a period table).
        content: a hash of its rows that does not depend on their order; None where the caller did not ask for it. Two
            batches with the same hash hold the same rows.
        digests: for each set of columns that some reader reads (see `column_set`), the same of its columns alone.
        bounds: the lowest and highest values of the columns for which the dataset asks for them.
        seal: a hash of the names and footers of its files (a footer says where each column lies); None for a period
            table.
        parts: the parts of a partition that grows, oldest first; the part of this build is the last one.
    """

    partition: PartitionKey
    location: str
    rows: int
    size: int
    files: int
    content: str | None = None
    bounds: tuple[Bounds, ...] = ()
    seal: str | None = None
    parts: tuple[Part, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Batch:
    """A published batch, as the catalog lists it.

    Attributes:
        partition: the partition in its catalog spelling (`PartitionKey.path`).
        published_at: when it became current, for the last time.
        inputs: the trace: what it was made from.
        content: see `StagedBatch`.
    """

    partition: str
    batch_id: BatchId
    location: str
    rows: int
    size: int
    run_id: str
    published_at: dt.datetime
    inputs: frozenset[Input]
    content: str | None = None
