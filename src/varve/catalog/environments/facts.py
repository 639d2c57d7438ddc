"""The facts by which an environment's partitions are judged: its overlay over its base, and its own failures.

Marks, holds and arrivals of production are not the environment's: it judges only whether code and inputs differ.

Not here: the facts of production (varve/catalog/planning/facts.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from varve.planning.judgement.code import CodeState
from varve.planning.judgement.facts import Fact, Failure
from varve.planning.run_requests import landing_source

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import psycopg

    from varve.planning.graph import Graph

# Which code made a batch, as a number of `MadeBy`. Where the environment did not change the code of a dataset, whatever
# production decided about batches of earlier code counts here too.
_CURRENT = """
    select c.partition, c.batch_id, extract(epoch from coalesce(b.published_at, b.staged_at))::float8, b.inputs,
        case when b.content is null then null else (
            select array_agg(e.batch_id) from varve.batch e
            where e.dataset = b.dataset and e.partition = b.partition and e.content = b.content
              and e.batch_id <> b.batch_id) end,
        case when b.code_version in ('', %(code)s) then 0
            when exists (select from varve.environment_code x where x.environment = %(environment)s
                and x.dataset = %(dataset)s and x.base_code = %(code)s) then 2
            else 1 end
    from varve.environment_current c join varve.batch b using (dataset, partition, batch_id)
    where c.environment = %(environment)s and c.dataset = %(dataset)s
"""
_CURRENT_OF = _CURRENT + " and c.partition = any(%(paths)s)"
_ARRIVALS = """
    select a.partition, a.fingerprint from varve.arrival a
    join varve.environment_generation g on (g.environment, g.dataset) = (%(environment)s, a.dataset)
    join varve.dataset d on d.dataset = a.dataset and d.generation <> g.generation
    where a.dataset = %(dataset)s and (%(paths)s::text[] is null or a.partition = any(%(paths)s))
"""
_FAILURES = """
    select f.partition, extract(epoch from f.started_at)::float8,
        extract(epoch from coalesce(f.failed_at, f.started_at))::float8,
        (select count(*) from varve.batch x
         where x.dataset = f.dataset and x.batch_id = f.batch_id and x.state = 'failed')
    from varve.batch f
    left join varve.overlay o on (o.environment, o.dataset, o.partition) = (f.environment, f.dataset, f.partition)
    where f.dataset = %(dataset)s and f.state = 'failed' and f.environment = %(environment)s
      and f.batch_id > coalesce(o.batch_id, 0) and (%(paths)s::text[] is null or f.partition = any(%(paths)s))
    order by f.partition, f.batch_id
"""


@dataclass(frozen=True)
class EnvironmentFacts:
    """The facts of an environment that computes with the code of a graph, over one connection in autocommit mode.

    They are for one plan: facts of all partitions of a dataset, which each of its readers asks for, are read once.

    Attributes:
        in_flight: by dataset, the partitions that runs build in the environment.
    """

    connection: psycopg.Connection
    environment: str
    graph: Graph
    in_flight: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    _read: dict[str, Mapping[str, Fact]] = field(default_factory=dict)

    def of(self, dataset: str, paths: Collection[str] | None) -> Mapping[str, Fact]:
        """See `planning.facts.Facts`."""
        if dataset not in self._read and paths is None:
            self._read[dataset] = self._look_up(dataset, None)
        if (facts := self._read.get(dataset)) is None:
            return self._look_up(dataset, paths)
        return facts if paths is None else {path: facts[path] for path in paths if path in facts}

    def _look_up(self, dataset: str, paths: Collection[str] | None) -> Mapping[str, Fact]:
        parameters: dict[str, object] = {
            "environment": self.environment, "dataset": dataset, "paths": None if paths is None else list(paths),
            "code": self.graph.code_versions.get(dataset, ""),
        }  # fmt: skip
        source = landing_source(self.graph.datasets[dataset]) if self.graph.datasets[dataset].arrives else ""
        rows = self.connection.execute(_CURRENT if paths is None else _CURRENT_OF, parameters).fetchall()
        facts = {
            path: Fact(
                batch, published, equal or (), trace, made_by=made_by,
                # What an environment has of a landing dataset is what arrived.
                arrival=next((version for name, at, version in trace if (name, at) == (source, path)), ""),
            )
            for path, batch, published, trace, equal, made_by in rows
        }  # fmt: skip
        if source:
            # A new generation takes what has arrived anew, where it was not rewritten.
            for path, fingerprint in self.connection.execute(_ARRIVALS, parameters).fetchall():
                if path not in facts:
                    facts[path] = Fact(arrival=fingerprint)
        for path, run in self.in_flight.get(dataset, {}).items():
            if paths is None or path in paths:
                facts[path] = facts.get(path, Fact())._replace(run=run)
        failures: dict[str, list[Failure]] = {}
        for path, *failure in self.connection.execute(_FAILURES, parameters):
            failures.setdefault(path, []).append(Failure(*failure))
        for path, failed in failures.items():
            facts[path] = facts.get(path, Fact())._replace(failures=tuple(failed))
        return facts


def codes_of(graph: Graph) -> dict[str, CodeState]:
    """The code of each dataset of a graph, as an environment has it that computes with this graph."""
    return {name: CodeState(version, version) for name, version in graph.code_versions.items()}
