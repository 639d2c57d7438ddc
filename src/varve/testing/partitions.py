"""Partitions as a test writes them: `{"day": "2026-11-01", "store": "Paris"}`.

Not here: what a partition is (varve/model/partitions).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from varve.model.errors import UnknownPartition, VarveError, nearest
from varve.model.partitions.key import PartitionKey, text_of

if TYPE_CHECKING:
    from varve.model.dataset import Dataset

Partition: TypeAlias = Mapping[str, object] | PartitionKey


def partition_keys(dataset: Dataset, given: Partition | Sequence[Partition]) -> tuple[PartitionKey, ...]:
    """The keys, sorted. Raises UnknownPartition for one that the dataset does not have, and for none at all."""
    listed = [given] if isinstance(given, Mapping | PartitionKey) else given
    if not isinstance(listed, Sequence) or not all(isinstance(each, Mapping | PartitionKey) for each in listed):
        names = ", ".join(f"{name!r}: ..." for name in dataset.partitioning.names)
        raise VarveError(f"{dataset}: {given!r} is no partition; write {{{names}}}, or a list of them.")
    if not listed:
        raise VarveError(f"{dataset}: no partition is given; a run has one or more.")
    # A run computes each once.
    return tuple(sorted({_key(dataset, values) for values in listed}))


def _key(dataset: Dataset, given: Partition) -> PartitionKey:
    values = dict(given.fields) if isinstance(given, PartitionKey) else dict(given)
    names = dataset.partitioning.names
    for name in values:
        if name not in names:
            raise UnknownPartition(
                f"{dataset} is not partitioned by {name!r}, but by {', '.join(names) or 'nothing'}."
                f"{nearest(name, names)}"
            )
    if missing := [name for name in names if name not in values]:
        raise UnknownPartition(f"{dataset}: the partition {values} has no {', '.join(missing)}.")
    texts = {
        name: value if isinstance(value, str) else text_of(value)  # type: ignore[arg-type]
        for name, value in values.items()
    }
    return dataset.partitioning.parsed(texts)
