"""Which partitions of a dataset a run of Dagster asks for by its tags.

Not here: the tags themselves (varve/planning/requested.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from varve.dagster.internal.partition_keys import keys_in_range
from varve.dagster.partitions.definitions import dataset_partitions_def
from varve.planning.requested import RANGE_END_TAG, RANGE_START_TAG, asked_partitions, has_set

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varve.dagster.internal.partition_keys import DynamicPartitionsStore
    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey


def asked_keys(dataset: Dataset, tags: Mapping[str, str], sets: DynamicPartitionsStore) -> list[PartitionKey]:
    """The partitions that a run's tags name: one, or a range of them. Raises UnknownPartition where one names none."""
    ends = asked_partitions(dataset, tags)
    if RANGE_START_TAG not in tags or not has_set(dataset):
        return ends
    # Which keys of a set lie between two of them only Dagster knows.
    definition = dataset_partitions_def(dataset)
    assert definition is not None
    try:
        texts = keys_in_range(definition, sets, tags[RANGE_START_TAG], tags[RANGE_END_TAG])
    except dg.DagsterError:
        # A key of the range was removed from its set meanwhile: the run fails and says so.
        return ends
    return [dataset.partitioning.from_dagster(text) for text in texts]
