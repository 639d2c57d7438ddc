"""Reconciling what should exist with what exists: every partition is judged, and due partitions are put into runs.

`reconcile` judges everything, and is a pure function; `overview` finds the same states at a fraction of the cost. A
`Planner` comes to the same result by judging only partitions with changed facts, their readers, and those that the
passing of time affects (docs/decisions/0006-planner.md). It keeps judgements of unsettled partitions and no facts, so
that it can be thrown away at any moment.

Not here: one tick (tick.py), the judgement itself (judgement/judging.py), facts (judgement/facts.py), and asking
Dagster for the runs (varve/dagster/automation/sensors.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from varve.planning.judgement.facts import DatasetInputs, FactsOfGraph
from varve.planning.judgement.judgement import SETTLED, State
from varve.planning.judgement.settled import in_bulk
from varve.planning.readers import identical
from varve.planning.run_requests import landing_source
from varve.planning.tick import Limits, Memory, Tick

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection, Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.planning.graph import Edge, Graph
    from varve.planning.judgement.code import CodeState
    from varve.planning.judgement.facts import BulkFacts, Facts
    from varve.planning.judgement.judgement import Judgement
    from varve.planning.run_requests import Run

__all__ = ["Limits", "Planner", "RunPlan", "overview", "reconcile"]


@dataclass(frozen=True)
class RunPlan:
    """The result of a tick.

    Attributes:
        runs: the runs to launch, upstream before downstream, fresh data before backfills.
        retire: by dataset the paths of partitions that have a batch and are not, or no longer, in the graph.
        judgements: the judgements by dataset and path; a `Planner` leaves out settled partitions.
        looked_at: how many partitions were judged.
        failed: by dataset the error for which it could not be judged, where that did not end the tick.
        unmark: by dataset the paths of partitions that are marked, have no batch, and are not, or no longer, in the
            graph: no run computes them.
    """

    runs: tuple[Run, ...]
    retire: Mapping[str, tuple[str, ...]]
    judgements: Mapping[str, Mapping[str, Judgement]]
    looked_at: int
    failed: Mapping[str, str] = field(default_factory=dict)
    unmark: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def reconcile(
    graph: Graph,
    facts: Facts,
    *,
    now: dt.datetime,
    members: Members | None = None,
    limits: Limits | None = None,
    codes: Mapping[str, CodeState] | None = None,
    fatal: tuple[type[Exception], ...] = (Exception,),
) -> RunPlan:
    """Judge every partition that has a fact, or that reads a partition with a fact.

    `members` are the members of dynamic sets; `codes` the deployed code by dataset, where it is known. `fatal` is as in
    a `Planner`. Raises VarveError that names the dataset with more partitions than the limit.
    """
    return Planner(graph, limits or Limits(), keep_settled=True, fatal=fatal).tick(
        facts, None, now=now, members=members, codes=codes
    )


def overview(
    graph: Graph,
    facts: Facts,
    *,
    now: dt.datetime,
    members: Members | None = None,
    limits: Limits | None = None,
    codes: Mapping[str, CodeState] | None = None,
    fatal: tuple[type[Exception], ...] = (Exception,),
) -> RunPlan:
    """The same states as `reconcile`, for those who look at all of a graph: settled partitions are not judged.

    Of those, nearly all of a million, the facts say all at once that they are current; each has the reason SETTLED.
    `fatal` is as in a `Planner`.
    """
    in_all = _known(graph, graph.in_order(), in_bulk(facts), existing=True)
    plan = Planner(graph, limits or Limits(), fatal=fatal).tick(in_all, None, now=now, members=members, codes=codes)
    return replace(
        plan,
        judgements={
            name: with_settled(judgements, in_all.existing_partitions(name))
            for name, judgements in plan.judgements.items()
        },
    )


def _known(graph: Graph, datasets: Sequence[Dataset], facts: BulkFacts, *, existing: bool) -> BulkFacts:
    """The facts after they were asked, all together, what a look at all partitions asks of each of these datasets."""
    if not isinstance(facts, FactsOfGraph):
        return facts
    asked = []
    for dataset in datasets:
        edges = graph.edges[dataset.name]
        same_path = tuple([edge.upstream.name for edge in edges]) if all(map(identical, edges)) else None
        asked.append(DatasetInputs(dataset.name, landing_source(dataset) if dataset.arrives else "", same_path))
    return facts.together(asked, existing=existing)


def with_settled(judgements: Mapping[str, Judgement], existing: Collection[str]) -> dict[str, Judgement]:
    """The judgements of a planner, and one for each partition of which it keeps none although it has a batch."""
    return {**dict.fromkeys(existing, SETTLED), **judgements}


def judged_anew(
    graph: Graph,
    facts: Facts,
    dataset: Dataset,
    path: str,
    judgements: Mapping[str, Mapping[str, Judgement]],
    *,
    now: dt.datetime,
    members: Members | None = None,
    codes: Mapping[str, CodeState] | None = None,
) -> Judgement | None:
    """One partition as it is at `now`, by the judgements of what it reads; None where nothing is to be said of it.

    A planner keeps no judgement of what is settled; this has its reason, and costs the facts of a few partitions.
    """
    of_upstreams = {name: dict(judgements.get(name, {})) for name in [u.name for u in graph.upstreams(dataset)]}
    memory = Memory({**{name: {} for name in graph.datasets}, **of_upstreams, dataset.name: {}})
    tick = Tick(
        graph=graph, limits=Limits(), readers={name: [] for name in graph.datasets}, memory=memory,
        facts=in_bulk(facts), changed={dataset.name: [path]}, now=now, members=members, keep_settled=True,
        codes=codes or {},
    )  # fmt: skip
    tick.judge_dataset(dataset)
    return memory.judgements[dataset.name].get(path)


class Planner:
    """Reconciles tick by tick: the cost of a tick depends on what has changed since the tick before."""

    def __init__(
        self,
        graph: Graph,
        limits: Limits,
        *,
        keep_settled: bool = False,
        fatal: tuple[type[Exception], ...] = (Exception,),
        only: Collection[str] | None = None,
    ) -> None:
        """`fatal` errors end a tick; any other error only costs its dataset the judgements of this tick.

        Datasets that are not among `only` (None: all) are read and not judged: nothing of them counts as about to
        change.
        """
        self.graph = graph
        self._fatal = fatal
        self.limits = limits
        self._keep_settled = keep_settled
        self._order = [dataset for dataset in graph.in_order() if only is None or dataset.name in only]
        self._readers: dict[str, list[tuple[Dataset, Edge]]] = {name: [] for name in graph.datasets}
        for dataset in self._order:
            for edge in graph.edges[dataset.name]:
                self._readers[edge.upstream.name].append((dataset, edge))
        self._memory = Memory.of(graph)
        self._members: Members | None = None
        self._codes: Mapping[str, CodeState] = {}
        self._last: float | None = None
        # What could not be judged at the last tick, with its readers: judged whole by the next one.
        self._again: set[str] = set()

    def tick(
        self,
        facts: Facts,
        changed: Mapping[str, Collection[str]] | None,
        *,
        now: dt.datetime,
        members: Members | None = None,
        codes: Mapping[str, CodeState] | None = None,
    ) -> RunPlan:
        """The plan at `now`.

        `changed` are the paths, by dataset, of which a fact has changed since the last tick; None: not known. `codes`
        are as in `reconcile`; after a deployment everything is judged anew.
        """
        codes = codes or {}
        at = now.timestamp()
        # A clock that went back makes earlier judgements wrong.
        if changed is None or self._last is None or at < self._last or (members, codes) != (self._members, self._codes):
            self._memory = Memory.of(self.graph)
            self._again.clear()
            changed = None
        self._last, self._members, self._codes = None, members, codes
        in_all = in_bulk(facts)
        if changed is None and not self._keep_settled:
            # Of nearly all partitions this is all that is asked. Which ones there are would fill the memory.
            in_all = _known(self.graph, self._order, in_all, existing=False)
        tick = Tick(
            graph=self.graph,
            limits=self.limits,
            readers=self._readers,
            memory=self._memory,
            facts=in_all,
            changed=changed,
            whole=self._again,
            now=now,
            members=members,
            keep_settled=self._keep_settled,
            codes=codes,
        )
        looked_at, failed = 0, dict[str, str]()
        for dataset in self._order:
            try:
                looked_at += tick.judge_dataset(dataset)
            except self._fatal:
                raise
            except Exception as error:  # noqa: BLE001 - a defect of one dataset must not keep all others waiting
                failed[dataset.name] = str(error) or type(error).__name__
                self._memory.runs.pop(dataset.name, None)
                self._memory.judgements[dataset.name].clear()
        # Set only here: a tick that could not read its facts is repeated in full by the next one.
        self._last = at
        self._again = {*failed, *(reader.name for name in failed for reader, _ in self._readers[name])}
        return replace(self._plan(looked_at), failed=failed)

    def _plan(self, looked_at: int) -> RunPlan:
        planned = [run for dataset in self._order for run in self._memory.runs.get(dataset.name, ())]
        return RunPlan(
            tuple(sorted(planned, key=lambda run: run.backfill)),
            self._unwanted(has_batch=True),
            self._memory.judgements,
            looked_at,
            unmark=self._unwanted(has_batch=False),
        )

    def _unwanted(self, *, has_batch: bool) -> dict[str, tuple[str, ...]]:
        paths = {
            name: tuple(
                sorted(
                    path
                    for path, judgement in judgements.items()
                    if judgement.state is State.UNWANTED and bool(judgement.token) is has_batch
                )
            )
            for name, judgements in self._memory.judgements.items()
        }
        return {name: listed for name, listed in paths.items() if listed}
