"""What should exist against what does: every partition judged, and what is due in runs (seed 001, DESIGN section 8).

`reconcile` judges everything, and is a pure function. A `Planner` comes to the same by judging only what changed since
its last tick, what reads that, and what time has made true; it holds judgements of unsettled partitions and no facts,
so that it can be thrown away at any moment.

Not here: one tick (tick.py), the judgement itself (judgement/judging.py), facts (judgement/facts.py), and asking
Dagster for the runs (varve/dagster/automation/sensors.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from varve.planning.judgement.judgement import State
from varve.planning.judgement.settled import in_bulk
from varve.planning.tick import Limits, Memory, Tick

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection, Mapping

    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.planning.graph import Edge, Graph
    from varve.planning.judgement.facts import Facts
    from varve.planning.judgement.judgement import Judgement
    from varve.planning.run_requests import Run

__all__ = ["Limits", "Planner", "RunPlan", "reconcile"]


@dataclass(frozen=True)
class RunPlan:
    """What a tick has found.

    Attributes:
        runs: to launch, upstream before downstream, fresh data before backfills.
        retire: by dataset the partitions with a batch that the graph has not, or no longer.
        judgements: by dataset and path, one of every partition that was looked at; a `Planner` leaves out the settled.
        looked_at: how many partitions were judged.
        failed: by dataset why it could not be judged, where a planner contains that.
    """

    runs: tuple[Run, ...]
    retire: Mapping[str, tuple[str, ...]]
    judgements: Mapping[str, Mapping[str, Judgement]]
    looked_at: int
    failed: Mapping[str, str] = field(default_factory=dict)


def reconcile(
    graph: Graph, facts: Facts, *, now: dt.datetime, members: Members | None = None, limits: Limits | None = None
) -> RunPlan:
    """Judge every partition of which anything is known or which reads one of those.

    `members` are those of dynamic sets. Raises VarveError, naming the dataset, where that is more than the limit.
    """
    return Planner(graph, limits or Limits(), keep_settled=True).tick(facts, None, now=now, members=members)


class Planner:
    """Reconciles tick by tick: what a tick costs follows from what has changed since the one before."""

    def __init__(
        self,
        graph: Graph,
        limits: Limits,
        *,
        keep_settled: bool = False,
        fatal: tuple[type[Exception], ...] = (Exception,),
    ) -> None:
        """`fatal` errors end a tick; any other costs the dataset that it came up with its judgements, and no other."""
        self.graph = graph
        self._fatal = fatal
        self.limits = limits
        self._keep_settled = keep_settled
        self._order = graph.in_order()
        self._readers: dict[str, list[tuple[Dataset, Edge]]] = {name: [] for name in graph.datasets}
        for dataset in self._order:
            for edge in graph.edges[dataset.name]:
                self._readers[edge.upstream.name].append((dataset, edge))
        self._memory = Memory.of(graph)
        self._members: Members | None = None
        self._last: float | None = None

    def tick(
        self,
        facts: Facts,
        changed: Mapping[str, Collection[str]] | None,
        *,
        now: dt.datetime,
        members: Members | None = None,
    ) -> RunPlan:
        """The plan as of now.

        `changed` are the partitions, by dataset, of which any fact has changed since the last tick; None: not known.
        """
        at = now.timestamp()
        # A clock that went back has made things untrue that were true.
        if changed is None or self._last is None or at < self._last or members != self._members:
            self._memory = Memory.of(self.graph)
            changed = None
        self._last, self._members = None, members
        tick = Tick(
            graph=self.graph,
            limits=self.limits,
            readers=self._readers,
            memory=self._memory,
            facts=in_bulk(facts),
            changed=changed,
            now=now,
            members=members,
            keep_settled=self._keep_settled,
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
        # Only now: a tick that could not reach its facts, or judge everything, is begun anew by the next one.
        self._last = None if failed else at
        return replace(self._plan(looked_at), failed=failed)

    def _plan(self, looked_at: int) -> RunPlan:
        planned = [run for dataset in self._order for run in self._memory.runs.get(dataset.name, ())]
        retire = {
            name: tuple(sorted(path for path, found in judged.items() if found.state is State.UNWANTED))
            for name, judged in self._memory.judgements.items()
        }
        return RunPlan(
            tuple(sorted(planned, key=lambda run: run.backfill)),
            {name: paths for name, paths in retire.items() if paths},
            self._memory.judgements,
            looked_at,
        )
