"""`Build` and `Store`: one run's work on some partitions, and the seam between it and where batches lie.

Not here: the order in which a build calls its store (io_manager.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from pipeline_defs.model.batch import Batch, BatchId, Input, StagedBatch
    from pipeline_defs.model.dataset import Dataset
    from pipeline_defs.model.partition import PartitionKey


@dataclass
class Build:
    """One run's work on some partitions of one dataset, from its locks to its publish.

    Attributes:
        expected: the batch that was current for each partition when the build began; publish compares and swaps.
        inputs: what the build has read so far, for each of its partitions; becomes the trace of its batch.
        missing: what it would have read too, had it been there; a wait policy let it go without.
    """

    dataset: Dataset
    partitions: tuple[PartitionKey, ...]
    batch_id: BatchId
    run_id: str
    expected: dict[PartitionKey, BatchId | None]
    inputs: dict[PartitionKey, set[Input]] = field(default_factory=dict)
    missing: dict[PartitionKey, set[str]] = field(default_factory=dict)

    def reads(self, partition: PartitionKey, found: Input) -> None:
        """Record that `partition` is made from `found`."""
        self.inputs.setdefault(partition, set()).add(found)

    def goes_without(self, partition: PartitionKey, what: str) -> None:
        """Record that `partition` is made without something it reads, as it was not there in time."""
        self.missing.setdefault(partition, set()).add(what)

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

    def discard(self, build: Build) -> None:
        """Remove what a failed build has written, as far as that can be done now; the sweep finds the rest."""
        ...

    def read(self, dataset: Dataset, batches: Sequence[Batch]) -> DataFrame:
        """Exactly these batches of the dataset: its data columns, then its typed partition columns."""
        ...
