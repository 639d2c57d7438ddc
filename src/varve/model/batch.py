"""Batches, their life and what they were made from: the values the catalog stores and the stores pass around.

Not here: SQL (varve/catalog/catalog.py) and paths (varve/stores/folders/layout.py).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    """When the writer of a batch started, in epoch milliseconds; unique within a catalog (docs/decisions/0001).

    The partitions of one run share the id: a batch is one partition of one run.
    """

    millis: int

    @property
    def folder(self) -> str:
        """Its folder under the partition."""
        return f"batch_id={self.millis}"

    @property
    def started(self) -> dt.datetime:
        """The same as an instant, in UTC."""
        return dt.datetime.fromtimestamp(self.millis / 1000, tz=dt.UTC)

    def __str__(self) -> str:
        return str(self.millis)


@dataclass(frozen=True, slots=True, order=True)
class Input:
    """One thing a batch was made from: a partition of a dataset at a version.

    The version is a batch id, or for a landing file the fingerprint of its content.
    """

    source: str
    partition: str
    version: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """The lowest and the highest value of a column in a batch, as text; None where it holds nothing but NULL."""

    column: str
    low: str | None
    high: str | None


@dataclass(frozen=True, slots=True, order=True)
class TakenFile:
    """A landing file whose rows a batch holds.

    Attributes:
        name: below the folder of its dataset.
        token: what stood for its name and its state when it was read.
        size: in bytes.
    """

    name: str
    token: str
    fingerprint: str
    size: int


@dataclass(frozen=True, slots=True)
class Part:
    """The rows that one run has read into a partition that grows; a batch of it holds the rows of all its parts.

    Attributes:
        batch_id: of the run that has read them.
        location: the table in which they lie, or the batch folder that they were first written to.
        files: what they were read from; empty where that was not asked for.
    """

    batch_id: BatchId
    location: str
    rows: int
    size: int
    files: tuple[TakenFile, ...] = ()


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """A partition's output as it lies in its store, verified and waiting to be published.

    Attributes:
        partition: which partition it is of.
        location: a folder of the lake (URI) or the name of a period table.
        rows: how many rows it holds.
        size: its size in bytes (of the files; of the relation with its indexes).
        files: how many data files it has (1 for a period table).
        content: a hash of its rows, whatever their order; None where it was not asked for. Two batches of one hash
            hold the same rows.
        bounds: of the columns that the dataset asks for.
        seal: a hash of its files' names and footers, which tell where each column lies; None for a period table.
        parts: of a partition that grows, in order, its own last.
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


@dataclass(frozen=True, slots=True)
class Batch:
    """A published batch, as the catalog lists it.

    Attributes:
        partition: the partition in its catalog spelling (`PartitionKey.path`).
        published_at: when it came into force, for the last time.
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
