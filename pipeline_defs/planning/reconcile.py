"""What should exist against what does: every partition judged, and what is due in runs (seed 001, DESIGN section 8).

`reconcile` judges everything, and is a pure function. A `Planner` comes to the same by judging only what changed since
its last tick, what reads that, and what time has made true; it holds judgements of unsettled partitions and no facts,
so that it can be thrown away at any moment.

Not here: the judgement itself (judging.py), facts (facts.py), and asking Dagster for the runs (sensors.py).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline_defs.model.errors import VarveError
from pipeline_defs.model.reads import All, Latest
from pipeline_defs.planning.facts import NOTHING
from pipeline_defs.planning.judging import Judgement, Patience, Read, State, is_settled, judge
from pipeline_defs.planning.reading import EdgePaths, Keys, Shapes
from pipeline_defs.planning.triggers import Due, Run, runs

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from pipeline_defs.model.dataset import Dataset
    from pipeline_defs.model.dimension import Members, TimeDimension
    from pipeline_defs.model.partition import PartitionKey
    from pipeline_defs.model.partitioning import Partitioning
    from pipeline_defs.planning.facts import Fact, Facts
    from pipeline_defs.planning.graph import Edge, Graph

# Above it a tick says which dataset it is, instead of filling the memory.
LOOKED_AT = 5_000_000


@dataclass(frozen=True)
class Plan:
    """What a tick has found.

    Attributes:
        runs: to launch, upstream before downstream, fresh data before backfills.
        retire: by dataset the partitions with a batch that the graph has not, or no longer.
        judgements: by dataset and path, one of every partition that was looked at; a `Planner` leaves out the settled.
        looked_at: how many partitions were judged.
    """

    runs: tuple[Run, ...]
    retire: Mapping[str, tuple[str, ...]]
    judgements: Mapping[str, Mapping[str, Judgement]]
    looked_at: int


@dataclass(frozen=True, slots=True)
class Limits:
    """How failures are met, how many partitions a run may have, and how many partitions a tick may look at."""

    patience: Patience = field(default_factory=Patience)
    partitions_per_run: int = 1_000
    looked_at: int = LOOKED_AT


def reconcile(
    graph: Graph, facts: Facts, *, now: dt.datetime, members: Members | None = None, limits: Limits | None = None
) -> Plan:
    """Judge every partition of which anything is known or which reads one of those.

    `members` are those of dynamic sets. Raises VarveError, naming the dataset, where that is more than the limit.
    """
    return Planner(graph, limits or Limits(), keep_settled=True).tick(facts, None, now=now, members=members)


class Planner:
    """Reconciles tick by tick: what a tick costs follows from what has changed since the one before."""

    def __init__(self, graph: Graph, limits: Limits, *, keep_settled: bool = False) -> None:
        self.graph = graph
        self.limits = limits
        self._keep_settled = keep_settled
        self._order = graph.in_order()
        self._readers: dict[str, list[tuple[Dataset, Edge]]] = {name: [] for name in graph.datasets}
        for dataset in self._order:
            for edge in graph.edges[dataset.name]:
                self._readers[edge.upstream.name].append((dataset, edge))
        self._judgements: dict[str, dict[str, Judgement]] = {name: {} for name in graph.datasets}
        self._runs: dict[str, list[Run]] = {}
        self._moments: list[tuple[float, str, str]] = []
        self._members: Members | None = None
        self._last: float | None = None

    def tick(
        self,
        facts: Facts,
        changed: Mapping[str, Collection[str]] | None,
        *,
        now: dt.datetime,
        members: Members | None = None,
    ) -> Plan:
        """The plan as of now.

        `changed` are the partitions, by dataset, of which any fact has changed since the last tick; None: not known.
        """
        at = now.timestamp()
        # A clock that went back has made things untrue that were true.
        if changed is None or self._last is None or at < self._last or members != self._members:
            self._forget()
            changed = None
        self._last, self._members = None, members
        tick = _Tick(self, facts, changed, now)
        looked_at = sum(tick.judge_dataset(dataset) for dataset in self._order)
        # Only now: a tick that could not reach its facts is begun anew by the next one.
        self._last = at
        return self._plan(looked_at)

    def _forget(self) -> None:
        self._judgements = {name: {} for name in self.graph.datasets}
        self._runs, self._moments = {}, []

    def _plan(self, looked_at: int) -> Plan:
        planned = [run for dataset in self._order for run in self._runs.get(dataset.name, ())]
        retire = {
            name: tuple(sorted(path for path, found in judged.items() if found.state is State.UNWANTED))
            for name, judged in self._judgements.items()
        }
        return Plan(
            tuple(sorted(planned, key=lambda run: run.backfill)),
            {name: paths for name, paths in retire.items() if paths},
            self._judgements,
            looked_at,
        )


class _Tick:
    """One tick of a planner: datasets in order, each after what it reads."""

    def __init__(
        self, planner: Planner, facts: Facts, changed: Mapping[str, Collection[str]] | None, now: dt.datetime
    ) -> None:
        self._planner, self._facts, self._now, self._at = planner, facts, now, now.timestamp()
        self._everything = changed is None
        self._changed = changed or {}
        self._work: dict[str, set[str]] = {name: set(paths) for name, paths in self._changed.items()}
        self._whole: set[str] = set()
        self._keys: dict[Partitioning, Keys] = {}
        self._shapes = Shapes()
        self._cached: dict[str, Mapping[str, Fact]] = {}
        self._left = {name: len(readers) + 1 for name, readers in planner._readers.items()}
        moments = planner._moments
        while moments and moments[0][0] <= self._at:
            _, name, path = heapq.heappop(moments)
            if path:
                self._work.setdefault(name, set()).add(path)
            else:
                self._whole.add(name)

    def judge_dataset(self, dataset: Dataset) -> int:
        """Judge what is to be looked at of one dataset; how many partitions that was."""
        name, planner = dataset.name, self._planner
        whole = self._everything or name in self._whole
        paths = self._universe(dataset) if whole else self._work.get(name, set())
        if whole:
            self._look_again(dataset)
        if paths:
            self._refuse_explosion(dataset, len(paths))
            self._judge(dataset, paths, whole=whole)
        for source in (name, *(edge.upstream.name for edge in planner.graph.edges[name])):
            self._left[source] -= 1
            if not self._left[source]:
                self._cached.pop(source, None)
        return len(paths)

    def _judge(self, dataset: Dataset, paths: Collection[str], *, whole: bool) -> None:
        name, planner = dataset.name, self._planner
        edges = [self._edge(dataset, edge) for edge in planner.graph.edges[name]]
        own = self._of(name, None if whole else paths)
        keys = self._key_cache(dataset)
        gone = [path for path in paths if keys.key(path) is None]
        inside = [path for path in paths if keys.key(path) is not None] if gone else paths
        above = [
            self._of(each.edge.upstream.name, None if whole else {up for path in inside for up in each.wanted(path)})
            for each in edges
        ]
        judged = planner._judgements[name]
        moved = set(self._changed.get(name, ()))
        if whole:
            moved |= {path for path in [*judged] if path not in paths and judged.pop(path).pending}
        quick = not planner._keep_settled and not dataset.policy.refresh_last
        timing = _Timing.of(dataset, [each.edge for each in edges], self._at)
        for path in inside:
            window_end = timing.window_end(keys.key(path))
            if timing.is_over(window_end):
                gone.append(path)
                continue
            reads = [
                Read(source, each.edge.wait, each.wanted(path), known, planner._judgements[source])
                for each, known in zip(edges, above, strict=True)
                for source in [each.edge.upstream.name]
            ]
            fact = own.get(path, NOTHING)
            if quick and is_settled(dataset, path, fact, reads):
                if (before := judged.pop(path, None)) is not None and before.pending:
                    moved.add(path)
                continue
            found = judge(
                dataset,
                path,
                fact,
                reads,
                now=self._at,
                patience=planner.limits.patience,
                window_end=window_end,
                refreshed_since=timing.refreshed_since(window_end),
            )
            self._settle(dataset, judged, path, found, moved, known=path in own)
        for path in gone:
            found = _unwanted(own.get(path, NOTHING), known=keys.key(path) is not None)
            self._settle(dataset, judged, path, found, moved, known=path in own)
        planner._runs[name] = self._grouped(dataset, judged, keys)
        self._tell_readers(dataset, moved)

    def _settle(
        self,
        dataset: Dataset,
        judged: dict[str, Judgement],
        path: str,
        found: Judgement,
        moved: set[str],
        *,
        known: bool,
    ) -> None:
        before = judged.get(path)
        if (before is not None and before.pending) != found.pending:
            moved.add(path)
        if found.until is not None:
            heapq.heappush(self._planner._moments, (found.until, dataset.name, path))
        settled = found.state is State.CURRENT and not found.pending and not self._planner._keep_settled
        # Of what is not there, and reads nothing that is, there is nothing to say.
        if settled or (found.state is State.MISSING and not known):
            judged.pop(path, None)
        else:
            judged[path] = found

    def _grouped(self, dataset: Dataset, judged: Mapping[str, Judgement], keys: Keys) -> list[Run]:
        dues = [
            Due(key, found.inputs, found.reason, found.token, found.together, found.backfill)
            for path, found in judged.items()
            if found.state is State.DUE and (key := keys.key(path)) is not None
        ]
        limit = dataset.policy.partitions_per_run or self._planner.limits.partitions_per_run
        return runs(dataset, sorted(dues, key=lambda found: found.partition), limit=limit) if dues else []

    def _tell_readers(self, dataset: Dataset, moved: Collection[str]) -> None:
        if self._everything or not moved:
            return
        for reader, edge in self._planner._readers[dataset.name]:
            if reader.name not in self._whole:
                self._work.setdefault(reader.name, set()).update(self._edge(reader, edge).readers(moved))

    def _universe(self, dataset: Dataset) -> set[str]:
        """Every partition of a dataset that there is anything to say about."""
        found = set(self._of(dataset.name, None))
        for edge in self._planner.graph.edges[dataset.name]:
            there = [path for path, fact in self._of(edge.upstream.name, None).items() if fact.batch]
            pending = [p for p, each in self._planner._judgements[edge.upstream.name].items() if each.pending]
            found.update(self._edge(dataset, edge).readers({*there, *pending}))
        if dataset.policy.by_itself and not self._planner.graph.edges[dataset.name]:
            self._refuse_explosion(dataset, dataset.partitioning.count(self._planner._members, self._now))
            found.update(key.path for key in dataset.partitioning.keys(self._planner._members, self._now))
        return found

    def _look_again(self, dataset: Dataset) -> None:
        """Note when the dataset as a whole is to be looked at, because another window will be complete."""
        times = _followed_by_time(dataset, self._planner.graph)
        if after := [time.calendar.following(int(self._at // 1)) for time in times]:
            heapq.heappush(self._planner._moments, (float(min(after)), dataset.name, ""))

    def _refuse_explosion(self, dataset: Dataset, count: int) -> None:
        if count > self._planner.limits.looked_at:
            raise VarveError(
                f"{dataset}: {count:,} partitions to look at in one tick, above the limit of "
                f"{self._planner.limits.looked_at:,}. Nothing was launched. Give it coarser windows, a later start, or "
                "fewer keys; its mapping may also read far more than is meant (varve show says what)."
            )

    def _of(self, name: str, paths: Collection[str] | None) -> Mapping[str, Fact]:
        if name in self._cached:
            return self._cached[name]
        found = self._facts.of(name, paths)
        if paths is None:
            self._cached[name] = found
        return found

    def _edge(self, reader: Dataset, edge: Edge) -> EdgePaths:
        members = self._planner._members
        keys = self._key_cache(reader), self._key_cache(edge.upstream)
        return EdgePaths(edge, *keys, shapes=self._shapes, members=members, now=self._now)

    def _key_cache(self, dataset: Dataset) -> Keys:
        partitioning = dataset.partitioning
        if partitioning not in self._keys:
            self._keys[partitioning] = Keys(partitioning, self._planner._members)
        return self._keys[partitioning]


def _unwanted(fact: Fact, *, known: bool) -> Judgement:
    if fact.run:
        return Judgement(State.IN_FLIGHT, f"run {fact.run[:8]} is on it", pending=True)
    if not fact.batch:
        return Judgement(State.CURRENT, "no partition of its dataset, and it has no batch")
    reason = "its retention is over" if known else "the graph has no such partition any more"
    return Judgement(State.UNWANTED, f"{reason}; to be retired", token=str(fact.batch))


@dataclass(frozen=True, slots=True)
class _Timing:
    """What now means for the windows of one dataset.

    Attributes:
        boundary: the last one between two windows, whether the dimension has them or not.
        complete: where its last complete window ends.
        left_alone: where the last complete window ends that is not among the newest, which are refreshed.
    """

    dataset: Dataset
    needed: bool = False
    boundary: float = 0.0
    complete: float = 0.0
    left_alone: float | None = None

    @classmethod
    def of(cls, dataset: Dataset, edges: Iterable[Edge], at: float) -> _Timing:
        time, policy = dataset.partitioning.time, dataset.policy
        needed = policy.refresh_last > 0 or policy.retention is not None or any(edge.wait.deadline for edge in edges)
        if time is None or not needed:
            return cls(dataset)
        boundary = time.calendar.floor(int(at // 1))
        until = complete = boundary if time.last is None else min(boundary, time.last)
        for _ in range(policy.refresh_last):
            until = time.calendar.floor(until - 1)
        left_alone = float(until) if policy.refresh_last else None
        return cls(dataset, needed=True, boundary=boundary, complete=complete, left_alone=left_alone)

    def window_end(self, key: PartitionKey | None) -> float | None:
        time = self.dataset.partitioning.time
        if not self.needed or time is None or key is None:
            return None
        return float(time.calendar.following(time.start_of(key[time.name])))

    def is_over(self, window_end: float | None) -> bool:
        retention = self.dataset.policy.retention
        if retention is None or window_end is None:
            return False
        return window_end + retention.total_seconds() <= self.boundary

    def refreshed_since(self, window_end: float | None) -> float | None:
        if self.left_alone is None or window_end is None or not self.left_alone < window_end <= self.complete:
            return None
        return self.complete


def _followed_by_time(dataset: Dataset, graph: Graph) -> Iterator[TimeDimension]:
    """The time dimensions whose next window changes what there is to say about the dataset."""
    own, policy = dataset.partitioning.time, dataset.policy
    if own is not None and (policy.refresh_last or policy.retention is not None or policy.by_itself):
        yield own
    for edge in graph.edges[dataset.name]:
        ways = edge.dependency.ways
        if own is not None and not any(way.of is own for way in ways):
            yield own
        theirs = edge.upstream.partitioning.time
        if theirs is not None and any(way.upstream is theirs and isinstance(way.rule, All | Latest) for way in ways):
            yield theirs
