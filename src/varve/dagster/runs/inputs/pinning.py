"""The inputs of a build: the current batches of what it reads, chosen once, and what of it is not there.

Not here: reading their rows (varve/stores), and when a build waits (varve/planning/judgement/wait_policy.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pendulum

from varve.model.batch import Input
from varve.model.errors import NOTHING_LOST, MissingUpstream, some
from varve.model.partitions.texts import command_words
from varve.model.partitions.windows import WindowState, window_state
from varve.planning.judgement.timing import Timing
from varve.planning.judgement.wait_policy import verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from varve.model.batch import Batch
    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.model.partitions.key import PartitionKey
    from varve.planning.graph import Edge
    from varve.stores.open_build import OpenBuild

_NOT_COMPLETE = {WindowState.OPEN, WindowState.UPCOMING}


def pin(
    opened: OpenBuild, edge: Edge, members: Members | None = None, ahead: Mapping[str, Batch] | None = None
) -> list[Batch]:
    """Return the current batches of a dataset that the build reads; the build's trace records them.

    The trace also records the partitions that have no batch and for which the build need not wait. Batches in `ahead`,
    which will be published together with the build, replace current ones.

    Raises MissingUpstream with the partitions that have no batch and for which the build has to wait. Partitions beyond
    the upstream's dimensions are not missing: a first week may have fewer days.
    """
    build, upstream = opened.build, edge.upstream
    # All of them at once: one after the other, a year of days and its hours takes ten times as long.
    mapped = edge.dependency.upstream_of_each(build.partitions, members=members)
    keys_by_partition = {partition: each.keys for partition, each in zip(build.partitions, mapped, strict=True)}
    wanted = sorted({key for keys in keys_by_partition.values() for key in keys})
    current = {**opened.catalog.current(upstream.name, wanted), **(ahead or {})}
    is_past = _past_retention(upstream)
    if upstream.policy.retention is not None and edge.reads_all_windows:
        # What its retention has taken away is no partition any more, and nothing of a whole that lacks it is missing.
        keys_by_partition = {
            partition: [key for key in keys if key.path in current or not is_past(key)]
            for partition, keys in keys_by_partition.items()
        }
    if missing := sorted({key for keys in _missing_keys(build, edge, keys_by_partition, current) for key in keys}):
        raise MissingUpstream(
            f"{build.dataset} {some(build.partitions, limit=2)} reads {len(wanted)} partitions of {upstream}, of which "
            f"{len(missing)} have no batch yet: {some(missing)}. {NOTHING_LOST} "
            f"{_remedy(upstream, missing, is_past, others_are_there=len(missing) < len(wanted))}"
        )
    for partition, keys in keys_by_partition.items():
        for key in keys:
            if key.path in current:
                build.reads(partition, Input(upstream.name, key.path, str(current[key.path].batch_id)))
            else:
                build.goes_without(partition, f"{upstream.name} {key.path}")
    return [current[key.path] for key in wanted if key.path in current]


def _past_retention(upstream: Dataset) -> Callable[[PartitionKey], bool]:
    """Whether the retention of a partition is over at this moment."""
    if upstream.policy.retention is None:
        return lambda _: False
    timing = Timing.of(upstream, (), pendulum.now("UTC").timestamp())
    return lambda key: timing.is_over(timing.window_end(key))


def _remedy(
    upstream: Dataset,
    missing: Sequence[PartitionKey],
    is_past: Callable[[PartitionKey], bool],
    *,
    others_are_there: bool,
) -> str:
    """What to do about partitions that are not there; none comes any more whose retention is over."""
    past, others = [key for key in missing if is_past(key)], [key for key in missing if not is_past(key)]
    if not past:
        return how_to_make(upstream, missing)
    if not (others or others_are_there):
        return (
            f"{some(past)} will not come, as the retention of {upstream} is over, and nothing else is read of it: this "
            "is not computed any more. What was made of it stays; a longer RETENTION, and then `varve rollback` of "
            f"{upstream}, brings back what no sweep has taken."
        )
    return (
        f"{some(past)} will not come, as the retention of {upstream} is over: only a declaration that waits for fewer "
        f"of them, such as WAIT AT LEAST 1, goes without. {how_to_make(upstream, others) if others else ''}"
    ).rstrip()


def how_to_make(upstream: Dataset, missing: Sequence[PartitionKey]) -> str:
    """Return what makes partitions that are not there: a sentence that ends in a command of Dagster's."""
    texts = [upstream.partitioning.to_dagster(key) for key in missing]
    return (
        f"{_awaited(upstream, missing[0])}dagster asset materialize --select "
        f"{(upstream.rejected_of or upstream.name).replace('.', '/')} {_partitions_option(upstream, texts)}"
    )


def _awaited(upstream: Dataset, key: PartitionKey) -> str:
    """What makes missing partitions, as the beginning of a sentence that a command of Dagster's ends."""
    if not upstream.landing:
        return "Materialise them first: "
    why = f"varve why {upstream} {command_words(key.path)}".rstrip()
    return f"Each is of a file: `{why}` says what is awaited. A sensor takes it when it has come; by hand: "


def _partitions_option(upstream: Dataset, texts: Sequence[str]) -> str:
    """The option of `dagster asset materialize` for these keys; "" for a dataset without partitions."""
    if not upstream.partitioning.dimensions:
        return ""
    return f"--partition '{texts[0]}'" if len(texts) == 1 else f"--partition-range '{texts[0]}...{texts[-1]}'"


def _missing_keys(
    build: Build,
    edge: Edge,
    keys_by_partition: Mapping[PartitionKey, Sequence[PartitionKey]],
    current: Mapping[str, Batch],
) -> Iterator[list[PartitionKey]]:
    """Yield, for each partition that has to wait, the upstream partitions without a batch."""
    time = build.dataset.partitioning.time
    for partition, upstream_keys in keys_by_partition.items():
        expected_keys = _expected_upstream_keys(build, partition, upstream_keys, edge, current)
        missing = [key for key in expected_keys if key.path not in current]
        window_end = time.window(time.value_in(partition)).end if time is not None else None
        present_count = len(expected_keys) - len(missing)
        if not verdict(
            edge.wait, wanted=len(expected_keys), present=present_count, window_end=window_end, now=pendulum.now("UTC")
        ).ready:
            yield missing


def _expected_upstream_keys(
    build: Build, partition: PartitionKey, keys: Sequence[PartitionKey], edge: Edge, current: Mapping[str, Batch]
) -> Sequence[PartitionKey]:
    """Return the upstream keys that a partition waits for.

    A partition whose window is not over yet, or that has none, does not wait for upstream windows that are not over;
    nor does one that reads all windows there are.
    """
    time, upstream_time = build.dataset.partitioning.time, edge.upstream.partitioning.time
    now = pendulum.now("UTC").timestamp()
    if upstream_time is None or (
        time is not None
        and not edge.reads_all_windows
        and window_state(time, time.start_of(time.value_in(partition)), now) not in _NOT_COMPLETE
    ):
        return keys
    return [
        key
        for key in keys
        if key.path in current
        or window_state(upstream_time, upstream_time.start_of(upstream_time.value_in(key)), now) not in _NOT_COMPLETE
    ]
