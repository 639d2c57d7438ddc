"""The facts by which the planner judges partitions, and which of them have changed since it last looked.

Not here: judging (varve/planning) and marks (backfills.py).
"""

from __future__ import annotations

import datetime as dt
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, LiteralString, NamedTuple

from psycopg import sql

from varve.catalog.planning import statements
from varve.planning.judgement.code import MadeBy
from varve.planning.judgement.facts import Accepted, Fact, Failure, Mark, WantedInputs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import psycopg
    from psycopg.abc import Params

    from varve.planning.judgement.code import CodeState

# By dataset: its partitions in flight, and the run that builds each.
InFlight = dict[str, dict[str, str]]

# Changes are kept for a day. A planner that has not looked for half a day judges everything again.
_KEPT, TRUSTED = dt.timedelta(days=1), dt.timedelta(hours=12)
# A planner that lives deletes older ones so often.
_FORGETS = dt.timedelta(hours=1)
_FAILURES = 24


class _Source(NamedTuple):
    """A source of a dataset, and the table of the catalog that has its current versions.

    Attributes:
        name: its name in traces.
        dataset: its name in the table.
        paths: by partition, the partitions of the source that it reads; None: each reads the one with its own path.
        version: the column of the version.
    """

    name: str
    dataset: str
    paths: Mapping[str, Sequence[str]] | None
    table: str = "current"
    version: str = "batch_id"

    def identifiers(self) -> dict[str, sql.Composable]:
        """The names of its table and column, for statements."""
        return {"table": sql.Identifier(self.table), "version": sql.Identifier(self.version)}


@dataclass(frozen=True)
class CatalogFacts:
    """The facts in the catalog, over one connection in autocommit mode.

    Attributes:
        in_flight: the partitions that runs build, by the locks of living runs and by Dagster's queue.
        codes: the deployed code of each dataset, for `reconcile`.
    """

    connection: psycopg.Connection
    in_flight: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    codes: Mapping[str, CodeState] = field(default_factory=dict)

    def of(self, dataset: str, paths: Collection[str] | None) -> Mapping[str, Fact]:
        """See `planning.facts.Facts`."""
        if paths is not None and not paths:
            return {}
        wanted_paths = None if paths is None else list(paths)
        parameters = (dataset, wanted_paths, wanted_paths)
        running = self.in_flight.get(dataset, {})
        rare_facts = self._rare_facts(parameters)
        for path, run in running.items():
            if paths is None or path in paths:
                rare_facts[path]["run"] = run
        facts = {}
        execute = self.connection.execute
        rows = (
            execute(statements.CURRENT, (dataset,), binary=True)
            if wanted_paths is None
            else execute(statements.CURRENT_OF, (dataset, wanted_paths), binary=True)
        )
        for path, batch, published, trace, equal, equal_in, made_by in rows:
            if path in rare_facts:
                rare_facts[path] |= {
                    "batch": batch, "published": published, "trace": trace, "equal": equal or (), "made_by": made_by,
                    "equal_in": equal_in,
                }  # fmt: skip
            else:
                facts[path] = Fact(batch, published, equal or (), trace, made_by=made_by, equal_in=equal_in)
        return facts | {path: Fact(**fields) for path, fields in rare_facts.items()}  # type: ignore[arg-type]

    def existing_partitions(self, dataset: str) -> set[str]:
        """See `planning.facts.BulkFacts`."""
        return self._paths(statements.EXISTING, (dataset,))

    def unsettled(self, dataset: str, landing: str, reads: Sequence[WantedInputs]) -> set[str]:
        """See `planning.facts.BulkFacts`."""
        paths = set(self.in_flight.get(dataset, ()))
        paths |= self._paths(statements.NOTED, {"dataset": dataset})
        sources = [_Source(read.source, read.source, read.paths) for read in reads]
        if landing:
            sources.append(_Source(landing, dataset, None, "arrival", "fingerprint"))
        sources.sort(key=lambda source: source.name)
        if all(source.paths is None for source in sources):
            return paths | self._with_other_versions(dataset, sources)
        return paths | self._with_other_traces(dataset, sources)

    def _with_other_versions(self, dataset: str, sources: Sequence[_Source]) -> set[str]:
        """The partitions whose trace differs from the current versions of the sources, all read at the same path."""
        parameters: dict[str, object] = {"dataset": dataset}
        joins: list[sql.Composable] = []
        comparisons: list[sql.Composable] = []
        for place, source in enumerate(sources):
            names = {"edge": sql.Identifier(f"e{place}"), **source.identifiers(), "place": sql.Literal(place)}
            values = {"source": source.dataset, "name": source.name}
            parameters |= {f"{name}_{place}": value for name, value in values.items()}
            names |= {name: sql.Placeholder(f"{name}_{place}") for name in values}
            joins.append(sql.SQL(statements.AT_THE_SAME_PATH).format(**names))
            comparisons.append(sql.SQL(statements.SAME_VERSION).format(**names))
        statement = sql.SQL(statements.OTHER_VERSIONS).format(
            joins=sql.SQL("").join(joins), count=sql.Literal(len(sources)), comparisons=sql.SQL("").join(comparisons)
        )
        return self._paths(statement, parameters)

    def _with_other_traces(self, dataset: str, sources: Sequence[_Source]) -> set[str]:
        """The same for datasets that read partitions of other paths."""
        current_sources = [(source.paths, self._current_trace_items(source)) for source in sources]
        changed = set()
        for path, trace, made_by in self.connection.execute(statements.TRACES, (dataset,)).fetchall():
            current_inputs = [
                versions.get(upstream_path, "nothing")
                for paths, versions in current_sources
                for upstream_path in ((path,) if paths is None else sorted(paths.get(path, ())))
            ]
            if made_by == MadeBy.OTHER or trace != f"[{', '.join(current_inputs)}]":
                changed.add(path)
        return changed

    def _current_trace_items(self, source: _Source) -> dict[str, str]:
        """What a trace would say now of each partition of a source."""
        placeholders = {"name": sql.Placeholder("name"), "source": sql.Placeholder("source")}
        statement = sql.SQL(statements.READ_NOW).format(**source.identifiers(), **placeholders)
        return dict(self.connection.execute(statement, {"name": source.name, "source": source.dataset}).fetchall())

    def _paths(self, statement: sql.Composed | LiteralString, parameters: Params) -> set[str]:
        # All at once: while we fetch row by row, PostgreSQL waits for us.
        return {path for (path,) in self.connection.execute(statement, parameters).fetchall()}

    def _rare_facts(self, parameters: tuple[object, ...]) -> dict[str, dict[str, object]]:
        """The facts that do not come from batches, by partition; nearly always few partitions have any."""
        fields: dict[str, dict[str, object]] = defaultdict(dict)
        for path, fingerprint, at in self.connection.execute(statements.ARRIVALS, parameters):
            fields[path] |= {"arrival": fingerprint, "arrived": at}
        for path, since in self.connection.execute(statements.ON_HOLD, parameters):
            fields[path]["rolled_back"] = since
        accepted: dict[str, list[Accepted]] = defaultdict(list)
        for path, *acceptance in self.connection.execute(statements.ACCEPTED, parameters):
            accepted[path].append(Accepted(*acceptance))
        for path, acceptances in accepted.items():
            fields[path]["accepted"] = tuple(acceptances)
        marks: dict[str, list[Mark]] = defaultdict(list)
        for path, *mark in self.connection.execute(statements.MARKS, parameters):
            marks[path].append(Mark(*mark))
        failures: dict[str, list[Failure]] = defaultdict(list)
        for path, *failure in self.connection.execute(statements.FAILURES, (time.time(), *parameters, _FAILURES)):
            failures[path].append(Failure(*failure))
        for path, listed in marks.items():
            fields[path]["marks"] = tuple(listed)
        for path, failed in failures.items():
            fields[path]["failures"] = tuple(failed)
        return fields


