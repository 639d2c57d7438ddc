"""Runs as requests that Dagster will accept: each one is checked here as Dagster checks it, before it is returned.

One request that Dagster refuses would fail the whole tick with all its other requests, and every tick after it.

Not here: which runs are due (varve/planning), and Dagster's private names (varve/dagster/internal).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import dagster as dg
import pendulum

from varve.catalog.rejected import LeftOut
from varve.dagster.automation.reconciling import IDENTITY_TAG, Ended
from varve.dagster.internal.partition_keys import keys_in_range, reading_once, unknown_keys, validated
from varve.dagster.internal.runs import config_needed_by
from varve.dagster.partitions.definitions import dataset_partitions_def
from varve.model.errors import some
from varve.model.partitions.partitioning import is_dynamic, set_of
from varve.model.partitions.windows import why_not_there
from varve.planning.requested import AGAIN_TAG, RANGE_END_TAG, RANGE_START_TAG, reason_tags
from varve.planning.run_requests import parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varve.dagster.internal.partition_keys import DynamicPartitionsStore
    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey
    from varve.planning.run_requests import Run

# Dagster shows the asset itself; its UI hides tags that begin like this one.
DATASET_TAG = ".dagster/varve_dataset"
# The project whose sensors and schedules ask for the run: Dagster's queue can be divided by it.
PROJECT_TAG = ".dagster/varve_project"
PRIORITY_TAG = "dagster/priority"
_BACKFILL_PRIORITY = "-1"


def asset_key(dataset: Dataset) -> dg.AssetKey:
    """Return the asset key of a dataset."""
    return dg.AssetKey([dataset.db, dataset.table])


def acceptable(run: Run, sets: DynamicPartitionsStore) -> tuple[list[Run], list[LeftOut]]:
    """Return the run, split into several where Dagster needs it, and the partitions that cannot be requested now."""
    try:
        return _acceptable(run, sets)
    except Exception as error:  # noqa: BLE001 - whatever Dagster says of one run, the others are asked for
        error_message = f"Dagster cannot tell its partitions: {type(error).__name__}: {error}"
        return [], [_left_out(run.dataset, run.partitions, error_message)]


def _acceptable(run: Run, sets: DynamicPartitionsStore) -> tuple[list[Run], list[LeftOut]]:
    dataset, definition = run.dataset, dataset_partitions_def(run.dataset)
    text_of = dataset.partitioning.to_dagster
    text_by_key = {key: text_of(key) for key in run.partitions}
    unknown = unknown_keys(definition, sets, set(text_by_key.values()))
    missing = [key for key, text in text_by_key.items() if text in unknown]
    left_out = [_left_out(dataset, missing, _refusal_reason(dataset, missing[0]))] if missing else []
    accepted_runs = []
    if definition is None:
        return [run], []
    wholes = parts_of(run, [key for key in run.partitions if text_by_key[key] not in unknown])
    for part in [piece for whole in wholes for piece in _cut_at_others(whole, sets)]:
        if len(part.partitions) > 1 and keys_in_range(definition, sets, text_of(part.first), text_of(part.last)) != {
            text_by_key[key] for key in part.partitions
        }:
            # Dagster's range has other keys than the run, or lacks some: request each partition by itself.
            tokens = dict(zip(part.partitions, part.tokens, strict=True)) if part.tokens else {}
            accepted_runs += [
                replace(part, partitions=(key,), tokens=(tokens[key],) if tokens else ()) for key in part.partitions
            ]
        else:
            accepted_runs.append(part)
    for part in accepted_runs:
        for key_text in {text_of(part.first), text_of(part.last)}:
            validated(definition, sets, key_text)
    return accepted_runs, left_out


def _cut_at_others(run: Run, sets: DynamicPartitionsStore) -> list[Run]:
    """Cut a run where Dagster has other keys of a dynamic set between two of its own, by when they were added."""
    partitioning = run.dataset.partitioning
    dynamic = [fold for fold in partitioning.folds.values() if is_dynamic(fold)]
    if len(run.partitions) == 1 or len(dynamic) != 1:
        return [run]
    (fold,) = dynamic
    others = [other for other in partitioning.folds.values() if other is not fold]
    added = {text: place for place, text in enumerate(sets.get_dynamic_partitions(set_of(fold) or ""))}
    place_of = {key: added[partitioning.text_of_fold(fold, key)] for key in run.partitions}
    # The windows, or the keys of a list, stay in their order; with each of them the keys of the set in theirs.
    rows = {key: tuple(partitioning.text_of_fold(other, key) for other in others) for key in run.partitions}
    order_of_row = {row: order for order, row in enumerate(dict.fromkeys(rows.values()))}
    pieces: list[list[int]] = []
    for place in sorted(set(place_of.values())):
        if pieces and pieces[-1][-1] + 1 == place:
            pieces[-1].append(place)
        else:
            pieces.append([place])
    tokens = dict(zip(run.partitions, run.tokens, strict=True)) if run.tokens else {}
    cut = []
    for piece in pieces:
        within = set(piece)
        keys = sorted(
            (key for key in run.partitions if place_of[key] in within),
            key=lambda key: (order_of_row[rows[key]], place_of[key]),
        )
        cut.append(replace(run, partitions=tuple(keys), tokens=tuple(tokens[key] for key in keys) if tokens else ()))
    return cut


def run_request(run: Run, ended: Ended | None = None, *, project: str = "") -> dg.RunRequest:
    """Return the request for a run of one partition or of a range, tagged with the name of the project that asks.

    Its run key differs from those of earlier runs in `ended`, so that Dagster does not take it for one of them.
    """
    text_of = run.dataset.partitioning.to_dagster
    tags = {
        **reason_tags(run),
        DATASET_TAG: run.dataset.name,
        IDENTITY_TAG: run.identity,
    }
    tags |= {PROJECT_TAG: project} if project else {}
    tags |= {PRIORITY_TAG: _BACKFILL_PRIORITY} if run.backfill else {AGAIN_TAG: "yes"}
    single = len(run.partitions) == 1
    if not single:
        tags |= {RANGE_START_TAG: text_of(run.first), RANGE_END_TAG: text_of(run.last)}
    return dg.RunRequest(
        run_key=ended.run_key(run.identity) if ended else run.identity,
        asset_selection=[asset_key(run.dataset)],
        partition_key=run.dataset.partitioning.dagster_key(run.first) if single else None,
        tags=tags,
    )


def accepted(
    runs: Sequence[Run],
    instance: dg.DagsterInstance,
    left_out: list[LeftOut],
    repository: dg.RepositoryDefinition | None = None,
) -> Iterator[Run]:
    """Yield the runs that can be requested now; partitions that cannot are added to `left_out`.

    `repository` has the assets as they were merged with what else the project defines, where that is known.
    """
    sets, needs = reading_once(instance), dict[str, list[str]]()
    for run in runs:
        name = run.dataset.name
        if name not in needs:
            needs[name] = config_needed_by(repository, asset_key(run.dataset))
        if needs[name]:
            left_out.append(_left_out(run.dataset, run.partitions, _config_reason(needs[name])))
            continue
        accepted_runs, refused = acceptable(run, sets)
        left_out += refused
        yield from accepted_runs


def _left_out(dataset: Dataset, keys: Sequence[PartitionKey], reason: str) -> LeftOut:
    return LeftOut(dataset.name, "request", reason, some(keys, limit=3), tuple(key.path for key in keys))


def _config_reason(needs: Sequence[str]) -> str:
    return (
        f"its run needs configuration ({some(needs)}), and runs that sensors and schedules ask for have none: give "
        "each field a default. By hand it runs with what is written in the launchpad"
    )


def _refusal_reason(dataset: Dataset, key: PartitionKey) -> str:
    time = dataset.partitioning.time
    why = ""
    if time is not None:
        now = pendulum.now("UTC").timestamp()
        why = why_not_there(time, time.start_of(time.value_in(key)), now, dataset.policy.retention)
    return f"Dagster would refuse {key}: {why or 'its definition of the partitions has no such key now'}"
