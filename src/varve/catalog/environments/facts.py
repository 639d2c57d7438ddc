"""The facts by which an environment's partitions are judged: its overlay over its base, and its own failures.

Marks, failures and arrivals of production are not the environment's: it judges only whether code and inputs differ.
But a batch that a person went back to, or accepted as it is, stays so where the environment shows it and has not
changed its code: else a promotion of something else would undo that.

Not here: the facts of production (varve/catalog/planning/facts.py).
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from varve.catalog.code.generations import Generations, shape_of
from varve.catalog.environments.earlier_code import EarlierCode
from varve.catalog.environments.named_files import misnamed
from varve.catalog.planning.facts import failures_of
from varve.model.policy import OnCodeChange
from varve.planning.changes.generation import has_same_partitions
from varve.planning.judgement.code import CodeState, MadeBy
from varve.planning.judgement.facts import Accepted, Fact
from varve.planning.run_requests import landing_source

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import psycopg

    from varve.planning.graph import Graph
    from varve.planning.judgement.facts import WantedInputs

# Which code made a batch, as a number of `MadeBy`. Where the environment did not change the code of a dataset,
# production decides about its batches of earlier code; one of the environment's own is of code that it has no more,
# as after somebody else's was merged into it. A captured table has no code of the project's own.
_MADE_BY = """
    case when %(code)s = '' or b.code_version in ('', %(code)s) then 0
        when exists (select from varve.environment_code x where x.environment = %(environment)s
            and x.dataset = %(dataset)s and x.base_code = %(code)s)
          and not exists (select from varve.overlay o where (o.environment, o.dataset, o.partition)
            = (%(environment)s, %(dataset)s, c.partition)) then 3
        else 1 end
    from varve.environment_current c join varve.batch b using (dataset, partition, batch_id)
    where c.environment = %(environment)s and c.dataset = %(dataset)s
"""
# Since when the environment has a batch: one that it has taken may have been made long ago.
_CURRENT = """
    select c.partition, c.batch_id, extract(epoch from coalesce(
            (select o.pointed_at from varve.overlay o
             where (o.environment, o.dataset, o.partition) = (c.environment, c.dataset, c.partition)),
            b.published_at, b.staged_at))::float8, b.inputs,
        case when b.content is null then null else (
            select array_agg(e.batch_id) from varve.batch e
            where e.dataset = b.dataset and e.partition = b.partition and e.content = b.content
              and e.batch_id <> b.batch_id) end,
        case when b.digests is null then null else (
            select jsonb_object_agg(same.columns, same.ids) from (
                select d.key as columns, jsonb_agg(e.batch_id) as ids from jsonb_each_text(b.digests) d
                join varve.batch e on e.dataset = b.dataset and e.partition = b.partition
                  and e.batch_id <> b.batch_id and e.digests ->> d.key = d.value
                group by d.key) same) end,
"""
_CURRENT += _MADE_BY
_CURRENT_OF = _CURRENT + " and c.partition = any(%(paths)s)"
_ARRIVALS = """
    select a.partition, a.fingerprint, a.uri from varve.arrival a
    join varve.environment_generation g on (g.environment, g.dataset) = (%(environment)s, a.dataset)
    join varve.dataset d on d.dataset = a.dataset and d.generation <> g.generation
    where a.dataset = %(dataset)s and (%(paths)s::text[] is null or a.partition = any(%(paths)s))
"""
# What people have decided in production, where the environment has no batch of its own.
_NOT_OF_ITS_OWN = """
    where p.dataset = %(dataset)s and (%(paths)s::text[] is null or p.partition = any(%(paths)s)) and not exists (
        select from varve.overlay o
        where (o.environment, o.dataset, o.partition) = (%(environment)s, p.dataset, p.partition))
"""
_ON_HOLD = "select p.partition, extract(epoch from p.since)::float8 from varve.hold p"
_ON_HOLD += _NOT_OF_ITS_OWN
_ACCEPTED = """
    select p.partition, p.source, p.source_partition, p.version, concat_ws(': ', p.accepted_by, nullif(p.reason, ''))
    from varve.acceptance p
"""
_ACCEPTED += _NOT_OF_ITS_OWN
_ACCEPTED += " order by p.accepted_at"
# What readers have of a dataset that the environment builds as another generation: that one has not been taken back.
_BUILT_ANEW = "select partition from varve.current where dataset = %(dataset)s"
# What a trace says of the batch that the environment has, and the trace of that batch, both as text.
_TRACES = """
    select c.partition, jsonb_build_array(c.dataset, c.partition, c.batch_id::text)::text, b.inputs::text,
