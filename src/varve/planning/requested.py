"""The tags of a run: which partitions they request, and why one of those cannot be computed now.

Dagster's UI shows no tag that begins with `.dagster/`: what only Varve reads is called so. Runs of earlier versions are
stored with the former names, and are understood.

Not here: how Dagster interprets the tags (varve/dagster/internal.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.model.errors import counted, some
from varve.model.partitions.dimension import DynamicDimension
from varve.model.partitions.windows import why_not_there
from varve.planning.mapping.partition_subset import PartitionBox
from varve.planning.reasons import partitions_in_words

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.model.partitions.key import PartitionKey

RANGE_START_TAG = "dagster/asset_partition_range_start"
RANGE_END_TAG = "dagster/asset_partition_range_end"
# "yes": a batch that the same code made from the same inputs before may be reused instead of computing it.
AGAIN_TAG, FORMER_AGAIN_TAG = ".dagster/varve_again", "varve/again"
PARTITION_TAG = "dagster/partition"
# The environment in which a run computes; and "yes": it may run foreign programs and functions there.
ENVIRONMENT_TAG = "varve/environment"
EFFECTS_TAG = "varve/effects"
# The folder or URI from which a run in an environment takes landing files; without it, it takes none.
LANDING_TAG = "varve/landing"
# For people, in words (reasons.py). The page of runs shows some thirty characters of a tag, so the names are short, and
# the reason leaves out the partitions, which stand beside it: in `dagster/partition`, or in the second of these.
REASON_TAG = "why"
PARTITIONS_TAG = "partitions"


def asked_partitions(dataset: Dataset, tags: Mapping[str, str]) -> list[PartitionKey]:
    """The partitions that the tags of a run name: one, or a range; of a range in a dynamic set only both ends.

    A dataset without partitions is computed whatever they name: they are of the other datasets of the run.
    Raises UnknownPartition where a tag names no partition.
    """
    if not dataset.partitioning.dimensions:
        return [dataset.partitioning.key(())]
    first = tags.get(RANGE_START_TAG) or tags.get(PARTITION_TAG)
    last = tags.get(RANGE_END_TAG) or first
    if first is None or last is None:
        return []
    corners = [dataset.partitioning.from_dagster(text) for text in (first, last)]
    if has_set(dataset):
        return sorted(set(corners))
    return list(PartitionBox.between(dataset.partitioning, *corners).partitions())


def has_set(dataset: Dataset) -> bool:
    """Whether a dimension of the dataset is a dynamic set."""
    return any(isinstance(dimension, DynamicDimension) for dimension in dataset.partitioning.dimensions)


def reuse_allowed(tags: Mapping[str, str]) -> bool:
    """Whether the tags of a run let it reuse a batch instead of computing it."""
    return "yes" in {tags.get(AGAIN_TAG), tags.get(FORMER_AGAIN_TAG)}


def shown_partitions(dataset: Dataset, keys: Sequence[PartitionKey], tags: Mapping[str, str]) -> dict[str, str]:
    """The tag that shows people the partitions of a run, where none of its tags does; else nothing.

    `keys` are in order, and not empty.
    """
    if PARTITION_TAG in tags or PARTITIONS_TAG in tags:
        return {}
    return {PARTITIONS_TAG: partitions_in_words(dataset, keys)}


def refused(
    dataset: Dataset,
    requested: Collection[PartitionKey],
    given: Collection[PartitionKey],
    *,
    now: float,
    members: Members | None,
) -> str:
    """Which requested partitions a run would leave out or cannot compute, as a message; "" where there are none.

    `given` are the partitions that Dagster gives the run: it silently drops those of a range that it does not have.
    """
    given_keys = set(given)
    reasons = []
    for key in sorted({*requested, *given_keys}):
        why = why_not(dataset, key, now=now, members=members)
        if why or key not in given_keys:
            reasons.append(f"{key}: {why or 'Dagster has no such partition'}")
    if not reasons:
        return ""
    listed = some(reasons, limit=3)
    return f"the run was asked for {counted(len(reasons), 'partition')} that it cannot compute: {listed}."


def why_not(dataset: Dataset, key: PartitionKey, *, now: float, members: Members | None) -> str:
    """Why a partition cannot be computed at `now` (seconds since 1970), as a phrase; "" where it can."""
    if not dataset.partitioning.exists(key, members):
        return "its dataset has no such partition"
    time = dataset.partitioning.time
    if time is None:
        return ""
    return why_not_there(time, time.start_of(time.value_in(key)), now, dataset.policy.retention)
