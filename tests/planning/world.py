"""A world without servers: a virtual clock, files that arrive, runs of any length that may fail, and what is published.

Contents are real, though small: a batch holds a hash of what it was made from, so that what a planner leads to can be
compared with a clean rebuild.

Not here: what should come of it (test_reconcile.py).
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from varve.model.errors import UnknownPartition
from varve.planning.judgement.facts import NOTHING, Fact, Failure, Mark
from varve.planning.judgement.judgement import State
from varve.planning.judgement.judging import RetryLimits
from varve.planning.mapping.dataset_mapping import listed
from varve.planning.operations.one_partition import judged_with_inputs
from varve.planning.reconcile import Limits, Planner, RunPlan, reconcile
from varve.planning.run_requests import landing_source

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from varve.model.batch import Input
    from varve.model.partitions.dimension import Members
    from varve.model.partitions.key import PartitionKey
    from varve.planning.graph import Graph
    from varve.planning.judgement.code import CodeState
    from varve.planning.run_requests import Run

LIMITS = Limits(RetryLimits(attempts=3, first=60.0, most=600.0), partitions_per_run=16)


def hashed(parts: list[tuple[str, str, str]]) -> str:
    """The content of a batch that is made from these."""
    return hashlib.blake2b(repr(sorted(parts)).encode(), digest_size=4).hexdigest()


@dataclass
class Flying:
    """A run between its launch and its end."""

    run: Run
    begins: float
    ends: float
    fails: bool
    away: bool = False
    batch: int = 0
    traces: dict[str, tuple[tuple[str, str, str], ...]] = field(default_factory=dict)


@dataclass
class World:
    """What is, and what has happened.

    Attributes:
        now: seconds since 1970.
        broken: whether a build of (dataset, path) fails.
        away: whether a service is that every build needs.
        lasts: how long a run lasts, in seconds; the first part of it waits in a queue.
    """

    graph: Graph
    now: float
    limits: Limits = LIMITS
    broken: Callable[[str, str], bool] = lambda *_: False
    away: bool = False
    lasts: Callable[[Run], float] = lambda _: 30.0
    members: Members | None = None
    codes: Mapping[str, CodeState] | None = None
    facts: dict[str, dict[str, Fact]] = field(default_factory=dict)
    contents: dict[tuple[str, str], str] = field(default_factory=dict)
    flying: list[Flying] = field(default_factory=list)
    builds: Counter[tuple[str, str]] = field(default_factory=Counter)
    launched: list[Run] = field(default_factory=list)
    _history: dict[tuple[str, str], dict[int, str]] = field(default_factory=dict)
    _made: set[tuple[object, ...]] = field(default_factory=set)
    _changed: dict[str, set[str]] = field(default_factory=dict)
    _wanted: dict[tuple[str, PartitionKey], set[tuple[str, str]]] = field(default_factory=dict)
    _last_batch: int = 0

    def __post_init__(self) -> None:
        self.facts = {name: {} for name in self.graph.datasets}
        self.planner = Planner(self.graph, self.limits)

    def of(self, dataset: str, paths: Collection[str] | None) -> Mapping[str, Fact]:
        """See `Facts`."""
        facts = self.facts[dataset]
        return dict(facts) if paths is None else {path: facts[path] for path in paths if path in facts}

    def fact(self, dataset: str, path: str) -> Fact:
        return self.facts[dataset].get(path, NOTHING)

    def set(self, dataset: str, path: str, **values: object) -> None:
        """Change what is known of a partition, and note that it has changed."""
        fact = self.fact(dataset, path)._replace(**values)
        self.facts[dataset][path] = fact
        if fact == NOTHING:
            del self.facts[dataset][path]
        self._changed.setdefault(dataset, set()).add(path)

    def arrive(self, dataset: str, path: str, content: str) -> None:
        if self.fact(dataset, path).arrival != content:
            self.set(dataset, path, arrival=content, arrived=self.now)

    def mark(self, dataset: str, path: str, reason: str = "a person says so", *, paused: bool = False) -> None:
        marks = (*self.fact(dataset, path).marks, Mark(self._next(), reason, 1, paused))
        self.set(dataset, path, marks=marks)

    def withdraw(self, dataset: str, path: str) -> None:
        self.set(dataset, path, batch=0, published=0.0, equal=(), trace=())
        self.contents.pop((dataset, path), None)
        self._made = {made for made in self._made if made[:2] != (dataset, path)}

    def reload(self) -> None:
        """The code server begins anew: what its planner has seen is forgotten."""
        self.planner = Planner(self.graph, self.limits)

    def tick(self, *, check: bool = True, launches: bool = True) -> RunPlan:
        """Plan by what has changed, compare that with a plan from nothing, and launch the runs.

        Without `launches` the daemon dies before it has taken the requests.
        """
        at = dt.datetime.fromtimestamp(self.now, tz=dt.UTC)
        changed, self._changed = self._changed, {}
        plan = self.planner.tick(self, changed, now=at, members=self.members, codes=self.codes)
        if check:
            self._compare(plan, self.from_nothing())
        for run in plan.runs if launches else ():
            self.launch(run)
        for dataset, paths in plan.retire.items():
            for path in paths:
                self.withdraw(dataset, path)
        for dataset, paths in plan.unmark.items():
            for path in paths:
                self.set(dataset, path, marks=())
        return plan

    def launch(self, run: Run) -> None:
        name = run.dataset.name
        self.launched.append(run)
        for partition, token in zip(run.partitions, run.tokens, strict=True):
            path = partition.path
            assert not self.fact(name, path).run, f"{name} {path} is built twice at once"
            for edge in self.graph.edges[name]:
                for up in listed(edge.dependency.upstream_of(partition, members=self.members).existing):
                    assert not self.fact(edge.upstream.name, up.path).run, f"{name} {path} is built before its inputs"
            made = (
                name,
                path,
                frozenset(read_input for read_input in run.inputs if self._reads(run, partition, read_input)),
                token,
            )
            assert made not in self._made, f"{name} {path} runs twice for the same inputs"
            self._made.add(made)
            self.set(name, path, run=f"run {len(self.launched)}")
        lasts = self.lasts(run)
        fails = self.away or any(self.broken(name, partition.path) for partition in run.partitions)
        self.flying.append(Flying(run, self.now + lasts / 3, self.now + lasts, fails, self.away))

    def advance(self, seconds: float) -> None:
        """Let time pass, and runs begin and end in it."""
        until = self.now + seconds
        while moments := [
            (flying_run.ends if flying_run.batch else flying_run.begins, place)
            for place, flying_run in enumerate(self.flying)
            if (flying_run.ends if flying_run.batch else flying_run.begins) <= until
        ]:
            self.now, place = min(moments)
            flying = self.flying[place]
            if not flying.batch:
                self._begin(flying)
            else:
                del self.flying[place]
                self._end(flying)
        self.now = until

    def until_quiet(self, *, every: float = 30.0, ticks: int = 400, check: bool = True) -> int:
        """Tick until nothing is in flight, due or about to be tried again; how many ticks that took."""
        for count in range(ticks):
            plan = self.tick(check=check)
            waiting = [
                judgement for judged in plan.judgements.values() for judgement in judged.values() if judgement.pending
            ]
            if not self.flying and not plan.runs and not waiting and not plan.retire and not plan.unmark:
                return count
            self.advance(every)
        raise AssertionError(f"not quiet after {ticks} ticks: {[str(run.first) for run in plan.runs]}")

    def states(self, dataset: str) -> dict[str, State]:
        """What a plan from nothing says of each partition."""
        plan = self.from_nothing()
        return {path: judgement.state for path, judgement in plan.judgements[dataset].items()}

    def reason(self, dataset: str, path: str) -> str:
        """Why a plan from nothing has the partition in its state."""
        return self.from_nothing().judgements[dataset][path].reason

    def from_nothing(self) -> RunPlan:
        """What a planner without memory plans now."""
        at = dt.datetime.fromtimestamp(self.now, tz=dt.UTC)
        return reconcile(self.graph, self, now=at, members=self.members, limits=self.limits, codes=self.codes)

    def clean(self) -> dict[tuple[str, str], str]:
        """What a clean rebuild from the files that have arrived would hold."""
        rebuilt: dict[tuple[str, str], str] = {}
        for dataset in self.graph.in_order():
            edges = self.graph.edges[dataset.name]
            paths = {path for path, fact in self.facts[dataset.name].items() if fact.arrival}
            for edge in edges:
                ups = [up for name, up in rebuilt if name == edge.upstream.name]
                for up in ups:
                    key = edge.upstream.partitioning.from_path(up)
                    paths |= {reader.path for reader in edge.dependency.readers_of(key, members=self.members).keys}
            for path in paths:
                made = self._made_from(dataset.name, path, lambda name, up: rebuilt.get((name, up)))
                if made is not None:
                    rebuilt[dataset.name, path] = made
        return rebuilt

    def _made_from(self, name: str, path: str, content_of: Callable[[str, str], str | None]) -> str | None:
        """The content of a partition made from these; None where something is missing."""
        dataset = self.graph.datasets[name]
        try:
            key = dataset.partitioning.from_path(path)
        except UnknownPartition:
            return None
        parts = [(landing_source(dataset), path, self.fact(name, path).arrival[:1])] if dataset.landing else []
        for edge in self.graph.edges[name]:
            for up in edge.dependency.upstream_of(key, members=self.members).keys:
                content = content_of(edge.upstream.name, up.path)
                if content is None:
                    return None
                parts.append((edge.upstream.name, up.path, content))
        return hashed(parts)

    def _reads(self, run: Run, partition: PartitionKey, read_input: Input) -> bool:
        place = run.dataset.name, partition
        if place not in self._wanted:
            self._wanted[place] = {(landing_source(run.dataset), partition.path)}
            for edge in self.graph.edges[run.dataset.name]:
                mapped = edge.dependency.upstream_of(partition, members=self.members)
                self._wanted[place] |= {(edge.upstream.name, key.path) for key in mapped.keys}
        return (read_input.source, read_input.partition) in self._wanted[place]

    def _begin(self, flying: Flying) -> None:
        """Pin the inputs, as a run does when it begins."""
        flying.batch = self._next()
        name = flying.run.dataset.name
        for partition in flying.run.partitions:
            trace: list[tuple[str, str, str]] = []
            if flying.run.dataset.landing:
                trace.append(
                    (landing_source(flying.run.dataset), partition.path, self.fact(name, partition.path).arrival)
                )
            for edge in self.graph.edges[name]:
                wanted = [up.path for up in edge.dependency.upstream_of(partition, members=self.members).keys]
                there = [(path, self.fact(edge.upstream.name, path).batch) for path in wanted]
                trace += [(edge.upstream.name, path, str(batch)) for path, batch in there if batch]
            flying.traces[partition.path] = tuple(trace)

    def _end(self, flying: Flying) -> None:
        name, paths = flying.run.dataset.name, [partition.path for partition in flying.run.partitions]
        for path in paths:
            fact = self.fact(name, path)
            if flying.fails:
                failure = Failure(flying.batch / 1000, self.now, len(paths), flying.away)
                self.set(name, path, run="", failures=(*fact.failures, failure))
                continue
            self.builds[name, path] += 1
            content = hashed(self._rows(flying.traces[path]))
            history = self._history.setdefault((name, path), {})
            equal = tuple(batch for batch, of_content in history.items() if of_content == content)
            history[flying.batch] = content
            rows_since = (fact.rows_since or fact.published) if fact.batch in equal else self.now
            self.contents[name, path] = content
            marks = tuple(mark for mark in fact.marks if mark.number > flying.batch)
            self.set(
                name, path, run="", batch=flying.batch, published=self.now, rows_since=rows_since, equal=equal,
                marks=marks, trace=flying.traces[path], failures=(), rolled_back=0.0,
            )  # fmt: skip

    def _rows(self, trace: tuple[tuple[str, str, str], ...]) -> list[tuple[str, str, str]]:
        """What a batch is computed from: the contents of its inputs, whatever their batches are called.

        Of a file only the first letter counts: `a2` holds the same rows as `a1`.
        """
        return [
            (source, path, version[:1] if source.startswith("landing:") else self._history[source, path][int(version)])
            for source, path, version in trace
        ]

    def _next(self) -> int:
        self._last_batch = max(self._last_batch + 1, int(self.now * 1000))
        return self._last_batch

    def _compare(self, plan: RunPlan, fresh: RunPlan) -> None:
        for name, judged in fresh.judgements.items():
            unsettled = {
                path: judgement
                for path, judgement in judged.items()
                if judgement.state is not State.CURRENT or judgement.pending
            }
            assert dict(plan.judgements[name]) == unsettled, name
        assert [run.identity for run in plan.runs] == [run.identity for run in fresh.runs]
        assert (plan.retire, plan.unmark) == (fresh.retire, fresh.unmark)

    def compare_alone(self, name: str, path: str, fresh: RunPlan) -> None:
        """Compare what is said of a partition and its inputs, looked at alone, with a plan from nothing."""
        alone = judged_with_inputs(
            self.graph, self, self.graph.datasets[name], path,
            now=dt.datetime.fromtimestamp(self.now, tz=dt.UTC), members=self.members, limits=self.limits,
            codes=self.codes,
        )  # fmt: skip
        assert alone[name].get(path) == fresh.judgements[name].get(path), (name, path)
        for upstream, judged in alone.items():
            for upstream_path, judgement in judged.items():
                assert judgement == fresh.judgements[upstream].get(upstream_path), (name, path, upstream, upstream_path)
