"""`Build`: one run's work on some partitions of one dataset, from its locks to its publish.

Not here: the connection that holds its locks (varve/stores/open_build.py).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from varve.model.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varve.model.batch import BatchId, Input, StagedBatch
    from varve.model.dataset import Dataset
    from varve.model.landing.growth import Growth
    from varve.model.partitions.key import PartitionKey


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
