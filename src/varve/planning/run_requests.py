"""Due partitions in as few runs as ranges and limits allow, because every run costs seconds of its own.

Not here: which partitions are due (judgement/judging.py), and asking Dagster for the runs
(varve/dagster/automation/sensors.py).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from varve.model.errors import cut
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.partitioning import is_dynamic
from varve.planning.mapping.ranges import rank_in
from varve.planning.reasons import LONGEST, UNCHANGED, ChangedInputs, partitions_in_words, without_dataset

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from varve.model.batch import Input
    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey
    from varve.model.partitions.partitioning import Fold, Partitioning


@dataclass(frozen=True, slots=True)
class Due:
    """A partition to compute, with its inputs and the reason; for the other fields see `judgement.Judgement`."""

    partition: PartitionKey
    inputs: frozenset[Input]
    reason: str
    token: str = ""
    together: int = 0
    backfill: bool = False
    changed: ChangedInputs = UNCHANGED


@dataclass(frozen=True, slots=True)
class Run:
    """Partitions to compute in one run: a block that Dagster can express as a range, from `first` to `last`."""

    dataset: Dataset
    partitions: tuple[PartitionKey, ...]
    inputs: frozenset[Input]
    reason: str
    tokens: tuple[str, ...] = ()
    backfill: bool = False
    short_reason: str = ""

    @property
    def first(self) -> PartitionKey:
        """The corner of the block with the lowest key in every dimension."""
        return self.partitions[0]

    @property
    def last(self) -> PartitionKey:
        """The corner of the block with the highest key in every dimension."""
        return self.partitions[-1]

    @property
    def in_words(self) -> str:
        """Which partitions it computes and why, in one bounded line: `2013-01-05: departures re-sent`."""
        return cut(f"{partitions_in_words(self.dataset, self.partitions)}: {self.reason}", LONGEST)

    @property
    def identity(self) -> str:
        """A text that differs for every new reason to run: from the partitions, their inputs, failures and marks."""
        digest = hashlib.blake2b(digest_size=12)
        tokens = self.tokens or [""] * len(self.partitions)
        for partition, token in zip(self.partitions, tokens, strict=True):
            digest.update(f"{partition.path}#{token}\n".encode())
        for input_version in sorted(self.inputs):
            digest.update(f"{input_version.source}\t{input_version.partition}\t{input_version.version}\n".encode())
        return f"{self.dataset.name}:{self.first}:{digest.hexdigest()}"


def landing_source(dataset: Dataset) -> str:
    """The name, in traces, of the source of arriving partitions: the landing folder, or the external table."""
    return f"{'landing' if dataset.external is None else dataset.external.kind}:{dataset.name}"


def runs(dataset: Dataset, dues: Sequence[Due], *, limit: int) -> list[Run]:
    """The due partitions in as few runs as ranges and the limit allow, fresh data before backfills.

    Partitions that failed together are requested in halves, apart from all others, until the bad ones are alone.
    """
    planned = []
    for (backfill, most_together), group in groupby(sorted(dues, key=_kind), key=_kind):
        by_key = {due.partition: due for due in group}
        most = min(limit, most_together) if most_together else limit
        blocks = _blocks(dataset.partitioning, by_key, most, cut=most_together > 0)
        planned += [_run(dataset, block, [by_key[key] for key in block], backfill=backfill) for block in blocks]
    return planned


def parts_of(run: Run, keys: Sequence[PartitionKey]) -> Iterator[Run]:
    """The part of a run with these partitions, as runs that Dagster can express; all of it is the run itself."""
    if len(keys) == len(run.partitions):
        yield run
        return
    tokens = dict(zip(run.partitions, run.tokens, strict=True)) if run.tokens else {}
    for block in _blocks(run.dataset.partitioning, keys, len(run.partitions), cut=False):
        of_block = tuple(tokens[key] for key in block) if tokens else ()
        yield replace(run, partitions=block, tokens=of_block)


def _kind(due: Due) -> tuple[bool, int]:
    return due.backfill, due.together


def _run(dataset: Dataset, block: tuple[PartitionKey, ...], members: Sequence[Due], *, backfill: bool) -> Run:
    reason, short_reason = _reasons(dataset, members)
    return Run(
        dataset,
        block,
        frozenset().union(*(member.inputs for member in members)),
        reason,
        tuple(member.token for member in members),
        backfill,
        short_reason,
    )


def _reasons(dataset: Dataset, members: Sequence[Due]) -> tuple[str, str]:
    """The reasons of all members, each said once; and the same in short, without the names of datasets.

    The inputs that changed are counted over all members.
    """
    reasons = sorted({member.reason for member in members if not member.changed})
    short = [without_dataset(reason, dataset) for reason in reasons]
    if changed := ChangedInputs.together(member.changed for member in members):
        present = frozenset().union(*(member.inputs for member in members if member.changed))
        reasons.append(changed.in_words(dataset, len(present)))
        short.append(changed.in_short(len(present)))
    return "; ".join(reasons), "; ".join(short)


def _blocks(
    partitioning: Partitioning, keys: Iterable[PartitionKey], limit: int, *, cut: bool
) -> Iterator[tuple[PartitionKey, ...]]:
    """Blocks that Dagster can express as a range: neighbours in one dimension with the same neighbours in the other.

    The time dimension comes first where there is one. Keys of a dynamic set are ordered by when they were added, which
    only Dagster knows: here all that are due are neighbours, and a block is cut when it is requested. Of two such sets
    none has a neighbour. With `cut`, the keys of one window may be in several blocks, and no block exceeds the limit.
    """
    listed_keys = list(keys)
    if not partitioning.dimensions:
        yield from ((key,) for key in listed_keys)
        return
    first = partitioning.time or partitioning.dimensions[0]
    folds = sorted(partitioning.folds.values(), key=lambda fold: first not in fold)
    one_set = sum(map(is_dynamic, folds)) == 1
    lead, *others = [_places(fold, listed_keys, one_set=one_set) for fold in folds]
    rows: dict[int, list[tuple[int, PartitionKey]]] = {}
    for key in listed_keys:
        rows.setdefault(lead[key], []).append((others[0][key] if others else 0, key))
    slices = [piece for place, row in sorted(rows.items()) for piece in _slices(place, row, limit if cut else None)]
    for _, group in groupby(sorted(slices, key=lambda piece: piece[1]), key=lambda piece: piece[1]):
        pending: list[tuple[int, tuple[PartitionKey, ...]]] = []
        for place, _, members in group:
            exceeds = sum(len(keys_of_slice) for _, keys_of_slice in pending) + len(members) > limit
            if pending and (exceeds or place != pending[-1][0] + 1):
                yield tuple(key for _, keys_of_slice in pending for key in keys_of_slice)
                pending = []
            pending.append((place, members))
        if pending:
            yield tuple(key for _, keys_of_slice in pending for key in keys_of_slice)


def _slices(
    place: int, row: list[tuple[int, PartitionKey]], limit: int | None
) -> Iterator[tuple[int, tuple[int, int], tuple[PartitionKey, ...]]]:
    """The keys at one place of the first dimension, cut where the keys of the second are not neighbours."""
    ordered = sorted(row, key=lambda pair: pair[0])
    for _, run in groupby(enumerate(ordered), key=lambda pair: pair[1][0] - pair[0]):
        pairs = [pair for _, pair in run]
        for start in range(0, len(pairs), limit or len(pairs)):
            members = pairs[start : start + (limit or len(pairs))]
            yield place, (members[0][0], members[-1][0]), tuple(key for _, key in members)


def _places(fold: Fold, keys: Sequence[PartitionKey], *, one_set: bool) -> dict[PartitionKey, int]:
    """The position of each key in one of Dagster's dimensions; neighbours differ by one, other keys by more."""
    values = {key: tuple([dimension.value_in(key) for dimension in fold]) for key in keys}
    (first, *_) = fold
    if isinstance(first, TimeDimension):
        starts = {value: first.start_of(value[0]) for value in set(values.values())}
        place, before, windows = 0, None, {}
        for value, start in sorted(starts.items(), key=lambda pair: pair[1]):
            place += 1 if before is not None and first.calendar.next_start(before) == start else 2
            windows[value], before = place, start
        return {key: windows[value] for key, value in values.items()}
    if is_dynamic(fold):
        ranks = {value: rank if one_set else 2 * rank for rank, value in enumerate(sorted(set(values.values())))}
        return {key: ranks[value] for key, value in values.items()}
    return {key: rank_in(fold, value) for key, value in values.items()}
