"""`Build` and `Store`: one run's work on some partitions, and the seam between it and where batches lie.

Not here: the order in which a build calls its store (io_manager.py).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from pipeline_defs.model.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from pipeline_defs.model.batch import BatchId, Bounds, Input, Part, StagedBatch
    from pipeline_defs.model.dataset import Dataset
    from pipeline_defs.model.growth import Growth
    from pipeline_defs.model.partition import PartitionKey


@dataclass(frozen=True, slots=True)
class Leftover:
    """What lies in a store and belongs to no batch that the catalog keeps: a killed run's, or what a sweep left.

    Attributes:
        location: a folder of the lake (URI), or a period table with its schema.
        dataset: whose it is; "" for a stray, which somebody else has put there and no sweep touches.
        size: bytes.
        changed_at: when it was last written; None where the store does not know, and it may be in use.
    """

    location: str
    dataset: str
    size: int
    changed_at: dt.datetime | None


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference between what the catalog says and what lies there or what readers are shown.

    Attributes:
        remedy: what mends it, in words.
    """

    dataset: str
    partition: str
    batch_id: BatchId | None
    found: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Publication:
    """What one build or rollback put in force: a batch id for each partition, None where it took the last one away."""

    build_id: BatchId
    kind: str
    run_id: str
    reason: str
    published_at: dt.datetime
    partitions: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class Described:
    """What a batch that lies in a store says of itself: all that the catalog knew of it, but for its history."""

    dataset: str
    partition: str
    batch_id: BatchId
    location: str
    run_id: str
    code_version: str
    rows: int
    size: int
    files: int
    content: str | None
    bounds: tuple[Bounds, ...]
    inputs: tuple[Input, ...]
    declaration: Mapping[str, Any]
    seal: str | None = None
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Remains:
    """Everything a store can tell of one dataset without a catalog.

    Attributes:
        batches: those that describe themselves and are whole.
        publications: the store's own record of what was put in force, oldest first; empty where it keeps none.
        findings: what was left out, and why.
    """

    dataset: str
    batches: Sequence[Described]
    publications: Sequence[Publication]
    findings: Sequence[Finding]


@dataclass
class Build:
    """One run's work on some partitions of one dataset, from its locks to its publish.

    Attributes:
        expected: the batch that was current for each partition when the build began; publish compares and swaps.
        inputs: what the build has read so far, for each of its partitions; becomes the trace of its batch.
        missing: what it would have read too, had it been there; a wait policy let it go without.
        code_version: a hash of the code that computes it.
        registered: the declaration with which the dataset was published last; None where it never was.
        holds: whether what it puts back in force is left alone by the planner until an input changes.
        growth: of partitions that grow, what the build makes of their files.
    """

    dataset: Dataset
    partitions: tuple[PartitionKey, ...]
    batch_id: BatchId
    run_id: str
    expected: dict[PartitionKey, BatchId | None]
    inputs: dict[PartitionKey, set[Input]] = field(default_factory=dict)
    missing: dict[PartitionKey, set[str]] = field(default_factory=dict)
    code_version: str = ""
    registered: Mapping[str, Any] | None = None
    holds: bool = True
    growth: dict[PartitionKey, Growth] = field(default_factory=dict)

    @cached_property
    def paths(self) -> list[str]:
        """The partitions as the catalog spells them, in their order."""
        return [partition.path for partition in self.partitions]

    def reads(self, partition: PartitionKey, found: Input) -> None:
        """Record that `partition` is made from `found`."""
        self.inputs.setdefault(partition, set()).add(found)

    def goes_without(self, partition: PartitionKey, what: str) -> None:
        """Record that `partition` is made without something it reads, as it was not there in time."""
        self.missing.setdefault(partition, set()).add(what)

    def as_batch(self, staged: StagedBatch) -> Batch:
        """What a staged batch of the build will be when it is published."""
        return Batch(
            staged.partition.path, self.batch_id, staged.location, staged.rows, staged.size, self.run_id,
            dt.datetime.now(dt.UTC), frozenset(self.inputs.get(staged.partition, ())), staged.content,
        )  # fmt: skip

    def __str__(self) -> str:
        return f"{self.dataset} batch {self.batch_id}"


class Store(Protocol):
    """A place where batches lie. After a crash at any point, the next build may simply begin anew."""

    def stage(self, build: Build, frame: DataFrame) -> Sequence[StagedBatch]:
        """Write the frame beside what is current, one batch for each partition of the build; no reader sees it.

        Raises BadInput for columns or rows that the build may not write.
        """
        ...

    def verify(self, build: Build, staged: Sequence[StagedBatch]) -> None:
        """Compare what lies in the store with what was computed. Raises VerifyFailed."""
        ...

    def publish(self, build: Build, staged: Sequence[StagedBatch]) -> None:
        """Put all of the batches in force at once, or none. Raises StalePublish, PublishTimeout."""
        ...

    def published(self, build: Build) -> None:
        """Do what follows a publish that another has done; what fails of it is told, and made good later."""
        ...

    def discard(self, build: Build) -> None:
        """Remove what a failed build has written, as far as that can be done now; the sweep finds the rest."""
        ...

    def republish(self, build: Build, batches: Sequence[Batch], *, reason: str = "") -> None:
        """Put earlier batches back in force, all at once or none, as safely as `publish`.

        Partitions of the build without a batch among them are withdrawn: they have none afterwards.
        Raises StalePublish, PublishTimeout, and NotKept where a batch was swept meanwhile.
        """
        ...

    def refuse_missing(self, dataset: Dataset, batches: Sequence[Batch]) -> None:
        """Raise MissingUpstream where the data of one of the batches is gone."""
        ...

    def sweep(self, dataset_name: str, locations: Sequence[str]) -> None:
        """Delete the data of batches that nobody may read any more, or of leftovers. What is missing is fine."""
        ...

    def leftovers(self) -> Sequence[Leftover]:
        """Everything in the store that belongs to no batch the catalog keeps and no living run."""
        ...

    def examine(self, dataset: Dataset, batches: Sequence[Batch], *, deep: bool = False) -> Sequence[Finding]:
        """Compare these batches with what lies there, and what readers are shown with what is current.

        `batches` are all whose data the catalog says is there; changes nothing. `deep` reads all of it.
        """
        ...

    def follow(self, dataset: Dataset) -> int:
        """Show readers what was put in force and is not shown yet, as the catalog notes it; how many partitions."""
        ...

    def mend(self, dataset: Dataset) -> int:
        """The same by looking at what readers are really shown and what batches say of themselves; how many."""
        ...

    def remains(self) -> Sequence[Remains]:
        """What the store can tell of each of its datasets without a catalog, for a lost one to be rebuilt."""
        ...

    def read(self, dataset: Dataset, batches: Sequence[Batch], columns: Sequence[str] | None = None) -> DataFrame:
        """Exactly these batches of the dataset: its data columns (None: all), then its typed partition columns."""
        ...
