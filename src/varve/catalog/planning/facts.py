"""The facts the planner judges by, looked up in the catalog; and what has changed there since the last look.

Not here: judging (varve/planning) and marks (backfills.py).
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, LiteralString, NamedTuple

from psycopg import sql

from varve.catalog.planning import statements
from varve.planning.judgement.facts import Fact, Failure, Mark, WantedInputs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import psycopg
    from psycopg.abc import Params

# By dataset, partitions and the run that is on each.
InFlight = dict[str, dict[str, str]]

# Changes are kept for a day, and a planner that has not looked for half of one begins anew.
_KEPT, TRUSTED = dt.timedelta(days=1), dt.timedelta(hours=12)
_FAILURES = 24


class _Source(NamedTuple):
    """Something that partitions are made from, and where the catalog has what there is of it now.

    Attributes:
        name: what a trace calls it.
        paths: what each partition wants of it; None: the one of the same path.
    """

    name: str
    dataset: str
    paths: Mapping[str, Sequence[str]] | None
    table: str = "current"
    version: str = "batch_id"

    def identifiers(self) -> dict[str, sql.Composable]:
        """Its table and column, for statements."""
        return {"table": sql.Identifier(self.table), "version": sql.Identifier(self.version)}


@dataclass(frozen=True)
class CatalogFacts:
    """The facts in the catalog, over one connection in autocommit mode.

    Attributes:
        in_flight: what runs are on, by the locks of those that live and by Dagster's queue.
    """

    connection: psycopg.Connection
    in_flight: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def of(self, dataset: str, paths: Collection[str] | None) -> Mapping[str, Fact]:
        """See `planning.facts.Facts`."""
        if paths is not None and not paths:
            return {}
        given = None if paths is None else list(paths)
        parameters = (dataset, given, given)
        running = self.in_flight.get(dataset, {})
        others = self._others(parameters)
        for path, run in running.items():
            if paths is None or path in paths:
                others[path]["run"] = run
        found = {}
        execute = self.connection.execute
        rows = (
            execute(statements.CURRENT, (dataset,), binary=True)
            if given is None
            else execute(statements.CURRENT_OF, (dataset, given), binary=True)
        )
        for path, batch, published, trace, equal in rows:
            if path in others:
                others[path] |= {"batch": batch, "published": published, "trace": trace, "equal": equal or ()}
            else:
                found[path] = Fact(batch, published, equal or (), trace)
        return found | {path: Fact(**known) for path, known in others.items()}  # type: ignore[arg-type]

    def there(self, dataset: str) -> set[str]:
        """See `planning.facts.BulkFacts`."""
        return self._paths(statements.THERE, (dataset,))

    def unsettled(self, dataset: str, landing: str, reads: Sequence[WantedInputs]) -> set[str]:
        """See `planning.facts.BulkFacts`."""
        found = set(self.in_flight.get(dataset, ()))
        found |= self._paths(statements.NOTED, {"dataset": dataset})
        sources = [_Source(read.source, read.source, read.paths) for read in reads]
        if landing:
            sources.append(_Source(landing, dataset, None, "arrival", "fingerprint"))
        sources.sort(key=lambda source: source.name)
        if all(source.paths is None for source in sources):
            return found | self._made_otherwise(dataset, sources)
        return found | self._made_from_others(dataset, sources)

    def _made_otherwise(self, dataset: str, sources: Sequence[_Source]) -> set[str]:
        """The partitions whose trace is not one of what all sources have at the same path."""
        parameters: dict[str, object] = {"dataset": dataset}
        joins: list[sql.Composable] = []
        each_is_so: list[sql.Composable] = []
        for place, source in enumerate(sources):
            edge = {"edge": sql.Identifier(f"e{place}"), **source.identifiers(), "place": sql.Literal(place)}
            given = {"source": source.dataset, "name": source.name}
            parameters |= {f"{name}_{place}": value for name, value in given.items()}
            edge |= {name: sql.Placeholder(f"{name}_{place}") for name in given}
            joins.append(sql.SQL(statements.AT_THE_SAME_PATH).format(**edge))
            each_is_so.append(sql.SQL(statements.IS_SO).format(**edge))
        statement = sql.SQL(statements.OTHERWISE_MADE).format(
            joins=sql.SQL("").join(joins), count=sql.Literal(len(sources)), each_is_so=sql.SQL("").join(each_is_so)
        )
        return self._paths(statement, parameters)

    def _made_from_others(self, dataset: str, sources: Sequence[_Source]) -> set[str]:
        """The same where partitions of other paths are read."""
        now = [(source.paths, self._read_now(source)) for source in sources]
        found = set()
        for path, trace in self.connection.execute(statements.TRACES, (dataset,)).fetchall():
            said = [
                versions.get(up, "nothing")
                for paths, versions in now
                for up in ((path,) if paths is None else sorted(paths.get(path, ())))
            ]
            if trace != f"[{', '.join(said)}]":
                found.add(path)
        return found

    def _read_now(self, source: _Source) -> dict[str, str]:
        """What a trace says of each partition that a source has now."""
        given = {"name": sql.Placeholder("name"), "source": sql.Placeholder("source")}
        statement = sql.SQL(statements.READ_NOW).format(**source.identifiers(), **given)
        return dict(self.connection.execute(statement, {"name": source.name, "source": source.dataset}).fetchall())

    def _paths(self, statement: sql.Composed | LiteralString, parameters: Params) -> set[str]:
        # Row by row, PostgreSQL would wait for us.
        return {path for (path,) in self.connection.execute(statement, parameters).fetchall()}

    def _others(self, parameters: tuple[object, ...]) -> dict[str, dict[str, object]]:
        """What is known beside batches; nearly always of few partitions."""
        found: dict[str, dict[str, object]] = defaultdict(dict)
        for path, fingerprint, at in self.connection.execute(statements.ARRIVALS, parameters):
            found[path] |= {"arrival": fingerprint, "arrived": at}
        for path, since in self.connection.execute(statements.HELD, parameters):
            found[path]["rolled_back"] = since
        marks: dict[str, list[Mark]] = defaultdict(list)
        for path, *mark in self.connection.execute(statements.MARKS, parameters):
            marks[path].append(Mark(*mark))
        failures: dict[str, list[Failure]] = defaultdict(list)
        for path, *failure in self.connection.execute(statements.FAILURES, (*parameters, _FAILURES)):
            failures[path].append(Failure(*failure))
        for path, listed in marks.items():
            found[path]["marks"] = tuple(listed)
        for path, failed in failures.items():
            found[path]["failures"] = tuple(failed)
        return found


def living(connection: psycopg.Connection) -> InFlight:
    """What the builds that hold their locks are on."""
    found: InFlight = defaultdict(dict)
    for dataset, path, run_id in connection.execute(statements.LIVING):
        found[dataset][path] = run_id
    return found


@dataclass
class Changes:
    """What has changed in the catalog between two looks; remembers how far it has looked, and nothing else."""

    _horizon: str | None = None
    _looked: dt.datetime | None = None
    _in_flight: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def since_last(
        self, connection: psycopg.Connection, in_flight: Mapping[str, Mapping[str, str]]
    ) -> dict[str, set[str]] | None:
        """The partitions that have changed, by dataset; None where that is not known and everything is to be judged.

        Call it before facts are looked up: what changes later is seen twice rather than never.
        """
        horizon, looked = self._horizon, self._looked
        before, now = self._in_flight, dt.datetime.now(dt.UTC)
        row = connection.execute(statements.HORIZON).fetchone()
        assert row is not None
        self._horizon, self._looked, self._in_flight = row[0], now, in_flight
        if horizon is None or looked is None or not dt.timedelta(0) <= now - looked < TRUSTED:
            connection.execute(statements.FORGET_CHANGES, (_KEPT,))
            return None
        found: dict[str, set[str]] = defaultdict(set)
        for dataset, path in connection.execute(statements.CHANGES, (horizon,)):
            found[dataset].add(path)
        for dataset in {*before, *in_flight}:
            then, is_now = before.get(dataset, {}), in_flight.get(dataset, {})
            found[dataset] |= {path for path in {*then, *is_now} if then.get(path) != is_now.get(path)}
        return {dataset: paths for dataset, paths in found.items() if paths}

    def forget(self) -> None:
        """Know nothing: a look that was not carried through is no look."""
        self._horizon = None
