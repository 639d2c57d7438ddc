"""The tags of a run: which partitions they request, and why one of those cannot be computed now.

Dagster's UI shows no tag that begins with `.dagster/`: what only Varve reads is called so. Runs of earlier versions are
stored with the former names, and are understood.

Not here: how Dagster interprets the tags (varve/dagster/internal).
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from varve.model.errors import counted, cut, nearest, some
from varve.model.partitions.dimension import DynamicDimension
from varve.model.partitions.key import text_of
from varve.model.partitions.windows import why_not_there
from varve.planning.mapping.ranges import partitions_between
from varve.planning.reasons import LONGEST, NOTHING_TO_READ, partitions_in_short, partitions_in_words

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.model.partitions.key import PartitionKey
    from varve.planning.run_requests import Run

RANGE_START_TAG = "dagster/asset_partition_range_start"
RANGE_END_TAG = "dagster/asset_partition_range_end"
# "yes": a batch that the same code made from the same inputs before may be reused instead of computing it.
AGAIN_TAG, FORMER_AGAIN_TAG = ".dagster/varve_again", "varve/again"
PARTITION_TAG = "dagster/partition"
# Dagster's tags of a run that executes another one again; and of one that its daemon has launched, or that goes on from
# a failure. All of them have the tags of the first run too.
PARENT_TAG = "dagster/parent_run_id"
RETRY_TAG, RESUME_TAG = "dagster/retry_number", "dagster/is_resume_retry"
# The environment in which a run computes; and "yes": it may run foreign programs and functions there.
ENVIRONMENT_TAG = "varve/environment"
EFFECTS_TAG = "varve/effects"
# The folder or URI from which a run in an environment takes landing files; without it, it takes none.
LANDING_TAG = "varve/landing"
# For people, in words (reasons.py). A line of the page of runs has room for some fifty characters and the link to all
# tags, and each further line makes the row higher: so one tag says which partitions and why, in short. Of one
# partition, which Dagster shows, it says why. A tag that begins as Dagster's own is shown behind that link only: there
# the second of these says it in full. Of runs that nobody gave a reason, the third says which partitions.
REASON_TAG = "why"
FULL_REASON_TAG = "dagster/varve_why"
PARTITIONS_TAG = "partitions"


def asked_partitions(dataset: Dataset, tags: Mapping[str, str]) -> list[PartitionKey]:
    """The partitions that the tags of a run name: one, or a range; of one in a dynamic set its first and its last only.

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
        return list(dict.fromkeys(corners))
    return partitions_between(dataset.partitioning, *corners)


def has_set(dataset: Dataset) -> bool:
    """Whether a dimension of the dataset is a dynamic set."""
    return any(isinstance(dimension, DynamicDimension) for dimension in dataset.partitioning.dimensions)


def reuse_allowed(tags: Mapping[str, str]) -> bool:
    """Whether the tags of a run let it reuse a batch instead of computing it.

    Who executes all of a sensor's run again asks by hand, and its tags come with it.
    """
    if PARENT_TAG in tags and not tags.keys() & {RETRY_TAG, RESUME_TAG}:
        return False
    return "yes" in {tags.get(AGAIN_TAG), tags.get(FORMER_AGAIN_TAG)}


def reason_tags(run: Run) -> dict[str, str]:
    """The tags that tell people which partitions a run computes, and why: in short, and in full."""
    which = f"{partitions_in_short(run.dataset, run.partitions)}: " if len(run.partitions) > 1 else ""
    return {REASON_TAG: cut(f"{which}{run.short_reason or run.reason}", LONGEST), FULL_REASON_TAG: run.in_words}


def shown_partitions(dataset: Dataset, keys: Sequence[PartitionKey], tags: Mapping[str, str]) -> dict[str, str]:
    """The tag that shows people the partitions of a run, where none of its tags does; else nothing.

    `keys` are in order, and not empty.
    """
    if tags.keys() & {PARTITION_TAG, PARTITIONS_TAG} or tags.keys() >= {REASON_TAG, RANGE_START_TAG}:
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
    for dimension in dataset.partitioning.dimensions:
        value = dimension.value_in(key)
        if isinstance(dimension, DynamicDimension) and not dimension.exists(value, members):
            return _not_in_set(dimension, text_of(value), members)
    if not dataset.partitioning.exists(key, members):
        return "its dataset has no such partition"
    time = dataset.partitioning.time
    if time is None:
        return ""
    return why_not_there(time, time.start_of(time.value_in(key)), now, dataset.policy.retention)


def nothing_there(dataset: Dataset) -> str:
    """Why a partition that can be computed has no judgement, as a phrase: there is nothing to make it from."""
    if dataset.arrives:
        return "nothing has arrived for it that the sensor arrivals has seen"
    return NOTHING_TO_READ


def _not_in_set(dimension: DynamicDimension, text: str, members: Members | None) -> str:
    keys = list(dimension.keys(members or {}))
    held = f"which has {some([repr(text_of(key)) for key in keys])}" if keys else "which is empty"
    near = nearest(text, map(text_of, keys)).strip()
    hint = f" ({near})" if near else ""
    return (
        f"{text!r} is no key of the set {dimension.set_name}, {held}{hint}; "
        f"`varve keys add {dimension.set_name} {shlex.quote(text)}` adds it"
    )
