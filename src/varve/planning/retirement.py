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
from varve.model.partitions.key import parse_path, text_of
from varve.planning.judgement.timing import Timing
from varve.planning.readers import Keys

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Collection, Mapping, Sequence

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

    `empty_set` is the set of its that has no key at all, "" where none is empty; `new_set` the one all of whose keys
    were added after the partitions were computed, "" where there is none.
    """

    dataset: str
    count: int
    of: int
    empty_set: str = ""
    new_set: str = ""

    def __str__(self) -> str:
        if self.new_set:
            return (
                f"{self.dataset}: every key of the set {self.new_set} was added after "
                f"{counted(self.count, 'partition')} of other keys had been computed, as when Dagster's storage was "
                "lost and keys are added again; none of those was retired. Add the other keys too: varve keys add "
                f"{self.new_set} KEY ... If it is meant: varve retire {self.dataset}."
            )
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
    plan: RunPlan,
    counts: Mapping[str, int],
    empty_sets: Mapping[str, str] | None = None,
    of_new_sets: Mapping[str, Mapping[str, Collection[str]]] | None = None,
) -> tuple[list[Retirement], list[RefusedRetirement]]:
    """The retirements to request, and the refused ones. `counts`: how many partitions with a batch each dataset has.

    `empty_sets` are sets that have no key and may have lost them, by the datasets that have a partition for each;
    `of_new_sets` the partitions that may miss a key of a set which is being filled again, by dataset and set.
    """
    wanted, refused = [], []
    for name, all_paths in plan.retire.items():
        paths = all_paths
        for new_set, kept in (of_new_sets or {}).get(name, {}).items():
            refused.append(RefusedRetirement(name, len(kept), counts.get(name, 0), new_set=new_set))
            paths = tuple(path for path in paths if path not in kept)
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


def of_new_sets(
    graph: Graph, plan: RunPlan, members: Members, filled_since: Callable[[DynamicDimension], float | None]
) -> dict[str, dict[str, set[str]]]:
    """Partitions to retire without a key in a set that people fill, all of whose keys are newer; by dataset and set.

    `filled_since` says since when the oldest key of a set has been there, in seconds since 1970; None: not known. When
    such a partition was computed, the set had none of the keys that it has now. So perhaps it has lost them, and
    somebody is adding them again, one after another.
    """
    found: dict[str, dict[str, set[str]]] = {}
    for name, paths in plan.retire.items():
        dynamic = [each for each in graph.datasets[name].partitioning.dimensions if isinstance(each, DynamicDimension)]
        for dimension in dynamic:
            texts = {text_of(key) for key in members.get(dimension.set_name, ())}
            gone = [path for path in paths if dict(parse_path(path)).get(dimension.name) not in texts]
            since = filled_since(dimension) if texts and gone and dimension.source is None else None
            older = {path for path in gone if since and int(plan.judgements[name][path].token) < since * 1000}
            if older:
                found.setdefault(name, {})[dimension.set_name] = older
    return found


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
