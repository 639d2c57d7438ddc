"""Judges one partition together with everything from which it is made, and nothing else.

What it costs follows from what the partition reads, and not from how large its dataset is.

Not here: judging all partitions (planning/reconcile.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.model.errors import UnknownPartition
from varve.planning.judgement.facts import NOTHING
from varve.planning.judgement.judging import needs_no_input
from varve.planning.judgement.settled import in_bulk
from varve.planning.readers import EdgePaths, Keys, MappingMemory
from varve.planning.tick import Limits, Memory, Tick

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection, Iterator, Mapping

    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.model.partitions.partitioning import Partitioning
    from varve.planning.graph import Graph
    from varve.planning.judgement.code import CodeState
    from varve.planning.judgement.facts import Fact, Facts
    from varve.planning.judgement.judgement import Judgement

# By dataset: partitions, each with those that it reads of every edge of its dataset, in the order of the edges.
Inputs = dict[str, dict[str, list[tuple[str, ...]]]]


def judged_with_inputs(
    graph: Graph,
    facts: Facts,
    dataset: Dataset,
    path: str,
    *,
    now: dt.datetime,
    members: Members | None = None,
    limits: Limits | None = None,
    codes: Mapping[str, CodeState] | None = None,
) -> Mapping[str, Mapping[str, Judgement]]:
    """The judgements of a partition and of all that it is made from, by dataset and path, as `reconcile` has them.

    A partition of which `reconcile` says nothing, because nothing of it or of what it reads is there, has none.
    """
    inputs = _inputs(graph, dataset, path, now=now, members=members)
    known = _KnownFacts({name: facts.of(name, [*paths]) for name, paths in inputs.items()})
    memory = Memory.of(graph)
    tick = Tick(
        graph=graph, limits=limits or Limits(), readers={name: [] for name in graph.datasets}, memory=memory,
        facts=in_bulk(known), changed={name: set(paths) for name, paths in inputs.items()}, now=now, members=members,
        keep_settled=True, codes=codes or {},
    )  # fmt: skip
    for each in graph.in_order():
        if each.name in inputs:
            tick.judge_dataset(each)
            judgements = memory.judgements[each.name]
            for unseen in set(_unseen(graph, each, inputs[each.name], known, memory)) & judgements.keys():
                if not _is_listed(each, unseen, graph, members, now):
                    del judgements[unseen]
    return memory.judgements


class _KnownFacts:
    """Facts that were read before, of the only partitions that will be asked for."""

    def __init__(self, facts: Mapping[str, Mapping[str, Fact]]) -> None:
        self._facts = facts

    def of(self, dataset: str, paths: Collection[str] | None) -> Mapping[str, Fact]:
        """See `Facts`."""
        facts = self._facts[dataset]
        return facts if paths is None else {path: facts[path] for path in paths if path in facts}

    def exists(self, dataset: str, path: str) -> bool:
        """Whether the partition has a batch."""
        return bool(self._facts[dataset].get(path, NOTHING).batch)


def _inputs(graph: Graph, dataset: Dataset, path: str, *, now: dt.datetime, members: Members | None) -> Inputs:
    """The partition, and all that it is made from, through any number of datasets."""
    shapes = MappingMemory()
    keys_of: dict[Partitioning, Keys] = {}
    inputs: Inputs = {dataset.name: {path: []}}

    def keys(of: Dataset) -> Keys:
        return keys_of.setdefault(of.partitioning, Keys(of.partitioning, members))

    for reader in reversed(graph.in_order()):
        paths = inputs.get(reader.name)
        if not paths:
            continue
        inside = keys(reader).inside(paths.keys())
        for edge in graph.edges[reader.name]:
            upstream_keys = keys(edge.upstream)
            edge_paths = EdgePaths(edge, keys(reader), upstream_keys, shapes=shapes, members=members, now=now)
            upstream_inputs = inputs.setdefault(edge.upstream.name, {})
            for reading, wanted in edge_paths.wanted_by(inside).items():
                paths[reading].append(tuple(wanted))
                for upstream_path in wanted:
                    upstream_inputs.setdefault(upstream_path, [])
    return inputs


def _is_listed(dataset: Dataset, path: str, graph: Graph, members: Members | None, now: dt.datetime) -> bool:
    """Whether `reconcile` looks at a partition although nothing is known of it."""
    if not needs_no_input(dataset, reads=bool(graph.edges[dataset.name])):
        return False
    partitioning, time = dataset.partitioning, dataset.partitioning.time
    try:
        key = partitioning.from_path(path)
    except UnknownPartition:
        return False
    has_begun = time is None or time.start_of(time.value_in(key)) < time.known_until(now)
    return has_begun and key.path == path and partitioning.exists(key, members)


def _unseen(
    graph: Graph,
    dataset: Dataset,
    inputs: Mapping[str, list[tuple[str, ...]]],
    known: _KnownFacts,
    memory: Memory,
) -> Iterator[str]:
    """The partitions at which `reconcile` does not look: nothing is known of them, nor of what they read."""
    edges = graph.edges[dataset.name]
    facts = known.of(dataset.name, None)
    for path, of_edges in inputs.items():
        is_read = any(
            known.exists(name, wanted)
            or ((judgement := memory.judgements[name].get(wanted)) is not None and judgement.pending)
            for name, paths in zip([edge.upstream.name for edge in edges], of_edges, strict=False)
            for wanted in paths
        )
        if path not in facts and not is_read:
            yield path
