"""One tick of the planner: which partitions of each dataset are judged, and which readers are judged because of it.

Not here: what is kept from tick to tick (reconcile.py), and the judgement itself (judgement/judging.py).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from varve.model.errors import VarveError, counted
from varve.model.partitions.windows import retention_calendars
from varve.planning.judgement.code import SAME_CODE, CodeState, hold_reason
from varve.planning.judgement.facts import NOTHING, WantedInputs
from varve.planning.judgement.inputs import Read, instant, is_settled
from varve.planning.judgement.judgement import Judgement, State
from varve.planning.judgement.judging import RetryLimits, judge, needs_no_input
from varve.planning.judgement.timing import Timing, followed_by_time, past_retention
from varve.planning.mapping.dimension_mapping import everything
from varve.planning.mapping.partition_subset import PartitionBox, TimeSpans
from varve.planning.readers import EdgePaths, Keys, MappingMemory, is_found_late
from varve.planning.run_requests import Due, Run, landing_source, runs

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Collection, Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.model.partitions.partitioning import Partitioning
    from varve.planning.graph import Edge, Graph
    from varve.planning.judgement.facts import BulkFacts, Fact

# In the place of a path: the windows that are over since then.
_ENDED_WINDOWS = "*"
# With more partitions a tick raises an error that names the dataset, instead of filling the memory.
LOOKED_AT = 5_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """How failures are retried, and how many partitions a run may have and a tick may judge.

    Attributes:
        may_empty: the datasets that may empty what reads them; see `judge`.
    """

    patience: RetryLimits = field(default_factory=RetryLimits)
    partitions_per_run: int = 1_000
    looked_at: int = LOOKED_AT
    may_empty: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Memory:
    """What a planner keeps from tick to tick, by dataset. It keeps no facts.

    Attributes:
        judgements: the judgements of unsettled partitions, by path.
        runs: the due runs.
        moments: a heap of (instant, dataset, path): when to judge a partition again; path "": the whole dataset; path
            "*": those of its windows that are over since the instant.
    """

    judgements: dict[str, dict[str, Judgement]]
    runs: dict[str, list[Run]] = field(default_factory=dict)
    moments: list[tuple[float, str, str]] = field(default_factory=list)

    @classmethod
    def of(cls, graph: Graph) -> Memory:
        """Empty memory: the first tick judges every partition."""
        return cls({name: {} for name in graph.datasets})


class Tick:
    """One tick of a planner: it judges the datasets in order, each after its upstream datasets."""

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
        codes: Mapping[str, CodeState],
        whole: Collection[str] = (),
    ) -> None:
        self._graph, self._limits, self._readers, self._memory = graph, limits, readers, memory
        self._facts, self._members, self._keep_settled, self._codes = facts, members, keep_settled, codes
        self._now, self._at = now, now.timestamp()
        self._everything = changed is None
        self._changed = changed or {}
        self._work: dict[str, set[str]] = {name: set(paths) for name, paths in self._changed.items()}
        self._whole = set(whole)
        self._keys: dict[Partitioning, Keys] = {}
        self._shapes = MappingMemory()
        self._cached: dict[str, Mapping[str, Fact]] = {}
        self._cached_existing: dict[str, set[str]] = {}
        self._left = {name: len(readers_of_dataset) + 1 for name, readers_of_dataset in readers.items()}
        self._ended_since: dict[str, float] = {}
        moments = memory.moments
        while moments and moments[0][0] <= self._at:
            at, name, path = heapq.heappop(moments)
            if path == _ENDED_WINDOWS:
                # They come in their order: the first instant is the earliest.
                self._ended_since.setdefault(name, at)
            elif path:
                self._work.setdefault(name, set()).add(path)
            else:
                self._whole.add(name)

    def judge_dataset(self, dataset: Dataset) -> int:
        """Judge the partitions of one dataset that need it; returns how many that were."""
        name = dataset.name
        whole = self._everything or name in self._whole
        edges = [self._edge(dataset, edge) for edge in self._graph.edges[name]]
        paths = self._work.get(name, set())
        count = len(paths)
        if whole:
            self._schedule_next_look(dataset)
            paths, count = self._partitions_to_judge(dataset, edges)
        elif name in self._ended_since:
            self._schedule_next_window(dataset)
            paths = paths | self._ended_windows(dataset, self._ended_since[name])
            count = len(paths)
        # Where a look at all of it finds nothing, what was judged before is still to be forgotten.
        if count or whole:
            self._refuse_explosion(dataset, count)
            # The facts of a few partitions are read by name, however large the dataset is.
            self._judge(dataset, edges, paths, whole=whole, at_once=whole and 4 * len(paths) > count)
        for source in (name, *(edge_paths.edge.upstream.name for edge_paths in edges)):
            self._left[source] -= 1
            if not self._left[source]:
                self._cached.pop(source, None)
                self._cached_existing.pop(source, None)
        return count

    def _judge(
        self, dataset: Dataset, edges: Sequence[EdgePaths], paths: set[str], *, whole: bool, at_once: bool
    ) -> None:
        name, judgements = dataset.name, self._memory.judgements
        keys = self._key_cache(dataset)
        inside = keys.inside(paths)
        unwanted = [*paths - inside]
        facts = self._of(name, None if at_once else paths)
        wanted = [edge_paths.wanted_by(inside) for edge_paths in edges]
        upstream_facts = [
            self._of(edge_paths.edge.upstream.name, None if at_once else {up for ups in wants.values() for up in ups})
            for edge_paths, wants in zip(edges, wanted, strict=True)
        ]
        own_judgements = judgements[name]
        changed_paths = set(self._changed.get(name, ()))
        if whole:
            changed_paths |= {
                path for path in [*own_judgements] if path not in paths and own_judgements.pop(path).pending
            }
        quick = not self._keep_settled and not dataset.recomputes
        timing = Timing.of(dataset, [edge_paths.edge for edge_paths in edges], self._at)
        code = self._codes.get(name, SAME_CODE)
        upstreams = [edge_paths.edge.upstream for edge_paths in edges]
        times = [upstream.partitioning.time for upstream in upstreams if upstream.policy.retention is not None]
        calendars = [each for time in times if time is not None for each in retention_calendars(time)]
        boundaries = [calendar.following(int(self._at // 1)) for calendar in calendars]
        are_past = [past_retention(upstream, self._key_cache(upstream).key, self._at) for upstream in upstreams]
        for path in inside:
            window_end = timing.window_end(keys.key(path))
            if timing.is_over(window_end):
                unwanted.append(path)
                continue
            is_open = bool(edges) and timing.is_open(keys.key(path))
            reads = [
                Read(
                    source,
                    edge_paths.edge.wait,
                    self._awaited(edge_paths, wants[path], source_facts, is_past, is_open=is_open),
                    source_facts,
                    judgements[source],
                    edge_paths.columns,
                    None,
                    is_past,
                    edge_paths.by_window,
                )
                for edge_paths, wants, source_facts, is_past in zip(
                    edges, wanted, upstream_facts, are_past, strict=True
                )
                for source in [edge_paths.edge.upstream.name]
            ]
            fact = facts.get(path, NOTHING)
            if quick and is_settled(dataset, path, fact, reads):
                if (before := own_judgements.pop(path, None)) is not None and before.pending:
                    changed_paths.add(path)
                continue
            judgement = judge(
                dataset,
                path,
                fact,
                reads,
                now=self._at,
                patience=self._limits.patience,
                window_end=window_end,
                refreshed_since=timing.refreshed_since(window_end),
                code=code,
                scheduled_at=timing.scheduled_at(keys.key(path), fact.batch, code.since),
                may_empty=self._limits.may_empty,
            )
            if (later := timing.there_from(keys.key(path))) is not None:
                judgement = _not_there(judgement, later)
            self._settle(dataset, own_judgements, path, judgement, changed_paths, has_fact=path in facts)
            if judgement.state in {State.WAITING, State.ON_HOLD, State.FAILED} and boundaries:
                # What it waits for may be past its retention then, and never come; what it misses is no change then.
                heapq.heappush(self._memory.moments, (float(min(boundaries)), name, path))
        for path in unwanted:
            judgement = _unwanted(dataset, facts.get(path, NOTHING), code, has_key=keys.key(path) is not None)
            self._settle(dataset, own_judgements, path, judgement, changed_paths, has_fact=False)
        self._memory.runs[name] = self._grouped(dataset, own_judgements, keys)
        self._mark_readers(dataset, changed_paths)

    def _awaited(
        self,
        edge_paths: EdgePaths,
        wants: Sequence[str],
        facts: Mapping[str, Fact],
        is_past: Callable[[str], bool] | None,
        *,
        is_open: bool,
    ) -> Sequence[str]:
        """The inputs for which a partition waits, of those that it reads."""
        edge = edge_paths.edge
        if is_open or edge.dependency.reader.time is None or edge.reads_all_windows:
            wants = self._inputs_of_open_window(edge_paths, wants, facts)
        if is_past is None or not edge_paths.all_windows:
            return wants
        # Of a dataset that is read whole, what its retention has taken away is no partition any more.
        return [path for path in wants if (path in facts and facts[path].batch) or not is_past(path)]

    def _inputs_of_open_window(
        self, edge_paths: EdgePaths, wants: Sequence[str], facts: Mapping[str, Fact]
    ) -> Sequence[str]:
        """What is waited for by a partition with an open window, or without one, and by one that reads all windows.

        It is what is there or comes, and what is over.
        """
        upstream = edge_paths.edge.upstream
        time, keys = upstream.partitioning.time, self._key_cache(upstream)
        if time is None:
            return wants
        complete = time.calendar.floor(int(self._at // 1))
        judged = self._memory.judgements[upstream.name]
        return [
            path
            for path in wants
            if (path in facts and facts[path].batch)
            # One that is about to get its first batch would be read a moment later, by a second run.
            or ((judgement := judged.get(path)) is not None and judgement.pending)
            or ((key := keys.key(path)) is not None and time.start_of(time.value_in(key)) < complete)
        ]

    def _settle(
        self,
        dataset: Dataset,
        judgements: dict[str, Judgement],
        path: str,
        judgement: Judgement,
        changed_paths: set[str],
        *,
        has_fact: bool,
    ) -> None:
        before = judgements.get(path)
        if (before is not None and before.pending) != judgement.pending:
            changed_paths.add(path)
        if judgement.until is not None:
            heapq.heappush(self._memory.moments, (judgement.until, dataset.name, path))
        settled = judgement.state is State.CURRENT and not judgement.pending and not self._keep_settled
        # Nothing is kept of a partition that has no fact and that is not due, unless CATCHUP OFF is the reason.
        has_nothing = judgement.state in {State.MISSING, State.UPCOMING} and not has_fact and dataset.policy.catchup
        if settled or has_nothing:
            judgements.pop(path, None)
        else:
            judgements[path] = judgement

    def _grouped(self, dataset: Dataset, judgements: Mapping[str, Judgement], keys: Keys) -> list[Run]:
        dues = [
            Due(
                key, judgement.inputs, judgement.reason, judgement.token, judgement.together, judgement.backfill,
                judgement.changed,
            )
            for path, judgement in judgements.items()
            if judgement.state is State.DUE and (key := keys.key(path)) is not None
        ]  # fmt: skip
        limit = dataset.policy.partitions_per_run or self._limits.partitions_per_run
        return runs(dataset, sorted(dues, key=lambda due: due.partition), limit=limit) if dues else []

    def _mark_readers(self, dataset: Dataset, changed_paths: set[str]) -> None:
        if self._everything or not changed_paths:
            return
        for reader, edge in self._readers[dataset.name]:
            if reader.name not in self._whole:
                self._work.setdefault(reader.name, set()).update(self._edge(reader, edge).readers(changed_paths))

    def _partitions_to_judge(self, dataset: Dataset, edges: Sequence[EdgePaths]) -> tuple[set[str], int]:
        """The paths to judge where any fact may have changed, and how many paths were considered.

        Settled partitions are left out: their only fact is a batch that stays.
        """
        pending = set[str]()
        reading = set[str]()
        for edge_paths in edges:
            upstream = edge_paths.edge.upstream.name
            about_to_change = {
                path for path, judgement in self._memory.judgements[upstream].items() if judgement.pending
            }
            pending.update(edge_paths.readers(about_to_change) if about_to_change else ())
            reading.update(edge_paths.readers(self._existing_partitions(upstream)))
        if needs_no_input(dataset, reads=bool(edges)):
            self._refuse_explosion(dataset, dataset.partitioning.count(self._members, self._now))
            reading.update(key.path for key in dataset.partitioning.keys(self._members, self._now))
        if self._keep_settled or dataset.recomputes:
            paths = pending | reading | set(self._of(dataset.name, None))
            return paths, len(paths)
        existing = self._existing_partitions(dataset.name)
        paths = pending | (reading - existing) | self._unsettled(dataset, edges, existing)
        return paths, len(existing | paths)

    def _unsettled(self, dataset: Dataset, edges: Sequence[EdgePaths], existing: set[str]) -> set[str]:
        keys = self._key_cache(dataset)
        inside = keys.inside(existing)
        wanted = [
            WantedInputs(edge_paths.edge.upstream.name, None if edge_paths.identical else edge_paths.wanted_by(inside))
            for edge_paths in edges
        ]
        landing = landing_source(dataset) if dataset.arrives else ""
        unsettled = (existing - inside) | self._facts.unsettled(dataset.name, landing, wanted)
        if dataset.policy.retention is not None:
            timing = Timing.of(dataset, [edge_paths.edge for edge_paths in edges], self._at)
            unsettled |= {path for path in inside if timing.is_over(timing.window_end(keys.key(path)))}
        return unsettled

    def _schedule_next_look(self, dataset: Dataset) -> None:
        """Schedule the next judgement of the whole dataset: the moment when another window is complete."""
        calendars = followed_by_time(dataset, self._graph)
        if after := [calendar.following(int(self._at // 1)) for calendar in calendars]:
            heapq.heappush(self._memory.moments, (float(min(after)), dataset.name, ""))
        if is_found_late(dataset, self._graph):
            self._schedule_next_window(dataset)

    def _schedule_next_window(self, dataset: Dataset) -> None:
        """Schedule the judgement of the window that is over next, of which an input may be there already."""
        time = dataset.partitioning.time
        assert time is not None
        after = float(time.calendar.following(int(self._at // 1)))
        heapq.heappush(self._memory.moments, (after, dataset.name, _ENDED_WINDOWS))

    def _ended_windows(self, dataset: Dataset, since: float) -> set[str]:
        """The partitions of the windows that are over now and were not before that moment."""
        time, partitioning = dataset.partitioning.time, dataset.partitioning
        assert time is not None
        first = max(time.first, time.calendar.floor(int(since) - 1))
        spans = TimeSpans.of(time.calendar.runs(first, max(first, time.known_until(self._now))))
        choices = [
            spans if dimension is time else everything(dimension, self._members, self._now)
            for dimension in partitioning.dimensions
        ]
        return {key.path for key in PartitionBox(partitioning, tuple(choices)).partitions()} if all(choices) else set()

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
        facts = self._facts.of(name, paths)
        if paths is None:
            self._cached[name] = facts
        return facts

    def _existing_partitions(self, name: str) -> set[str]:
        if name not in self._cached_existing:
            self._cached_existing[name] = self._facts.existing_partitions(name)
        return self._cached_existing[name]

    def _edge(self, reader: Dataset, edge: Edge) -> EdgePaths:
        members = self._members
        keys = self._key_cache(reader), self._key_cache(edge.upstream)
        return EdgePaths(edge, *keys, shapes=self._shapes, members=members, now=self._now)

    def _key_cache(self, dataset: Dataset) -> Keys:
        partitioning = dataset.partitioning
        if partitioning not in self._keys:
            self._keys[partitioning] = Keys(partitioning, self._members)
        return self._keys[partitioning]


def _unwanted(dataset: Dataset, fact: Fact, code: CodeState, *, has_key: bool) -> Judgement:
    if fact.run:
        return Judgement(State.IN_FLIGHT, f"run {fact.run[:8]} is on it", pending=True)
    if not fact.batch and (not fact.marks or dataset.of_project):
        return Judgement(State.MISSING, "no partition of its dataset, and it has no batch")
    reason = "its retention is over" if has_key else "the graph has no such partition any more"
    if dataset.of_project:
        return Judgement(State.CURRENT, f"computed by project {dataset.of_project}; not among the partitions here")
    if code.differs:
        return Judgement(State.ON_HOLD, f"{reason}, but {hold_reason(code, fact.made_by, marked=False)}")
    if not fact.batch:
        return Judgement(State.UNWANTED, f"{reason}; it was never computed, and its mark is to be taken away")
    return Judgement(State.UNWANTED, f"{reason}; to be retired", token=str(fact.batch))


def _not_there(judgement: Judgement, later: float) -> Judgement:
    """The judgement of a key that is not a partition yet (`later`: from when it is): it is not requested before."""
    until = min(later, judgement.until) if judgement.until is not None else later
    if judgement.state not in {State.DUE, State.BACKING_OFF, State.FAILED, State.WAITING}:
        return replace(judgement, until=until)
    at = instant(later).isoformat(timespec="seconds")
    reason = f"{judgement.reason}; its window is not over, and it is computed from {at} on"
    return Judgement(State.UPCOMING, reason, until=until)
