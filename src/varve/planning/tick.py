"""One tick of the planner: which partitions of each dataset are looked at, and what their judgements set off.

Not here: what is kept from tick to tick and why (reconcile.py), the judgement itself (judgement/judging.py).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from varve.model.errors import VarveError, counted
from varve.planning.judgement.facts import NOTHING, WantedInputs
from varve.planning.judgement.inputs import Read, instant, is_settled
from varve.planning.judgement.judgement import Judgement, State
from varve.planning.judgement.judging import RetryLimits, judge
from varve.planning.judgement.timing import Timing, followed_by_time
from varve.planning.readers import EdgePaths, Keys, MappingMemory
from varve.planning.run_requests import Due, Run, landing_source, runs

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection, Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.model.partitions.partitioning import Partitioning
    from varve.planning.graph import Edge, Graph
    from varve.planning.judgement.facts import BulkFacts, Fact

# Above it a tick says which dataset it is, instead of filling the memory.
LOOKED_AT = 5_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """How failures are met, how many partitions a run may have, and how many partitions a tick may look at."""

    patience: RetryLimits = field(default_factory=RetryLimits)
    partitions_per_run: int = 1_000
    looked_at: int = LOOKED_AT


@dataclass(frozen=True, slots=True)
class Memory:
    """What a planner keeps from tick to tick, by dataset; no facts.

    Attributes:
        judgements: of unsettled partitions.
        runs: those that are due.
        moments: a heap of when to look at a partition again, or, where the path is empty, at all of a dataset.
    """

    judgements: dict[str, dict[str, Judgement]]
    runs: dict[str, list[Run]] = field(default_factory=dict)
    moments: list[tuple[float, str, str]] = field(default_factory=list)

    @classmethod
    def of(cls, graph: Graph) -> Memory:
        """Nothing is known yet."""
        return cls({name: {} for name in graph.datasets})


class Tick:
    """One tick of a planner: datasets in order, each after what it reads."""

    def __init__(
        self,
        *,
        graph: Graph,
        limits: Limits,
        readers: Mapping[str, Sequence[tuple[Dataset, Edge]]],
        memory: Memory,
        facts: BulkFacts,
        changed: Mapping[str, Collection[str]] | None,
        now: dt.datetime,
        members: Members | None,
        keep_settled: bool,
    ) -> None:
        self._graph, self._limits, self._readers, self._memory = graph, limits, readers, memory
        self._facts, self._members, self._keep_settled = facts, members, keep_settled
        self._now, self._at = now, now.timestamp()
        self._everything = changed is None
        self._changed = changed or {}
        self._work: dict[str, set[str]] = {name: set(paths) for name, paths in self._changed.items()}
        self._whole: set[str] = set()
        self._keys: dict[Partitioning, Keys] = {}
        self._shapes = MappingMemory()
        self._cached: dict[str, Mapping[str, Fact]] = {}
        self._cached_there: dict[str, set[str]] = {}
        self._left = {name: len(found) + 1 for name, found in readers.items()}
        moments = memory.moments
        while moments and moments[0][0] <= self._at:
            _, name, path = heapq.heappop(moments)
            if path:
                self._work.setdefault(name, set()).add(path)
            else:
                self._whole.add(name)

    def judge_dataset(self, dataset: Dataset) -> int:
        """Judge what is to be looked at of one dataset; how many partitions that was."""
        name = dataset.name
        whole = self._everything or name in self._whole
        edges = [self._edge(dataset, edge) for edge in self._graph.edges[name]]
        paths = self._work.get(name, set())
        count = len(paths)
        if whole:
            self._look_again(dataset)
            paths, count = self._universe(dataset, edges)
        if count:
            self._refuse_explosion(dataset, count)
            # A few are looked up by name, however many there are.
            self._judge(dataset, edges, paths, whole=whole, at_once=whole and 4 * len(paths) > count)
        for source in (name, *(each.edge.upstream.name for each in edges)):
            self._left[source] -= 1
            if not self._left[source]:
                self._cached.pop(source, None)
                self._cached_there.pop(source, None)
        return count

    def _judge(
        self, dataset: Dataset, edges: Sequence[EdgePaths], paths: set[str], *, whole: bool, at_once: bool
    ) -> None:
        name, judgements = dataset.name, self._memory.judgements
        keys = self._key_cache(dataset)
        inside = keys.inside(paths)
        gone = [*paths - inside]
        own = self._of(name, None if at_once else paths)
        wanted = [each.wanted_by(inside) for each in edges]
        above = [
            self._of(each.edge.upstream.name, None if at_once else {up for ups in wants.values() for up in ups})
            for each, wants in zip(edges, wanted, strict=True)
        ]
        judged = judgements[name]
        moved = set(self._changed.get(name, ()))
        if whole:
            moved |= {path for path in [*judged] if path not in paths and judged.pop(path).pending}
        quick = not self._keep_settled and not dataset.policy.refresh_last
        timing = Timing.of(dataset, [each.edge for each in edges], self._at)
        for path in inside:
            window_end = timing.window_end(keys.key(path))
            if timing.is_over(window_end):
                gone.append(path)
                continue
            is_open = bool(edges) and timing.is_open(keys.key(path))
            reads = [
                Read(source, each.edge.wait, self._begun(each, wants[path], known) if is_open else wants[path], known,
                     judgements[source])
                for each, wants, known in zip(edges, wanted, above, strict=True)
                for source in [each.edge.upstream.name]
            ]  # fmt: skip
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
                patience=self._limits.patience,
                window_end=window_end,
                refreshed_since=timing.refreshed_since(window_end),
            )
            if (later := timing.there_from(keys.key(path))) is not None:
                found = _not_there(found, later)
            self._settle(dataset, judged, path, found, moved, known=path in own)
        for path in gone:
            found = _unwanted(own.get(path, NOTHING), known=keys.key(path) is not None)
            self._settle(dataset, judged, path, found, moved, known=False)
        self._memory.runs[name] = self._grouped(dataset, judged, keys)
        self._tell_readers(dataset, moved)

    def _begun(self, edge: EdgePaths, wants: Sequence[str], known: Mapping[str, Fact]) -> Sequence[str]:
        """What a partition whose window is not over waits for: all that is there, and what lies in complete windows."""
        upstream = edge.edge.upstream
        time, keys = upstream.partitioning.time, self._key_cache(upstream)
        if time is None:
            return wants
        complete = time.calendar.floor(int(self._at // 1))
        return [
            up
            for up in wants
            if (up in known and known[up].batch)
            or ((key := keys.key(up)) is not None and time.start_of(key[time.name]) < complete)
        ]

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
            heapq.heappush(self._memory.moments, (found.until, dataset.name, path))
        settled = found.state is State.CURRENT and not found.pending and not self._keep_settled
        # Of what is not there, and reads nothing that is, there is nothing to say.
        if settled or (found.state in {State.MISSING, State.UPCOMING} and not known):
            judged.pop(path, None)
        else:
            judged[path] = found

    def _grouped(self, dataset: Dataset, judged: Mapping[str, Judgement], keys: Keys) -> list[Run]:
        dues = [
            Due(key, found.inputs, found.reason, found.token, found.together, found.backfill)
            for path, found in judged.items()
            if found.state is State.DUE and (key := keys.key(path)) is not None
        ]
        limit = dataset.policy.partitions_per_run or self._limits.partitions_per_run
        return runs(dataset, sorted(dues, key=lambda found: found.partition), limit=limit) if dues else []

    def _tell_readers(self, dataset: Dataset, moved: set[str]) -> None:
        if self._everything or not moved:
            return
        for reader, edge in self._readers[dataset.name]:
            if reader.name not in self._whole:
                self._work.setdefault(reader.name, set()).update(self._edge(reader, edge).readers(moved))

    def _universe(self, dataset: Dataset, edges: Sequence[EdgePaths]) -> tuple[set[str], int]:
        """The partitions of a dataset to judge where anything may have changed, and of how many that is.

        Those that are not worth a look are passed over: nothing is known of them but a batch that stays.
        """
        pending = set[str]()
        reading = set[str]()
        for each in edges:
            upstream = each.edge.upstream.name
            about_to_change = {path for path, one in self._memory.judgements[upstream].items() if one.pending}
            pending.update(each.readers(about_to_change) if about_to_change else ())
            reading.update(each.readers(self._there(upstream)))
        if dataset.policy.by_itself and not edges:
            self._refuse_explosion(dataset, dataset.partitioning.count(self._members, self._now))
            reading.update(key.path for key in dataset.partitioning.keys(self._members, self._now))
        if self._keep_settled or dataset.policy.refresh_last:
            found = pending | reading | set(self._of(dataset.name, None))
            return found, len(found)
        there = self._there(dataset.name)
        found = pending | (reading - there) | self._unsettled(dataset, edges, there)
        return found, len(there | found)

    def _unsettled(self, dataset: Dataset, edges: Sequence[EdgePaths], there: set[str]) -> set[str]:
        keys = self._key_cache(dataset)
        inside = keys.inside(there)
        wanted = [
            WantedInputs(each.edge.upstream.name, None if each.identical else each.wanted_by(inside)) for each in edges
        ]
        landing = landing_source(dataset) if dataset.arrives else ""
        found = (there - inside) | self._facts.unsettled(dataset.name, landing, wanted)
        if dataset.policy.retention is not None:
            timing = Timing.of(dataset, [each.edge for each in edges], self._at)
            found |= {path for path in inside if timing.is_over(timing.window_end(keys.key(path)))}
        return found

    def _look_again(self, dataset: Dataset) -> None:
        """Note when the dataset as a whole is to be looked at, because another window will be complete."""
        times = followed_by_time(dataset, self._graph)
        if after := [time.calendar.following(int(self._at // 1)) for time in times]:
            heapq.heappush(self._memory.moments, (float(min(after)), dataset.name, ""))

    def _refuse_explosion(self, dataset: Dataset, count: int) -> None:
        if count > self._limits.looked_at:
            raise VarveError(
                f"{dataset}: {counted(count, 'partition')} to look at in one tick, above the limit of "
                f"{self._limits.looked_at:,}. Nothing was launched. Give it coarser windows, a later start, or "
                "fewer keys; its mapping may also read far more than is meant (varve show says what)."
            )

    def _of(self, name: str, paths: Collection[str] | None) -> Mapping[str, Fact]:
        if name in self._cached:
            return self._cached[name]
        found = self._facts.of(name, paths)
        if paths is None:
            self._cached[name] = found
        return found

    def _there(self, name: str) -> set[str]:
        if name not in self._cached_there:
            self._cached_there[name] = self._facts.there(name)
        return self._cached_there[name]

    def _edge(self, reader: Dataset, edge: Edge) -> EdgePaths:
        members = self._members
        keys = self._key_cache(reader), self._key_cache(edge.upstream)
        return EdgePaths(edge, *keys, shapes=self._shapes, members=members, now=self._now)

    def _key_cache(self, dataset: Dataset) -> Keys:
        partitioning = dataset.partitioning
        if partitioning not in self._keys:
            self._keys[partitioning] = Keys(partitioning, self._members)
        return self._keys[partitioning]


def _unwanted(fact: Fact, *, known: bool) -> Judgement:
    if fact.run:
        return Judgement(State.IN_FLIGHT, f"run {fact.run[:8]} is on it", pending=True)
    if not fact.batch:
        return Judgement(State.MISSING, "no partition of its dataset, and it has no batch")
    reason = "its retention is over" if known else "the graph has no such partition any more"
    return Judgement(State.UNWANTED, f"{reason}; to be retired", token=str(fact.batch))


def _not_there(found: Judgement, later: float) -> Judgement:
    """The judgement of a partition whose window is none of its dataset's yet: it is not asked for before it is."""
    until = min(later, found.until) if found.until is not None else later
    if found.state not in {State.DUE, State.BACKING_OFF, State.FAILED, State.WAITING}:
        return replace(found, until=until)
    at = instant(later).isoformat(timespec="seconds")
    reason = f"{found.reason}; its window is not over, and it is computed from {at} on"
    return Judgement(State.UPCOMING, reason, until=until)
