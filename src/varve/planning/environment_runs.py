"""Which partitions a run in an environment is about: those that were asked for, and all that they read.

Not here: which of them are due (judgement), and running them (varve/dagster/environments).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import pendulum

from varve.model.errors import UnknownPartition, VarveError, nearest
from varve.model.partitions.key import parse_path
from varve.model.policy import instant_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.model.partitions.partitioning import Partitioning
    from varve.planning.graph import Graph
    from varve.planning.judgement.judgement import Judgement


@dataclass(frozen=True)
class Wanted:
    """The partitions that were asked for.

    Attributes:
        datasets: their datasets; empty: all.
        values: the values of their columns, as keys are spelt.
        first, last: the first and the last day, both included, or instants; None: without a limit. Windows that lie
            between them count; of datasets that are named also those that overlap.
        paths: by dataset, only these partitions; None: without a limit.
    """

    datasets: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    first: str | None = None
    last: str | None = None
    paths: Mapping[str, Collection[str]] | None = None

    def includes(self, dataset: Dataset, path: str) -> bool:
        """Whether a partition of a dataset was asked for. Raises VarveError for another text."""
        if self.datasets and dataset.name not in self.datasets:
            return False
        if self.paths is not None and path not in self.paths.get(dataset.name, ()):
            return False
        if self.values:
            spelt = _spelt(dataset.partitioning, tuple(sorted(self.values.items())))
            if not spelt.items() <= dict(parse_path(path)).items():
                return False
        time = dataset.partitioning.time
        if self.first is None and self.last is None:
            return True
        if time is None:
            return bool(self.datasets)
        start = time.start_of(time.value_in(dataset.partitioning.from_path(path)))
        end = time.calendar.following(start)
        first, last = self._between(time.calendar.timezone)
        return (end > first and start < last) if self.datasets else (start >= first and end <= last)

    def _between(self, timezone: str) -> tuple[float, float]:
        """The begin of the first day and the end of the last one, in seconds since 1970."""
        first = float("-inf") if self.first is None else _day_or_instant(self.first, timezone)
        if self.last is None:
            return first, float("inf")
        last = _day_or_instant(self.last, timezone)
        if len(self.last) > len("2013-01-05"):
            return first, last
        return first, pendulum.from_timestamp(last, timezone).add(days=1).timestamp()


@lru_cache(maxsize=64)
def _spelt(partitioning: Partitioning, values: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """The values as the paths of this partitioning spell them."""
    return {column: partitioning.text_in_paths(column, text) for column, text in values}


def _day_or_instant(text: str, timezone: str) -> float:
    """The instant of a day or of a moment, in seconds since 1970. Raises VarveError for a month, a year or a week."""
    if not re.match(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        raise VarveError(
            f"{text!r} is no day; write for example 2026-01-31, or 2026-01-31T12:00. Nothing was computed."
        )
    return instant_of(text, timezone)


def needed(
    graph: Graph,
    wanted: Wanted,
    judgements: Mapping[str, Mapping[str, Judgement]],
    existing: Callable[[str], Collection[str]],
    members: Members | None,
) -> dict[str, frozenset[str]]:
    """By dataset the partitions that were asked for, and those that they read, directly or not.

    Datasets of which nothing is to be done, nor of anything that they read, are left out. `judgements` are those of
    unsettled partitions, `existing` the partitions of a dataset that have a batch. Raises VarveError for a dataset that
    there is not, UnknownPartition where no partition is as asked for.
    """
    for name in wanted.datasets:
        if name not in graph.datasets:
            raise VarveError(f"there is no dataset {name!r}.{nearest(name, graph.datasets)} Nothing was computed.")
        if unknown := sorted(wanted.values.keys() - set(graph.datasets[name].partitioning.names)):
            names = ", ".join(graph.datasets[name].partitioning.names)
            raise UnknownPartition(f"{name} has no column {', '.join(unknown)}; its columns are {names}.")
    open_datasets = _with_something_to_do(graph, judgements)
    chosen: dict[str, set[str]] = {name: set() for name in graph.datasets}
    answers: dict[Partitioning, dict[str, bool]] = {}
    with_some, without = list[str](), list[str]()
    for dataset in reversed(graph.in_order()):
        named = dataset.name in wanted.datasets
        if dataset.rejected_of or dataset.of_project or not (named or dataset.name in open_datasets):
            continue
        paths = chosen[dataset.name]
        asked = _asked_for(dataset, wanted, judgements, existing, answers.setdefault(dataset.partitioning, {}))
        (with_some if asked else without).append(dataset.name)
        paths |= asked
        edges = [edge for edge in graph.edges[dataset.name] if edge.upstream.name in open_datasets]
        if wanted == Wanted() or not edges:
            # Where everything was asked for, what it reads was too.
            continue
        keys = [dataset.partitioning.from_path(path) for path in sorted(paths)]
        for edge in edges:
            for mapped in edge.dependency.upstream_of_each(keys, members=members):
                chosen[edge.upstream.name] |= {key.path for key in mapped.keys}
    named_without = sorted({*without} & {*wanted.datasets})
    if named_without and not with_some and wanted != Wanted(datasets=wanted.datasets):
        have = "has" if len(named_without) == 1 else "have"
        raise UnknownPartition(f"{' and '.join(named_without)} {have} no partition like that. Nothing was computed.")
    return {name: frozenset(paths) for name, paths in chosen.items() if paths}


def _with_something_to_do(graph: Graph, judgements: Mapping[str, Mapping[str, Judgement]]) -> set[str]:
    """The datasets with unsettled partitions, and all that read them."""
    names = set[str]()
    for dataset in graph.in_order():
        edges = graph.edges[dataset.name]
        if judgements.get(dataset.name) or any(edge.upstream.name in names for edge in edges):
            names.add(dataset.name)
    return names


def _asked_for(
    dataset: Dataset,
    wanted: Wanted,
    judgements: Mapping[str, Mapping[str, Judgement]],
    existing: Callable[[str], Collection[str]],
    answers: dict[str, bool],
) -> set[str]:
    """The partitions of a dataset that were asked for; `answers` are kept for datasets with the same partitions."""
    if wanted.datasets and dataset.name not in wanted.datasets:
        return set()
    if wanted.paths is not None:
        candidates = {*wanted.paths.get(dataset.name, ())}
    else:
        candidates = {*existing(dataset.name), *judgements.get(dataset.name, ())}
    for path in candidates - answers.keys():
        answers[path] = bool(path) and _is_key(dataset, path) and wanted.includes(dataset, path)
    return {path for path in candidates if answers[path]}


def _is_key(dataset: Dataset, path: str) -> bool:
    try:
        dataset.partitioning.from_path(path)
    except VarveError:
        return False
    return True