def living(connection: psycopg.Connection, environment: str = "") -> InFlight:
    """The partitions that living builds hold, those of an environment or those of none."""
    in_flight: InFlight = defaultdict(dict)
    for dataset, path, run_id in connection.execute(statements.LIVING, (environment,)):
        in_flight[dataset][path] = run_id
    return in_flight


@dataclass
class Changes:
    """What has changed in the catalog between two looks. Remembers how far it has looked, and nothing else.

    Attributes:
        only_looks: whether old changes are left for others to delete.
    """

    only_looks: bool = False
    _horizon: str | None = None
    _catalog: str = ""
    _looked: dt.datetime | None = None
    _forgot: dt.datetime | None = None
    _in_flight: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def since_last(
        self, connection: psycopg.Connection, in_flight: Mapping[str, Mapping[str, str]]
    ) -> dict[str, set[str]] | None:
        """The partitions that have changed, by dataset; None where that is not known and all must be judged.

        Call it before the facts are looked up: a change in between is then seen twice, and not missed.
        """
        horizon, catalog, looked = self._horizon, self._catalog, self._looked
        before, now = self._in_flight, dt.datetime.now(dt.UTC)
        row = connection.execute(statements.HORIZON).fetchone()
        assert row is not None
        (self._horizon, self._catalog), self._looked, self._in_flight = row, now, in_flight
        # A catalog that was restored has other rows without a note of a change, and transactions of another server have
        # other numbers.
        if (
            horizon is None
            or catalog != self._catalog
            or looked is None
            or not dt.timedelta(0) <= now - looked < TRUSTED
        ):
            self._forget_old(connection, now)
            return None
        changed: dict[str, set[str]] = defaultdict(set)
        for dataset, path in connection.execute(statements.CHANGES, (horizon,)):
            changed[dataset].add(path)
        for dataset in {*before, *in_flight}:
            runs_before, runs_now = before.get(dataset, {}), in_flight.get(dataset, {})
            changed[dataset] |= {
                path for path in {*runs_before, *runs_now} if runs_before.get(path) != runs_now.get(path)
            }
        self._forget_old(connection, now)
        return {dataset: paths for dataset, paths in changed.items() if paths}

    def forget(self) -> None:
        """Forget the last look, which was not completed: the next one judges everything."""
        self._horizon = None

    def _forget_old(self, connection: psycopg.Connection, now: dt.datetime) -> None:
        """Delete old changes, once in an hour: every publish adds some."""
        if not self.only_looks and (self._forgot is None or not dt.timedelta(0) <= now - self._forgot < _FORGETS):
            connection.execute(statements.FORGET_CHANGES, (_KEPT,))
            self._forgot = now
