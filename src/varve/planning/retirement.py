"""Partitions that left the graph, as retirements that a sensor may request without a person; pure functions.

A mistake in a declaration must not empty a dataset: a person must ask where most partitions would go at once.

Not here: which partitions left the graph (reconcile.py), and retiring them
(varve/dagster/automation/retiring.py).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.planning.judgement.timing import Timing
from varve.planning.readers import Keys

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence

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
    """A retirement that only a person may request: `count` of the `of` partitions that the dataset has."""

    dataset: str
    count: int
    of: int

    def __str__(self) -> str:
        return (
            f"{self.dataset}: {self.count:,} of its {self.of:,} partitions have left the graph at once, and none was "
            f"retired. If that is meant: varve retire {self.dataset}. If not, mend its declaration."
        )


def retirements(plan: RunPlan, counts: Mapping[str, int]) -> tuple[list[Retirement], list[RefusedRetirement]]:
    """The retirements to request, and the refused ones. `counts`: how many partitions with a batch each dataset has."""
    wanted, refused = [], []
    for name, paths in plan.retire.items():
        if len(paths) > _FEW and 2 * len(paths) > counts.get(name, 0):
            refused.append(RefusedRetirement(name, len(paths), counts.get(name, 0)))
            continue
        for start in range(0, len(paths), _AT_ONCE):
            piece = paths[start : start + _AT_ONCE]
            batches = [plan.judgements[name][path].token for path in piece]
            wanted.append(Retirement(name, piece, _identity(name, piece, batches)))
    return wanted, refused


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
