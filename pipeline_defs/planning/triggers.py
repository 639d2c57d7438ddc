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
from pipeline_defs.model.dimension import StaticDimension
from pipeline_defs.planning.mapping import related

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pipeline_defs.model.dataset import Dataset
    from pipeline_defs.model.dimension import Dimension, Partitioning
    from pipeline_defs.model.partition import PartitionKey, Value


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
    dataset: Dataset, upstreams: Sequence[Dataset], versions: Mapping[str, Mapping[str, str]]
) -> dict[PartitionKey, frozenset[Input]]:
    """What each partition whose every input exists would be made from.

    `versions` has, for each upstream dataset, the version (batch id) of each of its current partitions.
    """
    ready: dict[PartitionKey, frozenset[Input]] = {}
    for key in _touched(dataset, upstreams, versions):
        needed = [
            (upstream, partition.path)
            for upstream in upstreams
            for partition in related(key, dataset.partitioning, upstream.partitioning).existing
        ]
        if all(path in versions[upstream.name] for upstream, path in needed):
            ready[key] = frozenset(
                Input(upstream.name, path, versions[upstream.name][path]) for upstream, path in needed
            )
    return ready


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
    dataset: Dataset, upstreams: Sequence[Dataset], versions: Mapping[str, Mapping[str, str]]
) -> set[PartitionKey]:
    # Where a partition needs something of every upstream, the one with the fewest partitions is enough.
    sources = upstreams
    if all(_covers(upstream.partitioning, dataset.partitioning) for upstream in upstreams):
        sources = [min(upstreams, key=lambda upstream: len(versions[upstream.name]))]
    return {
        key
        for source in sources
        for path in versions[source.name]
        for key in related(source.partitioning.from_path(path), source.partitioning, dataset.partitioning).existing
    }


def _covers(upstream: Partitioning, reader: Partitioning) -> bool:
    """Whether every partition of the reader has something to read there; a short history or list of keys may not."""
    theirs, ours = upstream.time, reader.time
    if theirs is not None and ours is not None:
        ends = theirs.end is None or (ours.end is not None and ours.end <= theirs.end)
        if theirs.start > ours.start or not ends:
            return False
    members = {
        dimension.name: dimension.members for dimension in upstream.dimensions if isinstance(dimension, StaticDimension)
    }
    return all(
        set(dimension.members) <= set(members.get(dimension.name, dimension.members))
        for dimension in reader.dimensions
        if isinstance(dimension, StaticDimension)
    )


def _blocks(partitioning: Partitioning, keys: Iterable[PartitionKey], limit: int) -> Iterator[tuple[PartitionKey, ...]]:
    """Blocks of neighbouring windows that all have the same neighbouring other keys.

    The first of two static dimensions takes the place of the windows.
    """
    lead = partitioning.time or (partitioning.dimensions[0] if len(partitioning.dimensions) > 1 else None)
    rows: dict[Value | None, list[PartitionKey]] = {}
    for key in keys:
        rows.setdefault(key[lead.name] if lead else None, []).append(key)
    ordered = sorted(rows.items(), key=lambda row: _place(lead, row[0]))
    slices = [piece for row in ordered for piece in _slices(partitioning, lead, *row)]
    for _, group in groupby(sorted(slices, key=lambda piece: piece[1]), key=lambda piece: piece[1]):
        pending: list[tuple[Value | None, tuple[PartitionKey, ...]]] = []
        for window, _, members in group:
            full = sum(len(held) for _, held in pending) + len(members) > limit
            if pending and (full or not _follows(lead, pending[-1][0], window)):
                yield tuple(key for _, held in pending for key in held)
                pending = []
            pending.append((window, members))
        if pending:
            yield tuple(key for _, held in pending for key in held)


def _slices(
    partitioning: Partitioning, lead: Dimension | None, window: Value | None, row: list[PartitionKey]
) -> Iterator[tuple[Value | None, tuple[int, ...], tuple[PartitionKey, ...]]]:
    """One window's partitions, cut where the other dimension's keys are not neighbours; at most one such dimension."""
    others = [dimension for dimension in partitioning.dimensions if dimension is not lead]
    if not others:
        yield window, (), tuple(row)
        return
    (other,) = others
    assert isinstance(other, StaticDimension)
    place = {member: position for position, member in enumerate(other.members)}
    ordered = sorted((place[str(key[other.name])], key) for key in row)
    for _, run in groupby(enumerate(ordered), key=lambda pair: pair[1][0] - pair[0]):
        members = [pair for _, pair in run]
        yield window, (members[0][0], members[-1][0]), tuple(key for _, key in members)


def _place(lead: Dimension | None, value: Value | None) -> str | int:
    # Keys of windows sort as text.
    return lead.members.index(str(value)) if isinstance(lead, StaticDimension) else str(value)


def _follows(lead: Dimension | None, before: Value | None, after: Value | None) -> bool:
    if lead is None or before is None or after is None:
        return False
    if isinstance(lead, StaticDimension):
        return lead.members.index(str(before)) + 1 == lead.members.index(str(after))
    return lead.window(before).end == lead.window(after).start
