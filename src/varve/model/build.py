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
    from varve.model.schema import Column


@dataclass
class Build:
    """One run's work on some partitions of one dataset, from its locks to its publish.

    Attributes:
        expected: the batch that was current for each partition when the build began (None: there was none). The publish
            is refused where another batch is current by then.
        inputs: for each partition the inputs that were read so far; they become the trace of its batch.
        missing: for each partition the inputs that were not there in time, and without which a wait policy let it run.
        code_version: a hash of the code that computes the dataset.
        registered: the declaration with which the dataset was published last; None where it never was.
        holds: for a rollback: whether the planner leaves the batch alone that becomes current again, until an input
            changes.
        growth: for each partition that grows, what the build does with its files.
        generation: the generation of its batches, where that is not the one that readers see when it begins.
        column_sets: the columns that readers name, perhaps all: rows are hashed by them too.
        compared: whether its rows are hashed however many partitions it has, as they may equal what they replace.
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
    generation: int | None = None
    column_sets: tuple[tuple[Column, ...], ...] = ()
    compared: bool = False

    @cached_property
    def paths(self) -> list[str]:
        """The paths of the partitions, as the catalog spells them, in the order of `partitions`."""
        return [partition.path for partition in self.partitions]

    def reads(self, partition: PartitionKey, input_version: Input) -> None:
        """Record that `partition` is made from `input_version`."""
        self.inputs.setdefault(partition, set()).add(input_version)

    def goes_without(self, partition: PartitionKey, missing_input: str) -> None:
        """Record that `partition` is made without an input that was not there in time; the text names the input."""
        self.missing.setdefault(partition, set()).add(missing_input)

    def as_batch(self, staged: StagedBatch) -> Batch:
        """The `Batch` that a staged batch of this build becomes when it is published now."""
        return Batch(
            staged.partition.path, self.batch_id, staged.location, staged.rows, staged.size, self.run_id,
            dt.datetime.now(dt.UTC), frozenset(self.inputs.get(staged.partition, ())), staged.content,
        )  # fmt: skip

    def __str__(self) -> str:
        return f"{self.dataset} batch {self.batch_id}"
