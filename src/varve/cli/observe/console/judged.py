"""The plan that the pages show: judged once, and from then on only where the catalog has changed.

Judging every partition of a large graph takes seconds, which nobody waits for twice: a page has what was judged last,
at most a few seconds old, while a thread looks for what has changed since.

Not here: what the pages show of it (pages.py).
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pendulum
import psycopg

from varve.catalog.planning.facts import Changes
from varve.cli.context import chosen_graph, working_on
from varve.cli.observe.console.heat_calendar import places_of
from varve.cli.observe.opened import untouched_catalog
from varve.cli.problems.alerts import open_alert_values
from varve.cli.problems.broken import broken_values
from varve.cli.problems.rejected import left_out_values, rejected_values
from varve.dagster.automation.planner_facts import limits_of
from varve.dagster.automation.reconciling import looked_up
from varve.dagster.instance import open_instance
from varve.planning.arrivals.landing_file import RejectionKind
from varve.planning.operations.heat import due_runs, heat_of_dataset
from varve.planning.reconcile import Planner, with_settled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varve.catalog.planning.facts import CatalogFacts
    from varve.cli.observe.console.heat_calendar import Place
    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.planning.graph import Graph
    from varve.planning.judgement.judgement import Judgement
    from varve.project import Project

# A page is at most so old, unless something takes longer to be judged.
_SECONDS = 5.0
# So long a page waits for what has changed, before it shows what was judged last.
_PATIENCE = 0.2


@dataclass(frozen=True)
class SeenDataset:
    """A dataset with its judged partitions, by path. Two are equal where those are.

    Attributes:
        known: places in the calendar that were computed before, of partitions that it had then.
    """

    dataset: Dataset
    judgements: Mapping[str, Judgement]
    known: Mapping[str, Place] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def heat(self) -> dict[str, Any]:
        """Its row of the overview (`varve.planning.operations.heat`)."""
        return heat_of_dataset(self.dataset.name, self.judgements)

    @cached_property
    def places(self) -> Mapping[str, Place]:
        """Where each partition stands in the calendar."""
        new = self.judgements.keys() - self.known.keys()
        return {**{path: self.known[path] for path in self.judgements.keys() & self.known.keys()},
                **places_of(self.dataset, new)}  # fmt: skip

    @cached_property
    def pages(self) -> Mapping[str, list[str]]:
        """The partitions of each page of the calendar, in order."""
        pages: dict[str, list[str]] = {}
        for path, place in sorted(self.places.items()):
            pages.setdefault(place.page, []).append(path)
        return pages


@dataclass(frozen=True)
class Seen:
    """The plan as it was judged at one moment.

    Attributes:
        datasets: in the order of the graph.
        facts, members: what partitions are judged by; the facts ask over a connection that is closed.
        due: the runs that are due.
        problems: what arrived and is not taken, what was left out, open alerts, files with errors, and under
            `not_judged` the error of each dataset that could not be judged.
    """

    at: str
    graph: Graph
    datasets: Mapping[str, SeenDataset]
    facts: CatalogFacts
    members: Members
    due: list[dict[str, Any]]
    problems: dict[str, Any]

    @property
    def judgements(self) -> dict[str, Mapping[str, Judgement]]:
        """The judgements by dataset and path."""
        return {name: dataset.judgements for name, dataset in self.datasets.items()}


@dataclass
class JudgedPlan:
    """The plan of a project, as it was judged last."""

    project: Project
    _seen: Seen | None = None
    _until: float = 0.0
    _looking: Future[Seen] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _planner: Planner | None = None
    _changes: Changes = field(default_factory=Changes)
    _existing: dict[str, set[str]] = field(default_factory=dict)

    def seen(self) -> Seen:
        """The last plan, judged anew where it is older than a few seconds and that does not take long.

        Raises what `untouched_catalog` raises where nothing could be looked at.
        """
        with self._lock:
            last = self._seen
            if last is not None and time.monotonic() < self._until:
                return last
        judging = self.look()
        try:
            return judging.result(None if last is None else _PATIENCE)
        except NotYet:
            assert last is not None
            return last

    def look(self) -> Future[Seen]:
        """Begin to judge anew in a thread of its own; where one is at it, its result is the one."""
        with self._lock:
            if self._looking is None:
                self._looking = Future()
                threading.Thread(target=self._look, args=(self._looking,), daemon=True).start()
            return self._looking

    def _look(self, judging: Future[Seen]) -> None:
        try:
            seen = self._judged()
        except BaseException as error:  # noqa: BLE001 - raised in the threads that wait for it
            # The planner may have seen half of the changes: the next look begins with a new one.
            self._planner = None
            with self._lock:
                self._looking = None
            judging.set_exception(error)
            return
        with self._lock:
            self._seen, self._until, self._looking = seen, time.monotonic() + _SECONDS, None
        judging.set_result(seen)
        # What pages of datasets are made of, while nobody waits for it.
        for dataset in seen.datasets.values():
            _ = dataset.heat, dataset.pages

    def _judged(self) -> Seen:
        settings, last = self.project.settings, self._seen
        with working_on(self.project):
            graph = chosen_graph()
        if self._planner is None or self._planner.graph is not graph:
            self._planner = Planner(graph, limits_of(settings), fatal=(psycopg.Error,))
            self._changes, self._existing = Changes(only_looks=True), {}
        with (
            untouched_catalog(settings, "varve console") as connection,
            open_instance(settings, starting=False) as instance,
        ):
            facts, members = looked_up(graph, connection, instance, settings)
            changed = self._changes.since_last(connection, facts.in_flight)
            plan = self._planner.tick(facts, changed, now=pendulum.now("UTC"), members=members, codes=facts.codes)
            self._existing |= {
                name: facts.existing_partitions(name)
                for name in (graph.datasets if changed is None else changed.keys() & graph.datasets.keys())
            }
            rejected = [row for row in rejected_values(connection) if row["kind"] != RejectionKind.PAST]
            problems = {
                "rejected": rejected, "left_out": left_out_values(connection),
                "alerts": open_alert_values(connection), "broken": broken_values(graph.broken),
                "not_judged": dict(plan.failed),
            }  # fmt: skip
        datasets = {}
        for dataset in graph.in_order():
            # A copy: the planner changes its own in the next look, while pages read this one. And it keeps nothing of
            # what is settled, which PostgreSQL tells it all at once.
            before = last.datasets[dataset.name] if last is not None and last.graph is graph else None
            judgements = with_settled(plan.judgements[dataset.name], self._existing.get(dataset.name, ()))
            judged = SeenDataset(dataset, judgements, {} if before is None else before.places)
            # What is made of one that has not changed is kept with it.
            datasets[dataset.name] = before if before is not None and before == judged else judged
        at = f"{pendulum.now('UTC'):YYYY-MM-DD HH:mm:ss} UTC"
        return Seen(at, graph, datasets, facts, members, due_runs(plan), problems)
