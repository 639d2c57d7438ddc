"""Partitions that left the graph, as retirements that a sensor may request without a person; pure functions.

A mistake in a declaration must not empty a dataset: a person must ask where most partitions would go at once.

Not here: which partitions left the graph (reconcile.py), and retiring them
(varve/dagster/automation/retiring.py).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.model.errors import counted
from varve.model.partitions.dimension import DynamicDimension
from varve.planning.judgement.timing import Timing
from varve.planning.readers import Keys

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection, Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.planning.graph import Graph
    from varve.planning.reconcile import RunPlan

# So few partitions may always be retired; of more, at most half of the dataset.
_FEW = 10
_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Retirement:
    """Paths of one dataset to retire; `identity` differs from that of an earlier retirement of the same partitions."""

    dataset: str
    partitions: tuple[str, ...]
    identity: str


@dataclass(frozen=True, slots=True)
class RefusedRetirement:
    """A retirement that only a person may request: `count` of the `of` partitions that the dataset has.

    `empty_set` is the set of its that has no key at all, "" where none is empty.
    """

    dataset: str
    count: int
    of: int
    empty_set: str = ""

    def __str__(self) -> str:
        if self.empty_set:
            return (
                f"{self.dataset}: the set {self.empty_set} has no key, as when Dagster's storage was lost, and none of "
                f"{counted(self.count, 'partition')} was retired. Add its keys again: varve keys add {self.empty_set} "
                f"KEY ... If it is meant: varve retire {self.dataset}."
            )
        return (
            f"{self.dataset}: {self.count:,} of its {self.of:,} partitions have left the graph at once, and none was "
            f"retired. If that is meant: varve retire {self.dataset}. If not, mend its declaration."
        )


def retirements(
    plan: RunPlan, counts: Mapping[str, int], empty_sets: Mapping[str, str] | None = None
) -> tuple[list[Retirement], list[RefusedRetirement]]:
    """The retirements to request, and the refused ones. `counts`: how many partitions with a batch each dataset has.

    `empty_sets` are sets that have no key and may have lost them, by the datasets that have a partition for each.
    """
    wanted, refused = [], []
    for name, paths in plan.retire.items():
        if name in (empty_sets or {}):
            refused.append(RefusedRetirement(name, len(paths), counts.get(name, 0), (empty_sets or {})[name]))
            continue
        if len(paths) > _FEW and 2 * len(paths) > counts.get(name, 0):
            refused.append(RefusedRetirement(name, len(paths), counts.get(name, 0)))
            continue
        for start in range(0, len(paths), _AT_ONCE):
            piece = paths[start : start + _AT_ONCE]
            batches = [plan.judgements[name][path].token for path in piece]
            wanted.append(Retirement(name, piece, _identity(name, piece, batches)))
    return wanted, refused


def lost_sets(graph: Graph, members: Members, failed: Collection[str]) -> dict[str, str]:
    """The sets without any key, by their datasets: those that people fill, and of `failed` datasets those of data too.

    Their only store is Dagster's, and a set that has lost its keys must not take what readers see with it.
    """
    return {
        dataset.name: dimension.set_name
        for dataset in graph.datasets.values()
        for dimension in dataset.partitioning.dimensions
        if isinstance(dimension, DynamicDimension)
        and not members.get(dimension.set_name)
        and (dimension.source is None or dataset.name in failed)
    }


def still_unwanted(
    graph: Graph, dataset: Dataset, paths: Sequence[str], *, now: dt.datetime, members: Members | None
) -> list[str]:
    """Those of these paths that are no partitions of the graph at this moment: a key may have come back meanwhile."""
    keys = Keys(dataset.partitioning, members)
    inside = keys.inside(set(paths))
    timing = Timing.of(dataset, graph.edges[dataset.name], now.timestamp())
    return [path for path in paths if path not in inside or timing.is_over(timing.window_end(keys.key(path)))]


def _identity(name: str, paths: tuple[str, ...], batches: list[str]) -> str:
    digest = hashlib.blake2b(digest_size=12)
    for path, batch in zip(paths, batches, strict=True):
        digest.update(f"{path}#{batch}\n".encode())
    return f"retire:{name}:{digest.hexdigest()}"
