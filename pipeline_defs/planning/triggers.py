"""Which partitions became possible or stale, found by comparing what is current with what it would be made from.

There is no event to miss: the data is the only state (seed 001). A partition is due when all partitions it reads exist
and it has no batch, or a batch made from other versions of them.

Not here: asking Dagster for the runs (pipeline_defs/sensors.py).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from pipeline_defs.model.batch import Input
from pipeline_defs.model.dimension import StaticDimension, TimeDimension
from pipeline_defs.model.partitioning import is_dynamic
from pipeline_defs.planning.region import boxes_of
from pipeline_defs.planning.waiting import verdict

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pipeline_defs.model.dataset import Dataset
    from pipeline_defs.model.dimension import Members
    from pipeline_defs.model.partition import PartitionKey, Value
    from pipeline_defs.model.partitioning import Fold, Partitioning
    from pipeline_defs.planning.graph import Edge


@dataclass(frozen=True, slots=True)
class Due:
    """A partition to compute, with what it would be made from and why."""

    partition: PartitionKey
    inputs: frozenset[Input]
    reason: str


@dataclass(frozen=True, slots=True)
class Run:
    """Partitions to compute in one run: a block that Dagster can say as a range, from `first` to `last`."""

    dataset: Dataset
    partitions: tuple[PartitionKey, ...]
    inputs: frozenset[Input]
    reason: str

    @property
    def first(self) -> PartitionKey:
        """The corner of the block with the lowest key in every dimension."""
        return self.partitions[0]

    @property
    def last(self) -> PartitionKey:
        """The corner of the block with the highest key in every dimension."""
        return self.partitions[-1]

    def identity(self, failures: Mapping[str, int]) -> str:
        """What makes this run another one than an earlier: its partitions, what they read, and failures since."""
        digest = hashlib.blake2b(digest_size=12)
        for partition in self.partitions:
            digest.update(f"{partition.path}#{failures.get(partition.path, 0)}\n".encode())
        for found in sorted(self.inputs):
            digest.update(f"{found.source}\t{found.partition}\t{found.version}\n".encode())
        return f"{self.dataset.name}:{self.first}:{digest.hexdigest()}"


def landing_source(dataset: Dataset) -> str:
    """How a trace names the landing folder of a dataset."""
    return f"landing:{dataset.name}"


def inputs_from_landing(dataset: Dataset, arrivals: Mapping[str, str]) -> dict[PartitionKey, frozenset[Input]]:
    """What each partition with a landing file would be made from."""
    source = landing_source(dataset)
    return {
        dataset.partitioning.from_path(path): frozenset({Input(source, path, fingerprint)})
        for path, fingerprint in arrivals.items()
    }


def inputs_from_datasets(
    edges: Sequence[Edge],
    versions: Mapping[str, Mapping[str, str]],
    *,
    members: Members | None = None,
    now: dt.datetime | None = None,
) -> dict[PartitionKey, frozenset[Input]]:
    """What each partition of a dataset that need not wait any more would be made from.

    Args:
        edges: what a dataset reads, and how long it waits for that.
        versions: for each dataset that is read, the version (batch id) of each of its current partitions.
        members: the members of dynamic sets.
        now: the moment that deadlines are compared with.
    """
    ready: dict[PartitionKey, frozenset[Input]] = {}
    for key in _touched(edges, versions, members):
        found = [
            inputs
            for edge in edges
            if (inputs := _inputs(key, edge, versions[edge.upstream.name], members=members, now=now)) is not None
        ]
        if len(found) == len(edges):
            ready[key] = frozenset().union(*found)
    return ready


def _inputs(
    key: PartitionKey, edge: Edge, current: Mapping[str, str], *, members: Members | None, now: dt.datetime | None
) -> frozenset[Input] | None:
    """What is there of what a partition reads of one dataset; None where it waits for more."""
    wanted = [partition.path for partition in edge.dependency.upstream_of(key, members=members).keys]
    there = [path for path in wanted if path in current]
    time = edge.dependency.reader.time
    ends = time.window(key[time.name]).end if time is not None and edge.wait.deadline is not None else None
    if not verdict(edge.wait, wanted=len(wanted), there=len(there), window_end=ends, now=now).ready:
        return None
    return frozenset(Input(edge.upstream.name, path, current[path]) for path in there)


def due(
    possible: Mapping[PartitionKey, frozenset[Input]],
    traces: Mapping[str, frozenset[Input]],
    *,
    waiting: Iterable[str] = (),
    upstream_waiting: Iterable[tuple[str, str]] = (),
) -> list[Due]:
    """The partitions to compute, in order.

    Args:
        possible: what each partition that could be computed would be made from.
        traces: what each current batch was made from.
        waiting: partitions not to ask for now: in flight, or given up.
        upstream_waiting: (dataset, partition) that will change soon; what reads them waits for that.
    """
    not_now, changing = set(waiting), set(upstream_waiting)
    found = []
    for partition, inputs in sorted(possible.items()):
        if partition.path in not_now or any((read.source, read.partition) in changing for read in inputs):
            continue
        trace = traces.get(partition.path)
        if trace is None:
            found.append(Due(partition, inputs, "missing"))
        elif trace != inputs:
            changed = len({read.partition for read in inputs ^ trace})
            found.append(Due(partition, inputs, f"{changed} input{'s' if changed > 1 else ''} changed"))
    return found


def runs(dataset: Dataset, dues: Sequence[Due], *, limit: int) -> list[Run]:
    """The due partitions grouped into as few runs as ranges and the limit allow: a run costs seconds in any case."""
    by_key = {found.partition: found for found in dues}
    planned = []
    for block in _blocks(dataset.partitioning, by_key, limit):
        members = [by_key[key] for key in block]
        reasons = sorted({member.reason for member in members})
        planned.append(
            Run(dataset, block, frozenset().union(*(member.inputs for member in members)), ", ".join(reasons))
        )
    return planned


def _touched(
    edges: Sequence[Edge], versions: Mapping[str, Mapping[str, str]], members: Members | None
) -> list[PartitionKey]:
    """The partitions that read any current partition of any upstream."""
    found: dict[PartitionKey, None] = {}
    for edge in edges:
        keys = [edge.upstream.partitioning.from_path(path) for path in versions[edge.upstream.name]]
        for box in boxes_of(edge.upstream.partitioning, keys):
            found |= dict.fromkeys(edge.dependency.readers_of(box, members=members).keys)
    return sorted(found)


def _blocks(partitioning: Partitioning, keys: Iterable[PartitionKey], limit: int) -> Iterator[tuple[PartitionKey, ...]]:
    """Blocks that Dagster can say as a range: neighbours in its one dimension with the same neighbours in its other.

    The time dimension leads where there is one. A set that grows has no neighbours: its order is that of its growth.
    """
    listed_keys = list(keys)
    first = partitioning.time or partitioning.dimensions[0]
    folds = sorted(partitioning.folds.values(), key=lambda fold: first not in fold)
    lead, *others = [_places(fold, listed_keys) for fold in folds]
    rows: dict[int, list[tuple[int, PartitionKey]]] = {}
    for key in listed_keys:
        rows.setdefault(lead[key], []).append((others[0][key] if others else 0, key))
    slices = [piece for place, row in sorted(rows.items()) for piece in _slices(place, row)]
    for _, group in groupby(sorted(slices, key=lambda piece: piece[1]), key=lambda piece: piece[1]):
        pending: list[tuple[int, tuple[PartitionKey, ...]]] = []
        for place, _, members in group:
            full = sum(len(held) for _, held in pending) + len(members) > limit
            if pending and (full or place != pending[-1][0] + 1):
                yield tuple(key for _, held in pending for key in held)
                pending = []
            pending.append((place, members))
        if pending:
            yield tuple(key for _, held in pending for key in held)


def _slices(
    place: int, row: list[tuple[int, PartitionKey]]
) -> Iterator[tuple[int, tuple[int, int], tuple[PartitionKey, ...]]]:
    """One place of the first dimension, cut where the keys of the second are not neighbours."""
    ordered = sorted(row, key=lambda pair: pair[0])
    for _, run in groupby(enumerate(ordered), key=lambda pair: pair[1][0] - pair[0]):
        members = [pair for _, pair in run]
        yield place, (members[0][0], members[-1][0]), tuple(key for _, key in members)


def _places(fold: Fold, keys: Sequence[PartitionKey]) -> dict[PartitionKey, int]:
    """Where each key stands in one of Dagster's dimensions; neighbours there are one apart, others more."""
    values = {key: tuple([key[dimension.name] for dimension in fold]) for key in keys}
    (first, *_) = fold
    if isinstance(first, TimeDimension):
        starts = {value: first.start_of(value[0]) for value in set(values.values())}
        place, before, windows = 0, None, {}
        for value, start in sorted(starts.items(), key=lambda pair: pair[1]):
            place += 1 if before is not None and first.calendar.following(before) == start else 2
            windows[value], before = place, start
        return {key: windows[value] for key, value in values.items()}
    if is_dynamic(fold):
        ranks = {value: 2 * rank for rank, value in enumerate(sorted(set(values.values())))}
        return {key: ranks[value] for key, value in values.items()}
    return {key: _rank(fold, value) for key, value in values.items()}


def _rank(fold: Fold, values: tuple[Value, ...]) -> int:
    rank = 0
    for dimension, value in zip(fold, values, strict=True):
        assert isinstance(dimension, StaticDimension)
        rank = rank * len(dimension.members) + dimension.places[value]
    return rank