"""
_TRACES += _MADE_BY
# What other code than the environment has now failed at says nothing.
_FAILURES = """
    select f.partition, f.batch_id, extract(epoch from f.started_at)::float8,
        (extract(epoch from coalesce(f.failed_at, f.started_at))
         + round(%(here)s::numeric - extract(epoch from clock_timestamp())))::float8, f.outage
    from varve.batch f
    left join varve.overlay o on (o.environment, o.dataset, o.partition) = (f.environment, f.dataset, f.partition)
    where f.dataset = %(dataset)s and f.state = 'failed' and f.environment = %(environment)s
      and f.batch_id > coalesce(o.batch_id, 0) and (%(paths)s::text[] is null or f.partition = any(%(paths)s))
      and (%(code)s = '' or f.code_version in ('', %(code)s))
    order by f.partition, f.batch_id
"""


@dataclass(frozen=True)
class EnvironmentFacts:
    """The facts of an environment that computes with the code of a graph, over one connection in autocommit mode.

    They are for one plan: what is read of all partitions of a dataset, for which each of its readers asks, is kept.

    Attributes:
        in_flight: by dataset, the partitions that runs build in the environment.
    """

    connection: psycopg.Connection
    environment: str
    graph: Graph
    in_flight: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    _read: dict[str, Mapping[str, Fact]] = field(default_factory=dict)
    _items: dict[str, dict[str, str]] = field(default_factory=dict)
    _traces: dict[str, list[tuple[str, str, int]]] = field(default_factory=dict)

    @cached_property
    def earlier_code(self) -> EarlierCode:
        """Which windows keep what earlier code has made of them."""
        return EarlierCode(self.connection, self.environment, self.graph)

    def of(self, dataset: str, paths: Collection[str] | None) -> Mapping[str, Fact]:
        """See `planning.facts.Facts`."""
        if dataset not in self._read and paths is None:
            self._read[dataset] = self._look_up(dataset, None)
        if (facts := self._read.get(dataset)) is None:
            return self._look_up(dataset, paths)
        return facts if paths is None else {path: facts[path] for path in paths if path in facts}

    def existing_partitions(self, dataset: str) -> set[str]:
        """See `planning.facts.BulkFacts`."""
        return set(self._current_trace_items(dataset))

    def unsettled(self, dataset: str, landing: str, reads: Sequence[WantedInputs]) -> set[str]:
        """See `planning.facts.BulkFacts`: traces are compared as text, as PostgreSQL writes them."""
        self._current_trace_items(dataset)
        paths = set(self.in_flight.get(dataset, ()))
        paths |= {path for path, *_ in self.connection.execute(_FAILURES, self._parameters(dataset, None)).fetchall()}
        if landing:
            # What has arrived anew for a new generation.
            paths |= self._arrivals(dataset, None).keys() - self._current_trace_items(dataset).keys()
        # A trace is stored in the order of sources and partitions.
        sources = [(read.paths, self._current_trace_items(read.source)) for read in sorted(reads)]
        for path, trace, made_by in self._traces.pop(dataset):
            items = [
                items.get(upstream_path, "nothing")
                for upstream_paths, items in sources
                for upstream_path in ((path,) if upstream_paths is None else sorted(upstream_paths.get(path, ())))
            ]
            text = _without_arrival(trace, landing, path) if landing else trace
            if made_by == MadeBy.OTHER or text != f"[{', '.join(items)}]":
                paths.add(path)
        return paths

    def _current_trace_items(self, dataset: str) -> Mapping[str, str]:
        """By partition, what a trace says of the batch that the environment has; traces are kept for `unsettled`."""
        if dataset not in self._items:
            rows = self.connection.execute(_TRACES, self._parameters(dataset, None)).fetchall()
            self._items[dataset] = {path: item for path, item, *_ in rows}
            stay = self._stay(dataset, ((path, made_by) for path, *_, made_by in rows))
            self._traces[dataset] = [
                (path, trace, MadeBy.ACCEPTED if path in stay else made_by) for path, _, trace, made_by in rows
            ]
        return self._items[dataset]

    def _stay(self, dataset: str, made_by: Iterable[tuple[str, int]]) -> set[str]:
        """The partitions that keep what earlier code has made of them."""
        earlier = [path for path, made in made_by if made != MadeBy.DEPLOYED]
        return self.earlier_code.among(dataset, earlier) if earlier else set()

    def _parameters(self, dataset: str, paths: Collection[str] | None) -> dict[str, object]:
        return {
            "environment": self.environment, "dataset": dataset, "paths": None if paths is None else list(paths),
            "code": self.graph.code_versions.get(dataset, ""), "here": time.time(),
        }  # fmt: skip

    def _look_up(self, dataset: str, paths: Collection[str] | None) -> Mapping[str, Fact]:
        parameters = self._parameters(dataset, paths)
        source = landing_source(self.graph.datasets[dataset]) if self.graph.datasets[dataset].arrives else ""
        rows = self.connection.execute(_CURRENT if paths is None else _CURRENT_OF, parameters).fetchall()
        stay = self._stay(dataset, ((row[0], row[-1]) for row in rows))
        facts = {
            path: Fact(
                batch, published, equal or (), trace, made_by=MadeBy.ACCEPTED if path in stay else made_by,
                equal_in=equal_in,
                # What an environment has of a landing dataset is what arrived.
                arrival=next((version for name, at, version in trace if (name, at) == (source, path)), ""),
            )
            for path, batch, published, trace, equal, equal_in, made_by in rows
        }  # fmt: skip
        if source:
            # A new generation takes what has arrived anew, where it was not rewritten.
            for path, fingerprint in self._arrivals(dataset, paths).items():
                if path not in facts:
                    facts[path] = Fact(arrival=fingerprint)
        for path, run in self.in_flight.get(dataset, {}).items():
            if paths is None or path in paths:
                facts[path] = facts.get(path, Fact())._replace(run=run)
        failed = self.connection.execute(_FAILURES, parameters).fetchall()
        for path, failures in failures_of(self.connection, dataset, failed).items():
            facts[path] = facts.get(path, Fact())._replace(failures=failures)
        return facts | dict(self._decided(facts, parameters))

    def _arrivals(self, dataset: str, paths: Collection[str] | None) -> Mapping[str, str]:
        """By partition, what has arrived for a new generation.

        Production keeps what its batches were made of, also where that is no file of this declaration.
        """
        rows = self.connection.execute(_ARRIVALS, self._parameters(dataset, paths)).fetchall()
        others = misnamed(self.graph.datasets[dataset], {path: uri for path, _, uri in rows})
        return {path: fingerprint for path, fingerprint, _ in rows if path not in others}

    def _built_anew(self, paths: set[str], parameters: Mapping[str, object]) -> set[str]:
        """Those of the partitions that the environment builds as another generation than has been taken back."""
        dataset = self.graph.datasets[str(parameters["dataset"])]
        generations = Generations(self.connection)
        entered = generations.of_environment(self.environment).get(dataset.name)
        if entered is None or not entered.is_new:
            return set()
        shape = generations.published([dataset.name])[dataset.name].shape
        if not has_same_partitions(shape, shape_of(dataset)):
            return paths
        return {path for (path,) in self.connection.execute(_BUILT_ANEW, parameters)}

    def _decided(self, facts: Mapping[str, Fact], parameters: Mapping[str, object]) -> Iterator[tuple[str, Fact]]:
        """The facts of partitions about which people have decided in production, with what they decided."""
        since: dict[str, float] = dict(self.connection.execute(_ON_HOLD, parameters).fetchall())
        accepted: dict[str, list[Accepted]] = {}
        for path, *acceptance in self.connection.execute(_ACCEPTED, parameters):
            accepted.setdefault(path, []).append(Accepted(*acceptance))
        decided = since.keys() | accepted.keys()
        if decided and not self.graph.datasets[str(parameters["dataset"])].arrives:
            # A file that a person took back would come with the new generation, where it is read again.
            decided -= self._built_anew(decided, parameters)
        for path in decided:
            fact = facts.get(path, Fact())
            if fact.made_by != MadeBy.OTHER:
                yield path, fact._replace(rolled_back=since.get(path, 0.0), accepted=tuple(accepted.get(path, ())))


def _without_arrival(trace: str, landing: str, path: str) -> str:
    """A trace without the file that its partition is of, which an environment never finds changed."""
    items = json.loads(trace)
    rest = [item for item in items if item[:2] != [landing, path]]
    if len(rest) != len(items) - 1:
        return "a batch of no file, or of several"
    return json.dumps(rest, ensure_ascii=False)


def codes_of(
    graph: Graph, first_seen: Mapping[str, float], going_forward: Collection[str] = ()
) -> dict[str, CodeState]:
    """The code of each dataset of a graph, as an environment has it that computes with this graph.

    `first_seen` is from `Deployments`, so that windows that production leaves alone are left alone here too.
    Of the datasets `going_forward` earlier windows keep what earlier code has made.
    """
    return {
        name: CodeState(
            version, version, OnCodeChange.FORWARD if name in going_forward else OnCodeChange.REBUILD,
            since=first_seen.get(name, 0.0),
        )
        for name, version in graph.code_versions.items()
    }  # fmt: skip
