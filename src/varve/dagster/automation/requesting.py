"""Runs as requests that Dagster will accept: each is checked here as Dagster checks it, before it is returned.

One request that Dagster refuses fails the whole tick with all others of it, and every tick after it.

Not here: which runs are due (planning/), and Dagster's private names (internal.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import dagster as dg
import pendulum

from varve.catalog.rejected import LeftOut
from varve.dagster.automation.reconciling import IDENTITY_TAG, Ended
from varve.dagster.internal import keys_in_range, unknown_keys, validated
from varve.dagster.partitions.definitions import dataset_partitions_def
from varve.model.errors import some
from varve.model.partitions.windows import why_not_there
from varve.planning.requested import AGAIN_TAG, RANGE_END_TAG, RANGE_START_TAG
from varve.planning.run_requests import parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey
    from varve.planning.run_requests import Run

REASON_TAG = "varve/reason"
DATASET_TAG = "varve/dataset"
# To find runs by the store they write to; limits of runs at once are by the asset's pool.
STORE_TAG = "varve/store"
PRIORITY_TAG = "dagster/priority"
_BACKFILL_PRIORITY = "-1"


def asset_key(dataset: Dataset) -> dg.AssetKey:
    """The asset that a dataset is."""
    return dg.AssetKey([dataset.db, dataset.table])


def acceptable(run: Run, instance: dg.DagsterInstance) -> tuple[list[Run], list[LeftOut]]:
    """The run as one or more that Dagster accepts now, and what of it cannot be asked for."""
    try:
        return _acceptable(run, instance)
    except Exception as error:  # noqa: BLE001 - whatever Dagster says of one run, the others are asked for
        said = f"Dagster cannot tell its partitions: {type(error).__name__}: {error}"
        return [], [_left_out(run.dataset, run.partitions, said)]


def _acceptable(run: Run, instance: dg.DagsterInstance) -> tuple[list[Run], list[LeftOut]]:
    dataset, definition = run.dataset, dataset_partitions_def(run.dataset)
    spelt = dataset.partitioning.to_dagster
    texts = {key: spelt(key) for key in run.partitions}
    unknown = unknown_keys(definition, instance, set(texts.values()))
    missing = [key for key, text in texts.items() if text in unknown]
    left_out = [_left_out(dataset, missing, _why(dataset, missing[0]))] if missing else []
    good = []
    for part in parts_of(run, [key for key in run.partitions if texts[key] not in unknown]):
        if len(part.partitions) > 1 and keys_in_range(definition, instance, spelt(part.first), spelt(part.last)) != {
            texts[key] for key in part.partitions
        }:
            # Dagster's range holds others, or not all: each by itself is what it says.
            good += [replace(part, partitions=(key,), tokens=part.tokens[:1]) for key in part.partitions]
        else:
            good.append(part)
    for part in good:
        for end in {spelt(part.first), spelt(part.last)}:
            validated(definition, instance, end)
    return good, left_out


def run_request(run: Run, ended: Ended | None = None) -> dg.RunRequest:
    """The run as Dagster takes it: one partition, or a range of them; another one than those that have ended."""
    spelt = run.dataset.partitioning.to_dagster
    tags = {
        REASON_TAG: run.reason,
        DATASET_TAG: run.dataset.name,
        STORE_TAG: str(run.dataset.store),
        IDENTITY_TAG: run.identity,
    }
    tags |= {PRIORITY_TAG: _BACKFILL_PRIORITY} if run.backfill else {AGAIN_TAG: "yes"}
    single = len(run.partitions) == 1
    if not single:
        tags |= {RANGE_START_TAG: spelt(run.first), RANGE_END_TAG: spelt(run.last)}
    return dg.RunRequest(
        run_key=f"{run.identity}:{ended.count}" if ended else run.identity,
        asset_selection=[asset_key(run.dataset)],
        partition_key=spelt(run.first) if single else None,
        tags=tags,
    )


def accepted(runs: Sequence[Run], instance: dg.DagsterInstance, left_out: list[LeftOut]) -> Iterator[Run]:
    """The runs that can be asked for now; what cannot is added to `left_out`."""
    for run in runs:
        good, not_asked = acceptable(run, instance)
        left_out += not_asked
        yield from good


def _left_out(dataset: Dataset, keys: Sequence[PartitionKey], reason: str) -> LeftOut:
    return LeftOut(dataset.name, "request", reason, some(keys, limit=3), tuple(key.path for key in keys))


def _why(dataset: Dataset, key: PartitionKey) -> str:
    time = dataset.partitioning.time
    why = ""
    if time is not None:
        now = pendulum.now("UTC").timestamp()
        why = why_not_there(time, time.start_of(key[time.name]), now, dataset.policy.retention)
    return f"Dagster would refuse {key}: {why or 'its definition of the partitions has no such key now'}"
